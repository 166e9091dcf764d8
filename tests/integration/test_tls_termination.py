"""TLS terminated in front of the lanes: whose certificate the client sees, which names pass, and how an origin's
failure reaches the client."""

import socket
import ssl
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography import x509

from tests.support.authorities import OriginAuthority, stranger_context
from tests.support.origins import Origin, OriginLoop, RawOrigin, echo, greet_first
from tests.support.proxy import EgressProcess, opaque, policy_text, rest
from tests.support.raw import Connection, client_context, eventually, open_tunnel, start_tls

NAMES = ("good.test", "expired.test", "wrong.test", "stranger.test", "nothing.test", "plain.test")


class Site:
    """One proxy and an origin per kind of trouble."""

    def __init__(self, proxy: EgressProcess, origins: dict[str, Origin]) -> None:
        self.proxy = proxy
        self.origins = origins
        self.ports = {name: origin.port for name, origin in origins.items()}
        self.context = client_context(proxy.ca)

    def tunnel(self, name: str) -> Connection:
        return open_tunnel(self.proxy.port, f"{name}:{self.ports[name]}")

    def get(self, client: Connection, name: str) -> Any:
        client.send(f"GET /first HTTP/1.1\r\nHost: {name}:{self.ports[name]}\r\n\r\n".encode())
        return client.reply()

    def refused_names(self) -> int:
        return sum(event.get("status_detail") == "sni_mismatch" for event in self.proxy.events())


@pytest.fixture(scope="module")
def site(origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[Site]:
    hangs_up = RawOrigin(origin_loop)
    hangs_up.script = _hang_up
    plain = RawOrigin(origin_loop)
    plain.script = greet_first(b"HTTP/1.0 400 Bad Request\r\n\r\n")
    lines = RawOrigin(origin_loop, authority.server_context("lines.test"))
    lines.script = greet_first(b"220 ready\r\n")
    echoes = RawOrigin(origin_loop, authority.server_context("echo.test"))
    echoes.script = echo
    origins: dict[str, Origin] = {
        "good.test": Origin(origin_loop, authority.server_context("good.test")),
        "expired.test": Origin(origin_loop, authority.expired_context("expired.test")),
        "wrong.test": Origin(origin_loop, authority.server_context("other.test")),
        "stranger.test": Origin(origin_loop, stranger_context("stranger.test")),
        "nothing.test": hangs_up,
        "plain.test": plain,
        "lines.test": lines,
        "echo.test": echoes,
    }
    policy = policy_text(
        *(rest(name, origins[name].port) for name in NAMES),
        opaque("lines.test", lines.port),
        opaque("echo.test", echoes.port),
    )
    with EgressProcess(policy, aliases=dict.fromkeys(origins, "127.0.0.1"), trust=authority.ca_file) as proxy:
        yield Site(proxy, origins)
    for origin in origins.values():
        origin.stop()


async def _hang_up(talk: Any) -> None:
    talk.close()


def test_the_leaf_is_for_the_connect_host_and_short_lived(site: Site) -> None:
    with start_tls(site.tunnel("good.test"), site.context, "good.test") as client:
        assert isinstance(client.socket, ssl.SSLSocket)
        encoded = client.socket.getpeercert(binary_form=True)
        assert encoded is not None
        leaf = x509.load_der_x509_certificate(encoded)
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == ["good.test"]
        assert (leaf.not_valid_after_utc - leaf.not_valid_before_utc).days <= 92
        assert client.socket.selected_alpn_protocol() == "http/1.1"
        assert site.get(client, "good.test").body == b"ok"


def test_a_missing_server_name_is_accepted(site: Site) -> None:
    with start_tls(site.tunnel("good.test"), site.context, None) as client:
        assert site.get(client, "good.test").status == 200


@pytest.mark.parametrize("spelling", ["GOOD.test", "good.test."])
def test_the_server_name_is_compared_as_a_name(site: Site, spelling: str) -> None:
    context = client_context(site.proxy.ca)
    context.check_hostname = False
    with start_tls(site.tunnel("good.test"), context, spelling) as client:
        assert site.get(client, "good.test").status == 200


@pytest.mark.parametrize("name", ["wrong.test", "a.good.test", "test"])
def test_another_server_name_is_refused_with_its_alert(site: Site, name: str) -> None:
    before = site.refused_names()
    with site.tunnel("good.test") as tunnel, pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
        start_tls(tunnel, site.context, name)
    assert eventually(lambda: site.refused_names() == before + 1)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("expired.test", "expired"),
        ("wrong.test", "name_mismatch"),
        ("stranger.test", "unknown_issuer"),
        ("nothing.test", "handshake_failed"),
        ("plain.test", "handshake_failed"),
    ],
)
def test_an_origin_that_cannot_be_trusted_is_told_on_the_first_request(site: Site, name: str, reason: str) -> None:
    with start_tls(site.tunnel(name), site.context, name) as client:
        reply = site.get(client, name)
        assert (reply.status, reply.error) == (502, "upstream_tls_failed")
        assert reply.json()["reason_code"] == reason
        assert client.closed_by_peer()
    assert site.origins[name].requests == []


def test_a_client_that_distrusts_us_is_counted_as_no_request(site: Site) -> None:
    with site.tunnel("good.test") as tunnel, pytest.raises(ssl.SSLCertVerificationError):
        start_tls(tunnel, ssl.create_default_context(), "good.test")


def test_plain_lines_inside_tls_pass_an_endpoint_that_is_not_inspected(site: Site) -> None:
    with start_tls(site.tunnel("echo.test"), client_context(site.proxy.ca, ()), "echo.test") as client:
        client.send(b"\x00\x01 no request at all\r\n")
        assert client.until(b"\r\n") == b"\x00\x01 no request at all\r\n"


def test_a_server_that_speaks_first_inside_tls_is_heard(site: Site) -> None:
    with start_tls(site.tunnel("lines.test"), client_context(site.proxy.ca, ()), "lines.test") as client:
        assert client.until(b"\r\n") == b"220 ready\r\n"
        client.send(b"QUIT\r\n")
        assert client.until(b"\r\n") == b"QUIT\r\n"


def test_plain_lines_inside_tls_are_refused_where_requests_are_judged(site: Site) -> None:
    with start_tls(site.tunnel("good.test"), site.context, "good.test") as client:
        client.send(b"\x00\x01 no request at all\r\n")
        reply = client.reply()
        assert (reply.status, reply.error) == (403, "unsupported_l7_protocol")


def test_tls_inside_tls_is_refused_where_requests_are_judged(site: Site) -> None:
    with start_tls(site.tunnel("good.test"), site.context, "good.test") as client:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        inner = site.context.wrap_bio(incoming, outgoing, server_hostname="good.test")
        with pytest.raises(ssl.SSLWantReadError):
            inner.do_handshake()
        client.send(outgoing.read())
        assert client.reply().error == "unsupported_l7_protocol"


def test_a_client_hello_in_many_packets_with_the_connect(site: Site) -> None:
    """The first bytes of TLS may come with CONNECT, and the rest byte by byte."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = site.context.wrap_bio(incoming, outgoing, server_hostname="good.test")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = outgoing.read()
    with socket.create_connection(("127.0.0.1", site.proxy.port), timeout=10) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.sendall(f"CONNECT good.test:{site.ports['good.test']} HTTP/1.1\r\n\r\n".encode() + hello[:3])
        for place in range(3, len(hello), 97):
            raw.sendall(hello[place : place + 97])
        answer = b""
        while len(answer) < 39 + 5:
            answer += raw.recv(65536)
        assert answer.startswith(b"HTTP/1.1 200 Connection Established\r\n\r\n\x16\x03")
        incoming.write(answer[39:])
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                incoming.write(raw.recv(65536))
        raw.sendall(outgoing.read())


def test_a_record_that_is_no_hello_is_answered_with_an_alert(site: Site) -> None:
    with site.tunnel("good.test") as tunnel:
        tunnel.send(b"\x16\x03\x01" + struct.pack("!H", 4) + b"\x02\x00\x00\x00")
        assert tunnel.exactly(7)[:2] == b"\x15\x03"
        assert tunnel.closed_by_peer()
