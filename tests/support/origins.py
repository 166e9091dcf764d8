"""Origins on loopback that record the exact bytes they receive and answer from a script.

All of them run on one background event loop, so that tests can drive the proxy with plain blocking sockets.
"""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

REPLY_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

MAX_HEAD = 1 << 20


class OriginLoop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="origins", daemon=True)
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> "Future[Any]":
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, Any], timeout: float = 10) -> Any:
        return self.submit(coroutine).result(timeout)

    def stop(self) -> None:
        async def cancel_all() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        with contextlib.suppress(TimeoutError):
            self.run(cancel_all(), 5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        if not self._thread.is_alive():
            self._loop.close()


@dataclass
class Request:
    """One request as an origin read it; `raw` is head and body exactly as they arrived."""

    line: bytes
    fields: list[tuple[bytes, bytes]]
    head: bytes
    body: bytes = b""

    @property
    def method(self) -> bytes:
        return self.line.split(b" ", 1)[0]

    @property
    def target(self) -> bytes:
        return self.line.split(b" ")[1]

    def values(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.fields if key.lower() == name.lower()]


@dataclass
class Received:
    """Bytes of one accepted connection."""

    data: bytearray = field(default_factory=bytearray)
    closed: bool = False
    reset: bool = False
    sent: int = 0
    busy: bool = False
    """A script runs on it; an idle one waits for its next request."""


class Conversation:
    """What a script sees: one accepted connection, read and written step by step."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, origin: "Origin") -> None:
        self._reader = reader
        self._writer = writer
        self._origin = origin
        self._ahead = bytearray()
        self.received = Received()
        self.request: Request | None = None
        origin.connections.append(self.received)

    async def _more(self) -> bool:
        try:
            data = await self._reader.read(65536)
        except (ConnectionError, ssl.SSLError):
            self.received.reset = True
            data = b""
        if not data:
            self.received.closed = True
            return False
        if self._origin.recording:
            self.received.data += data
            self._origin.note(data)
        self._ahead += data
        return True

    async def until(self, separator: bytes) -> bytes | None:
        """Bytes up to and with `separator`; None at the end of the stream."""
        while separator not in self._ahead:
            if len(self._ahead) > MAX_HEAD or not await self._more():
                return None
        end = self._ahead.index(separator) + len(separator)
        return self._take(end)

    async def exactly(self, count: int) -> bytes:
        """`count` bytes, fewer only at the end of the stream."""
        while len(self._ahead) < count:
            if not await self._more():
                return self._take(len(self._ahead))
        return self._take(count)

    async def some(self) -> bytes:
        """Whatever comes next; empty at the end of the stream."""
        if not self._ahead:
            await self._more()
        return self._take(len(self._ahead))

    async def drain_away(self) -> int:
        """Read to the end of the stream and drop it; the number of bytes."""
        total = 0
        while data := await self.some():
            total += len(data)
        return total

    def _take(self, count: int) -> bytes:
        data = bytes(self._ahead[:count])
        del self._ahead[:count]
        return data

    async def head(self) -> Request | None:
        """The next request head, read leniently: this is an origin, not a judge."""
        head = await self.until(b"\r\n\r\n")
        if head is None:
            return None
        line, *rest = head[:-4].split(b"\r\n")
        fields = [(name.strip(), value.strip()) for name, _, value in (entry.partition(b":") for entry in rest)]
        self.request = Request(line, fields, head)
        return self.request

    async def body(self) -> bytes:
        """The body of the current request, still framed when it is chunked."""
        assert self.request is not None
        if self.request.values(b"transfer-encoding"):
            self.request.body = await self._chunks()
        else:
            self.request.body = await self.exactly(int((self.request.values(b"content-length") or [b"0"])[0]))
        return self.request.body

    async def _chunks(self) -> bytes:
        raw = b""
        while True:
            line = await self.until(b"\r\n")
            if line is None:
                return raw
            raw += line
            size = int(line.split(b";")[0], 16)
            if size:
                raw += await self.exactly(size + 2)
                continue
            while (trailer := await self.until(b"\r\n")) is not None:
                raw += trailer
                if trailer == b"\r\n":
                    return raw
            return raw

    async def send(self, data: bytes) -> None:
        if self._writer.is_closing():
            raise ConnectionResetError
        self._writer.write(data)
        await self._writer.drain()
        # drain() returns at once while the buffer is low; without a turn of the loop a lost connection goes unseen.
        await asyncio.sleep(0)
        self.received.sent += len(data)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def splice(self, host: str, port: int) -> None:
        """Be a tunnel to there until either side ends."""
        reader, writer = await asyncio.open_connection(host, port)

        async def back() -> None:
            while data := await reader.read(65536):
                await self.send(data)
            self.close()

        returning = asyncio.create_task(back())
        try:
            while data := await self.some():
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()
            returning.cancel()

    async def start_tls(self, context: ssl.SSLContext) -> None:
        """Be a TLS server from here on, as a proxy that inspects is."""
        await self._writer.start_tls(context)

    async def half_close(self) -> None:
        self._writer.write_eof()

    @property
    def closing(self) -> bool:
        return self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        """RST instead of FIN."""
        raw = self._writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


type Script = Callable[[Conversation], Awaitable[None]]
"""Runs once per request, after its head was read. To end the connection it closes it."""


async def say_ok(talk: Conversation) -> None:
    """Read the request, answer 200 `ok`."""
    await talk.body()
    await talk.send(REPLY_OK)


def answer(reply: bytes) -> Script:
    """Read the request, answer these bytes."""

    async def script(talk: Conversation) -> None:
        await talk.body()
        await talk.send(reply)

    return script


class Origin:
    """A listening TCP or TLS server on an ephemeral port of loopback."""

    def __init__(self, loop: OriginLoop, context: ssl.SSLContext | None = None) -> None:
        self.script: Script = say_ok
        self.recording = True
        self.connections: list[Received] = []
        self.latest = Received()
        """The connection that brought the latest request; pooled ones bring many."""
        self.requests: list[Request] = []
        self._loop = loop
        self._seen = bytearray()
        self._lock = threading.Lock()
        self._server: asyncio.Server = loop.run(self._start(context))
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _start(self, context: ssl.SSLContext | None) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=context, backlog=1024, limit=1 << 18)

    def note(self, data: bytes) -> None:
        with self._lock:
            self._seen += data

    def take(self) -> bytes:
        """Everything received since the last call, in order of arrival, over all connections."""
        with self._lock:
            data = bytes(self._seen)
            self._seen.clear()
        return data

    def idle(self) -> bool:
        """No connection will bring more of what was begun."""
        return all(seen.closed or not seen.busy for seen in tuple(self.connections))

    def stop(self) -> None:
        async def close() -> None:
            self._server.close()

        self._loop.run(close())

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = Conversation(reader, writer, self)
        try:
            await self.serve(talk)
        except (ConnectionError, ssl.SSLError, asyncio.CancelledError, TimeoutError):
            talk.received.reset = True
        finally:
            talk.received.closed = True
            writer.close()

    async def serve(self, talk: Conversation) -> None:
        """One request after the other through the script that is set when its head arrives."""
        while (request := await talk.head()) is not None:
            self.latest = talk.received
            self.requests.append(request)
            talk.received.busy = True
            await self.script(talk)
            talk.received.busy = False
            if talk.closing:
                return


class RawOrigin(Origin):
    """Hands each connection to its script before anything was read: echoes, banners, half-closes."""

    async def serve(self, talk: Conversation) -> None:
        await self.script(talk)


async def echo(talk: Conversation) -> None:
    """Send back what comes, until the other side is done."""
    while data := await talk.some():
        await talk.send(data)


def greet_first(banner: bytes) -> Script:
    """Speak before the client does, then echo."""

    async def script(talk: Conversation) -> None:
        await talk.send(banner)
        await echo(talk)

    return script


async def never_answer(talk: Conversation) -> None:
    """Read the request and stay silent until the other side gives up."""
    await talk.body()
    await talk.drain_away()
