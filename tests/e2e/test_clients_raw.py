"""Protocols that are no HTTP, through the opaque lane: echo, server-first banners, half-closes."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.origins import Conversation, OriginLoop, RawOrigin, echo, greet_first
from tests.support.proxy import EgressProcess, opaque, policy_text, rest
from tests.support.raw import ConnectRefused, client_context, eventually, open_tunnel, start_tls


@dataclass
class Site:
    proxy: EgressProcess
    echo: RawOrigin
    banner: RawOrigin
    scripted: RawOrigin
    tls: RawOrigin


@pytest.fixture(scope="module")
def site(origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[Site]:
    origins = [RawOrigin(origin_loop) for _ in range(3)]
    tls = RawOrigin(origin_loop, authority.server_context("raw.test", "skip.test"))
    origins[0].script = tls.script = echo
    origins[1].script = greet_first(b"220 ready\r\n")
    endpoints = [opaque("raw.test", origin.port) for origin in (*origins, tls)]
    endpoints += [opaque("skip.test", tls.port, tls="skip"), rest("inspected.test", origins[1].port)]
    hosts = ("raw.test", "skip.test", "inspected.test")
    settings = {"timeouts": {"tunnel_start": "1s"}}
    with EgressProcess(
        policy_text(*endpoints), aliases=dict.fromkeys(hosts, "127.0.0.1"), trust=authority.ca_file, settings=settings
    ) as proxy:
        yield Site(proxy, origins[0], origins[1], origins[2], tls)
    for origin in (*origins, tls):
        origin.stop()


def test_echo(site: Site) -> None:
    payload = b"\x00\x01 not http \xff" + os.urandom(300_000)
    with open_tunnel(site.proxy.port, f"raw.test:{site.echo.port}") as client:
        client.send(payload[:100])
        assert client.exactly(100) == payload[:100]
        client.send(payload[100:])
        assert hashlib.sha256(client.exactly(len(payload) - 100)).digest() == hashlib.sha256(payload[100:]).digest()


def test_server_speaks_first(site: Site) -> None:
    """After `detect_timeout` without a client byte an uninspected endpoint is relayed."""
    with open_tunnel(site.proxy.port, f"raw.test:{site.banner.port}") as client:
        assert client.until(b"\r\n") == b"220 ready\r\n"
        client.send(b"QUIT\r\n")
        assert client.until(b"\r\n") == b"QUIT\r\n"


def test_an_inspected_endpoint_never_falls_back_to_raw(site: Site) -> None:
    with open_tunnel(site.proxy.port, f"inspected.test:{site.banner.port}") as client:
        assert client.rest() == b""


def test_half_close_from_the_client(site: Site) -> None:
    """O-27: the end of one direction is passed on, the other goes on."""
    seen: list[bytes] = []

    async def script(talk: Conversation) -> None:
        data = b""
        while more := await talk.some():
            data += more
        seen.append(data)
        await talk.pause(0.1)
        await talk.send(b"\x00reply")

    site.scripted.script = script
    with open_tunnel(site.proxy.port, f"raw.test:{site.scripted.port}") as client:
        client.send(b"\x00request-body")
        client.finish_sending()
        assert client.rest() == b"\x00reply"
    assert seen == [b"\x00request-body"]


def test_half_close_from_the_origin(site: Site) -> None:
    seen: list[bytes] = []

    async def script(talk: Conversation) -> None:
        seen.append(await talk.exactly(3))
        await talk.send(b"\x00all there is")
        await talk.half_close()
        seen.append(await talk.exactly(5))

    site.scripted.script = script
    with open_tunnel(site.proxy.port, f"raw.test:{site.scripted.port}") as client:
        client.send(b"\x00\x01\x02")
        assert client.rest() == b"\x00all there is"
        client.send(b"later")
        client.finish_sending()
    assert eventually(lambda: len(seen) == 2)
    assert seen == [b"\x00\x01\x02", b"later"]


def test_not_http_inside_terminated_tls(site: Site) -> None:
    """After termination the first bytes are looked at again; an uninspected endpoint relays them over upstream TLS."""
    with open_tunnel(site.proxy.port, f"raw.test:{site.tls.port}") as tunnel:
        client = start_tls(tunnel, client_context(site.proxy.ca, alpn=()), "raw.test")
        client.send(b"\x00\x01binary")
        assert client.exactly(8) == b"\x00\x01binary"


def test_skipped_tls_is_the_origins_own(site: Site, authority: OriginAuthority) -> None:
    """`tls: skip`: the client sees the origin's certificate, not ours."""
    with open_tunnel(site.proxy.port, f"skip.test:{site.tls.port}") as tunnel:
        client = start_tls(tunnel, client_context(authority.ca_file, alpn=()), "skip.test")
        client.send(b"anything")
        assert client.exactly(8) == b"anything"


def test_a_port_that_no_entry_lists(site: Site) -> None:
    with pytest.raises(ConnectRefused) as refused:
        open_tunnel(site.proxy.port, "raw.test:9")
    assert (refused.value.reply.status, refused.value.reply.error) == (403, "policy_denied")
