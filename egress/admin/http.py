"""The smallest HTTP server that an operator's tools need: one request per connection, bounded, with a deadline."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from egress.http.framing import request_framing
from egress.http.lexer import END_OF_HEAD, NeedMore, find_head, lex_request
from egress.model.message import Malformed

HEAD_BYTES = 8192
BODY_BYTES = 65_536
SECONDS = 60.0

_PHRASES = {
    200: b"OK", 202: b"Accepted", 400: b"Bad Request", 403: b"Forbidden", 404: b"Not Found",
    405: b"Method Not Allowed", 409: b"Conflict", 500: b"Internal Server Error", 503: b"Service Unavailable",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete reply."""

    status: int
    body: bytes
    content_type: bytes = b"application/json"

    def wire(self, *, head_only: bool) -> bytes:
        head = (
            b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
            % (self.status, _PHRASES[self.status], self.content_type, len(self.body))
        )  # fmt: skip
        return head if head_only else head + self.body


def document(value: object, status: int = 200) -> Answer:
    return Answer(status, json.dumps(value, ensure_ascii=False).encode() + b"\n")


def problem(status: int, code: str, detail: str) -> Answer:
    """An error as every admin reply says it (control-plane.md B7)."""
    return document({"error": code, "detail": detail}, status)


type Handler = Callable[[str, str], Awaitable[Answer]]
"""Method and path, without query, to a reply."""


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
    """Answer one request and close."""
    try:
        async with asyncio.timeout(SECONDS):
            writer.write(await _answer(reader, handler))
            await writer.drain()
    except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader, handler: Handler) -> bytes:
    head = await reader.readuntil(END_OF_HEAD)
    found = find_head(head, HEAD_BYTES)
    wire = found if isinstance(found, NeedMore | Malformed) else lex_request(head[:found])
    if isinstance(wire, NeedMore | Malformed):
        return problem(400, "malformed_request", "the request cannot be read").wire(head_only=False)
    fields = [(name.lower(), value) for name, value in wire.lines]
    framing = request_framing(
        [value for name, value in fields if name == b"content-length"],
        [value for name, value in fields if name == b"transfer-encoding"],
    )
    if isinstance(framing, Malformed) or (framing.length or 0) > BODY_BYTES:
        return problem(400, "malformed_request", "the request cannot be read").wire(head_only=False)
    if framing.length:
        await reader.readexactly(framing.length)
    method = wire.method.decode("ascii")
    path = wire.target.partition(b"?")[0].decode("latin-1")
    answer = await handler("GET" if method == "HEAD" else method, path)
    return answer.wire(head_only=method == "HEAD")
