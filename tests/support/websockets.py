"""WebSocket peers for tests: raw frames over a raw connection, an echo origin, and a way in for clients that know no
proxy."""

import asyncio
import base64
import contextlib
import os
import ssl
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.support.origins import OriginLoop
from tests.support.raw import Connection, Reply

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
RSV1 = 0x40
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
TAIL = b"\x00\x00\xff\xff"


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, masked: bool = True, rsv: int = 0) -> bytes:
    """One frame, length in its shortest form; `masked` as a client sends it."""
    return header(opcode, len(payload), fin=fin, masked=masked, rsv=rsv) + (masking(payload) if masked else payload)


def header(opcode: int, length: int, *, fin: bool = True, masked: bool = True, rsv: int = 0) -> bytes:
    """The first octets of a frame, without masking key."""
    first, mask = opcode | rsv | (0x80 if fin else 0), 0x80 if masked else 0
    if length < 126:
        return bytes((first, mask | length))
    if length < 65536:
        return bytes((first, mask | 126)) + length.to_bytes(2)
    return bytes((first, mask | 127)) + length.to_bytes(8)


def masking(payload: bytes, key: bytes | None = None) -> bytes:
    """Masking key and masked payload."""
    key = os.urandom(4) if key is None else key
    return key + unmask(payload, key)


def unmask(payload: bytes, key: bytes) -> bytes:
    repeated = (key * (len(payload) // 4 + 1))[: len(payload)]
    return (int.from_bytes(payload) ^ int.from_bytes(repeated)).to_bytes(len(payload))


def closing(code: int | None, reason: str = "", *, masked: bool = True) -> bytes:
    return frame(CLOSE, b"" if code is None else code.to_bytes(2) + reason.encode(), masked=masked)


class Deflater:
    """Compresses messages of one direction as RFC 7692 says."""

    def __init__(self, bits: int = 15) -> None:
        self._bits = bits
        self._compress = zlib.compressobj(6, zlib.DEFLATED, -bits)

    def message(self, data: bytes) -> bytes:
        return (self._compress.compress(data) + self._compress.flush(zlib.Z_SYNC_FLUSH))[:-4]

    def forget(self) -> None:
        """What `no_context_takeover` asks for after each message."""
        self._compress = zlib.compressobj(6, zlib.DEFLATED, -self._bits)


class Inflater:
    def __init__(self, bits: int = 15) -> None:
        self._bits = bits
        self._decompress = zlib.decompressobj(-bits)

    def message(self, data: bytes) -> bytes:
        return self._decompress.decompress(data + TAIL)

    def forget(self) -> None:
        self._decompress = zlib.decompressobj(-self._bits)


@dataclass(frozen=True)
class Frame:
    opcode: int
    payload: bytes
    fin: bool = True
    rsv: int = 0
    masked: bool = False

    @property
    def code(self) -> int | None:
        """Close code."""
        return int.from_bytes(self.payload[:2]) if self.payload else None

    @property
    def reason(self) -> str:
        return self.payload[2:].decode()


def parse(data: bytes) -> list[Frame]:
    """Every whole frame in `data`, unmasked; a rest is an error."""
    frames = []
    while data:
        size, at = data[1] & 0x7F, 2
        if size >= 126:
            width = 2 if size == 126 else 8
            size, at = int.from_bytes(data[2 : 2 + width]), 2 + width
        masked = bool(data[1] & 0x80)
        key = data[at : at + 4] if masked else b""
        at += len(key)
        payload = data[at : at + size]
        assert len(payload) == size, "the last frame is cut off"
        payload = unmask(payload, key) if masked else payload
        frames.append(Frame(data[0] & 0x0F, payload, bool(data[0] & 0x80), data[0] & 0x70, masked))
        data = data[at + size :]
    return frames


class Wire:
    """Frames over a blocking connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def send(self, *frames: bytes) -> None:
        self.connection.send(b"".join(frames))

    def receive(self) -> Frame:
        """The next frame; raises `EndOfStream` at the end."""
        first, second = self.connection.exactly(2)
        size = second & 0x7F
        if size >= 126:
            size = int.from_bytes(self.connection.exactly(2 if size == 126 else 8))
        key = self.connection.exactly(4) if second & 0x80 else b""
        payload = self.connection.exactly(size)
        payload = unmask(payload, key) if key else payload
        return Frame(first & 0x0F, payload, bool(first & 0x80), first & 0x70, bool(key))

    def message(self) -> bytes:
        """Payload of the next text or binary message, its fragments joined."""
        whole = b""
        while True:
            got = self.receive()
            assert got.opcode in (CONTINUATION, TEXT, BINARY), got
            whole += got.payload
            if got.fin:
                return whole


def handshake(authority: str, path: str = "/ws", **fields: str | list[str]) -> bytes:
    """An upgrade request; keyword arguments add fields or replace them (underscores are hyphens), an empty list takes
    one out."""
    values: dict[str, str | list[str]] = {
        "host": authority, "connection": "Upgrade", "upgrade": "websocket",
        "sec-websocket-version": "13", "sec-websocket-key": KEY,
    }  # fmt: skip
    values |= {name.replace("_", "-"): value for name, value in fields.items()}
    lines = [
        f"{name}: {one}\r\n"
        for name, value in values.items()
        for one in (value if isinstance(value, list) else [value])
    ]
    return f"GET {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode("latin-1")


def switching(**fields: str | list[str]) -> bytes:
    """The 101 that answers `handshake`; keyword arguments as there."""
    values: dict[str, str | list[str]] = {
        "connection": "Upgrade", "upgrade": "websocket", "sec-websocket-accept": ACCEPT
    }  # fmt: skip
    values |= {name.replace("_", "-"): value for name, value in fields.items()}
    lines = [
        f"{name}: {one}\r\n"
        for name, value in values.items()
        for one in (value if isinstance(value, list) else [value])
    ]
    return f"HTTP/1.1 101 Switching Protocols\r\n{''.join(lines)}\r\n".encode("latin-1")


def fresh_key() -> str:
    return base64.b64encode(os.urandom(16)).decode()


def upgrade(connection: Connection, request: bytes) -> tuple[Reply, Wire]:
    """Send an upgrade request and read the head of its reply."""
    connection.send(request)
    return connection.reply(), Wire(connection)


type Handler = Callable[[ServerConnection], Awaitable[None]]


async def echo(peer: ServerConnection) -> None:
    with contextlib.suppress(ConnectionClosed):
        async for message in peer:
            await peer.send(message)


class WebSocketOrigin:
    """A `websockets` server on an ephemeral port."""

    def __init__(
        self, loop: OriginLoop, handler: Handler = echo, context: ssl.SSLContext | None = None, **options: Any
    ) -> None:
        self._loop = loop
        self.handler = handler
        settings: dict[str, Any] = {"max_size": None, "ping_interval": None, **options}

        async def start() -> Server:
            return await serve(lambda peer: self.handler(peer), "127.0.0.1", 0, ssl=context, **settings)

        self._server: Server = loop.run(start())
        self.port: int = next(iter(self._server.sockets)).getsockname()[1]

    def stop(self) -> None:
        async def close() -> None:
            self._server.close()

        self._loop.run(close())


class Shim:
    """A port for clients that know no proxy: each connection becomes a tunnel, and `Host` names its far end."""

    def __init__(self, loop: OriginLoop, proxy_port: int, authority: str) -> None:
        self._loop = loop
        self._proxy_port = proxy_port
        self._authority = authority.encode()
        self._server: asyncio.Server = loop.run(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        async def close() -> None:
            self._server.close()

        self._loop.run(close())

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        below, above = await asyncio.open_connection("127.0.0.1", self._proxy_port)
        above.write(b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (self._authority, self._authority))
        assert (await below.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        here = b"127.0.0.1:%d" % self.port
        head = await reader.readuntil(b"\r\n\r\n")
        above.write(head.replace(here, self._authority))
        await asyncio.gather(self._pipe(reader, above), self._pipe(below, writer))

    @staticmethod
    async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        with contextlib.suppress(OSError):
            writer.close()
