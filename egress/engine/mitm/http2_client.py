"""A connection to the origin that speaks HTTP/2, as a layer: many exchanges at once, each ending on its own."""

from typing import Any, ClassVar

import h2.events
import h2.exceptions
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

from egress.engine.mitm.http2 import MAX_STREAMS, Http2Side, Live
from egress.engine.mitm.messages import (
    Commands,
    Consumed,
    Drained,
    DropOrigin,
    Interim,
    LaneContext,
    OriginLost,
    OriginSettled,
    Reset,
    SendRequest,
    Wire,
)
from egress.http.fieldlist import read_response, read_trailers, request_list, trailer_list
from egress.model.body import FramingKind
from egress.model.limits import LIMITS
from egress.model.message import Malformed

EARLY_STREAMS = 10
"""Streams opened before the origin has said how many it takes."""


class Http2Client(Http2Side):
    def __init__(self, context: LaneContext, wire: Wire) -> None:
        super().__init__(context, wire, client_side=True)
        self.settled = False
        self.stopping = False
        self.promised = 0
        """Streams that were told to come here and have not yet."""
        self._ids: dict[int, int] = {}
        self._interims: dict[int, int] = {}

    @property
    def room(self) -> int:
        """Streams that can be opened now."""
        allowed: int
        if self.stopping or self.dead:
            return 0
        allowed = self.h2.remote_settings.max_concurrent_streams if self.settled else EARLY_STREAMS
        return max(0, min(allowed, MAX_STREAMS) - len(self.live) - self.promised)

    def id_of(self, hub: int) -> int | None:
        return self._ids.get(hub)

    def _start(self, _event: Start) -> Commands:
        self.h2.open()
        return ()

    # requests --------------------------------------------------------------------------------------------------

    def _request(self, event: SendRequest) -> Commands:
        stream_id = self.h2.get_next_available_stream_id()
        live = Live(event.stream_id)
        live.method = event.head.method
        live.local_ended = event.head.framing.empty
        try:
            fields = request_list(event.head, expect=event.expect)
            self.h2.send_headers(stream_id, fields, end_stream=live.local_ended)
        except h2.exceptions.ProtocolError:
            yield ReceiveHttp(OriginLost(event.stream_id, "the origin takes no more streams", unprocessed=True))
            return
        self.live[stream_id] = live
        self._ids[event.stream_id] = stream_id

    def _request_trailers(self, event: RequestTrailers) -> Commands:
        stream_id = self._ids.get(event.stream_id)
        if stream_id is not None:
            self.live[stream_id].trailers = trailer_list(event.trailers)
        return ()

    def _request_end(self, event: RequestEndOfMessage) -> Commands:
        stream_id = self._ids.get(event.stream_id)
        if stream_id is not None and not self.live[stream_id].local_ended:
            self.send_end(stream_id)
        return ()

    def sent_all(self, stream_id: int, live: Live) -> None:
        """The request is out; its response has its own end."""

    def _reset(self, event: Reset) -> Commands:
        stream_id = self._ids.get(event.stream_id)
        if stream_id is not None:
            self.reset_stream(stream_id, event.code)
            yield from self._freed(event.stream_id)

    # responses -------------------------------------------------------------------------------------------------

    def _response(self, event: h2.events.ResponseReceived) -> Commands:
        live = self.live.get(event.stream_id)
        if live is None:
            return
        lines = [(bytes(name), bytes(value)) for name, value in event.headers]
        ended = event.stream_ended is not None
        response = read_response(lines, live.method, ended=ended)
        if isinstance(response, Malformed):
            yield from self.misstated(event.stream_id, response.reason)
            return
        if response.framing.kind is FramingKind.LENGTH:
            live.expected = response.framing.length
        elif response.framing.kind is FramingKind.NONE:
            live.expected = 0
        yield ReceiveHttp(ResponseHeaders(live.hub, response, ended))  # type: ignore[arg-type]

    def _interim(self, event: h2.events.InformationalResponseReceived) -> Commands:
        live = self.live.get(event.stream_id)
        if live is None:
            return
        count = self._interims[live.hub] = self._interims.get(live.hub, 0) + 1
        response = read_response([(bytes(name), bytes(value)) for name, value in event.headers], "GET", ended=False)
        if isinstance(response, Malformed) or response.status == 101 or count >= LIMITS.interim_responses:
            yield from self.misstated(event.stream_id, "an interim reply of the origin is malformed")
        else:
            yield ReceiveHttp(Interim(live.hub, response))

    def _data(self, event: h2.events.DataReceived) -> Commands:
        return self.data(event, ResponseData)

    def _trailers(self, event: h2.events.TrailersReceived) -> Commands:
        live = self.live.get(event.stream_id)
        if live is None:
            return
        trailers = read_trailers([(bytes(name), bytes(value)) for name, value in event.headers])
        if isinstance(trailers, Malformed):
            yield from self.misstated(event.stream_id, trailers.reason)
        elif trailers:
            yield ReceiveHttp(ResponseTrailers(live.hub, trailers))  # type: ignore[arg-type]

    def _ended(self, event: h2.events.StreamEnded) -> Commands:
        live = self.live.get(event.stream_id)
        if live is None:
            return
        if live.expected:
            yield from self.misstated(event.stream_id, "the reply is shorter than its Content-Length")
            return
        live.remote_ended = True
        yield ReceiveHttp(ResponseEndOfMessage(live.hub))
        if event.stream_id in self.live:
            if live.flushed:
                self.forget(event.stream_id)
            else:
                self.reset_stream(event.stream_id, ErrorCodes.NO_ERROR)
            yield from self._freed(live.hub)

    def misstated(self, stream_id: int, reason: str) -> Commands:
        live = self.live[stream_id]
        self.reset_stream(stream_id, ErrorCodes.PROTOCOL_ERROR)
        yield from self._lost(live, reason)

    def _reset_by_origin(self, event: h2.events.StreamReset) -> Commands:
        live = self.forget(event.stream_id)
        if live is not None:
            code = int(event.error_code or 0)
            unprocessed = code == ErrorCodes.REFUSED_STREAM
            yield from self._lost(live, "the origin reset the stream", unprocessed=unprocessed, code=code)

    def _lost(self, live: Live, reason: str, **how: Any) -> Commands:
        yield from self._freed(live.hub)
        yield ReceiveHttp(OriginLost(live.hub, reason, **how))

    def _freed(self, hub: int) -> Commands:
        self._ids.pop(hub, None)
        self._interims.pop(hub, None)
        if self.stopping and not self.live:
            yield from self._end(abort=False)
        yield OriginSettled()

    # the connection itself -------------------------------------------------------------------------------------

    def _settings(self, _event: h2.events.RemoteSettingsChanged) -> Commands:
        self.settled = True
        yield from self.push_all(list(self.live.items()))
        yield OriginSettled()

    def _origin_stops(self, event: h2.events.ConnectionTerminated) -> Commands:
        """Streams above the last id were not looked at and may go elsewhere; the others finish here."""
        self.stopping = True
        last = event.last_stream_id or 0
        beyond = [stream_id for stream_id in self.live if stream_id > last]
        for stream_id in beyond:
            live = self.live.pop(stream_id)
            yield from self._lost(live, "the origin is closing the connection", unprocessed=True)
        if not self.live and not self.dead:
            yield from self._end(abort=False)
        yield OriginSettled()

    def _closed(self, _event: ConnectionClosed) -> Commands:
        yield from self.broken()

    def broken(self) -> Commands:
        streams, self.live = list(self.live.values()), {}
        yield from self._end(abort=False)
        for live in streams:
            self._ids.pop(live.hub, None)
            yield ReceiveHttp(OriginLost(live.hub, "the origin broke off the connection"))
        yield OriginSettled()

    def _end(self, *, abort: bool) -> Commands:
        yield from self.flush()
        self.dead = True
        yield DropOrigin(self.wire, abort)

    def _nothing(self, _event: Any) -> Commands:
        return ()

    EVENTS: ClassVar[Any] = {
        Start: _start,
        DataReceived: Http2Side.received,
        ConnectionClosed: _closed,
        Drained: _nothing,
        Consumed: Http2Side.consumed,
        SendRequest: _request,
        RequestData: Http2Side.send_data,
        RequestTrailers: _request_trailers,
        RequestEndOfMessage: _request_end,
        Reset: _reset,
    }
    H2_EVENTS: ClassVar[Any] = {
        h2.events.ResponseReceived: _response,
        h2.events.InformationalResponseReceived: _interim,
        h2.events.DataReceived: _data,
        h2.events.TrailersReceived: _trailers,
        h2.events.StreamEnded: _ended,
        h2.events.StreamReset: _reset_by_origin,
        h2.events.ConnectionTerminated: _origin_stops,
        h2.events.WindowUpdated: Http2Side.window_updated,
        h2.events.RemoteSettingsChanged: _settings,
    }
