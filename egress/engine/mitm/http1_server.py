"""The client's HTTP/1 connection as a layer: our lexer and framing in, judged values out, one request at a time."""

from enum import Enum
from typing import Any, ClassVar

from mitmproxy.proxy.commands import SendData
from mitmproxy.proxy.events import ConnectionClosed, DataReceived, Start
from mitmproxy.proxy.layers.http._base import HttpConnection, ReceiveHttp
from mitmproxy.proxy.layers.http._events import (
    RequestData,
    RequestEndOfMessage,
    RequestTrailers,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseTrailers,
)

from egress.engine.mitm.bodies import BodyDecoder, BodyEncoder
from egress.engine.mitm.messages import (
    ClientLost,
    Commands,
    Consumed,
    Drained,
    EndClient,
    Ending,
    Gone,
    Idle,
    Interim,
    LaneContext,
    Refusal,
    RequestArrived,
    RequestBroken,
    Reset,
    Resume,
    Site,
    Stop,
)
from egress.http.lexer import NeedMore, find_head, lex_request
from egress.http.serialize import CONTINUE, close_line, interim_bytes, response_bytes
from egress.model.body import CHUNKED, NO_BODY, UNTIL_CLOSE, Framing, FramingKind
from egress.model.limits import LIMITS
from egress.model.message import FieldLine, Malformed, RequestHead, WireHead
from egress.model.verdict import DenialCode


class State(Enum):
    """`WAIT`: the request is complete, its response is not."""

    HEAD = "head"
    BODY = "body"
    WAIT = "wait"
    DONE = "done"


class Http1Server(HttpConnection):
    """`first` is a head that was interpreted already; then this one exchange is all that happens here."""

    def __init__(self, context: LaneContext, site: Site, first: RequestHead | None) -> None:
        super().__init__(context, context.client)
        self._site = site
        self._first = first
        self._single = first is not None
        self._buffer = b""
        self._state = State.HEAD
        self._stream_id = 1
        self._held = 0
        self._head: RequestHead | None = None
        self._decoder = BodyDecoder(NO_BODY)
        self._encoder = BodyEncoder(NO_BODY)
        self._trailers: tuple[FieldLine, ...] = ()
        self._keep = False
        self.deadline: float | None = None

    @property
    def paused(self) -> bool:
        """True when what the client sends is to stay in its socket for now."""
        return (
            self._state in (State.WAIT, State.DONE)
            or self._held >= LIMITS.stream_buffer
            or self._site.client.stream.congested
        )

    @property
    def rest(self) -> bytes:
        """What the client sent beyond the last request."""
        return self._buffer

    def queued(self, _stream_id: int) -> int:
        return 0

    def handle_event(self, event: Any) -> Commands:
        return self._EVENTS[type(event)](self, event)

    def _handle_event(self, event: Any) -> Commands:
        return self.handle_event(event)

    # the request -----------------------------------------------------------------------------------------------

    def _start(self, _event: Start) -> Commands:
        if self._first is not None:
            head, self._first = self._first, None
            yield from self._begin(head)
        else:
            self._wait_for_head()

    def _received(self, event: DataReceived) -> Commands:
        self._buffer = self._buffer + event.data if self._buffer else event.data
        yield from self._advance()

    def _advance(self) -> Commands:
        while self._buffer:
            if self._state is State.HEAD:
                if self._site.client.stream.congested:
                    return  # a client that asks and never reads would otherwise fill memory with replies
                found = find_head(self._buffer, LIMITS.tunnel_head_bytes)
                if isinstance(found, NeedMore):
                    self._wait_for_head()
                    return
                yield from self._begin(found if isinstance(found, Malformed) else lex_request(self._take(found)))
            elif self._state is State.BODY:
                yield from self._read_body()
            else:
                return

    def _take(self, size: int) -> bytes:
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def _begin(self, wire: WireHead | Malformed | RequestHead) -> Commands:
        self.deadline = None
        self._state = State.WAIT
        arrived = RequestArrived(self._stream_id, wire)
        yield ReceiveHttp(arrived)
        self._head = arrived.head
        if arrived.head is None:
            return
        self._decoder = BodyDecoder(arrived.head.framing)
        if self._decoder.complete:
            yield ReceiveHttp(RequestEndOfMessage(self._stream_id))
        else:
            self._state = State.BODY

    def _read_body(self) -> Commands:
        payload = self._decoder.feed(self._take(len(self._buffer)))
        if isinstance(payload, Malformed):
            yield ReceiveHttp(RequestBroken(self._stream_id, payload))
            return
        self._buffer = self._decoder.rest
        complete = self._decoder.complete
        if complete:
            self._state = State.WAIT
        if payload:
            self._held += len(payload)
            yield ReceiveHttp(RequestData(self._stream_id, payload))
        if complete and self._state is State.WAIT:
            if self._decoder.trailers:
                yield ReceiveHttp(RequestTrailers(self._stream_id, self._decoder.trailers))  # type: ignore[arg-type]
            yield ReceiveHttp(RequestEndOfMessage(self._stream_id))

    def _consumed(self, event: Consumed) -> Commands:
        full = self.paused
        self._held -= event.size
        if full and not self.paused:
            yield Resume(self.conn)  # type: ignore[arg-type]

    def _closed(self, _event: ConnectionClosed) -> Commands:
        """The client sends no more; while it waits for a response it may still read it."""
        if self._state is State.HEAD:
            if self._buffer:
                yield from self._begin(Malformed("the head ended early"))
            else:
                yield self._end(Ending.CLOSE)
        elif self._state is State.BODY:
            yield from self._gone(None)

    def _gone(self, _event: Gone | None) -> Commands:
        if self._state is State.HEAD:
            yield self._end(Ending.CLOSE)
        elif self._state is not State.DONE:
            yield ReceiveHttp(ClientLost(self._stream_id))
            yield self._end(Ending.CUT)

    # deadlines -------------------------------------------------------------------------------------------------

    def _wait_for_head(self) -> None:
        """A head that has begun has less time than one that has not; its clock starts with its first byte."""
        timeouts = self._site.tunnel.timeouts
        seconds = timeouts.head if self._buffer else timeouts.keepalive
        if seconds is None:
            self.deadline = None
            return
        deadline = self._site.now() + seconds
        if not self._buffer or self.deadline is None or deadline < self.deadline:
            self.deadline = deadline
            self._site.arm(deadline)

    def _idle(self, _event: Idle) -> Commands:
        self.deadline = None
        if self._buffer:
            yield from self._begin(Malformed("the head took too long", DenialCode.REQUEST_TIMEOUT))
        else:
            yield self._end(Ending.CLOSE, limit="timeouts.keepalive")

    def _stop(self, _event: Stop) -> Commands:
        if self._state is State.HEAD and not self._buffer:
            yield self._end(Ending.CLOSE)

    # the response ----------------------------------------------------------------------------------------------

    def _interim(self, event: Interim) -> Commands:
        if self._head is not None and not self._head.http10:
            yield SendData(self.conn, CONTINUE if event.head is None else interim_bytes(event.head))

    def _response(self, event: ResponseHeaders) -> Commands:
        response: Any = event.response
        head = self._head
        assert head is not None
        if response.status == 101:
            assert head.upgrade is not None
            self._state = State.DONE
            line = b"Connection: Upgrade\r\nUpgrade: %b\r\n" % head.upgrade.encode("ascii")
            yield SendData(self.conn, response_bytes(response, UNTIL_CLOSE, extra=line))
            return
        framing = _client_framing(response.framing, head)
        self._keep = head.keep_alive and not head.http10 and self._state is State.WAIT
        self._encoder = BodyEncoder(framing)
        yield SendData(self.conn, response_bytes(response, framing, extra=b"" if self._keep else close_line()))

    def _data(self, event: ResponseData) -> Commands:
        yield SendData(self.conn, self._encoder.encode(event.data))

    def _response_trailers(self, event: ResponseTrailers) -> Commands:
        self._trailers = event.trailers  # type: ignore[assignment]
        return ()

    def _response_end(self, _event: ResponseEndOfMessage) -> Commands:
        end = self._encoder.end(self._trailers)
        if end:
            yield SendData(self.conn, end)
        self._trailers = ()
        if self._state is State.BODY:
            yield self._end(Ending.LINGER)
        elif not self._keep or self._site.tunnel.drain.begun:
            yield self._end(Ending.CLOSE)
        elif self._single:
            yield self._end(Ending.KEEP)
        else:
            self._stream_id += 2
            self._held = 0
            self._head = None
            self._state = State.HEAD
            self._wait_for_head()
            yield from self._advance()
            yield Resume(self.conn)  # type: ignore[arg-type]

    def _refusal(self, event: Refusal) -> Commands:
        yield self._end(Ending.LINGER, event.reply.http1())

    def _reset(self, _event: Reset) -> Commands:
        # A plain FIN would look to HTTP/1.0 like the end of a body that runs until close.
        http10 = self._head is not None and self._head.http10
        yield self._end(Ending.RESET if http10 else Ending.CUT)

    def _end(self, how: Ending, payload: bytes = b"", limit: str | None = None) -> EndClient:
        self._state = State.DONE
        return EndClient(how, payload, self._buffer, limit)

    def _drained(self, _event: Drained) -> Commands:
        return self._advance()

    _EVENTS: ClassVar[Any] = {
        Start: _start,
        DataReceived: _received,
        ConnectionClosed: _closed,
        Gone: _gone,
        Idle: _idle,
        Stop: _stop,
        Drained: _drained,
        Consumed: _consumed,
        Interim: _interim,
        ResponseHeaders: _response,
        ResponseData: _data,
        ResponseTrailers: _response_trailers,
        ResponseEndOfMessage: _response_end,
        Refusal: _refusal,
        Reset: _reset,
    }


def _client_framing(framing: Framing, head: RequestHead) -> Framing:
    """A body that runs until close is chunked for a client that can read it, so that a cut shows."""
    if framing.kind in (FramingKind.CHUNKED, FramingKind.UNTIL_CLOSE):
        return UNTIL_CLOSE if head.http10 else CHUNKED
    return framing
