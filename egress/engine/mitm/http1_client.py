"""A connection to the origin that speaks HTTP/1, as a layer; it carries one exchange and is given back."""

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

from egress.engine.carried import proxy_lines
from egress.engine.mitm.bodies import BodyDecoder, BodyEncoder
from egress.engine.mitm.messages import (
    Commands,
    Consumed,
    Drained,
    DropOrigin,
    Interim,
    LaneContext,
    OriginLost,
    ReleaseOrigin,
    Reset,
    Resume,
    SendRequest,
    Wire,
)
from egress.engine.stream import End
from egress.http.head import interpret_response
from egress.http.lexer import NeedMore, find_head, lex_response
from egress.http.serialize import request_bytes
from egress.model.body import NO_BODY, FramingKind
from egress.model.limits import LIMITS
from egress.model.message import FieldLine, Malformed, ResponseHead


class State(Enum):
    IDLE = "idle"
    HEAD = "head"
    BODY = "body"
    DONE = "done"


class Http1Client(HttpConnection):
    """Use once; the next exchange on the same connection gets a layer of its own."""

    def __init__(self, context: LaneContext, wire: Wire) -> None:
        super().__init__(context, wire)  # type: ignore[arg-type]
        context.layers.pop()
        self._wire = wire
        self._state = State.IDLE
        self._stream_id = 0
        self._method = ""
        self._buffer = b""
        self._seen = 0
        self._held = 0
        self._interims = 0
        self._request_ended = False
        self._encoder = BodyEncoder(NO_BODY)
        self._decoder = BodyDecoder(NO_BODY)
        self._trailers: tuple[FieldLine, ...] = ()
        self._reusable = False

    @property
    def paused(self) -> bool:
        return self._held >= LIMITS.stream_buffer

    def queued(self, _stream_id: int) -> int:
        return 0

    def handle_event(self, event: Any) -> Commands:
        return self._EVENTS[type(event)](self, event)

    def _handle_event(self, event: Any) -> Commands:
        return self.handle_event(event)

    def _nothing(self, _event: Any) -> Commands:
        return ()

    # the request -----------------------------------------------------------------------------------------------

    def _request(self, event: SendRequest) -> Commands:
        self._stream_id = event.stream_id
        self._method = event.head.method
        self._seen = self._wire.stream.received
        self._encoder = BodyEncoder(event.head.framing)
        self._state = State.HEAD
        expect = b"100-continue" if event.expect else None
        yield SendData(self.conn, request_bytes(event.head, expect=expect, proxy=proxy_lines(self._wire.stream)))

    def _request_data(self, event: RequestData) -> Commands:
        yield SendData(self.conn, self._encoder.encode(event.data))

    def _request_trailers(self, event: RequestTrailers) -> Commands:
        self._trailers = event.trailers  # type: ignore[assignment]
        return ()

    def _request_end(self, _event: RequestEndOfMessage) -> Commands:
        self._request_ended = True
        end = self._encoder.end(self._trailers)
        if end:
            yield SendData(self.conn, end)

    def _reset(self, _event: Reset) -> Commands:
        self._state = State.DONE
        yield DropOrigin(self._wire, abort=True)

    # the response ----------------------------------------------------------------------------------------------

    def _received(self, event: DataReceived) -> Commands:
        self._buffer = self._buffer + event.data if self._buffer else event.data
        if self._state is State.IDLE:
            yield DropOrigin(self._wire, abort=True)
            return
        while self._state is State.HEAD and self._buffer:
            found = find_head(self._buffer, LIMITS.tunnel_head_bytes)
            if isinstance(found, NeedMore):
                return
            yield from self._read_head(found)
        if self._state is State.BODY and self._buffer:
            yield from self._read_body()

    def _read_head(self, found: int | Malformed) -> Commands:
        wire = found
        if isinstance(found, int):
            raw, self._buffer = self._buffer[:found], self._buffer[found:]
            lexed = lex_response(raw)
            wire = lexed if isinstance(lexed, Malformed) else interpret_response(lexed, self._method)  # type: ignore[assignment]
        response: Any = wire
        if isinstance(response, Malformed):
            yield from self._broken(response.reason)
        elif response.status < 200 and response.status != 101:
            self._interims += 1
            yield ReceiveHttp(Interim(self._stream_id, response))
            if self._interims >= LIMITS.interim_responses and self._state is State.HEAD:
                yield from self._broken("the origin sent too many interim replies")
        else:
            yield from self._begin_body(response)

    def _begin_body(self, response: ResponseHead) -> Commands:
        if response.status == 101:
            self._state = State.DONE
            yield ReceiveHttp(ResponseHeaders(self._stream_id, response))  # type: ignore[arg-type]
            return
        self._decoder = BodyDecoder(response.framing)
        self._reusable = response.keep_alive and response.framing.kind is not FramingKind.UNTIL_CLOSE
        self._state = State.BODY
        yield ReceiveHttp(ResponseHeaders(self._stream_id, response, self._decoder.complete))  # type: ignore[arg-type]
        if self._decoder.complete and self._state is State.BODY:
            yield from self._complete()

    def _read_body(self) -> Commands:
        data, self._buffer = self._buffer, b""
        payload = self._decoder.feed(data)
        if isinstance(payload, Malformed):
            yield from self._broken(payload.reason)
            return
        if payload:
            self._held += len(payload)
            yield ReceiveHttp(ResponseData(self._stream_id, payload))
        if self._decoder.complete and self._state is State.BODY:
            self._buffer = self._decoder.rest
            yield from self._complete()

    def _complete(self) -> Commands:
        self._state = State.DONE
        if self._reusable and self._request_ended and not self._buffer:
            yield ReleaseOrigin(self._wire)
        else:
            yield DropOrigin(self._wire, abort=False)
        if self._decoder.trailers:
            yield ReceiveHttp(ResponseTrailers(self._stream_id, self._decoder.trailers))  # type: ignore[arg-type]
        yield ReceiveHttp(ResponseEndOfMessage(self._stream_id))

    def _closed(self, _event: ConnectionClosed) -> Commands:
        stream = self._wire.stream
        until_close = self._decoder.framing.kind is FramingKind.UNTIL_CLOSE
        if self._state is State.BODY and until_close and stream.end is End.CLEAN and stream.error is None:
            yield from self._complete()
        elif self._state is State.HEAD and stream.received == self._seen:
            yield from self._broken("the origin closed the connection without a reply", silent=True)
        elif self._state in (State.HEAD, State.BODY):
            yield from self._broken("the origin broke off its reply")
        else:
            yield DropOrigin(self._wire, abort=True)

    def _broken(self, reason: str, *, silent: bool = False) -> Commands:
        self._state = State.DONE
        yield DropOrigin(self._wire, abort=True)
        yield ReceiveHttp(OriginLost(self._stream_id, reason, silent=silent))

    def _consumed(self, event: Consumed) -> Commands:
        full = self.paused
        self._held -= event.size
        if full and not self.paused:
            yield Resume(self._wire)

    @property
    def rest(self) -> bytes:
        """What came behind a 101."""
        return self._buffer

    _EVENTS: ClassVar[Any] = {
        Start: _nothing,
        Drained: _nothing,
        DataReceived: _received,
        ConnectionClosed: _closed,
        Consumed: _consumed,
        SendRequest: _request,
        RequestData: _request_data,
        RequestTrailers: _request_trailers,
        RequestEndOfMessage: _request_end,
        Reset: _reset,
    }
