"""Many connections at once: idle tunnels, parallel downloads, abandoned halves. Nothing leaks, nothing hangs."""

import hashlib
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.origins import Origin, OriginLoop, answer, say_ok
from tests.support.proxy import EgressProcess, many_descriptors, policy_text, rest
from tests.support.raw import (
    Connection,
    ConnectRefused,
    EndOfStream,
    client_context,
    connect_head,
    dial,
    eventually,
    open_tunnel,
    start_tls,
)
from tests.support.workload import Workload

IDLE_TUNNELS = 1000
DOWNLOADS = 200
ABANDONED = 150

SHORT = {
    "limits": {"connections": 3000, "connections_per_caller": 3000},
    "timeouts": {"head": "1s", "tunnel_start": "1s", "keepalive": "1s", "body_idle": "1s", "tls_handshake": "1s"},
}
PATIENT = {
    "limits": {"connections": 3000, "connections_per_caller": 3000},
    "timeouts": {"tls_handshake": "60s", "head": "60s", "connect": "60s"},
}
"""One client that opens 200 connections at once on a busy machine takes more than the usual 10 s for a handshake."""

BODY = bytes(range(256)) * 1024


@pytest.fixture(scope="module")
def origin(origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[Origin]:
    server = Origin(origin_loop, authority.server_context("origin.test"))
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def room(origin: Origin) -> Iterator[None]:
    origin.script = say_ok
    origin.recording = False
    with many_descriptors(8000):
        yield


def start(origin: Origin, authority: OriginAuthority, settings: Mapping[str, object]) -> EgressProcess:
    return EgressProcess(
        policy_text(rest("origin.test", origin.port)),
        aliases={"origin.test": "127.0.0.1"},
        trust=authority.ca_file,
        settings=settings,
        descriptors=8000,
    )


def ask(client: Connection, origin: Origin, path: str = "/") -> bytes:
    client.send(f"GET {path} HTTP/1.1\r\nHost: origin.test:{origin.port}\r\n\r\n".encode())
    return client.reply().body


def warm_up(proxy: EgressProcess, origin: Origin) -> None:
    """What is made once per process is made before anything is measured."""
    context = client_context(proxy.ca)
    for _ in range(20):
        with start_tls(open_tunnel(proxy.port, f"origin.test:{origin.port}"), context, "origin.test") as client:
            assert ask(client, origin) == b"ok"


@pytest.mark.timeout(120)
def test_a_thousand_idle_tunnels(origin: Origin, authority: OriginAuthority) -> None:
    with start(origin, authority, PATIENT) as proxy, ExitStack() as tunnels:
        warm_up(proxy, origin)
        before, memory = proxy.descriptors(), proxy.resident()
        context = client_context(proxy.ca)
        held = []
        for _ in range(IDLE_TUNNELS):
            client = start_tls(open_tunnel(proxy.port, f"origin.test:{origin.port}"), context, "origin.test")
            held.append(tunnels.enter_context(client))
            assert ask(client, origin) == b"ok"
        # An idle tunnel has given its upstream connection back: one descriptor each, and a few warm ones.
        assert abs(proxy.descriptors() - before - IDLE_TUNNELS) <= 40
        grown = (proxy.resident() - memory) / IDLE_TUNNELS
        assert grown < 64 * 1024, f"{grown / 1024:.0f} KiB per idle tunnel"
        for client in (held[0], held[IDLE_TUNNELS // 2], held[-1]):
            assert ask(client, origin) == b"ok"
        tunnels.close()
        assert eventually(lambda: proxy.descriptors() <= before + 40), proxy.descriptors() - before
        again = start_tls(open_tunnel(proxy.port, f"origin.test:{origin.port}"), context, "origin.test")
        with again:
            assert ask(again, origin) == b"ok"


@pytest.mark.timeout(120)
def test_two_hundred_downloads_at_once(origin: Origin, authority: OriginAuthority, tmp_path: Path) -> None:
    origin.script = answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)
    with start(origin, authority, PATIENT) as proxy:
        workload = Workload(proxy, tmp_path)
        workload.run("curl", "-sSf", "-o", "warm", f"https://origin.test:{origin.port}/warm")
        before, memory = proxy.descriptors(), proxy.resident()
        done = workload.run(
            "curl", "-sSf", "--parallel", "--parallel-immediate", "--parallel-max", str(DOWNLOADS), "--http1.1",
            "--no-keepalive", "-o", "got-#1", f"https://origin.test:{origin.port}/[1-{DOWNLOADS}]",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        digests = {hashlib.sha256((tmp_path / f"got-{n}").read_bytes()).digest() for n in range(1, DOWNLOADS + 1)}
        assert digests == {hashlib.sha256(BODY).digest()}
        assert eventually(lambda: proxy.descriptors() <= before + 40)
        # What the buffers took goes back once the crowd has left.
        assert eventually(lambda: proxy.resident() - memory < 200 * 256 * 1024, 20)


def before_connect(proxy: EgressProcess, _origin: Origin) -> Connection:
    return dial(proxy.port)


def inside_the_first_head(proxy: EgressProcess, _origin: Origin) -> Connection:
    client = dial(proxy.port)
    client.send(b"CONNECT origin.test:1 HTTP/1.1\r\nHo")
    return client


def before_the_hello(proxy: EgressProcess, origin: Origin) -> Connection:
    return open_tunnel(proxy.port, f"origin.test:{origin.port}")


def inside_the_hello(proxy: EgressProcess, origin: Origin) -> Connection:
    client = open_tunnel(proxy.port, f"origin.test:{origin.port}")
    client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    return client


def inside_an_inner_head(proxy: EgressProcess, origin: Origin) -> Connection:
    client = open_tunnel(proxy.port, f"origin.test:{origin.port}")
    client.send(b"GET / HTTP/1.1\r\nHost: ori")
    return client


def idle_keep_alive(proxy: EgressProcess, origin: Origin) -> Connection:
    tunnel = open_tunnel(proxy.port, f"origin.test:{origin.port}")
    client = start_tls(tunnel, client_context(proxy.ca), "origin.test")
    assert ask(client, origin) == b"ok"
    return client


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "abandon",
    [before_connect, inside_the_first_head, before_the_hello, inside_the_hello, inside_an_inner_head, idle_keep_alive],
)
def test_abandoned_connections_are_reaped(
    origin: Origin, authority: OriginAuthority, abandon: Callable[[EgressProcess, Origin], Connection]
) -> None:
    """O-52: clients that stay connected and say nothing more cost nothing once a deadline has passed."""
    with start(origin, authority, SHORT) as proxy, ExitStack() as held:
        warm_up(proxy, origin)
        time.sleep(0.1)
        before = proxy.descriptors()
        for _ in range(ABANDONED):
            held.enter_context(abandon(proxy, origin))
        assert eventually(lambda: proxy.descriptors() <= before + 20), proxy.descriptors() - before


@pytest.mark.timeout(60)
def test_descriptors_exhausted_and_recovered(origin: Origin, authority: OriginAuthority) -> None:
    """New clients are answered or wait their turn, and the proxy works again as soon as some have left."""
    settings = {"limits": {"connections": 3000, "connections_per_caller": 3000}}
    proxy = EgressProcess(
        policy_text(rest("origin.test", origin.port)),
        aliases={"origin.test": "127.0.0.1"},
        trust=authority.ca_file,
        settings=settings,
        descriptors=128,
    )
    with proxy, ExitStack() as crowd:
        warm_up(proxy, origin)
        before = proxy.descriptors()
        for _ in range(200):
            crowd.enter_context(dial(proxy.port))
        assert eventually(lambda: proxy.descriptors() >= 120)
        processor = _processor_seconds(proxy)
        time.sleep(1.0)
        assert _processor_seconds(proxy) - processor < 0.5, "the accept loop spins"
        crowd.close()
        context = client_context(proxy.ca)

        def served() -> bool:
            with suppress(OSError, EndOfStream, ConnectRefused):
                tunnel = open_tunnel(proxy.port, f"origin.test:{origin.port}")
                with start_tls(tunnel, context, "origin.test") as client:
                    return ask(client, origin) == b"ok"
            return False

        assert eventually(served)
        assert eventually(lambda: proxy.descriptors() <= before + 20)


@pytest.mark.timeout(60)
def test_connection_cap_is_told(origin: Origin, authority: OriginAuthority) -> None:
    settings = {"limits": {"connections": 50, "connections_per_caller": 20}}
    with start(origin, authority, settings) as proxy, ExitStack() as crowd:
        for _ in range(20):
            crowd.enter_context(dial(proxy.port))
        with dial(proxy.port) as one_more:
            one_more.send(connect_head(f"origin.test:{origin.port}"))
            reply = one_more.reply()
        assert (reply.status, reply.error) == (503, "overloaded")
        assert reply.json()["reason_code"] == "caller_connections"
        assert reply.value("retry-after") is not None
        crowd.close()
        assert eventually(lambda: _connects(proxy, origin))


def _connects(proxy: EgressProcess, origin: Origin) -> bool:
    with dial(proxy.port) as client:
        client.send(connect_head(f"origin.test:{origin.port}"))
        return client.reply("CONNECT").status == 200


def _processor_seconds(proxy: EgressProcess) -> float:
    fields = Path(f"/proc/{proxy.pid}/stat").read_text().rsplit(")", 1)[1].split()
    ticks = int(subprocess.run(["getconf", "CLK_TCK"], capture_output=True, text=True, check=True).stdout)
    return (int(fields[11]) + int(fields[12])) / ticks
