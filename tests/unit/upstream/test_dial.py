"""Dialling over loopback addresses that answer, refuse, or say nothing."""

import asyncio
import errno
import ipaddress
import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from egress.engine.stream import Stream
from egress.model.address import Origin, Port, Scheme, parse_host
from egress.model.destination import DialMode, PinnedDestination
from egress.model.errors import Side
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage
from egress.upstream.dial import STAGGER_SECONDS, Dialer, DialTimes, _denial


def dialer(address: float = 2.0, total: float = 5.0) -> Dialer[Stream]:
    loop = asyncio.get_running_loop()
    return Dialer(lambda: Stream(loop, Side.UPSTREAM), DialTimes(address, total))


def pinned(port: int, *addresses: str) -> PinnedDestination:
    origin = Origin(Scheme.TCP, parse_host("a.test"), Port(port))
    return PinnedDestination(origin, tuple(map(ipaddress.ip_address, addresses)), DialMode.ALIAS)


@contextmanager
def listening(*addresses: str, port: int = 0) -> Iterator[tuple[int, list[socket.socket]]]:
    """Listeners on one port of several loopback addresses."""
    sockets: list[socket.socket] = []
    try:
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            sockets.append(socket.create_server((address, port), family=family))
            port = sockets[0].getsockname()[1]
        yield port, sockets
    finally:
        for sock in sockets:
            sock.close()


@contextmanager
def silent(address: str) -> Iterator[int]:
    """A port whose queue is full: a connection attempt there meets silence."""
    with socket.create_server((address, 0), backlog=0) as sock:
        port = sock.getsockname()[1]
        fillers = []
        for _ in range(3):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex((address, port))
            fillers.append(filler)
        time.sleep(0.01)
        yield port
        for filler in fillers:
            filler.close()


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_one_address(address: str) -> None:
    with listening(address) as (port, sockets):
        stream = await dialer().dial(pinned(port, address))
        assert isinstance(stream, Stream)
        accepted, _ = sockets[0].accept()
        stream.write(b"hello")
        await asyncio.sleep(0.01)
        assert accepted.recv(10) == b"hello"
        assert stream._transport is not None
        assert stream._transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        stream.abort()
        accepted.close()


async def test_a_refusal() -> None:
    port = closed_port()
    assert await dialer().dial(pinned(port, "127.0.0.1")) == Denial(
        Stage.UPSTREAM,
        DenialCode.UPSTREAM_UNREACHABLE,
        f"connection to a.test:{port} failed",
        ReasonCode.CONNECT_REFUSED,
    )


async def test_all_addresses_refuse_the_first_is_told() -> None:
    denial = await dialer().dial(pinned(closed_port(), "127.0.0.1", "127.0.0.2", "127.0.0.3"))
    assert isinstance(denial, Denial)
    assert (denial.code, denial.reason_code) == (DenialCode.UPSTREAM_UNREACHABLE, ReasonCode.CONNECT_REFUSED)


async def test_silence_meets_the_deadline_of_one_address() -> None:
    with silent("127.0.0.2") as port:
        began = time.monotonic()
        denial = await dialer(address=0.05).dial(pinned(port, "127.0.0.2"))
        assert time.monotonic() - began < 1
    assert isinstance(denial, Denial)
    assert (denial.code, denial.reason_code) == (DenialCode.UPSTREAM_TIMEOUT, ReasonCode.CONNECT_TIMEOUT)
    assert denial.reason == f"connection to a.test:{port} timed out"


async def test_silence_everywhere_meets_the_deadline_of_all() -> None:
    with silent("127.0.0.2") as port:
        began = time.monotonic()
        denial = await dialer(address=5, total=0.05).dial(pinned(port, "127.0.0.2", "127.0.0.2"))
        assert time.monotonic() - began < 1
    assert isinstance(denial, Denial)
    assert denial.code is DenialCode.UPSTREAM_TIMEOUT


async def test_a_silent_address_has_only_a_head_start() -> None:
    with silent("127.0.0.2") as port, listening("127.0.0.3", port=port) as (_, sockets):
        began = time.monotonic()
        stream = await dialer().dial(pinned(port, "127.0.0.2", "127.0.0.3"))
        assert isinstance(stream, Stream)
        assert STAGGER_SECONDS * 0.9 < time.monotonic() - began < 1
        assert stream._transport is not None
        assert stream._transport.get_extra_info("peername") == ("127.0.0.3", port)
        stream.abort()
        sockets[0].accept()[0].close()


async def test_a_refusal_hands_the_head_start_on() -> None:
    with listening("127.0.0.3") as (port, _):
        began = time.monotonic()
        stream = await dialer().dial(pinned(port, "127.0.0.2", "127.0.0.3"))
        assert isinstance(stream, Stream)
        assert time.monotonic() - began < STAGGER_SECONDS / 2
        stream.abort()


async def test_the_order_of_the_addresses_decides_where_all_answer() -> None:
    with listening("127.0.0.1", "127.0.0.2", "127.0.0.3") as (port, sockets):
        stream = await dialer().dial(pinned(port, "127.0.0.2", "127.0.0.3", "127.0.0.1"))
        assert isinstance(stream, Stream)
        assert stream._transport is not None
        assert stream._transport.get_extra_info("peername")[0] == "127.0.0.2"
        stream.abort()
        for sock in sockets[::2]:
            sock.setblocking(False)
            with pytest.raises(BlockingIOError):
                sock.accept()


async def test_nothing_but_the_pinned_addresses_is_dialled() -> None:
    """The name of the origin is not looked at again."""
    with listening("127.0.0.5") as (port, _):
        stream = await dialer().dial(pinned(port, "127.0.0.5"))
        assert isinstance(stream, Stream)
        stream.abort()


async def test_a_cancelled_dial_leaves_no_socket() -> None:
    before = _open_descriptors()
    with silent("127.0.0.2") as port:
        held = _open_descriptors()
        dialling = asyncio.create_task(dialer().dial(pinned(port, "127.0.0.2", "127.0.0.2")))
        await asyncio.sleep(STAGGER_SECONDS + 0.05)
        assert _open_descriptors() == held + 2
        dialling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialling
        assert _open_descriptors() == held
    assert _open_descriptors() == before


@pytest.mark.parametrize("turns", range(9))
async def test_a_winner_that_nobody_waits_for_any_more_is_closed(turns: int) -> None:
    """Cancelled some turns after the connection came up: it is returned, or it is closed."""
    with listening("127.0.0.1", "127.0.0.2") as (port, _):
        made: list[Stream] = []
        loop = asyncio.get_running_loop()

        def cancel_after(left: int) -> None:
            if left:
                loop.call_soon(cancel_after, left - 1)
            else:
                dialling.cancel()

        def make() -> Stream:
            stream = Stream(loop, Side.UPSTREAM)
            made.append(stream)
            cancel_after(turns)
            return stream

        dialling = asyncio.create_task(Dialer(make, DialTimes()).dial(pinned(port, "127.0.0.1", "127.0.0.2")))
        await asyncio.wait((dialling,))
        await asyncio.sleep(0.01)
        kept = None if dialling.cancelled() else dialling.result()
        assert [stream.lost for stream in made if stream is not kept] == [True] * (len(made) - (kept is not None))
        if isinstance(kept, Stream):
            kept.abort()


async def test_no_descriptor_left_is_overload() -> None:
    with listening("127.0.0.1") as (port, _):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket() as probe:
            lowest = probe.fileno()
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
        try:
            denial = await dialer().dial(pinned(port, "127.0.0.1"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert isinstance(denial, Denial)
    assert (denial.code, denial.reason_code) == (DenialCode.OVERLOADED, ReasonCode.DESCRIPTORS)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ECONNREFUSED, ReasonCode.CONNECT_REFUSED),
        (errno.ECONNRESET, ReasonCode.CONNECT_REFUSED),
        (errno.EHOSTUNREACH, ReasonCode.NO_ROUTE),
        (errno.ENETUNREACH, ReasonCode.NO_ROUTE),
        (errno.EADDRNOTAVAIL, ReasonCode.NO_ROUTE),
        (errno.EAFNOSUPPORT, ReasonCode.NO_ROUTE),
    ],
)
def test_what_the_system_says_in_our_words(number: int, reason: ReasonCode) -> None:
    denial = _denial(pinned(443, "192.0.2.1"), OSError(number, "words of the system about 192.0.2.1"))
    assert (denial.code, denial.reason_code) == (DenialCode.UPSTREAM_UNREACHABLE, reason)
    assert "192.0.2.1" not in denial.reason


def _open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
