"""How the process ends: drain on SIGTERM, at once on the second, and full disks on the way."""

import signal
import time
from collections.abc import Iterator

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.origins import Conversation, Origin, OriginLoop, say_ok
from tests.support.proxy import EgressProcess, policy_text, rest
from tests.support.raw import Connection, client_context, dial, eventually, open_tunnel, start_tls


@pytest.fixture
def origin(origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[Origin]:
    server = Origin(origin_loop, authority.server_context("origin.test"))
    yield server
    server.stop()


@pytest.fixture
def proxy(origin: Origin, authority: OriginAuthority) -> Iterator[EgressProcess]:
    policy = policy_text(rest("origin.test", origin.port))
    with EgressProcess(policy, aliases={"origin.test": "127.0.0.1"}, trust=authority.ca_file) as running:
        yield running


def tunnel(proxy: EgressProcess, origin: Origin) -> Connection:
    opened = open_tunnel(proxy.port, f"origin.test:{origin.port}")
    return start_tls(opened, client_context(proxy.ca), "origin.test")


async def slow_answer(talk: Conversation) -> None:
    await talk.body()
    await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")
    await talk.pause(0.8)
    await talk.send(b"half")


def reachable(proxy: EgressProcess) -> bool:
    try:
        dial(proxy.port).close()
    except OSError:
        return False
    return True


def ask(client: Connection, origin: Origin) -> None:
    client.send(f"GET / HTTP/1.1\r\nHost: origin.test:{origin.port}\r\n\r\n".encode())


def test_sigterm_finishes_what_is_in_flight(proxy: EgressProcess, origin: Origin) -> None:
    idle = tunnel(proxy, origin)
    ask(idle, origin)
    assert idle.reply().body == b"ok"
    origin.script = slow_answer
    busy = tunnel(proxy, origin)
    ask(busy, origin)
    assert busy.reply_head().status == 200
    proxy.process.send_signal(signal.SIGTERM)
    assert idle.closed_by_peer()
    assert eventually(lambda: not reachable(proxy))
    assert busy.exactly(8) == b"halfhalf"
    assert proxy.process.wait(10) == 0
    assert any(event.get("class_uid") == 6002 for event in proxy.events())


def test_second_sigterm_ends_at_once(proxy: EgressProcess, origin: Origin) -> None:
    async def stuck(talk: Conversation) -> None:
        await talk.drain_away()

    origin.script = stuck
    with tunnel(proxy, origin) as client:
        ask(client, origin)
        assert eventually(lambda: bool(origin.requests))
        proxy.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert proxy.process.poll() is None
        proxy.process.send_signal(signal.SIGTERM)
        proxy.process.wait(10)
        assert client.closed_by_peer()


def test_sigint_ends_too(proxy: EgressProcess) -> None:
    proxy.process.send_signal(signal.SIGINT)
    assert proxy.process.wait(10) == 0


def test_stop_says_nothing(proxy: EgressProcess, origin: Origin) -> None:
    origin.script = say_ok
    with tunnel(proxy, origin) as client:
        ask(client, origin)
        client.reply()
    proxy.process.send_signal(signal.SIGTERM)
    assert proxy.process.wait(10) == 0
    assert "Traceback" not in proxy.stderr()
