"""mitmproxy's HTTP layer with our connections and our streams in its places: it routes, they decide."""

from typing import Any

from mitmproxy.proxy.events import ConnectionEvent, Start
from mitmproxy.proxy.layers.http import HttpLayer, HTTPMode
from mitmproxy.proxy.layers.http._base import HttpEvent

from egress.engine.mitm.exchange import ExchangeStream
from egress.engine.mitm.messages import (
    Commands,
    Drained,
    LaneContext,
    OriginLost,
    OriginReady,
    OriginSettled,
    Progress,
    ReleaseOrigin,
    Site,
    Wire,
)

_VANISHED = "the origin closed the connection without a reply"


class LaneLayer(HttpLayer):
    """`connections` and `streams` are mitmproxy's tables; it fills neither."""

    streams: dict[int, Any]
    connections: dict[Any, Any]

    def __init__(self, context: LaneContext, site: Site) -> None:
        super().__init__(context, HTTPMode.transparent)
        self._site = site

    def make_stream(self, stream_id: int) -> Commands:
        self.streams[stream_id] = ExchangeStream(self._site, stream_id)
        return ()

    def attach(self, wire: Wire, layer: Any) -> Commands:
        """Bring in a connection with the layer that speaks on it."""
        wire.layer = layer
        self.connections[wire] = layer
        return self.event_to_child(layer, Start())

    def _handle_event(self, event: Any) -> Commands:
        if isinstance(event, OriginReady):
            yield from self._bring(event)
        elif isinstance(event, HttpEvent):
            stream = self.streams.get(event.stream_id)
            if stream is not None:
                yield from self.event_to_child(stream, event)
        elif isinstance(event, Drained):
            for stream in list(self.streams.values()):
                yield from self.event_to_child(stream, Progress(stream.stream_id))
        elif isinstance(event, ConnectionEvent):
            layer = self.connections.get(event.connection)
            if layer is not None:
                yield from self.event_to_child(layer, event)
        else:
            # Start: mitmproxy would choose the client's layer here; ours is in place.
            yield from self.event_to_child(self._site.client.layer, event)

    def _bring(self, event: OriginReady) -> Commands:
        """Give a stream its connection, or the connection back when the stream did not wait or the connection did not
        last."""
        wire = event.wire
        stream = self.streams.get(event.stream_id)
        if wire.multiplexed and wire.layer is not None:
            wire.layer.promised -= 1
        if stream is None:
            yield OriginSettled() if wire.multiplexed else ReleaseOrigin(wire)
        elif wire in self.connections:
            yield from self.event_to_child(stream, event)
        else:
            yield from self.event_to_child(stream, OriginLost(event.stream_id, _VANISHED, unprocessed=True))
