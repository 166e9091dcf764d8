"""Attempts through proxies on loopback: shares of the time, what a failure rules out, challenges, changed routes."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from egress.engine.carried import OriginStream
from egress.model.intent import Ingress
from egress.model.secret import Secret
from egress.model.verdict import Denial, DenialCode
from egress.upstream.bypass import Item, Kind
from egress.upstream.chain import Attempt, ChainDialer
from egress.upstream.credential import AuthScheme, CredentialFile
from egress.upstream.dial import Dialer, DialTimes
from egress.upstream.health import Health
from egress.upstream.plan import Chain, Hop, HopKind, PlainHttp, Routes, Rule, Target
from tests.unit.upstream.routes import pinned, place

type Say = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\n\r\n"
EVERYTHING = (Item(Kind.ANY),)


class Corporate:
    """Proxies on loopback, each a script; `heads` is what they were sent."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.attempts: list[Attempt] = []
        self._stack = AsyncExitStack()
        self._stack.push_async_callback(asyncio.sleep, 0.001)  # closed sockets are gone when the test is

    async def __aenter__(self) -> "Corporate":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def proxy(self, name: str, *replies: bytes, **more: Any) -> Hop:
        """Answers one head after the other, over all connections; without replies left it is silent."""
        left = list(replies)

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._stack.callback(writer.transport.abort)
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(f"{name}: {head}")
            if left:
                writer.write(left.pop(0))
            await reader.read()
            writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        self._stack.callback(server.close)
        return Hop(name, HopKind.HTTP, place("127.0.0.1", server.sockets[0].getsockname()[1]), **more)

    def dialer(self, *chains: Chain, seconds: float = 0.4, **more: Any) -> ChainDialer[OriginStream]:
        loop = asyncio.get_running_loop()
        sockets = Dialer(lambda: OriginStream(loop), DialTimes(1.0, 1.0))
        dialer = ChainDialer(sockets, Health(loop.time, lambda _hop, _up: None), loop, self.attempts.append)
        dialer.install(routes(*chains, seconds=seconds, **more), sockets)
        return dialer

    @property
    def asked(self) -> list[str]:
        """`NAME PLACE` per CONNECT."""
        return [f"{head.split(':')[0]} {head.split(' ')[2]}" for head in self.heads]


def routes(*chains: Chain, target: Target = Target.IP, seconds: float = 0.4, **more: Any) -> Routes:
    hops = tuple(hop for chain in chains for hop in chain)
    return Routes(rules=(Rule(EVERYTHING, chains, target),), seconds=seconds, hops=hops, **more)


async def dead(name: str) -> Hop:
    """A proxy whose port is closed."""
    server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    return Hop(name, HopKind.HTTP, place("127.0.0.1", port))


TWO = pinned("a.test", "198.51.100.1", "198.51.100.2")
FIRST, SECOND = "198.51.100.1:443", "198.51.100.2:443"


async def outcome(dialer: ChainDialer[OriginStream], ingress: Ingress = Ingress.CONNECT) -> str | None:
    """The reason word of a failure, None when it went through."""
    found = await dialer.dial(TWO, ingress)
    if isinstance(found, Denial):
        assert found.reason_code is not None
        return found.reason_code.value
    found.abort()
    return None


async def test_each_address_in_order_until_one_is_reached() -> None:
    async with Corporate() as corporate:
        hop = await corporate.proxy("corp", b"HTTP/1.1 503 Busy\r\n\r\n", OK)
        assert await outcome(corporate.dialer((hop,))) is None
        assert corporate.asked == [f"corp {FIRST}", f"corp {SECOND}"]


async def test_a_name_is_asked_for_once() -> None:
    async with Corporate() as corporate:
        hop = await corporate.proxy("corp", b"HTTP/1.1 503 Busy\r\n\r\n", OK)
        assert await outcome(corporate.dialer((hop,), target=Target.HOSTNAME)) == "proxy_refused_503"
        assert corporate.asked == ["corp a.test:443"]


async def test_a_proxy_that_swallows_the_first_request_does_not_starve_the_second() -> None:
    async with Corporate() as corporate:
        silent = await corporate.proxy("corp")
        started = asyncio.get_running_loop().time()
        found = await corporate.dialer((silent,)).dial(TWO, Ingress.CONNECT)
        elapsed = asyncio.get_running_loop().time() - started
        assert isinstance(found, Denial)
        assert (found.code, found.log_reason) == (
            DenialCode.UPSTREAM_TIMEOUT, "upstream proxy corp did not answer in time, 2 attempts",
        )  # fmt: skip
        assert corporate.asked == [f"corp {FIRST}", f"corp {SECOND}"]
        assert 0.4 <= elapsed < 0.7
        # Half each: what the first did not use would have gone to the second.
        assert [round(attempt.seconds, 1) for attempt in corporate.attempts] == [0.2, 0.2]


async def test_an_unreachable_proxy_is_left_at_once_for_the_next_chain() -> None:
    async with Corporate() as corporate:
        good = await corporate.proxy("good", OK)
        dialer = corporate.dialer((await dead("gone"),), (good,))
        assert await outcome(dialer) is None
        assert [attempt.hop.name for attempt in corporate.attempts] == ["gone", "good"]


@pytest.mark.parametrize(
    ("reply", "reason", "asked"),
    [
        (b"HTTP/1.1 403 No\r\n\r\n", "proxy_refused_403", [f"one {FIRST}", f"one {SECOND}"]),
        (b"HTTP/1.1 407 Who\r\n\r\n", "proxy_auth_rejected", [f"one {FIRST}"]),
        (b"HTTP/1.1 502 Bad\r\n\r\n", None, [f"one {FIRST}", f"one {SECOND}", f"two {FIRST}"]),
        (b"gibberish\r\n\r\n", None, [f"one {FIRST}", f"one {SECOND}", f"two {FIRST}"]),
    ],
)
async def test_a_decision_of_one_proxy_is_not_taken_to_another(
    reply: bytes, reason: str | None, asked: list[str]
) -> None:
    async with Corporate() as corporate:
        one = await corporate.proxy("one", reply, reply)
        two = await corporate.proxy("two", OK)
        assert await outcome(corporate.dialer((one,), (two,))) == reason
        assert corporate.asked == asked


async def test_refusals_say_nothing_about_health() -> None:
    async with Corporate() as corporate:
        one = await corporate.proxy("one", *[b"HTTP/1.1 403 No\r\n\r\n"] * 20)
        dialer = corporate.dialer((one,))
        for _ in range(5):
            await outcome(dialer)
        assert dialer.health.up(one)
        gone = await dead("gone")
        dialer = corporate.dialer((gone,))
        for _ in range(3):
            await outcome(dialer)
        assert not dialer.health.up(gone)


def challenge(nonce: str) -> bytes:
    return f'HTTP/1.1 407 Who\r\nProxy-Authenticate: Digest realm="r", nonce="{nonce}", qop="auth"\r\n\r\n'.encode()


def digest(tmp_path: Path) -> CredentialFile:
    path = tmp_path / "credential"
    path.touch(mode=0o600)
    path.write_text("user:s3cret")
    return CredentialFile(path, AuthScheme.DIGEST, Secret("user:s3cret"), 1.0)


async def test_a_challenge_is_answered_once_and_remembered(tmp_path: Path) -> None:
    async with Corporate() as corporate:
        hop = await corporate.proxy("corp", challenge("one"), OK, OK, challenge("two"), OK, credential=digest(tmp_path))
        dialer = corporate.dialer((hop,))
        for _ in range(3):
            assert await outcome(dialer) is None
        answers = [head.split('nonce="')[1].split('"')[0] if "nonce" in head else None for head in corporate.heads]
        assert answers == [None, "one", "one", "one", "two"]
        assert "s3cret" not in "".join(corporate.heads)


async def test_a_second_challenge_in_one_attempt_is_a_rejection(tmp_path: Path) -> None:
    async with Corporate() as corporate:
        hop = await corporate.proxy("corp", *[challenge("n")] * 9, credential=digest(tmp_path))
        assert await outcome(corporate.dialer((hop,))) == "proxy_auth_rejected"
        assert len(corporate.heads) == 2


async def test_absolute_form_needs_no_tunnel_and_says_who_we_are(tmp_path: Path) -> None:
    path = tmp_path / "credential"
    path.touch(mode=0o600)
    path.write_text("u:p")
    basic = CredentialFile(path, AuthScheme.BASIC, Secret("u:p"), 1.0)
    async with Corporate() as corporate:
        hop = await corporate.proxy("corp", credential=basic)
        dialer = corporate.dialer((hop,), plain_http=PlainHttp.ABSOLUTE_FORM)
        stream = await dialer.dial(TWO, Ingress.FORWARD)
        assert isinstance(stream, OriginStream)
        assert stream.absolute is not None
        assert stream.absolute() == b"Proxy-Authorization: Basic dTpw\r\n"
        path.write_text("u:new")
        assert stream.absolute() == b"Proxy-Authorization: Basic dTpuZXc=\r\n"
        stream.abort()
        assert corporate.heads == []


async def test_a_dial_follows_routes_that_change_under_it() -> None:
    async with Corporate() as corporate:
        silent, good = await corporate.proxy("silent"), await corporate.proxy("good", OK)
        dialer = corporate.dialer((silent,), seconds=0.2)

        async def change() -> None:
            await asyncio.sleep(0.05)
            dialer.routes = routes((good,))

        async with asyncio.TaskGroup() as group:
            group.create_task(change())
            found = await dialer.dial(TWO, Ingress.CONNECT)
        assert isinstance(found, OriginStream)
        assert found.route == dialer.route(TWO, Ingress.CONNECT)
        found.abort()


async def test_equal_routes_keep_their_identity() -> None:
    async with Corporate() as corporate:
        hop = await corporate.proxy("corp")
        dialer = corporate.dialer((hop,))
        before = dialer.routes
        dialer.install(replace(before), dialer._dialer)
        assert dialer.routes is before


async def test_what_was_opened_is_closed_when_the_dial_is_cancelled() -> None:
    async with Corporate() as corporate:
        ended = asyncio.Event()
        hop = await corporate.proxy("corp")

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            ended.set()
            writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        hop = replace(hop, place=place("127.0.0.1", server.sockets[0].getsockname()[1]))
        task = asyncio.create_task(corporate.dialer((hop,), seconds=5).dial(TWO, Ingress.CONNECT))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(1):
            await ended.wait()
        server.close()


async def test_a_reset_in_the_middle_is_told_as_one() -> None:
    async with Corporate() as corporate:
        hop = await corporate.proxy("corp", b"HTTP/1.1 200")
        dialer = corporate.dialer((hop,), seconds=0.2)
        assert await outcome(dialer) == "proxy_timeout"


async def test_a_proxy_that_turns_out_to_be_ourselves_is_not_asked() -> None:
    async with Corporate() as corporate:
        hop = await corporate.proxy("corp", OK)
        address = hop.place.host.address
        assert address is not None
        loop = asyncio.get_running_loop()
        sockets = Dialer(lambda: OriginStream(loop), DialTimes(1.0, 1.0))
        health = Health(loop.time, lambda _hop, _up: None)
        dialer = ChainDialer(sockets, health, loop, own=lambda: {(address, int(hop.place.port))})
        dialer.install(routes((hop,)), sockets)
        assert await outcome(dialer) == "proxy_connect_failed"
        assert corporate.heads == []
