"""The client's HTTP/2 connection as a layer: each stream is one exchange with one verdict."""

from typing import Any, ClassVar

import h2.events
from h2.errors import ErrorCodes
from mitmproxy.proxy.events import ConnectionClosed, DataReceived, Start
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import (
    RequestData,
    RequestEndOfMessage,
    RequestTrailers,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseTrailers,
)

from egress.engine.mitm.http2 import Http2Side, Live
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
    Site,
    Stop,
)
from egress.http.fieldlist import lex_fields, read_trailers, refusal_list, response_list, trailer_list
from egress.model.body import FramingKind
from egress.model.message import Malformed

SPARE_RESETS = 200
"""Streams that a client may reset beyond those it lets finish; more is the rapid-reset attack (CVE-2023-44487)."""


class Http2Server(Http2Side):
    def __init__(self, context: LaneContext, site: Site) -> None:
        super().__init__(context, site.client, client_side=False)
        self._site = site
        self._stopping = False
        self._resets = 0
        self._finished = 0
        self.deadline: float | None = None

    def _start(self, _event: Start) -> Commands:
        self.h2.open()
        self._rest()
        return ()

    def handle_event(self, event: Any) -> Commands:
        yield from super().handle_event(event)
        if not self.live and not self.dead:
            if self._stopping:
                yield from self._end(Ending.CLOSE)
            elif self.deadline is None:
                self._rest()

    def _rest(self) -> None:
        seconds = self._site.tunnel.timeouts.keepalive
        if seconds is not None:
            self.deadline = self._site.now() + seconds
            self._site.arm(self.deadline)

    # requests --------------------------------------------------------------------------------------------------

    def _request(self, event: h2.events.RequestReceived) -> Commands:
        stream_id = event.stream_id
        if self._stopping:
            self.reset_stream(stream_id, ErrorCodes.REFUSED_STREAM)
            return
        self.deadline = None
        live = self.live[stream_id] = Live(stream_id)
        live.remote_ended = event.stream_ended is not None
        lines = [(bytes(name), bytes(value)) for name, value in event.headers]
        arrived = RequestArrived(stream_id, lex_fields(lines, self._site.tunnel.origin, ended=live.remote_ended))
        yield ReceiveHttp(arrived)
        if arrived.head is not None and arrived.head.framing.kind is FramingKind.LENGTH:
            live.expected = arrived.head.framing.length

    def _data(self, event: h2.events.DataReceived) -> Commands:
        return self.data(event, RequestData)

    def _trailers(self, event: h2.events.TrailersReceived) -> Commands:
        if event.stream_id not in self.live:
            return
        trailers = read_trailers([(bytes(name), bytes(value)) for name, value in event.headers])
        if isinstance(trailers, Malformed):
            yield ReceiveHttp(RequestBroken(event.stream_id, trailers))
        elif trailers:
            yield ReceiveHttp(RequestTrailers(event.stream_id, trailers))  # type: ignore[arg-type]

    def _ended(self, event: h2.events.StreamEnded) -> Commands:
        live = self.live.get(event.stream_id)
        if live is None:
            return
        live.remote_ended = True
        if live.expected:
            yield from self.misstated(event.stream_id, "the body is shorter than its Content-Length")
        else:
            yield ReceiveHttp(RequestEndOfMessage(event.stream_id))

    def misstated(self, stream_id: int, reason: str) -> Commands:
        yield ReceiveHttp(RequestBroken(stream_id, Malformed(reason)))

    def _reset_by_client(self, event: h2.events.StreamReset) -> Commands:
        self._resets += 1
        if self._resets > SPARE_RESETS + self._finished:
            self.h2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            yield from self.flush()
            yield from self.broken()
        elif self.forget(event.stream_id) is not None:
            yield ReceiveHttp(ClientLost(event.stream_id))

    def _client_stops(self, _event: h2.events.ConnectionTerminated) -> Commands:
        self._stopping = True
        return ()

    def _closed(self, _event: ConnectionClosed) -> Commands:
        """No half-close in HTTP/2: a client that ended its direction is gone."""
        yield from self.broken()

    def broken(self) -> Commands:
        streams, self.live = list(self.live), {}
        for stream_id in streams:
            yield ReceiveHttp(ClientLost(stream_id))
        yield from self._end(Ending.CLOSE)

    def _end(self, how: Ending, limit: str | None = None) -> Commands:
        self.dead = True
        yield EndClient(how, limit=limit)

    # the connection itself -------------------------------------------------------------------------------------

    def _stop(self, _event: Stop) -> Commands:
        if not self._stopping:
            self._stopping = True
            self.h2.announce_end()
        return ()

    def _idle(self, _event: Idle) -> Commands:
        self.deadline = None
        if not self.live:
            self.h2.announce_end()
            yield from self.flush()
            yield from self._end(Ending.CLOSE, limit="timeouts.keepalive")

    def _settings(self, _event: h2.events.RemoteSettingsChanged) -> Commands:
        return self.push_all(list(self.live.items()))

    def _nothing(self, _event: Any) -> Commands:
        return ()

    # responses -------------------------------------------------------------------------------------------------

    def _interim(self, event: Interim) -> Commands:
        if event.stream_id in self.live:
            fields = [(b":status", b"100")] if event.head is None else response_list(event.head)
            self.send_head(event.stream_id, fields)
        return ()

    def _response(self, event: ResponseHeaders) -> Commands:
        response: Any = event.response
        live = self.live.get(event.stream_id)
        if live is not None:
            # A reply of trailers alone, as gRPC has it, must end with its head.
            self.send_head(event.stream_id, response_list(response), ended=event.end_stream)
            if event.end_stream:
                self.sent_all(event.stream_id, live)
        return ()

    def _response_trailers(self, event: ResponseTrailers) -> Commands:
        live = self.live.get(event.stream_id)
        if live is not None:
            live.trailers = trailer_list(event.trailers)
        return ()

    def _response_end(self, event: ResponseEndOfMessage) -> Commands:
        if event.stream_id in self.live:
            self.send_end(event.stream_id)
        return ()

    def sent_all(self, stream_id: int, live: Live) -> None:
        self.forget(stream_id)
        self._finished += 1
        if not live.remote_ended:
            # RFC 9113 section 8.1: the rest of the request is not wanted, and that is no error.
            self.reset_stream(stream_id, ErrorCodes.NO_ERROR)

    def _refusal(self, event: Refusal) -> Commands:
        live = self.live.get(event.stream_id)
        if live is not None:
            reply = event.reply
            self.send_head(event.stream_id, refusal_list(reply.status, reply.fields, len(reply.body)))
            live.chunks.append(memoryview(reply.body))
            live.size += len(reply.body)
            self.send_end(event.stream_id)
        return ()

    def _reset(self, event: Reset) -> Commands:
        if event.stream_id in self.live:
            self.reset_stream(event.stream_id, event.code)
        return ()

    EVENTS: ClassVar[Any] = {
        Start: _start,
        DataReceived: Http2Side.received,
        ConnectionClosed: _closed,
        Gone: _closed,
        Idle: _idle,
        Stop: _stop,
        Drained: _nothing,
        Consumed: Http2Side.consumed,
        Interim: _interim,
        ResponseHeaders: _response,
        ResponseData: Http2Side.send_data,
        ResponseTrailers: _response_trailers,
        ResponseEndOfMessage: _response_end,
        Refusal: _refusal,
        Reset: _reset,
    }
    H2_EVENTS: ClassVar[Any] = {
        h2.events.RequestReceived: _request,
        h2.events.DataReceived: _data,
        h2.events.TrailersReceived: _trailers,
        h2.events.StreamEnded: _ended,
        h2.events.StreamReset: _reset_by_client,
        h2.events.ConnectionTerminated: _client_stops,
        h2.events.WindowUpdated: Http2Side.window_updated,
        h2.events.RemoteSettingsChanged: _settings,
    }
