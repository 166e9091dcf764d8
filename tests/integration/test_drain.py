"""SIGTERM: what is idle goes at once, what works finishes, what never ends is cut in time, and it is told."""

import signal
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.origins import Conversation, Origin, OriginLoop, RawOrigin, echo, say_ok
from tests.support.proxy import LANES, EgressProcess, opaque, policy_text, rest
from tests.support.raw import Connection, client_context, dial, eventually, open_tunnel, start_tls

HOST = "origin.test"


class Site:
    def __init__(self, proxy: EgressProcess, tls: Origin, raw: RawOrigin) -> None:
        self.proxy = proxy
        self.tls = tls
        self.raw = raw

    def tunnel(self) -> Connection:
        opened = open_tunnel(self.proxy.port, f"{HOST}:{self.tls.port}")
        return start_tls(opened, client_context(self.proxy.ca), HOST)

    def get(self, client: Connection, path: str = "/x") -> None:
        client.send(f"GET {path} HTTP/1.1\r\nHost: {HOST}:{self.tls.port}\r\n\r\n".encode())

    def terminate(self) -> None:
        self.proxy.process.send_signal(signal.SIGTERM)

    def ended(self) -> int:
        return self.proxy.process.wait(10)


@pytest.fixture(scope="module")
def origins(origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[tuple[Origin, RawOrigin]]:
    tls, raw = Origin(origin_loop, authority.server_context(HOST)), RawOrigin(origin_loop)
    raw.script = echo
    yield tls, raw
    tls.stop()
    raw.stop()


def start(
    origins: tuple[Origin, RawOrigin], authority: OriginAuthority, settings: dict[str, Any] | None = None
) -> EgressProcess:
    policy = policy_text(rest(HOST, origins[0].port), opaque("raw.test", origins[1].port))
    aliases = dict.fromkeys((HOST, "raw.test"), "127.0.0.1")
    return EgressProcess(policy, aliases=aliases, trust=authority.ca_file, settings=settings)


@pytest.fixture(params=LANES)
def site(
    request: pytest.FixtureRequest, origins: tuple[Origin, RawOrigin], authority: OriginAuthority
) -> Iterator[Site]:
    with start(origins, authority, {**LANES[request.param], "timeouts": {"drain": "2s"}}) as proxy:
        yield Site(proxy, *origins)


def test_idle_connections_of_every_kind_go_at_once(site: Site) -> None:
    kept, tunnel = dial(site.proxy.port), site.tunnel()
    silent = open_tunnel(site.proxy.port, f"{HOST}:{site.tls.port}")
    site.get(tunnel)
    assert tunnel.reply().status == 200
    began = time.monotonic()
    site.terminate()
    assert kept.closed_by_peer()
    assert tunnel.closed_by_peer()
    assert silent.closed_by_peer()
    assert site.ended() == 0
    assert time.monotonic() - began < 1.9
    for client in (kept, tunnel, silent):
        client.close()


def test_nobody_new_is_let_in_while_work_finishes(site: Site) -> None:
    async def slow(talk: Conversation) -> None:
        await talk.body()
        await talk.pause(0.4)
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")

    site.tls.script = slow
    try:
        with site.tunnel() as client:
            seen = len(site.tls.requests)
            site.get(client, "/slow")
            assert eventually(lambda: len(site.tls.requests) > seen)
            site.terminate()
            assert eventually(lambda: _refused(site.proxy.port))
            assert client.reply().body == b"late"
            assert client.closed_by_peer()
        assert site.ended() == 0
    finally:
        site.tls.script = say_ok


def _refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        pass  # it stood in the queue when the listener closed
    return False


def test_what_never_ends_is_cut_when_the_time_is_up(site: Site) -> None:
    with open_tunnel(site.proxy.port, f"raw.test:{site.raw.port}") as raw:
        raw.send(b"\x00\x01\r\n")
        assert raw.exactly(4) == b"\x00\x01\r\n"
        began = time.monotonic()
        site.terminate()
        raw.send(b"\x02\x03\r\n")
        assert raw.exactly(4) == b"\x02\x03\r\n"
        assert raw.closed_by_peer()
        assert site.ended() == 0
        assert 1.8 < time.monotonic() - began < 10


def test_the_end_is_told_after_everything_else(site: Site) -> None:
    with site.tunnel() as client:
        site.get(client)
        assert client.reply().status == 200
    site.terminate()
    assert site.ended() == 0
    events = site.proxy.events()
    assert [event["activity_name"] for event in events if event["class_uid"] == 6002][-1] == "Stop"
    assert events[-1]["activity_name"] == "Stop"
    assert any(event.get("activity_name") == "Close" for event in events)
