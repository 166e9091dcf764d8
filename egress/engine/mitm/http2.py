"""HTTP/2 framing for both sides: hyper-h2's connection with our windows and queues, as a layer of mitmproxy's.

mitmproxy's own HTTP/2 layers open every window at once and acknowledge what nobody has taken yet, end all streams on a
GOAWAY, and drop interim responses; they cannot hold memory or finish what was accepted, so they are not used here.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import h2.config
import h2.connection
import h2.events
import h2.exceptions
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hyperframe.frame import Frame, GoAwayFrame
from mitmproxy.proxy.commands import SendData
from mitmproxy.proxy.events import DataReceived
from mitmproxy.proxy.layers.http._base import HttpConnection, ReceiveHttp

from egress.engine.mitm.messages import Commands, Consumed, Progress, Wire
from egress.model.limits import KIB, LIMITS, MIB
from egress.model.message import FieldLine

MAX_STREAMS = 100
STREAM_WINDOW = 512 * KIB
CONNECTION_WINDOW = 8 * MIB
"""Payload bytes on their way through us: per stream, and for all streams of one connection."""
HEADER_LIST_BYTES = 64 * KIB
"""A field list beyond this ends the connection; the bound that is advertised answers 431."""

_FRAME_HEADER = 9
_BROKEN = (h2.exceptions.ProtocolError, ValueError, IndexError)


class Framing(h2.connection.H2Connection):
    """hyper-h2 that leaves the judgement of fields and lengths to us, and outlives a GOAWAY."""

    def __init__(self, *, client_side: bool) -> None:
        super().__init__(
            h2.config.H2Configuration(
                client_side=client_side,
                header_encoding=None,
                validate_inbound_headers=False,
                validate_outbound_headers=False,
                normalize_inbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        settings: dict[SettingCodes | int, int] = {
            SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
            SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
            SettingCodes.MAX_HEADER_LIST_SIZE: LIMITS.tunnel_head_bytes,
        }
        if client_side:
            settings[SettingCodes.ENABLE_PUSH] = 0
            del settings[SettingCodes.MAX_CONCURRENT_STREAMS]
        self.local_settings.update(settings)
        # What is announced first holds from the start; hyper-h2 would otherwise announce its own values.
        self.local_settings.acknowledge()
        self.decoder.max_header_list_size = HEADER_LIST_BYTES

    def receive_data(self, data: Any) -> list[h2.events.Event]:
        """As hyper-h2's, but a frame that announces too much ends the connection before its 16 MiB are awaited."""
        events = super().receive_data(data)
        pending = self.incoming_buffer._data
        if len(pending) >= _FRAME_HEADER and int.from_bytes(pending[:3]) > self.max_inbound_frame_size:
            self._terminate_connection(ErrorCodes.FRAME_SIZE_ERROR)
            raise h2.exceptions.FrameTooLargeError("frame is longer than allowed")
        return events

    def open(self) -> None:
        self.initiate_connection()
        self.increment_flow_control_window(CONNECTION_WINDOW - self.inbound_flow_control_window)

    def announce_end(self) -> None:
        """GOAWAY that lets open streams finish; hyper-h2's own closes the connection's state at once."""
        frame = GoAwayFrame(0)
        frame.last_stream_id = self.highest_inbound_stream_id
        frame.error_code = ErrorCodes.NO_ERROR
        self._prepare_for_sending([frame])

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[h2.events.Event]]:
        """The peer takes no further streams; those up to its last id go on (RFC 9113 section 6.8)."""
        event = h2.events.ConnectionTerminated()
        event.error_code = frame.error_code
        event.last_stream_id = frame.last_stream_id
        return [], [event]

    def _begin_new_stream(self, stream_id: int, allowed_ids: Any) -> Any:
        """Lengths are checked by us: hyper-h2 ends the connection over one stream's wrong `Content-Length`."""
        stream: Any = super()._begin_new_stream(stream_id, allowed_ids)
        stream._initialize_content_length = stream._track_content_length = _unchecked
        return stream


def _unchecked(*_: object) -> None:
    return None


class Live:
    """One open stream: what waits to be sent, and what the peer still owes. `hub` is the id that others know."""

    __slots__ = (
        "chunks",
        "expected",
        "hub",
        "local_ended",
        "method",
        "remote_ended",
        "size",
        "trailers",
        "unacknowledged",
    )

    def __init__(self, hub: int) -> None:
        self.hub = hub
        self.chunks: deque[memoryview] = deque()
        self.size = 0
        self.trailers: list[FieldLine] | None = None
        self.local_ended = False
        self.remote_ended = False
        self.expected: int | None = None
        self.method = ""
        self.unacknowledged = 0

    @property
    def flushed(self) -> bool:
        return self.local_ended and not self.chunks


class Http2Side(HttpConnection):
    """What both sides share: receiving, queues under flow control, acknowledging what was consumed."""

    def __init__(self, context: Any, wire: Wire, *, client_side: bool) -> None:
        super().__init__(context, wire)  # type: ignore[arg-type]
        context.layers.pop()
        self.wire = wire
        self.h2 = Framing(client_side=client_side)
        self.live: dict[int, Live] = {}
        self.dead = False

    @property
    def paused(self) -> bool:
        """A peer that does not read what it is sent is not read from either: its PINGs would fill our buffers."""
        return self.wire.stream.congested

    def handle_event(self, event: Any) -> Commands:
        if self.dead:
            return
        yield from self.EVENTS[type(event)](self, event)
        if not self.dead:
            yield from self.flush()

    def _handle_event(self, event: Any) -> Commands:
        return self.handle_event(event)

    def flush(self) -> Commands:
        data = self.h2.data_to_send()
        if data:
            yield SendData(self.conn, data)

    def id_of(self, hub: int) -> int | None:
        """Our stream id for the one that others know, None when it is gone."""
        return hub if hub in self.live else None

    def queued(self, hub: int) -> int:
        stream_id = self.id_of(hub)
        return self.live[stream_id].size if stream_id is not None else 0

    # receiving -------------------------------------------------------------------------------------------------

    def received(self, event: DataReceived) -> Commands:
        try:
            events = self.h2.receive_data(event.data)
        except _BROKEN:
            # hyper-h2 has queued the GOAWAY that says what was wrong.
            yield from self.flush()
            yield from self.broken()
            return
        for h2_event in events:
            handler = self.H2_EVENTS.get(type(h2_event))
            if handler is not None:
                yield from handler(self, h2_event)
            if self.dead:
                return

    def broken(self) -> Commands:
        """The peer speaks no HTTP/2, or no more of it."""
        raise NotImplementedError

    def data(self, event: h2.events.DataReceived, forward: Callable[[int, bytes], Any]) -> Commands:
        live = self.live.get(event.stream_id)
        size = len(event.data)
        padding = event.flow_controlled_length - size
        if live is None:
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            return
        if padding:
            self.h2.acknowledge_received_data(padding, event.stream_id)
        if live.expected is not None:
            live.expected -= size
            if live.expected < 0:
                yield from self.misstated(event.stream_id, "the body is longer than its Content-Length")
                return
        if size:
            live.unacknowledged += size
            yield ReceiveHttp(forward(live.hub, bytes(event.data)))

    def misstated(self, stream_id: int, reason: str) -> Commands:
        """A body contradicts its head; one stream is at fault, the connection is not."""
        raise NotImplementedError

    def window_updated(self, event: h2.events.WindowUpdated) -> Commands:
        if event.stream_id:
            live = self.live.get(event.stream_id)
            return self.push_all([(event.stream_id, live)] if live is not None else [])
        return self.push_all(list(self.live.items()))

    def push_all(self, streams: Iterable[tuple[int, Live]]) -> Commands:
        for stream_id, live in streams:
            if live.chunks and self.push(stream_id, live):
                yield ReceiveHttp(Progress(live.hub))

    # sending ---------------------------------------------------------------------------------------------------

    def send_data(self, event: Any) -> Commands:
        stream_id = self.id_of(event.stream_id)
        if stream_id is not None:
            live = self.live[stream_id]
            live.chunks.append(memoryview(event.data))
            live.size += len(event.data)
            self.push(stream_id, live)
        return ()

    def send_end(self, stream_id: int, trailers: list[FieldLine] | None = None) -> None:
        live = self.live[stream_id]
        live.local_ended = True
        live.trailers = trailers or live.trailers
        self.push(stream_id, live)

    def push(self, stream_id: int, live: Live) -> bool:
        """Send what the peer's windows allow; True when something left."""
        before = live.size
        try:
            self._push_chunks(stream_id, live)
            if live.flushed:
                if live.trailers:
                    self.h2.send_headers(stream_id, live.trailers, end_stream=True)
                else:
                    self.h2.end_stream(stream_id)
                self.sent_all(stream_id, live)
        except h2.exceptions.ProtocolError:
            return False  # the peer closed the stream; that event is yet to be handled
        return live.size < before

    def _push_chunks(self, stream_id: int, live: Live) -> None:
        window = self.h2.local_flow_control_window(stream_id) if live.chunks else 0
        while live.chunks and window > 0:
            chunk = live.chunks[0]
            size = min(window, self.h2.max_outbound_frame_size, len(chunk))
            window -= size
            live.size -= size
            if size == len(chunk):
                live.chunks.popleft()
            else:
                live.chunks[0] = chunk[size:]
            self.h2.send_data(stream_id, chunk[:size])

    def send_head(self, stream_id: int, fields: list[FieldLine], *, ended: bool = False) -> None:
        try:
            self.h2.send_headers(stream_id, fields, end_stream=ended)
        except h2.exceptions.ProtocolError:
            return  # as in `push`

    def sent_all(self, stream_id: int, live: Live) -> None:
        """Our direction of a stream has ended."""
        raise NotImplementedError

    def forget(self, stream_id: int) -> Live | None:
        """A stream is over; what nobody will consume any more is given back to the connection's window."""
        live = self.live.pop(stream_id, None)
        if live is not None and live.unacknowledged:
            self.h2.acknowledge_received_data(live.unacknowledged, stream_id)
        return live

    def reset_stream(self, stream_id: int, code: int) -> None:
        with contextlib.suppress(h2.exceptions.ProtocolError):  # closed on both sides already
            self.h2.reset_stream(stream_id, code)
        self.forget(stream_id)

    def consumed(self, event: Consumed) -> Commands:
        stream_id = self.id_of(event.stream_id)
        if stream_id is not None:
            self.live[stream_id].unacknowledged -= event.size
            self.h2.acknowledge_received_data(event.size, stream_id)
        return ()

    EVENTS: ClassVar[Any] = {}
    H2_EVENTS: ClassVar[Any] = {}
