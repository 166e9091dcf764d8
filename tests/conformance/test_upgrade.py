"""Upgrades where an endpoint allows them: the 101 crosses, then bytes flow both ways, whatever the lane."""

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.origins import Conversation, Origin, OriginLoop, echo
from tests.support.proxy import LANES, EgressProcess, opaque, policy_text, rest
from tests.support.raw import Connection, client_context, eventually, open_tunnel, start_tls

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = base64.b64encode(hashlib.sha1(KEY.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()
HELLO = bytes.fromhex("818537fa213d7f9f4d5158")
"""A masked text frame, `Hello` (RFC 6455 section 5.7)."""

NAMES = ("raw.test", "l4.test", "closed.test")


@dataclass
class Site:
    proxy: EgressProcess
    origin: Origin

    def tunnel(self, name: str) -> Connection:
        tunnel = open_tunnel(self.proxy.port, f"{name}:{self.origin.port}")
        return start_tls(tunnel, client_context(self.proxy.ca), name)

    def handshake(self, name: str, behind: bytes = b"") -> Connection:
        client = self.tunnel(name)
        client.send(
            f"GET /chat HTTP/1.1\r\nHost: {name}:{self.origin.port}\r\nConnection: keep-alive, Upgrade\r\n"
            f"Upgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n".encode()
            + behind
        )
        return client


@pytest.fixture(scope="module", params=LANES)
def site(request: pytest.FixtureRequest, origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[Site]:
    origin = Origin(origin_loop, authority.server_context(*NAMES))
    policy = policy_text(
        rest("raw.test", origin.port, allow_upgrade=True, websocket="raw"),
        opaque("l4.test", origin.port),
        rest("closed.test", origin.port),
    )
    aliases = dict.fromkeys(NAMES, "127.0.0.1")
    with EgressProcess(policy, aliases=aliases, trust=authority.ca_file, settings=LANES[request.param]) as proxy:
        yield Site(proxy, origin)
    origin.stop()


async def switch(talk: Conversation) -> None:
    """Accept, say something at once, then echo."""
    await talk.send(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: %b\r\n\r\n\x81\x02hi" % ACCEPT.encode()
    )
    await echo(talk)


@pytest.mark.parametrize("name", ["raw.test", "l4.test"])
def test_bytes_flow_after_the_switch(site: Site, name: str) -> None:
    site.origin.script = switch
    site.origin.take()
    with site.handshake(name) as client:
        reply = client.reply_head()
        assert (reply.status, reply.value("sec-websocket-accept")) == (101, ACCEPT)
        assert (reply.value("upgrade"), reply.value("connection")) == ("websocket", "Upgrade")
        assert client.exactly(4) == b"\x81\x02hi"
        client.send(HELLO)
        assert client.exactly(len(HELLO)) == HELLO
    head, _, rest_of_it = site.origin.take().partition(b"\r\n\r\n")
    assert b"\r\nConnection: Upgrade\r\nUpgrade: websocket" in head
    assert b"keep-alive" not in head
    assert rest_of_it == HELLO


def test_frames_sent_with_the_handshake_are_kept(site: Site) -> None:
    site.origin.script = switch
    with site.handshake("raw.test", HELLO) as client:
        assert client.reply_head().status == 101
        assert client.exactly(4 + len(HELLO)) == b"\x81\x02hi" + HELLO


def test_origin_that_does_not_switch(site: Site) -> None:
    async def script(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno")

    site.origin.script = script
    with site.handshake("raw.test") as client:
        reply = client.reply()
        assert (reply.status, reply.body) == (426, b"no")


def test_no_leave_no_upgrade(site: Site) -> None:
    site.origin.take()
    with site.handshake("closed.test") as client:
        reply = client.reply()
    assert (reply.status, reply.error) == (403, "upgrade_refused")
    assert site.origin.take() == b""


@pytest.mark.parametrize("side", ["client", "origin"])
def test_end_of_one_side_ends_the_other(site: Site, side: str) -> None:
    async def script(talk: Conversation) -> None:
        await switch_only(talk)
        if side == "origin":
            talk.close()
        else:
            await talk.drain_away()

    site.origin.script = script
    client = site.handshake("raw.test")
    assert client.reply_head().status == 101
    if side == "origin":
        assert client.closed_by_peer()
    else:
        client.close()
        assert eventually(lambda: site.origin.latest.closed)


async def switch_only(talk: Conversation) -> None:
    await talk.send(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: %b\r\n\r\n" % ACCEPT.encode()
    )
