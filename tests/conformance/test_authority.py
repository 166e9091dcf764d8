"""CONNECT = SNI = Host = dialled connection, or refuse: the invariant that keeps a judged name the reached one.

Two sites behind one address, as behind a shared edge: whoever could mix the names would reach a site that policy
did not judge.
"""

import itertools
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from cryptography import x509

from tests.support.authorities import OriginAuthority
from tests.support.origins import Conversation, Origin, OriginLoop
from tests.support.proxy import LANES, EgressProcess, policy_text, rest
from tests.support.raw import Connection, client_context, dial, eventually, open_tunnel

NAMES = ("a.test", "b.test", "denied.test")


class Edge:
    """One listening origin for several names that notes the server name of each connection."""

    def __init__(self, loop: OriginLoop, authority: OriginAuthority) -> None:
        self.names: list[str | None] = []
        context = authority.server_context(*NAMES)
        context.sni_callback = self._note
        self.origin = Origin(loop, context)
        self.origin.script = self._say_who

    def _note(self, _stream: ssl.SSLObject | ssl.SSLSocket, name: str | None, _context: ssl.SSLContext) -> None:
        self.names.append(name)

    async def _say_who(self, talk: Conversation) -> None:
        assert talk.request is not None
        await talk.body()
        host = talk.request.values(b"host")[0]
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(host), host))


@dataclass
class Site:
    proxy: EgressProcess
    edge: Edge

    @property
    def port(self) -> int:
        return self.edge.origin.port

    def tunnel(self, name: str) -> Connection:
        return open_tunnel(self.proxy.port, f"{name}:{self.port}")


@pytest.fixture(scope="module", params=LANES)
def site(request: pytest.FixtureRequest, origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[Site]:
    edge = Edge(origin_loop, authority)
    policy = policy_text(rest("a.test", edge.origin.port), rest("b.test", edge.origin.port))
    with EgressProcess(
        policy, aliases=dict.fromkeys(NAMES, "127.0.0.1"), trust=authority.ca_file, settings=LANES[request.param]
    ) as proxy:
        yield Site(proxy, edge)
    edge.origin.stop()


def lenient_tls(tunnel: Connection, site: Site, name: str | None) -> Connection:
    """A client that takes any leaf, as one that wants to mix names would."""
    context = client_context(site.proxy.ca)
    context.check_hostname = False
    return Connection(context.wrap_socket(tunnel.socket, server_hostname=name))


def ask(client: Connection, target: str, host: str) -> tuple[int, str]:
    client.send(f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    reply = client.reply()
    return reply.status, reply.body.decode() if reply.error is None else reply.error


@pytest.mark.parametrize(("connect", "sni", "host"), list(itertools.product(NAMES[:2], NAMES, NAMES)))
def test_all_names_agree_or_nothing_is_sent(site: Site, connect: str, sni: str, host: str) -> None:
    site.edge.origin.take()
    tunnel = site.tunnel(connect)
    if sni != connect:
        with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
            lenient_tls(tunnel, site, sni)
        tunnel.close()
        assert site.edge.origin.take() == b""
        return
    with lenient_tls(tunnel, site, sni) as client:
        answered = ask(client, "/", f"{host}:{site.port}")
    if host == connect:
        assert answered == (200, f"{host}:{site.port}")
    else:
        assert answered == (403, "request_authority_mismatch")
        assert site.edge.origin.take() == b""


@pytest.mark.parametrize(("target", "host"), list(itertools.product(NAMES, NAMES)))
def test_absolute_form_is_held_to_the_same(site: Site, target: str, host: str) -> None:
    site.edge.origin.take()
    with lenient_tls(site.tunnel("a.test"), site, "a.test") as client:
        answered = ask(client, f"https://{target}:{site.port}/", f"{host}:{site.port}")
    if target == host == "a.test":
        assert answered == (200, f"a.test:{site.port}")
    else:
        assert answered == (403, "request_authority_mismatch")
        assert site.edge.origin.take() == b""


def test_no_server_name_stands_for_the_connect_host(site: Site) -> None:
    with lenient_tls(site.tunnel("a.test"), site, None) as client:
        assert isinstance(client.socket, ssl.SSLSocket)
        leaf = x509.load_der_x509_certificate(client.socket.getpeercert(binary_form=True) or b"")
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == ["a.test"]
        assert ask(client, "/", f"a.test:{site.port}") == (200, f"a.test:{site.port}")


@pytest.mark.parametrize("name", ["A.TEST", "a.TEST"])
def test_letter_case_of_a_server_name_is_free(site: Site, name: str) -> None:
    with lenient_tls(site.tunnel("a.test"), site, name) as client:
        assert ask(client, "/", f"A.test:{site.port}") == (200, f"a.test:{site.port}")


def test_the_leaf_proves_the_connect_host_only(site: Site) -> None:
    context = client_context(site.proxy.ca)
    with site.tunnel("a.test") as tunnel:
        stream = context.wrap_socket(tunnel.socket, server_hostname="a.test")
        assert stream.getpeercert() is not None
        stream.close()
    with site.tunnel("b.test") as tunnel, pytest.raises(ssl.SSLError):
        context.wrap_socket(tunnel.socket, server_hostname="a.test")


def test_mismatch_of_the_server_name_is_told(site: Site) -> None:
    tunnel = site.tunnel("a.test")
    port = tunnel.socket.getsockname()[1]
    with pytest.raises(ssl.SSLError):
        lenient_tls(tunnel, site, "b.test")
    tunnel.close()

    def told() -> bool:
        mine = [event for event in site.proxy.events() if event.get("src_endpoint", {}).get("port") == port]
        return any(event.get("status_detail") == "sni_mismatch" for event in mine)

    assert eventually(told)


def test_connections_of_two_names_at_one_address_are_never_mixed(site: Site) -> None:
    """Pooling goes by the judged origin, not by where it happens to listen."""
    site.edge.origin.connections.clear()
    site.edge.names.clear()
    for name in ("a.test", "b.test", "a.test", "b.test", "b.test", "a.test"):
        with lenient_tls(site.tunnel(name), site, name) as client:
            assert ask(client, "/", f"{name}:{site.port}") == (200, f"{name}:{site.port}")
    for received in site.edge.origin.connections:
        hosts = {line for line in bytes(received.data).split(b"\r\n") if line.startswith(b"Host:")}
        assert len(hosts) <= 1, hosts
    assert set(site.edge.names) <= {"a.test", "b.test"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("host", NAMES)
def test_forward_requests_go_where_their_target_says(site: Site, name: str, host: str) -> None:
    """On the proxy port `Host` is not believed: the target is judged and dialled (here: a TLS port, so it fails)."""
    with dial(site.proxy.port) as client:
        client.send(f"GET http://{name}:{site.port}/ HTTP/1.1\r\nHost: {host}:{site.port}\r\n\r\n".encode())
        reply = client.reply()
    if name == "denied.test":
        assert (reply.status, reply.error) == (403, "policy_denied")
    else:
        assert (reply.status, reply.error) == (502, "upstream_protocol_error")


def test_a_client_may_not_name_the_dialled_address(site: Site) -> None:
    with dial(site.proxy.port) as client:
        client.send(f"CONNECT 127.0.0.1:{site.port} HTTP/1.1\r\nHost: a.test:{site.port}\r\n\r\n".encode())
        reply = client.reply()
    assert (reply.status, reply.error) == (403, "policy_denied")
