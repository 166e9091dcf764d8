"""The metadata server for cloud SDKs: a small strict HTTP server beside the proxy that hands out placeholders.

One per agent. Its clients are untrusted: heads, time, connections and what is read off after a reply are bounded.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from egress.credentials.metadata_answers import (
    Answer,
    IdentityWanted,
    MetadataView,
    Outcome,
    Question,
    TokenWanted,
    answer,
    identity_answer,
)
from egress.http.lexer import NeedMore, find_head, lex_request
from egress.http.query import decode_query
from egress.model.clock import Clock
from egress.model.limits import LIMITS
from egress.model.message import Malformed
from egress.model.secret import Secret
from egress.model.verdict import DenialCode

ACCEPT_PAUSE = 0.1
"""Seconds without accepting after the system refused a descriptor."""

BACKLOG = 1024
"""Connections that may wait to be accepted; more would be dropped by the kernel and tried again after a second."""

_PHRASES = {
    200: b"OK",
    400: b"Bad Request",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
}
_TOO_LARGE = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class MetadataAnswered:
    """One answered request, for events: nothing of it is the workload's text."""

    status: int
    route: str
    served: bool
    """A placeholder (or a listed identity token) was handed out."""
    scopes: tuple[str, ...] = ()


type View = Callable[[], MetadataView]
type Refresh = Callable[[str], Awaitable[object]]
"""Fetches a provider's values again if they are due; by the provider's name."""
type MintIdentity = Callable[[str], Awaitable[Secret | None]]
"""Audience to a real identity token; None when it could not be had."""


def bind_metadata(where: str) -> socket.socket:
    """A listening socket on `host:port` (port 0 picks one) or `unix:/path`. Raises `OSError`."""
    if where.startswith("unix:"):
        path = Path(where.removeprefix("unix:"))
        path.unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        target: str | tuple[str, int] = str(path)
    else:
        host, _, port = where.rpartition(":")
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        target = (host.strip("[]"), int(port))
    try:
        sock.bind(target)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def address_of(sock: socket.socket) -> str:
    """`host:port` as environment variables spell it, or the path of a Unix socket."""
    name = sock.getsockname()
    if isinstance(name, str):
        return name
    return f"[{name[0]}]:{name[1]}" if sock.family == socket.AF_INET6 else f"{name[0]}:{name[1]}"


class MetadataServer:
    """Answers on a bound socket for as long as `run` runs."""

    def __init__(
        self,
        view: View,
        clock: Clock,
        *,
        refresh: Refresh | None = None,
        mint: MintIdentity | None = None,
        observe: Callable[[MetadataAnswered], None] = lambda _: None,
    ) -> None:
        self._view = view
        self._clock = clock
        self._refresh = refresh
        self._mint = mint
        self._observe = observe
        self._refreshing: dict[str, asyncio.Future[object]] = {}
        self._slots = asyncio.Semaphore(LIMITS.metadata_connections)

    async def run(self, listener: socket.socket) -> None:
        """Serve until cancelled; closes the socket. Connections beyond the bound wait in the kernel's queue."""
        loop = asyncio.get_running_loop()
        with listener:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._slots.acquire()
                    try:
                        sock, _ = await loop.sock_accept(listener)
                    except OSError:
                        self._slots.release()
                        await asyncio.sleep(ACCEPT_PAUSE)
                        continue
                    group.create_task(self._connection(sock))

    async def _connection(self, sock: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=sock, limit=LIMITS.metadata_head_bytes)
            try:
                async with asyncio.timeout(LIMITS.metadata_head_seconds):
                    head = await _read_head(reader)
                async with asyncio.timeout(LIMITS.metadata_answer_seconds):
                    writer.write(await self._reply(head))
                    await writer.drain()
                await _linger(reader, writer)
            finally:
                writer.transport.abort()
        except (OSError, TimeoutError, EOFError):
            pass
        finally:
            sock.close()
            self._slots.release()

    async def _reply(self, head: bytes | Malformed) -> bytes:
        if isinstance(head, Malformed) and head.code is DenialCode.HEAD_TOO_LARGE:
            self._observe(MetadataAnswered(413, "other", served=False))
            return _TOO_LARGE
        question = head if isinstance(head, Malformed) else read_question(head)
        if isinstance(question, Malformed):
            reply = Answer(400, "text/html", b"Bad Request")
        else:
            reply = await self._answer(question)
        self._observe(MetadataAnswered(reply.status, reply.route, reply.served, reply.scopes))
        return _serialize(reply)

    async def _answer(self, question: Question) -> Answer:
        try:
            return await self._fulfil(answer(question, self._view()))
        except TimeoutError:
            raise
        except Exception:  # one bad answer must not end the server; the event tells of it
            return Answer(500, "text/html", b"Internal Server Error")

    async def _fulfil(self, outcome: Outcome) -> Answer:
        match outcome:
            case TokenWanted():
                await self._freshen(outcome.keys)
                return outcome.render(self._view(), self._clock.now())
            case IdentityWanted():
                token = await self._mint(outcome.audience) if self._mint is not None else None
                return identity_answer(token.reveal() if token is not None else None)
        return outcome

    async def _freshen(self, keys: tuple[str, ...]) -> None:
        """Give a token that ends soon, or just did, the chance to be refreshed before it is named."""
        now = self._clock.now()
        held = [token for key in keys if (token := self._view().tokens.get(key)) is not None]
        if self._refresh is None or not held or held[0].left(now) >= LIMITS.metadata_short_life_seconds:
            return
        provider = held[0].provider
        task = self._refreshing.get(provider)
        if task is None:
            task = self._refreshing[provider] = asyncio.ensure_future(self._refresh(provider))
            task.add_done_callback(lambda done: self._refreshed(provider, done))
        await asyncio.wait((task,), timeout=LIMITS.metadata_refresh_seconds)

    def _refreshed(self, provider: str, done: asyncio.Future[object]) -> None:
        self._refreshing.pop(provider, None)
        if not done.cancelled():
            done.exception()  # whoever refreshes tells of failures


def read_question(head: bytes) -> Question | Malformed:
    """A complete head to a question."""
    wire = lex_request(head)
    if isinstance(wire, Malformed):
        return wire
    path, _, query = wire.target.decode().partition("?")
    pairs = decode_query(query)
    if isinstance(pairs, Malformed):
        return pairs
    fields: dict[str, tuple[str, ...]] = {}
    for name, value in wire.lines:
        key = name.decode().lower()
        fields[key] = (*fields.get(key, ()), value.decode())
    return Question(wire.method.decode(), path.removesuffix("/"), pairs, fields)


async def _read_head(reader: asyncio.StreamReader) -> bytes | Malformed:
    data = bytearray()
    while True:
        found = find_head(data, LIMITS.metadata_head_bytes)
        if isinstance(found, Malformed):
            return found
        if not isinstance(found, NeedMore):
            return bytes(data[:found])
        more = await reader.read(LIMITS.metadata_head_bytes)
        if not more:
            raise EOFError
        data += more


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read off a body nobody asked for: closing on unread bytes resets the connection and takes the reply with it."""
    if writer.can_write_eof():
        writer.write_eof()
    left = LIMITS.refusal_drain_bytes
    async with asyncio.timeout(LIMITS.refusal_drain_seconds):
        while left > 0 and (data := await reader.read(LIMITS.metadata_head_bytes)):
            left -= len(data)


def _serialize(reply: Answer) -> bytes:
    lines = [
        b"HTTP/1.1 %d %b\r\n" % (reply.status, _PHRASES[reply.status]),
        b"Content-Type: %b\r\n" % reply.kind.encode(),
    ]
    if reply.flavor:
        lines.append(b"Metadata-Flavor: Google\r\n")
    lines.append(b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(reply.body))
    lines.append(reply.body)
    return b"".join(lines)
