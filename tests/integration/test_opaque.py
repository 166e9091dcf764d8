"""Bytes relayed unread: which tunnels are, that nothing is lost or held back, and how they end."""

import ssl
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.origins import Conversation, Origin, OriginLoop, RawOrigin, echo, greet_first
from tests.support.proxy import EgressProcess, opaque, policy_text, rest
from tests.support.raw import Connection, connect_head, dial, eventually, open_tunnel

HOSTS = ("echo.test", "banner.test", "skip.test", "judged.test", "waits.test")


class Site:
    def __init__(self, proxy: EgressProcess, origins: dict[str, Origin]) -> None:
        self.proxy = proxy
        self.origins = origins

    def authority(self, name: str) -> str:
        return f"{name}:{self.origins[name].port}"

    def tunnel(self, name: str) -> Connection:
        return open_tunnel(self.proxy.port, self.authority(name))

    def closed(self, port: int) -> list[dict[str, Any]]:
        """Ends of connections from this port that the opaque lane carried, so far."""
        return [
            event
            for event in self.proxy.events()
            if event.get("activity_name") == "Close"
            and event["unmapped"].get("lane") == "opaque"
            and event["src_endpoint"]["port"] == port
        ]


@pytest.fixture(scope="module")
def site(origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[Site]:
    echoing, greeting, judged, waiting = (RawOrigin(origin_loop) for _ in range(4))
    skipped = RawOrigin(origin_loop, authority.server_context("skip.test"))
    echoing.script = skipped.script = judged.script = waiting.script = echo
    greeting.script = greet_first(b"SSH-2.0-test\r\n")
    origins: dict[str, Origin] = dict(zip(HOSTS, (echoing, greeting, skipped, judged, waiting), strict=True))
    policy = policy_text(
        opaque("echo.test", echoing.port),
        opaque("banner.test", greeting.port, detect_timeout="200ms"),
        opaque("skip.test", skipped.port, tls="skip"),
        rest("judged.test", judged.port),
        opaque("waits.test", waiting.port, detect_timeout=0),
    )
    with EgressProcess(
        policy,
        aliases=dict.fromkeys(HOSTS, "127.0.0.1"),
        trust=authority.ca_file,
        settings={"timeouts": {"tunnel_start": "500ms"}},
    ) as proxy:
        yield Site(proxy, origins)
    for origin in origins.values():
        origin.stop()


def test_a_server_that_speaks_first_is_heard_after_the_detection_time(site: Site) -> None:
    with site.tunnel("banner.test") as client:
        began = time.monotonic()
        assert client.until(b"\r\n") == b"SSH-2.0-test\r\n"
        assert 0.1 < time.monotonic() - began < 8
        client.send(b"SSH-2.0-client\r\n")
        assert client.until(b"\r\n") == b"SSH-2.0-client\r\n"


def test_detection_may_wait_for_ever(site: Site) -> None:
    with site.tunnel("waits.test") as client:
        time.sleep(0.6)
        client.send(b"\x01late\r\n")
        assert client.until(b"\r\n") == b"\x01late\r\n"


def test_silence_where_requests_are_judged_ends_the_tunnel(site: Site) -> None:
    with site.tunnel("judged.test") as client:
        began = time.monotonic()
        assert client.closed_by_peer()
        assert time.monotonic() - began < 8


def test_a_few_bytes_at_a_time_win_no_time_there(site: Site) -> None:
    with site.tunnel("judged.test") as client:
        began = time.monotonic()
        ended = False
        for byte in b"ABCDEFGHIJKLMNOPQRST":
            time.sleep(0.1)
            try:
                client.send(bytes([byte]))
            except OSError:
                ended = True
                break
        assert ended or client.closed_by_peer()
        assert time.monotonic() - began < 8


def test_a_line_that_is_no_request_is_refused_in_words_of_http(site: Site) -> None:
    with site.tunnel("judged.test") as client:
        client.send(b"EHLO client.test\r\n")
        reply = client.reply()
        assert (reply.status, reply.error) == (403, "unsupported_l7_protocol")
        assert reply.json()["detail"] == "Unsupported tunnel protocol for L7-inspected endpoint"
        assert client.closed_by_peer()
    assert not site.origins["judged.test"].take()


def test_skipped_tls_shows_the_origins_own_certificate(site: Site, authority: OriginAuthority) -> None:
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    with site.tunnel("skip.test") as tunnel, context.wrap_socket(tunnel.socket, server_hostname="skip.test") as tls:
        tls.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert tls.recv(100) == b"GET / HTTP/1.1\r\n\r\n"


def test_bytes_sent_with_connect_come_first_and_whole(site: Site) -> None:
    early = b"\x00" + bytes(range(256)) * 200
    with dial(site.proxy.port) as client:
        client.send(connect_head(site.authority("echo.test")) + early)
        assert client.reply("CONNECT").status == 200
        assert client.exactly(len(early)) == early


def test_a_half_close_is_passed_on_and_the_rest_comes_back(site: Site) -> None:
    async def count_then_tell(talk: Conversation) -> None:
        await talk.send(b"%d" % await talk.drain_away())

    site.origins["echo.test"].script = count_then_tell
    try:
        with site.tunnel("echo.test") as client:
            client.send(b"\x00" * 100_000)
            client.finish_sending()
            assert client.rest() == b"100000"
    finally:
        site.origins["echo.test"].script = echo


def test_megabytes_both_ways_at_once(site: Site) -> None:
    total = 24 << 20
    block = bytes(range(256)) * 256
    with site.tunnel("echo.test") as client:
        before = site.proxy.resident()

        def send() -> None:
            client.send(b"\x00")
            for _ in range(total // len(block)):
                client.send(block)

        sender = threading.Thread(target=send)
        sender.start()
        assert client.exactly(1) == b"\x00"
        for _ in range(total // len(block)):
            assert client.exactly(len(block)) == block
        sender.join()
        assert site.proxy.resident() - before < 24 << 20


def test_the_end_is_told_with_its_bytes(site: Site) -> None:
    with site.tunnel("echo.test") as client:
        port = client.socket.getsockname()[1]
        client.send(b"\x00" * 1000)
        assert client.exactly(1000)
    assert eventually(lambda: bool(site.closed(port)))
    traffic = site.closed(port)[-1]["traffic"]
    assert (traffic["bytes_out"], traffic["bytes_in"]) == (1000, 1000)
