"""An HTTP/2 client on `h2` over a blocking connection, which also sends what a well-behaved client would not."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from tests.support.raw import Connection

type Headers = Sequence[tuple[str, str]]


@dataclass
class H2Reply:
    """One stream as the client saw it. `reset` is the error code of a RST_STREAM."""

    headers: list[tuple[str, str]] = field(default_factory=list)
    interim: list[int] = field(default_factory=list)
    body: bytes = b""
    trailers: list[tuple[str, str]] = field(default_factory=list)
    ended: bool = False
    ended_by_head: bool = False
    reset: int | None = None

    def value(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    @property
    def status(self) -> int | None:
        text = self.value(":status")
        return int(text) if text else None

    @property
    def error(self) -> str | None:
        """The `error` word of a refusal envelope."""
        with contextlib.suppress(ValueError):
            document = json.loads(self.body)
            if isinstance(document, dict) and "request_id" in document:
                return str(document.get("error"))
        return None


class H2Client:
    """Requests by stream id; replies are gathered while waiting for any of them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(
                client_side=True,
                header_encoding="utf-8",
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self.replies: dict[int, H2Reply] = {}
        self.went_away: int | None = None
        self.closed = False
        self.h2.initiate_connection()
        self.flush()

    def flush(self) -> None:
        if data := self.h2.data_to_send():
            self._connection.send(data)

    def send_raw(self, data: bytes) -> None:
        """Frames that the library would refuse to make."""
        self._connection.send(data)

    def start(self, headers: Headers, *, end: bool = True) -> int:
        stream = self.h2.get_next_available_stream_id()
        self.replies[stream] = H2Reply()
        self.h2.send_headers(stream, list(headers), end_stream=end)
        self.flush()
        return stream

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Data as the windows allow; reads while it waits for room."""
        view = memoryview(data)
        while view:
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(view))
            if room <= 0:
                if not self.pump():
                    return
                continue
            self.h2.send_data(stream, view[:room].tobytes())
            view = view[room:]
            self.flush()
        if end:
            self.h2.end_stream(stream)
            self.flush()

    def trailers(self, stream: int, headers: Headers) -> None:
        self.h2.send_headers(stream, list(headers), end_stream=True)
        self.flush()

    def pump(self) -> bool:
        """Read once; False at the end of the stream."""
        data = self._connection.some()
        if not data:
            self.closed = True
            return False
        for event in self.h2.receive_data(data):
            self._on(event)
        self.flush()
        return True

    def _on(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.ResponseReceived():
                self.replies[event.stream_id].headers = [(str(k), str(v)) for k, v in event.headers]
                self.replies[event.stream_id].ended_by_head = event.stream_ended is not None
            case h2.events.InformationalResponseReceived():
                status = next(int(str(value)) for name, value in event.headers if str(name) == ":status")
                self.replies[event.stream_id].interim.append(status)
            case h2.events.DataReceived():
                self.replies[event.stream_id].body += event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.TrailersReceived():
                self.replies[event.stream_id].trailers = [(str(k), str(v)) for k, v in event.headers]
            case h2.events.StreamEnded():
                self.replies[event.stream_id].ended = True
            case h2.events.StreamReset():
                self.replies[event.stream_id].reset = int(event.error_code or 0)
            case h2.events.ConnectionTerminated():
                self.went_away = int(event.error_code or 0)
            case _:
                pass

    def reply(self, stream: int) -> H2Reply:
        """The reply of a stream once it ended, was reset, or the connection is over."""
        reply = self.replies[stream]
        while not (reply.ended or reply.reset is not None or self.closed or self.went_away):
            with contextlib.suppress(h2.exceptions.StreamClosedError):
                self.pump()
        return reply

    def ask(self, headers: Headers, body: bytes = b"") -> H2Reply:
        stream = self.start(headers, end=not body)
        if body:
            self.send(stream, body, end=True)
        return self.reply(stream)
