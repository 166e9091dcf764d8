"""The metadata server on real sockets: bounds, deadlines, refreshing, and what the network may do to it."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from egress.credentials import metadata
from egress.credentials.metadata import MetadataAnswered, MetadataServer, address_of, bind_metadata
from egress.credentials.metadata_answers import MetadataView, Token
from egress.credentials.metadata_facts import Clouds
from egress.model.clock import SystemClock
from egress.model.limits import Limits
from egress.model.secret import Secret

TOKEN = b"/computeMetadata/v1/instance/service-accounts/default/token"
PLACEHOLDER = "openshell:resolve:env:v7_GCP_SA_ACCESS_TOKEN"


def held(seconds: float | None = 3000.0, audiences: tuple[str, ...] = ()) -> MetadataView:
    expires = None if seconds is None else SystemClock().now() + seconds
    tokens = {"GCP_SA_ACCESS_TOKEN": Token("gcp", PLACEHOLDER, expires)}
    return MetadataView(configured=True, clouds=Clouds(audiences=frozenset(audiences)), tokens=tokens)


class Running:
    def __init__(self, where: str) -> None:
        self.where = where
        self.seen: list[MetadataAnswered] = []

    async def send(self, data: bytes) -> bytes:
        reader, writer = await self.open()
        writer.write(data)
        async with asyncio.timeout(5):
            reply = await reader.read()
        writer.close()
        return reply

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.where.startswith("/"):
            return await asyncio.open_unix_connection(self.where)
        host, _, port = self.where.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    async def get(self, path: bytes) -> bytes:
        return await self.send(b"GET %b HTTP/1.1\r\nHost: m\r\nMETADATA-FLAVOR: google\r\n\r\n" % path)


@asynccontextmanager
async def serving(
    view: Callable[[], MetadataView],
    where: str = "127.0.0.1:0",
    refresh: Callable[[str], Awaitable[object]] | None = None,
    mint: Callable[[str], Awaitable[Secret | None]] | None = None,
) -> AsyncIterator[Running]:
    listener = bind_metadata(where)
    running = Running(address_of(listener))
    server = MetadataServer(view, SystemClock(), refresh=refresh, mint=mint, observe=running.seen.append)
    task = asyncio.ensure_future(server.run(listener))
    yield running
    task.cancel()
    await asyncio.wait((task,))
    assert listener.fileno() == -1


async def test_a_token() -> None:
    async with serving(lambda: held(1000.5)) as server:
        reply = await server.get(TOKEN)
    head, _, body = reply.partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 200 OK",
        b"Content-Type: application/json",
        b"Metadata-Flavor: Google",
        b"Content-Length: %d" % len(body),
        b"Connection: close",
    ]
    assert json.loads(body) == {"access_token": PLACEHOLDER, "expires_in": 1000, "token_type": "Bearer"}
    assert server.seen == [MetadataAnswered(200, "token", served=True)]


async def test_one_trailing_slash_and_a_query() -> None:
    async with serving(held) as server:
        assert b'"email": "default"' in await server.get(
            b"/computeMetadata/v1/instance/service-accounts/default/?recursive=true"
        )
        assert (await server.get(b"/computeMetadata/v1/")).endswith(b"\r\n\r\ncomputeMetadata/\n")
        assert (await server.get(b"/")).endswith(b"\r\n\r\ncomputeMetadata/\n")


async def test_on_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "m.sock"
    path.touch()  # what a killed proxy left behind
    async with serving(held, f"unix:{path}") as server:
        assert (await server.get(b"/")).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_head_of_4096_bytes_and_one_more() -> None:
    async with serving(held) as server:
        start = b"GET / HTTP/1.1\r\nMetadata-Flavor: Google\r\nX: "
        full = start + b"x" * (4096 - len(start) - 4) + b"\r\n\r\n"
        assert (await server.send(full)).startswith(b"HTTP/1.1 200 OK\r\n")
        assert await server.send(b"x" + full[:-4] + b"x\r\n\r\n") == (
            b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n"
        )
    assert [seen.status for seen in server.seen] == [200, 413]


@pytest.mark.parametrize(
    "data",
    [
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\r\nMetadata-Flavor : Google\r\n\r\n",
        b"GET / HTTP/1.1\nMetadata-Flavor: Google\n\n",
        b"GET /?a=%zz HTTP/1.1\r\nMetadata-Flavor: Google\r\n\r\n",
    ],
)
async def test_malformed_heads(data: bytes) -> None:
    async with serving(held) as server:
        assert (await server.send(data)).startswith(b"HTTP/1.1 400 Bad Request\r\n")


async def test_the_reply_to_a_post_with_a_body_arrives() -> None:
    body = b"x" * 100_000
    async with serving(held) as server:
        reply = await server.send(
            b"POST %b HTTP/1.1\r\nMetadata-Flavor: Google\r\nContent-Length: %d\r\n\r\n" % (TOKEN, len(body)) + body
        )
    assert reply.startswith(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/html\r\n")
    assert reply.endswith(b"\r\n\r\nMethod Not Allowed")


async def test_a_client_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "LIMITS", Limits(metadata_head_seconds=0.02))
    async with serving(held) as server:
        assert await server.send(b"GET / HT") == b""
        assert (await server.get(b"/")).startswith(b"HTTP/1.1 200 OK\r\n")
    assert [seen.status for seen in server.seen] == [200]


async def test_connections_beyond_the_bound_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "LIMITS", Limits(metadata_connections=2))
    async with serving(held) as server:
        silent = [await server.open() for _ in range(2)]
        waiting = asyncio.ensure_future(server.get(b"/"))
        done, _ = await asyncio.wait((waiting,), timeout=0.02)
        assert not done
        silent[0][1].close()
        assert (await waiting).startswith(b"HTTP/1.1 200 OK\r\n")
        silent[1][1].close()


async def test_a_crowd_is_served_by_and_by() -> None:
    async with serving(held) as server:
        replies = await asyncio.gather(*[server.get(TOKEN) for _ in range(100)])
    assert {reply.partition(b"\r\n")[0] for reply in replies} == {b"HTTP/1.1 200 OK"}


async def test_a_client_that_resets_costs_its_slot_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "LIMITS", Limits(metadata_connections=1))
    async with serving(held) as server:
        for _ in range(3):
            _, writer = await server.open()
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            writer.write(b"GET / HTTP/1.1\r\n")
            writer.close()
        assert (await server.get(b"/")).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_token_that_ends_soon_is_refreshed_first() -> None:
    now = {"view": held(100)}
    calls: list[str] = []

    async def refresh(provider: str) -> None:
        calls.append(provider)
        await asyncio.sleep(0.005)
        now["view"] = held(3600)

    async with serving(lambda: now["view"], refresh=refresh) as server:
        replies = await asyncio.gather(server.get(TOKEN), server.get(TOKEN))
    assert calls == ["gcp"]
    for reply in replies:
        assert json.loads(reply.partition(b"\r\n\r\n")[2])["expires_in"] in (3599, 3600)


async def test_a_refresh_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "LIMITS", Limits(metadata_refresh_seconds=0.02))
    cancelled = asyncio.Event()

    async def refresh(provider: str) -> None:
        try:
            await asyncio.sleep(0.06)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with serving(lambda: held(100), refresh=refresh) as server:
        reply = await server.get(TOKEN)
        assert json.loads(reply.partition(b"\r\n\r\n")[2])["expires_in"] in (99, 100)
        await asyncio.sleep(0.05)
    assert not cancelled.is_set()  # it goes on for the next one


async def test_a_refresh_that_fails_names_the_old_one() -> None:
    async def refresh(provider: str) -> None:
        raise RuntimeError("token endpoint away")

    async with serving(lambda: held(100), refresh=refresh) as server:
        assert (await server.get(TOKEN)).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_an_identity_token_for_a_listed_audience() -> None:
    async def mint(audience: str) -> Secret | None:
        return Secret("h.p.s") if audience == "https://a.example" else None

    path = b"/computeMetadata/v1/instance/service-accounts/default/identity?audience=https://%b.example&format=full"
    async with serving(lambda: held(audiences=("https://a.example", "https://b.example")), mint=mint) as server:
        assert (await server.get(path % b"a")).endswith(b"\r\n\r\nh.p.s")
        assert (await server.get(path % b"b")).startswith(b"HTTP/1.1 503 ")
        assert (await server.get(path % b"c")).startswith(b"HTTP/1.1 404 ")


async def test_a_bug_is_one_reply_not_the_end() -> None:
    views = iter([RuntimeError("sk-secret"), held()])

    def view() -> MetadataView:
        found = next(views)
        if isinstance(found, Exception):
            raise found
        return found

    async with serving(view) as server:
        first = await server.get(b"/")
        assert first.startswith(b"HTTP/1.1 500 ")
        assert b"sk-secret" not in first
        assert (await server.get(b"/")).startswith(b"HTTP/1.1 200 ")


def test_a_taken_port_is_an_error() -> None:
    with bind_metadata("127.0.0.1:0") as first, pytest.raises(OSError, match="in use"):
        bind_metadata(address_of(first))
