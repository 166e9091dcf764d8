"""The `metrics.address` listener: `GET /metrics` in the Prometheus text format, nothing else."""

import asyncio
from collections.abc import Callable
from socket import socket

from egress.http.lexer import END_OF_HEAD, NeedMore, find_head, lex_request
from egress.model.message import Malformed

_HEAD_BYTES = 8192
_SECONDS = 10.0
_CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class MetricsEndpoint:
    """Answers scrapes with what `render` gives."""

    def __init__(self, render: Callable[[], bytes]) -> None:
        self._render = render
        self._server: asyncio.Server | None = None

    async def start(self, sock: socket) -> None:
        self._server = await asyncio.start_server(self._serve, sock=sock, limit=_HEAD_BYTES)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                writer.write(await self._answer(reader))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        found = find_head(head, _HEAD_BYTES)
        wire = found if isinstance(found, NeedMore | Malformed) else lex_request(head[:found])
        if isinstance(wire, NeedMore | Malformed):
            return _reply(b"400 Bad Request", b"", b"text/plain")
        if wire.method not in (b"GET", b"HEAD") or wire.target.partition(b"?")[0] != b"/metrics":
            return _reply(b"404 Not Found", b"", b"text/plain")
        reply = _reply(b"200 OK", self._render(), _CONTENT_TYPE)
        return reply if wire.method == b"GET" else reply[: reply.index(END_OF_HEAD) + len(END_OF_HEAD)]


def _reply(status: bytes, body: bytes, content_type: bytes) -> bytes:
    return (
        b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
        % (status, content_type, len(body), body)
    )  # fmt: skip
