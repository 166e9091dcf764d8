"""Peers that are slow, silent or gone: deadlines hold, memory stays bounded, the other side learns of it."""

import hashlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.origins import REPLY_OK, Conversation, Origin, OriginLoop, RawOrigin, never_answer, say_ok
from tests.support.proxy import LANES, EgressProcess, opaque, policy_text, rest
from tests.support.raw import Connection, client_context, eventually, open_tunnel, start_tls

MIB = 1024 * 1024
ENDLESS = 512 * MIB


@dataclass
class Site:
    proxy: EgressProcess
    origin: Origin
    raw: RawOrigin

    def tunnel(self) -> Connection:
        tunnel = open_tunnel(self.proxy.port, f"origin.test:{self.origin.port}")
        return start_tls(tunnel, client_context(self.proxy.ca), "origin.test")

    def get(self, client: Connection, path: str = "/") -> None:
        client.send(f"GET {path} HTTP/1.1\r\nHost: origin.test:{self.origin.port}\r\n\r\n".encode())


@pytest.fixture(scope="module", params=LANES)
def site(request: pytest.FixtureRequest, origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[Site]:
    origin = Origin(origin_loop, authority.server_context("origin.test"))
    raw = RawOrigin(origin_loop)
    settings = LANES[request.param] | {
        "timeouts": {
            "head": "1s", "body_idle": "1s", "tunnel_start": "1s", "keepalive": "1s", "response_head": "2s",
            "response_idle": "1s", "half_closed": "1s", "raw_idle": "1s",
        }
    }  # fmt: skip
    policy = policy_text(rest("origin.test", origin.port), opaque("raw.test", raw.port))
    aliases = dict.fromkeys(("origin.test", "raw.test"), "127.0.0.1")
    with EgressProcess(policy, aliases=aliases, trust=authority.ca_file, settings=settings) as proxy:
        running = Site(proxy, origin, raw)
        with running.tunnel() as client:
            running.get(client)
            client.reply()
        yield running
    origin.stop()
    raw.stop()


@pytest.fixture(autouse=True)
def fresh(site: Site) -> Iterator[None]:
    """Every test leaves the proxy with the descriptors it found, apart from a few warm connections."""
    site.origin.script = say_ok
    site.origin.recording = False
    site.origin.requests.clear()
    before = site.proxy.descriptors()
    yield
    assert eventually(lambda: site.proxy.descriptors() <= before + 4), site.proxy.descriptors() - before


async def endless(talk: Conversation) -> None:
    await talk.body()
    await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % ENDLESS)
    block = bytes(65536)
    for _ in range(ENDLESS // len(block)):
        await talk.send(block)


def test_slow_reader_holds_the_origin_back(site: Site) -> None:
    """Back-pressure: what is in flight is bounded by buffers, not by the size of the download."""
    site.origin.script = endless
    with site.tunnel() as client:
        memory = site.proxy.resident()
        site.get(client)
        client.exactly(1000)
        time.sleep(0.7)
        sent = site.origin.latest.sent
        assert sent < 24 * MIB
        for _ in range(4):
            client.exactly(100_000)
            time.sleep(0.3)
        assert site.origin.latest.sent < sent + 24 * MIB
        assert site.proxy.resident() - memory < 16 * MIB


def test_vanished_client_stops_the_download(site: Site) -> None:
    """O-53: within a second the origin is left alone."""
    site.origin.script = endless
    client = site.tunnel()
    site.get(client)
    client.exactly(100_000)
    port = client.socket.getsockname()[1]
    client.close()
    assert eventually(lambda: site.origin.latest.closed)
    assert site.origin.latest.sent < ENDLESS
    assert eventually(lambda: told(site.proxy, "HTTP Activity", port, "outcome") == "client_gone")
    assert "Traceback" not in site.proxy.stderr()


def test_reset_by_the_client(site: Site) -> None:
    site.origin.script = endless
    tunnel = open_tunnel(site.proxy.port, f"origin.test:{site.origin.port}")
    # The descriptor of the TCP socket moves into the TLS one; the option stays with it.
    tunnel.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client = start_tls(tunnel, client_context(site.proxy.ca), "origin.test")
    site.get(client)
    client.exactly(10_000)
    client.close()
    assert eventually(lambda: site.origin.latest.closed)


def test_client_vanishes_before_the_reply(site: Site) -> None:
    site.origin.script = never_answer
    client = site.tunnel()
    site.get(client)
    assert eventually(lambda: bool(site.origin.requests))
    time.sleep(0.1)
    client.close()
    assert eventually(lambda: site.origin.latest.closed)


def test_origin_resets_in_the_middle(site: Site) -> None:
    async def script(talk: Conversation) -> None:
        await talk.body()
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + bytes(10_000))
        await talk.pause(0.1)
        talk.reset()

    site.origin.script = script
    with site.tunnel() as client:
        site.get(client)
        reply = client.reply()
    assert (reply.status, reply.complete) == (200, False)


def test_origin_that_never_answers(site: Site) -> None:
    site.origin.script = never_answer
    began = time.monotonic()
    with site.tunnel() as client:
        site.get(client)
        reply = client.reply()
    assert (reply.status, reply.error) == (504, "upstream_timeout")
    assert 1.5 < time.monotonic() - began < 9


def test_origin_that_stalls_in_a_body(site: Site) -> None:
    """A deadline is never presented as a clean end."""

    async def script(talk: Conversation) -> None:
        await talk.body()
        await talk.send(b"HTTP/1.1 200 OK\r\n\r\npart of it")
        await talk.drain_away()

    site.origin.script = script
    with site.tunnel() as client:
        site.get(client)
        reply = client.reply()
    assert reply.body == b"part of it"
    assert not reply.complete


def test_slow_head_is_timed_out(site: Site) -> None:
    """One byte at a time does not extend the deadline of a head."""
    with site.tunnel() as client:
        stop = threading.Event()
        text = b"GET / HTTP/1.1\r\nX-Slow: " + b"a" * 100

        def trickle() -> None:
            for byte in text:
                if stop.wait(0.1):
                    return
                try:
                    client.send(bytes([byte]))
                except OSError:
                    return

        writer = threading.Thread(target=trickle)
        writer.start()
        try:
            reply = client.reply()
        finally:
            stop.set()
            writer.join()
    assert (reply.status, reply.error) == (408, "request_timeout")


def test_stalled_upload_is_timed_out(site: Site) -> None:
    with site.tunnel() as client:
        client.send(
            f"POST /up HTTP/1.1\r\nHost: origin.test:{site.origin.port}\r\nContent-Length: 100\r\n\r\nabc".encode()
        )
        reply = client.reply()
    assert (reply.status, reply.error) == (408, "request_timeout")
    assert eventually(lambda: site.origin.latest.closed)


def test_slow_but_steady_upload_is_not(site: Site) -> None:
    """Nor does it take from the time that the origin has for its answer."""

    async def think(talk: Conversation) -> None:
        await talk.body()
        await talk.pause(0.6)
        await talk.send(REPLY_OK)

    site.origin.script = think
    payload = os.urandom(4)
    with site.tunnel() as client:
        client.send(f"POST /up HTTP/1.1\r\nHost: origin.test:{site.origin.port}\r\nContent-Length: 4\r\n\r\n".encode())
        for byte in payload:
            time.sleep(0.4)
            client.send(bytes([byte]))
        reply = client.reply()
    assert reply.status == 200


def test_origin_that_does_not_read_holds_the_client_back(site: Site) -> None:
    async def script(talk: Conversation) -> None:
        await talk.pause(1.5)
        talk.close()

    site.origin.script = script
    with site.tunnel() as client:
        client.send(
            f"POST /up HTTP/1.1\r\nHost: origin.test:{site.origin.port}\r\nContent-Length: {ENDLESS}\r\n\r\n".encode()
        )
        client.socket.settimeout(0.5)
        memory = site.proxy.resident()
        sent = send_until_held_back(client)
        assert sent < 24 * MIB
        assert site.proxy.resident() - memory < 16 * MIB


def send_until_held_back(client: Connection) -> int:
    """Bytes that went out before the socket stayed full for its deadline."""
    block = bytes(65536)
    for sent in range(0, 64 * MIB, len(block)):
        try:
            client.send(block)
        except TimeoutError:
            return sent
    return 64 * MIB


def test_idle_keep_alive_ends(site: Site) -> None:
    with site.tunnel() as client:
        site.get(client)
        assert client.reply().body == b"ok"
        assert client.closed_by_peer()


def test_silent_raw_tunnel_ends_where_a_limit_is_set(site: Site) -> None:
    async def script(talk: Conversation) -> None:
        await talk.send(b"\x00hello")
        await talk.drain_away()

    site.raw.script = script
    with open_tunnel(site.proxy.port, f"raw.test:{site.raw.port}") as client:
        client.send(b"\x00")
        assert client.exactly(6) == b"\x00hello"
        assert client.closed_by_peer()
        port = client.socket.getsockname()[1]
    assert eventually(lambda: told(site.proxy, "Network Activity", port, "limit") == "timeouts.raw_idle")


def told(proxy: EgressProcess, kind: str, port: int, name: str) -> str | None:
    """A word of the last event of this class about the connection from this client port."""
    mine = [event for event in proxy.events() if event.get("src_endpoint", {}).get("port") == port]
    named = [event["unmapped"].get(name) for event in mine if event["class_name"] == kind]
    return named[-1] if named else None


def test_half_closed_tunnel_is_reaped(site: Site) -> None:
    """O-27: one direction ended, the other silent for longer than `half_closed`."""
    closed = threading.Event()

    async def script(talk: Conversation) -> None:
        await talk.drain_away()
        await talk.pause(3)
        closed.set()

    site.raw.script = script
    with open_tunnel(site.proxy.port, f"raw.test:{site.raw.port}") as client:
        client.send(b"\x00request")
        client.finish_sending()
        assert client.closed_by_peer()
        assert not closed.is_set()


def test_twenty_cancelled_downloads_leave_nothing(site: Site) -> None:
    site.origin.script = endless
    for _ in range(5):
        _cancel_one(site)
    memory = site.proxy.resident()
    for _ in range(20):
        _cancel_one(site)
    assert eventually(lambda: all(seen.closed for seen in site.origin.connections))
    # A download that stayed would hold its read-ahead, half a megabyte and more; what is left is cyclic garbage.
    assert site.proxy.resident() - memory < 8 * MIB


def _cancel_one(site: Site) -> None:
    with site.tunnel() as client:
        site.get(client)
        client.exactly(200_000)


def test_large_transfer_in_constant_memory(site: Site) -> None:
    size = 64 * MIB

    async def script(talk: Conversation) -> None:
        digest = hashlib.sha256()
        left = size
        while left:
            data = await talk.exactly(min(left, 65536))
            digest.update(data)
            left -= len(data)
        told = digest.hexdigest().encode()
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(told), told))

    site.origin.script = script
    block = os.urandom(MIB)
    digest = hashlib.sha256()
    with site.tunnel() as client:
        memory = site.proxy.resident()
        client.send(
            f"PUT /big HTTP/1.1\r\nHost: origin.test:{site.origin.port}\r\nContent-Length: {size}\r\n\r\n".encode()
        )
        for _ in range(size // MIB):
            client.send(block)
            digest.update(block)
        assert client.reply().body.decode() == digest.hexdigest()
        assert site.proxy.resident() - memory < 16 * MIB


def test_requests_on_a_connection_that_the_origin_closed_meanwhile(site: Site) -> None:
    """A pooled connection that died before any reply byte is replaced once, unseen by the client."""

    async def script(talk: Conversation) -> None:
        await say_ok(talk)
        talk.close()

    site.origin.script = script
    with site.tunnel() as client:
        for _ in range(5):
            site.get(client)
            assert client.reply().body == b"ok"
            time.sleep(0.02)


def test_a_hello_that_is_none_is_answered_with_an_alert(site: Site) -> None:
    garbage = b"\x16\x03\x01\x00\x08" + b"\x01\x00\x00\x04" + b"\xff\xff\xff\xff"
    with open_tunnel(site.proxy.port, f"origin.test:{site.origin.port}") as client:
        client.send(garbage)
        assert client.rest()[:3] == b"\x15\x03\x01"
    with site.tunnel() as client:
        site.get(client)
        assert client.reply().body == b"ok"
