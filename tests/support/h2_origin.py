"""An HTTP/2 origin over TLS or in clear, on `h2`, that records requests and answers from a script."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
from hyperframe.frame import GoAwayFrame

from tests.support.origins import OriginLoop

type Headers = list[tuple[bytes, bytes]]


@dataclass
class H2Request:
    """One stream as the origin saw it."""

    stream: int
    headers: Headers
    body: bytearray = field(default_factory=bytearray)
    trailers: Headers = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    reset: int | None = None
    ended_by_head: bool = False

    def value(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.headers if key == name), None)


class H2Talk:
    """What a script sees of one stream."""

    def __init__(self, connection: "_Connection", request: H2Request) -> None:
        self._connection = connection
        self.request = request

    async def body(self) -> bytes:
        await self.request.ended.wait()
        return bytes(self.request.body)

    async def respond(self, status: int, body: bytes = b"", trailers: Headers | None = None, **more: str) -> None:
        self.headers(status, end=not body and not trailers, **more)
        if body:
            await self.data(body, end=not trailers)
        if trailers:
            self._connection.send_headers(self.request.stream, trailers, end=True)

    def headers(self, status: int, *, end: bool = False, **more: str) -> None:
        fields = [(b":status", str(status).encode())]
        fields += [(name.replace("_", "-").encode(), value.encode()) for name, value in more.items()]
        self._connection.send_headers(self.request.stream, fields, end=end)

    async def data(self, data: bytes, *, end: bool = False) -> None:
        await self._connection.send_data(self.request.stream, data, end=end)

    def reset(self, code: int = h2.errors.ErrorCodes.INTERNAL_ERROR) -> None:
        self._connection.reset(self.request.stream, code)

    def go_away(self, last_stream: int) -> None:
        self._connection.go_away(last_stream)


type H2Script = Callable[[H2Talk], Awaitable[None]]


async def h2_ok(talk: H2Talk) -> None:
    await talk.body()
    await talk.respond(200, b"ok", content_length="2")


class _Connection:
    """One accepted connection: frames in, scripts started, frames out."""

    def __init__(self, origin: "H2Origin", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._origin = origin
        self._reader = reader
        self._writer = writer
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
        self._requests: dict[int, H2Request] = {}
        self._window_moved = asyncio.Event()
        self._gone = False

    async def run(self) -> None:
        self._h2.local_settings = h2.settings.Settings(
            client=False,
            initial_values={h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: self._origin.stream_limit},
        )
        self._h2.initiate_connection()
        self._flush()
        async with asyncio.TaskGroup() as scripts:
            while data := await self._reader.read(65536):
                for event in self._h2.receive_data(data):
                    self._on(event, scripts)
                self._flush()
            self._gone = True
            self._window_moved.set()

    def _on(self, event: h2.events.Event, scripts: asyncio.TaskGroup) -> None:
        match event:
            case h2.events.RequestReceived():
                request = H2Request(event.stream_id, [(bytes(k), bytes(v)) for k, v in event.headers])
                request.ended_by_head = event.stream_ended is not None
                self._requests[event.stream_id] = request
                self._origin.requests.append(request)
                scripts.create_task(self._script(request))
            case h2.events.DataReceived():
                self._requests[event.stream_id].body += event.data
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.TrailersReceived():
                self._requests[event.stream_id].trailers = [(bytes(k), bytes(v)) for k, v in event.headers]
            case h2.events.StreamEnded():
                self._requests[event.stream_id].ended.set()
            case h2.events.StreamReset():
                self._requests[event.stream_id].reset = event.error_code
                self._requests[event.stream_id].ended.set()
                self._window_moved.set()
            case h2.events.WindowUpdated() | h2.events.RemoteSettingsChanged():
                self._window_moved.set()
            case _:
                pass

    async def _script(self, request: H2Request) -> None:
        with contextlib.suppress(h2.exceptions.ProtocolError, ConnectionError):
            await self._origin.script(H2Talk(self, request))

    def send_headers(self, stream: int, headers: Headers, *, end: bool) -> None:
        self._h2.send_headers(stream, headers, end_stream=end)
        self._flush()

    async def send_data(self, stream: int, data: bytes, *, end: bool) -> None:
        view = memoryview(data)
        while view:
            room = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size, len(view))
            if self._gone or self._requests[stream].reset is not None:
                raise ConnectionError("the other side is gone")
            if room <= 0:
                self._window_moved.clear()
                await self._window_moved.wait()
                continue
            self._h2.send_data(stream, view[:room].tobytes())
            view = view[room:]
            self._flush()
            await self._writer.drain()
        if end:
            self._h2.end_stream(stream)
            self._flush()

    def reset(self, stream: int, code: int) -> None:
        self._h2.reset_stream(stream, code)
        self._flush()

    def go_away(self, last_stream: int) -> None:
        """GOAWAY after which accepted streams go on; `h2` itself would end the whole connection."""
        frame = GoAwayFrame(0)
        frame.last_stream_id = last_stream
        self._writer.write(self._h2.data_to_send() + frame.serialize())

    def _flush(self) -> None:
        if data := self._h2.data_to_send():
            self._writer.write(data)


class H2Origin:
    """A listening HTTP/2 server; give a context with ALPN `h2`, or None for prior knowledge in clear."""

    def __init__(self, loop: OriginLoop, context: ssl.SSLContext | None, stream_limit: int = 100) -> None:
        self.script: H2Script = h2_ok
        self.stream_limit = stream_limit
        self.requests: list[H2Request] = []
        self.connection_count = 0
        self._loop = loop
        self._server: asyncio.Server = loop.run(self._start(context))
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _start(self, context: ssl.SSLContext | None) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=context)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        try:
            with contextlib.suppress(ConnectionError, ssl.SSLError, h2.exceptions.ProtocolError, ExceptionGroup):
                await _Connection(self, reader, writer).run()
        finally:
            writer.close()

    def stop(self) -> None:
        async def close() -> None:
            self._server.close()

        self._loop.run(close())
