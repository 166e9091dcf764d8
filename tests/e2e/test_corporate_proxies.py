"""Out through real corporate proxies: every kind, every way to authenticate, every lane, chains and reloads."""

import contextlib
import hashlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from websockets.sync.client import connect as websocket_connect
from websockets.sync.server import ServerConnection, serve

from tests.support.authorities import OriginAuthority
from tests.support.corporate import (
    NO_ADDRESSES,
    PASSWORD,
    USER,
    Daemon,
    Dante,
    MicroSocks,
    Squid,
    TinyProxy,
    credential_file,
)
from tests.support.h2_client import H2Client
from tests.support.h2_origin import H2Origin
from tests.support.inside import InsideProxy
from tests.support.origins import Conversation, Origin, OriginLoop, RawOrigin, say_ok
from tests.support.proxy import EgressProcess, opaque, policy_text, rest
from tests.support.raw import Connection, ConnectRefused, client_context, dial, eventually, open_tunnel, start_tls

type AnyProxy = EgressProcess | InsideProxy

HOSTS = ("origin.test", "h2.test", "raw.test", "ws.test")
PAYLOAD = bytes(range(256)) * 8192
"""2 MiB: more than every buffer on the way."""


@dataclass
class Site:
    """Origins behind corporate proxies. All are on loopback, under names that the operator vouched for."""

    tls: Origin
    plain: Origin
    h2: H2Origin
    raw: RawOrigin
    ws_port: int
    authority: OriginAuthority
    files: Path

    @property
    def policy(self) -> str:
        return policy_text(
            rest("origin.test", self.tls.port),
            rest("origin.test", self.plain.port),
            rest("h2.test", self.h2.port, http2="prefer"),
            rest("origin.test", self.h2.port),
            opaque("raw.test", self.raw.port, tls="skip"),
            rest("ws.test", self.ws_port, allow_upgrade=True),
        )

    def proxy(self, upstream: dict[str, Any], **settings: Any) -> EgressProcess:
        """egress with an `upstream_proxy` section."""
        return EgressProcess(
            self.policy,
            aliases=dict.fromkeys(HOSTS, "127.0.0.1"),
            trust=self.authority.ca_file,
            settings={"upstream_proxy": {"handshake_timeout": "5s", **upstream}, **settings},
        )

    def inside(self, upstream: dict[str, Any], **settings: Any) -> InsideProxy:
        """The same in this process, for tests that look at bytes only: it starts in no time."""
        return InsideProxy(
            self.policy,
            aliases=dict.fromkeys(HOSTS, "127.0.0.1"),
            trust=self.authority.ca_file,
            settings={"upstream_proxy": {"handshake_timeout": "5s", **upstream}, **settings},
        )

    def client(self, proxy: AnyProxy, host: str, port: int, *alpn: str) -> Connection:
        tunnel = open_tunnel(proxy.port, f"{host}:{port}")
        return start_tls(tunnel, client_context(proxy.ca, alpn or ("http/1.1",)), host)

    def get(self, proxy: AnyProxy, path: str = "/") -> bytes:
        """One request in the http1 lane, with the origin's certificate verified at the far end of the way."""
        with self.client(proxy, "origin.test", self.tls.port) as client:
            return self.ask(client, path)

    def ask(self, client: Connection, path: str = "/") -> bytes:
        client.send(f"GET {path} HTTP/1.1\r\nHost: origin.test:{self.tls.port}\r\n\r\n".encode())
        reply = client.reply()
        assert (reply.status, reply.complete) == (200, True), reply
        return reply.body

    def refusal(self, proxy: AnyProxy) -> tuple[Any, ...]:
        """How a CONNECT is refused: status, error, reason_code, via."""
        with pytest.raises(ConnectRefused) as caught:
            open_tunnel(proxy.port, f"origin.test:{self.tls.port}")
        document = caught.value.reply.json()
        assert "corp" not in document["detail"]
        assert "127.0.0.1" not in document["detail"]
        return (caught.value.reply.status, document["error"], document.get("reason_code"), document.get("via"))


@pytest.fixture(scope="module")
def site(
    origin_loop: OriginLoop, authority: OriginAuthority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    tls = Origin(origin_loop, authority.server_context("origin.test"))
    plain = Origin(origin_loop)
    h2 = H2Origin(origin_loop, authority.server_context("h2.test", alpn=("h2",)))
    raw = RawOrigin(origin_loop)

    def echo(peer: ServerConnection) -> None:
        for message in peer:
            peer.send(message)

    with serve(echo, "127.0.0.1", 0, ssl=authority.server_context("ws.test")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.socket.getsockname()[1]
        yield Site(tls, plain, h2, raw, port, authority, tmp_path_factory.mktemp("corporate"))
    for origin in (tls, plain, h2, raw):
        origin.stop()


@pytest.fixture(autouse=True)
def plain_answers(site: Site) -> None:
    for origin in (site.tls, site.plain):
        origin.script = say_ok
        origin.recording = True
        origin.requests.clear()
        origin.take()


def corp(daemon: Daemon, scheme: str = "http", **more: Any) -> dict[str, Any]:
    """The settings of one proxy."""
    return {"url": f"{scheme}://127.0.0.1:{daemon.port}", **more}


def only(daemon: Daemon, scheme: str = "http", **more: Any) -> dict[str, Any]:
    return {"proxies": {"corp": corp(daemon, scheme, **more)}}


def auth(site: Site, kind: str = "basic", text: str = f"{USER}:{PASSWORD}") -> dict[str, Any]:
    path = credential_file(site.files, text, f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:8]}")
    return {f"{kind}_file": str(path)} | ({"allow_insecure": True} if kind == "basic" else {})


@pytest.fixture(scope="module")
def squid() -> Iterator[Squid]:
    with Squid(hosts=dict.fromkeys(HOSTS, "127.0.0.1")) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def tls_squid(authority: OriginAuthority) -> Iterator[Squid]:
    with Squid(tls=authority.key_pair("proxy.corp.test", "127.0.0.1")) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def dante() -> Iterator[Dante]:
    with Dante() as daemon:
        yield daemon


def tls_hop(site: Site, daemon: Daemon, **more: Any) -> dict[str, Any]:
    return corp(daemon, "https", ca_file=str(site.authority.ca_file), server_name="proxy.corp.test", **more)


@pytest.fixture(scope="module", params=["http", "https", "socks5", "chain"])
def way(
    request: pytest.FixtureRequest, site: Site, squid: Squid, tls_squid: Squid, dante: Dante
) -> Iterator[EgressProcess]:
    """egress behind one kind of way out."""
    sections: dict[str, dict[str, Any]] = {
        "http": only(squid),
        "https": {"proxies": {"corp": tls_hop(site, tls_squid)}},
        "socks5": only(dante, "socks5"),
        "chain": {
            "proxies": {"outer": corp(squid), "middle": tls_hop(site, tls_squid), "inner": corp(dante, "socks5")},
            "chains": {"default": ["outer", "middle", "inner"]},
        },
    }
    with site.proxy(sections[request.param]) as proxy:
        yield proxy


# every lane through every kind of hop ------------------------------------------------------------------------------


def test_http1(site: Site, way: EgressProcess) -> None:
    with site.client(way, "origin.test", site.tls.port) as client:
        assert [site.ask(client), site.ask(client)] == [b"ok", b"ok"]


def test_http2(site: Site, way: EgressProcess) -> None:
    with site.client(way, "h2.test", site.h2.port, "h2") as connection:
        client = H2Client(connection)
        head = [(":method", "GET"), (":scheme", "https"), (":authority", f"h2.test:{site.h2.port}"), (":path", "/")]
        streams = [client.start(head) for _ in range(3)]
        assert [client.reply(stream).status for stream in streams] == [200, 200, 200]


def test_websocket(site: Site, way: EgressProcess) -> None:
    tunnel = open_tunnel(way.port, f"ws.test:{site.ws_port}")
    context = client_context(way.ca)
    uri = f"wss://ws.test:{site.ws_port}/"
    how = {"sock": tunnel.socket, "ssl": context, "proxy": None, "compression": None, "open_timeout": 30}
    with websocket_connect(uri, **how) as peer:
        for message in ("hello", "x" * 70_000):
            peer.send(message)
            assert peer.recv(20) == message


def test_raw_bytes_of_a_server_that_speaks_first(site: Site, way: EgressProcess) -> None:
    async def banner(talk: Conversation) -> None:
        await talk.send(b"220 ready\r\n")
        while data := await talk.some():
            await talk.send(data[::-1])

    site.raw.script = banner
    with open_tunnel(way.port, f"raw.test:{site.raw.port}") as client:
        assert client.exactly(11) == b"220 ready\r\n"
        client.send(b"abc")
        assert client.exactly(3) == b"cba"
    assert eventually(lambda: site.raw.connections[-1].closed)


def test_uploads_and_downloads_larger_than_every_buffer(site: Site, way: EgressProcess) -> None:
    async def mirror(talk: Conversation) -> None:
        body = await talk.body()
        await talk.pause(0.05)
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    site.tls.script = mirror
    site.tls.recording = False
    with site.client(way, "origin.test", site.tls.port) as client:
        head = f"PUT /big HTTP/1.1\r\nHost: origin.test:{site.tls.port}\r\nContent-Length: {len(PAYLOAD)}\r\n\r\n"
        client.send(head.encode() + PAYLOAD)
        reply = client.reply()
    assert (reply.status, reply.body == PAYLOAD) == (200, True)


def test_a_reader_that_stalls_stalls_the_origin(site: Site, way: EgressProcess) -> None:
    """Backpressure crosses every layer of TLS: nothing on the way holds what the client does not read."""
    size = 256 << 20

    async def flood(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        with contextlib.suppress(ConnectionError):
            for _ in range(size // 65536):
                await talk.send(bytes(65536))

    site.tls.script = flood
    with site.client(way, "origin.test", site.tls.port) as client:
        client.send(f"GET / HTTP/1.1\r\nHost: origin.test:{site.tls.port}\r\n\r\n".encode())
        client.reply_head()
        latest = site.tls.latest
        before = -1
        while latest.sent != before:
            before = latest.sent
            time.sleep(0.4)
        assert before < size // 2
        assert way.resident() < 300 << 20


def test_the_origins_certificate_is_verified_at_the_far_end(site: Site, way: EgressProcess) -> None:
    """The certificate there is for `h2.test`."""
    with site.client(way, "origin.test", site.h2.port) as client:
        client.send(f"GET / HTTP/1.1\r\nHost: origin.test:{site.h2.port}\r\n\r\n".encode())
        reply = client.reply()
    assert (reply.status, reply.error, reply.json()["reason_code"]) == (502, "upstream_tls_failed", "name_mismatch")


# what proxies are told ---------------------------------------------------------------------------------------------


def test_the_proxy_learns_the_checked_address_and_nothing_else(site: Site) -> None:
    with Squid() as squid:  # of its own: others are asked for names
        with site.proxy(only(squid)) as proxy:
            assert site.get(proxy, "/private?token=1") == b"ok"
            told = [event["unmapped"] for event in proxy.wait_events(5) if event.get("unmapped", {}).get("proxy_id")]
            assert {one["proxy_id"] for one in told} == {"corp"}
            assert all(one["attempts"] == 1 and 0 < one["connect_ms"] < 10_000 for one in told)
            assert proxy.asked("/v1/upstream") == {"proxies": [{"name": "corp", "up": True}]}
            metrics = proxy.asked("/metrics")
            assert 'egress_upstream_proxy_up{proxy="corp"} 1.0' in metrics
            assert re.search(r'egress_upstream_dials_total\{outcome="ok",via="corp"\} [1-9]', metrics)
        assert squid.saw(f"CONNECT 127.0.0.1:{site.tls.port} 200 -")
        assert not re.search(r"origin\.test|private|token", squid.asked())


def test_by_hostname_the_proxy_is_asked_for_the_name(site: Site) -> None:
    with Squid(*NO_ADDRESSES, hosts={"origin.test": "127.0.0.1"}) as daemon:
        with site.inside(only(daemon)) as proxy:
            assert site.refusal(proxy) == (502, "upstream_unreachable", "proxy_refused_403", "upstream_proxy")
            assert site.tls.take() == b""
        with site.inside({**only(daemon), "target": "hostname"}) as proxy:
            assert site.get(proxy) == b"ok"
        assert daemon.saw(f"CONNECT origin.test:{site.tls.port} 200 -")


def test_openshell_flags(site: Site, squid: Squid) -> None:
    """The flags alone make a whole section, and the environment of neither side has a say."""
    file = credential_file(site.files, name="flags")
    flags = [
        "--upstream-proxy", f"http://127.0.0.1:{squid.port}", "--upstream-proxy-auth-file", str(file),
        "--upstream-proxy-auth-allow-insecure", "--upstream-proxy-connect-by-hostname",
        "--upstream-no-proxy", "elsewhere.test",
    ]  # fmt: skip
    nowhere = "http://127.0.0.1:9"
    steering = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "HTTP_PROXY"), nowhere)
    aliases = dict.fromkeys(HOSTS, "127.0.0.1")
    with EgressProcess(
        site.policy,
        aliases=aliases,
        trust=site.authority.ca_file,
        flags=flags,
        environment=steering,
    ) as proxy:
        assert site.get(proxy) == b"ok"
    assert squid.saw(f"CONNECT origin.test:{site.tls.port} 200 -")


def test_no_proxy_items_are_dialled_directly_on_their_port_only(site: Site) -> None:
    with Squid() as daemon:
        section = {**only(daemon), "no_proxy": f"origin.test:{site.tls.port}, 10.0.0.0/8"}
        with site.inside(section) as proxy:
            assert site.get(proxy) == b"ok"
            with open_tunnel(proxy.port, f"origin.test:{site.plain.port}") as client:
                client.send(f"GET / HTTP/1.1\r\nHost: origin.test:{site.plain.port}\r\n\r\n".encode())
                assert client.reply().status == 200
        assert daemon.saw(f"CONNECT 127.0.0.1:{site.plain.port} 200 -")
        assert daemon.asked().count("CONNECT") == 1


def test_rules_send_destinations_different_ways(site: Site) -> None:
    with Squid() as corporate, Squid() as lab:
        section = {
            "proxies": {"corp": corp(corporate), "lab": corp(lab)},
            "rules": [
                {"match": ["h2.test"], "via": "direct"},
                {"match": [f"*.test:{site.tls.port}"], "via": "lab"},
                {"match": ["*"], "via": "corp"},
            ],
        }
        with site.inside(section) as proxy:
            site.client(proxy, "h2.test", site.h2.port, "h2").close()
            assert site.get(proxy) == b"ok"
            open_tunnel(proxy.port, f"origin.test:{site.plain.port}").close()
        assert corporate.saw(f"CONNECT 127.0.0.1:{site.plain.port} 200 -")
        assert lab.saw(f"CONNECT 127.0.0.1:{site.tls.port} 200 -")
        assert (corporate.asked().count("CONNECT"), lab.asked().count("CONNECT")) == (1, 1)


# who we are to them ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["basic", "digest"])
def test_squid_accepts_our_credential(site: Site, kind: str) -> None:
    with Squid(auth=kind) as daemon:
        with site.proxy(only(daemon, auth=auth(site, kind))) as proxy:
            assert [site.get(proxy) for _ in range(3)] == [b"ok"] * 3
            fresh = [open_tunnel(proxy.port, f"origin.test:{site.plain.port}") for _ in range(3)]
            for tunnel in fresh:
                tunnel.close()
            assert PASSWORD not in proxy.stderr() + str(proxy.events())
        asked = daemon.asked().splitlines()
        # A digest is asked for once; later requests answer the challenge that is known.
        assert sum(" 407 " in line for line in asked) == (1 if kind == "digest" else 0)
        assert sum(f" 200 {USER}" in line for line in asked) >= 4


@pytest.mark.parametrize("kind", ["basic", "digest"])
def test_a_wrong_credential_is_tried_once_and_told(site: Site, kind: str) -> None:
    with Squid(auth=kind) as daemon:
        with site.inside(only(daemon, auth=auth(site, kind, f"{USER}:wrong"))) as proxy:
            assert site.refusal(proxy) == (502, "upstream_unreachable", "proxy_auth_rejected", "upstream_proxy")
        assert eventually(lambda: daemon.asked().count(" 407 ") == (2 if kind == "digest" else 1))
    assert site.tls.take() == b""


def test_tinyproxy_answers_in_http_1_0(site: Site) -> None:
    with TinyProxy() as daemon, site.inside(only(daemon)) as proxy:
        assert site.get(proxy) == b"ok"


def test_tinyproxy_with_basic(site: Site) -> None:
    with TinyProxy(basic=True) as daemon:
        with site.inside(only(daemon, auth=auth(site, text="build:s3cret"))) as proxy:
            assert site.get(proxy) == b"ok"
        with site.inside(only(daemon)) as proxy:
            assert site.refusal(proxy)[1:3] == ("upstream_unreachable", "proxy_auth_rejected")


def test_socks_with_user_and_password(site: Site) -> None:
    with MicroSocks() as daemon:
        with site.inside(only(daemon, "socks5", auth=auth(site, text="build:s3cret"))) as proxy:
            assert site.get(proxy) == b"ok"
        with site.inside(only(daemon, "socks5")) as proxy:
            assert site.refusal(proxy) == (502, "upstream_unreachable", "proxy_auth_rejected", "upstream_proxy")


def test_a_proxy_may_want_our_certificate(site: Site, tmp_path: Path) -> None:
    mine = tmp_path / "client.pem"
    mine.touch(mode=0o600)
    mine.write_bytes(b"".join(site.authority.key_pair("egress.test")))
    authority = {"tls": site.authority.key_pair("proxy.corp.test"), "client_ca": site.authority.ca_file}
    site.authority.ca_file.chmod(0o644)
    with Squid(**authority) as daemon:
        with site.inside({"proxies": {"corp": tls_hop(site, daemon, client_cert=str(mine))}}) as proxy:
            assert site.get(proxy) == b"ok"
        with site.inside({"proxies": {"corp": tls_hop(site, daemon)}}) as proxy:
            assert site.refusal(proxy)[1:] in (
                ("upstream_unreachable", "proxy_tls_failed", "upstream_proxy"),
                (
                    "upstream_unreachable",
                    "proxy_malformed_reply",
                    "upstream_proxy",
                ),  # TLS 1.3 tells after the handshake
            )


def test_a_proxy_that_cannot_prove_its_name_is_not_used(site: Site, tls_squid: Squid) -> None:
    hop = corp(tls_squid, "https", ca_file=str(site.authority.ca_file), server_name="other.corp.test")
    with site.inside({"proxies": {"corp": hop}}) as proxy:
        assert site.refusal(proxy) == (502, "upstream_unreachable", "proxy_tls_failed", "upstream_proxy")
    with site.inside({"proxies": {"corp": corp(tls_squid, "https")}}) as proxy:
        assert site.refusal(proxy)[2] == "proxy_tls_failed"


# plain requests ----------------------------------------------------------------------------------------------------


def forward(proxy: AnyProxy, port: int, *, method: str = "GET", body: bytes = b"") -> Any:
    with dial(proxy.port) as client:
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        head = f"{method} http://origin.test:{port}/a?b=1 HTTP/1.1\r\nHost: origin.test:{port}\r\n{length}"
        client.send(f"{head}Proxy-Authorization: Basic Y2xpZW50OnB3\r\n\r\n".encode() + body)
        return client.reply(method)


@pytest.mark.parametrize("lane", ["auto", "off"])
@pytest.mark.parametrize(
    ("how", "seen"),
    [
        ("direct", None),
        ("absolute-form", "{method} http://origin.test:{port}/a?"),
        ("connect", "CONNECT 127.0.0.1:{port}"),
    ],
)
def test_plain_requests(site: Site, how: str, seen: str | None, lane: str) -> None:
    with Squid(auth="basic", hosts={"origin.test": "127.0.0.1"}) as daemon:
        section = {**only(daemon, auth=auth(site)), "plain_http": how}
        with site.inside(section, engine={"fast_lane": lane}) as proxy:
            for method, body in (("GET", b""), ("POST", b"payload")):
                reply = forward(proxy, site.plain.port, method=method, body=body)
                assert (reply.status, reply.body) == (200, b"ok")
        if seen is None:
            assert daemon.asked() == ""
        else:
            assert all(daemon.saw(seen.format(port=site.plain.port, method=method)) for method in ("GET", "POST"))
    request = site.plain.requests[-1]
    assert (request.line, request.body) == (b"POST /a?b=1 HTTP/1.1", b"payload")
    assert request.values(b"proxy-authorization") == []
    assert request.values(b"host") == [b"origin.test:%d" % site.plain.port]


@pytest.mark.parametrize("lane", ["auto", "off"])
def test_a_407_to_a_plain_request_is_not_the_clients(site: Site, lane: str) -> None:
    with Squid(auth="basic", hosts={"origin.test": "127.0.0.1"}) as daemon:
        section = {**only(daemon, auth=auth(site, text="build:wrong")), "plain_http": "absolute-form"}
        with site.inside(section, engine={"fast_lane": lane}) as proxy:
            reply = forward(proxy, site.plain.port)
    assert (reply.status, reply.error, reply.json()["reason_code"]) == (
        502, "upstream_unreachable", "proxy_auth_rejected",
    )  # fmt: skip
    assert reply.values("proxy-authenticate") == []


def test_plain_requests_may_be_denied(site: Site, squid: Squid) -> None:
    with site.inside({**only(squid), "plain_http": "deny"}) as proxy:
        reply = forward(proxy, site.plain.port)
        assert (reply.status, reply.error) == (403, "policy_denied")
    assert site.plain.take() == b""


# failover, reload --------------------------------------------------------------------------------------------------


def dead_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_the_next_chain_is_taken_when_a_proxy_is_down_and_never_none(site: Site, squid: Squid) -> None:
    dead = {"url": f"http://127.0.0.1:{dead_port()}"}
    section = {
        "proxies": {"dead": dead, "corp": corp(squid)},
        "chains": {"default": {"any_of": [["dead"], ["corp"]]}},
        "health": {"interval": "200ms", "fail_after": 2},
    }
    with site.proxy(section) as proxy:
        assert site.get(proxy) == b"ok"
        assert eventually(lambda: "upstream proxy dead is down" in str(proxy.events()))
    with site.proxy({"proxies": {"dead": dead}}) as proxy:
        assert site.refusal(proxy) == (502, "upstream_unreachable", "proxy_connect_failed", "upstream_proxy")
    assert len(site.tls.requests) == 1


def rewrite(proxy: EgressProcess, section: dict[str, Any]) -> None:
    """Replace the section and wait until it is in force."""
    document = yaml.safe_load(proxy.config_file.read_text())
    document["upstream_proxy"] = section
    seen = str(proxy.events()).count("policy loaded")
    proxy.config_file.write_text(yaml.safe_dump(document))
    assert eventually(lambda: str(proxy.events()).count("policy loaded") > seen), proxy.stderr()


def test_open_tunnels_follow_a_reload_with_their_next_connection(site: Site) -> None:
    with Squid() as first, Squid() as second:
        with site.proxy(only(first)) as proxy, site.client(proxy, "origin.test", site.tls.port) as client:
            assert site.ask(client) == b"ok"
            rewrite(proxy, only(second))
            assert [site.ask(client), site.ask(client)] == [b"ok", b"ok"]
        for daemon in (first, second):
            assert daemon.saw(f"CONNECT 127.0.0.1:{site.tls.port} 200 -")
            assert daemon.asked().count("CONNECT") == 1


def test_an_invalid_section_changes_nothing(site: Site) -> None:
    with Squid() as daemon:
        with site.proxy(only(daemon)) as proxy:
            document = yaml.safe_load(proxy.config_file.read_text())
            document["upstream_proxy"] = {"proxies": {"corp": {"url": "http://user:pw@127.0.0.1:1"}}}
            proxy.config_file.write_text(yaml.safe_dump(document))
            assert eventually(lambda: "reload was rejected" in str(proxy.events()))
            assert "user:pw" not in proxy.stderr()
            assert site.get(proxy) == b"ok"
        assert daemon.saw(f"CONNECT 127.0.0.1:{site.tls.port} 200 -")


def test_a_rotated_credential_is_used_by_the_next_connection(site: Site, tmp_path: Path) -> None:
    file = credential_file(tmp_path, f"{USER}:old")
    with Squid(auth="basic") as daemon:
        section = only(daemon, auth={"basic_file": str(file), "allow_insecure": True})
        with site.proxy({**section, "credential_grace": 0}) as proxy:
            assert site.refusal(proxy)[2] == "proxy_auth_rejected"
            file.write_text(f"{USER}:{PASSWORD}")
            assert site.get(proxy) == b"ok"
            file.write_text("no colon here")
            with pytest.raises(ConnectRefused) as caught:
                open_tunnel(proxy.port, f"h2.test:{site.h2.port}")  # nothing is warm there
            assert caught.value.reply.json()["reason_code"] == "proxy_auth_rejected"
            assert "no colon here" not in proxy.stderr() + str(proxy.events())


def test_a_start_can_insist_on_every_proxy(site: Site, tls_squid: Squid) -> None:
    hop = corp(tls_squid, "https")
    with pytest.raises(AssertionError, match="upstream proxy corp: shows a certificate that is not trusted"):
        site.proxy({"proxies": {"corp": hop}, "health": {"verify_at_start": True}})
