"""WebSockets through the installed command in both lanes that carry them: rules, handshakes, ends, events, memory."""

import asyncio
import base64
import hashlib
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError, InvalidStatus

from egress.engine.tunnel import Tunnel
from egress.engine.websocket import WebSocketRelay
from egress.websocket.codec import Codec
from tests.support.authorities import OriginAuthority
from tests.support.h2_client import H2Client
from tests.support.inside import InsideProxy
from tests.support.origins import REPLY_OK, Conversation, Origin, OriginLoop
from tests.support.proxy import LANES, EgressProcess
from tests.support.raw import Connection, EndOfStream, Reply, client_context, dial, eventually, open_tunnel, start_tls
from tests.support.websockets import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    RSV1,
    TEXT,
    Deflater,
    Frame,
    Inflater,
    Wire,
    closing,
    frame,
    handshake,
    masking,
    switching,
    unmask,
    upgrade,
)

MIB = 1 << 20
BROKEN = frame(0x7, b"no such opcode", masked=False)
"""Ends a parsed WebSocket with 1002 and passes a raw one."""

TERMS: dict[str, dict[str, Any]] = {
    "full.test": {"protocol": "websocket", "access": "full"},
    "write.test": {"protocol": "websocket", "access": "read-write"},
    "read.test": {"protocol": "websocket", "access": "read-only"},
    "deny.test": {
        "protocol": "websocket",
        "access": "full",
        "deny_rules": [{"method": "WEBSOCKET_TEXT", "path": "/quiet"}],
    },
    "audit.test": {"protocol": "websocket", "access": "read-only", "enforcement": "audit"},
    "rest.test": {"protocol": "rest", "access": "full"},
    "restaudit.test": {"protocol": "rest", "access": "read-only", "enforcement": "audit"},
    "up.test": {"protocol": "rest", "access": "full", "allow_upgrade": True},
    "raw.test": {"protocol": "rest", "access": "full", "allow_upgrade": True, "websocket": "raw"},
    "l4.test": {},
}


def accept(talk: Conversation, **fields: str | list[str]) -> bytes:
    assert talk.request is not None
    key = talk.request.values(b"sec-websocket-key")[0]
    digest = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    return switching(**({"sec_websocket_accept": base64.b64encode(digest).decode()} | fields))


async def read_frame(talk: Conversation) -> Frame | None:
    start = await talk.exactly(2)
    if len(start) < 2:
        return None
    size = start[1] & 0x7F
    if size >= 126:
        size = int.from_bytes(await talk.exactly(2 if size == 126 else 8))
    key = await talk.exactly(4) if start[1] & 0x80 else b""
    payload = await talk.exactly(size)
    payload = unmask(payload, key) if key else payload
    return Frame(start[0] & 0x0F, payload, bool(start[0] & 0x80), start[0] & 0x70, bool(key))


async def echo_frames(talk: Conversation) -> None:
    """Accept, send each frame back as it came, and end with a Close."""
    await talk.send(accept(talk))
    while (got := await read_frame(talk)) is not None:
        await talk.send(frame(got.opcode, got.payload, fin=got.fin, masked=False, rsv=got.rsv))
        if got.opcode == CLOSE:
            talk.close()
            return


@dataclass
class Site:
    proxy: EgressProcess
    origin: Origin
    clear: Origin
    context: Any
    lane: str

    def tunnel(self, host: str, *, tls: bool = True) -> Connection:
        if not tls:
            return open_tunnel(self.proxy.port, f"{host}:{self.clear.port}")
        return start_tls(open_tunnel(self.proxy.port, f"{host}:{self.origin.port}"), self.context, host)

    def ask(self, host: str, path: str = "/ws", *, tls: bool = True, **fields: str | list[str]) -> tuple[Reply, Wire]:
        port = (self.origin if tls else self.clear).port
        return upgrade(self.tunnel(host, tls=tls), handshake(f"{host}:{port}", path, **fields))

    def open(self, host: str = "full.test", path: str = "/ws", *, tls: bool = True, **fields: str | list[str]) -> Wire:
        reply, wire = self.ask(host, path, tls=tls, **fields)
        assert reply.status == 101, reply
        return wire

    def answers(self, host: str, path: str = "/ws", payload: str | bytes = "hello") -> str | bytes | tuple[int, str]:
        """What a real client gets back for a message: its echo, or the close code and reason."""

        async def talk() -> str | bytes | tuple[int, str]:
            url = f"wss://{host}:{self.origin.port}{path}"
            async with connect(url, proxy=self.proxy.url, ssl=self.context, compression=None) as peer:
                await peer.send(payload)
                try:
                    return await peer.recv()
                except ConnectionClosedError:
                    return peer.close_code or 0, peer.close_reason or ""

        return asyncio.run(asyncio.wait_for(talk(), 10))


def policy(ports: list[int], terms: dict[str, dict[str, Any]] = TERMS) -> str:
    entries = {
        host.partition(".")[0]: {
            "endpoints": [{"host": host, "ports": ports, **({"enforcement": "enforce"} if one else {}), **one}],
            "binaries": [{"path": "/**"}],
        }
        for host, one in terms.items()
    }
    return json.dumps({"version": 1, "network_policies": entries})


@pytest.fixture(scope="module")
def origins(origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[tuple[Origin, Origin]]:
    """Over TLS and in clear. The first one would rather speak HTTP/2."""
    context = authority.server_context(*TERMS, alpn=("h2", "http/1.1"))
    both = Origin(origin_loop, context), Origin(origin_loop)
    yield both
    for origin in both:
        origin.stop()


def started(
    lane: str,
    origins: tuple[Origin, Origin],
    authority: OriginAuthority,
    settings: dict[str, Any] | None = None,
    terms: dict[str, dict[str, Any]] = TERMS,
) -> EgressProcess:
    return EgressProcess(
        policy([origin.port for origin in origins], terms),
        aliases=dict.fromkeys(TERMS, "127.0.0.1"),
        trust=authority.ca_file,
        settings=LANES[lane] | {"identity": {"mode": "off"}} | (settings or {}),
    )


def site_of(lane: str, proxy: EgressProcess, origins: tuple[Origin, Origin]) -> Site:
    for origin in origins:
        origin.script = echo_frames
        origin.recording = True
        origin.take()
        origin.connections.clear()
    return Site(proxy, *origins, client_context(proxy.ca), lane)


@pytest.fixture(scope="module", params=LANES)
def lane(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def shared(lane: str, origins: tuple[Origin, Origin], authority: OriginAuthority) -> Iterator[EgressProcess]:
    with started(lane, origins, authority) as proxy:
        yield proxy


@pytest.fixture
def site(lane: str, shared: EgressProcess, origins: tuple[Origin, Origin]) -> Iterator[Site]:
    yield site_of(lane, shared, origins)
    # The Close of a WebSocket that this test left would be told to the next one.
    assert eventually(lambda: all(origin.idle() for origin in origins))


type Own = Callable[..., Site]


@pytest.fixture
def own(lane: str, origins: tuple[Origin, Origin], authority: OriginAuthority) -> Iterator[Own]:
    """A proxy for this test alone."""
    running: list[EgressProcess] = []

    def start(settings: dict[str, Any] | None = None, terms: dict[str, dict[str, Any]] = TERMS) -> Site:
        running.append(started(lane, origins, authority, settings, terms))
        return site_of(lane, running[-1], origins)

    yield start
    for proxy in running:
        proxy.stop()


class TestRules:
    @pytest.mark.parametrize(
        ("host", "path", "payload", "answer"),
        [
            ("full.test", "/ws", "hello", "hello"),
            ("full.test", "/ws", b"\x00\xff", b"\x00\xff"),
            ("write.test", "/ws", "hello", "hello"),
            ("write.test", "/ws", b"\x00\xff", (1003, "policy_denied")),
            ("read.test", "/ws", "hello", (1008, "policy_denied")),
            ("read.test", "/ws", b"\x00\xff", (1003, "policy_denied")),
            ("deny.test", "/loud", "hello", "hello"),
            ("deny.test", "/quiet", "hello", (1008, "policy_denied")),
            ("deny.test", "/quiet", b"\x00\xff", b"\x00\xff"),
            ("audit.test", "/ws", "hello", "hello"),
            ("audit.test", "/ws", b"\x00\xff", (1003, "policy_denied")),
            ("up.test", "/ws", "hello", "hello"),
            ("raw.test", "/ws", b"\x00\xff", b"\x00\xff"),
            ("l4.test", "/ws", "hello", "hello"),
        ],
    )
    def test_messages(
        self, site: Site, host: str, path: str, payload: str | bytes, answer: str | bytes | tuple[int, str]
    ) -> None:
        assert site.answers(host, path, payload) == answer

    def test_a_refused_message_never_reaches_the_origin(self, site: Site) -> None:
        site.answers("read.test", payload="sesame open up")
        assert eventually(lambda: site.origin.connections[-1].closed)
        head, _, sent = site.origin.take().partition(b"\r\n\r\n")
        assert head.startswith(b"GET /ws HTTP/1.1\r\n")
        assert (sent[0] & 0x0F, sent[1] & 0x7F) == (CLOSE, 2 + len("policy_denied"))

    @pytest.mark.parametrize("host", ["rest.test", "restaudit.test"])
    def test_rest_without_upgrades(self, site: Site, host: str) -> None:
        """In audit mode too (decision 28)."""
        reply, _ = site.ask(host)
        assert (reply.status, reply.error) == (403, "upgrade_refused")
        assert site.origin.take() == b""

    def test_messages_are_judged_by_the_query_of_the_upgrade_only_in_memory(self, site: Site) -> None:
        site.open("read.test", "/ws?token=sesame").send(frame(TEXT, b"open"))
        assert eventually(lambda: "WEBSOCKET_TEXT" in site.proxy.events_file.read_text())
        assert "sesame" not in site.proxy.events_file.read_text()
        assert "sesame" not in site.proxy.stderr()


class TestModes:
    @pytest.mark.parametrize("tls", [True, False])
    @pytest.mark.parametrize(
        ("host", "parsed"), [("full.test", True), ("up.test", True), ("raw.test", False), ("l4.test", False)]
    )
    def test_parsed_or_raw(self, site: Site, host: str, parsed: bool, tls: bool) -> None:
        wire = site.open(host, tls=tls)
        wire.send(frame(TEXT, b"first"))
        assert wire.receive() == Frame(TEXT, b"first")
        wire.send(frame(0x7, b"no such opcode"))
        got = wire.receive()
        if parsed:
            assert (got.opcode, got.code, got.reason) == (CLOSE, 1002, "malformed_request")
        else:
            assert got == Frame(0x7, b"no such opcode")

    def test_extensions_pass_where_nothing_is_parsed(self, site: Site) -> None:
        site.ask("raw.test", sec_websocket_extensions="x-own; level=3")
        assert b"x-own; level=3" in site.origin.take()

    def test_extensions_are_cut_down_where_messages_are_parsed(self, site: Site) -> None:
        offer = "x-own; level=3, permessage-deflate; client_max_window_bits; mystery, permessage-deflate"
        site.ask("full.test", sec_websocket_extensions=offer)
        head = site.origin.take().lower()
        assert head.count(b"sec-websocket-extensions: permessage-deflate\r\n") == 1
        assert b"x-own" not in head
        assert b"mystery" not in head

    def test_compression_both_ways(self, site: Site) -> None:
        async def agree(talk: Conversation) -> None:
            await talk.send(accept(talk, sec_websocket_extensions="permessage-deflate"))
            inflater, deflater = Inflater(), Deflater()
            while (got := await read_frame(talk)) is not None and got.opcode != CLOSE:
                assert got.rsv == RSV1
                said = inflater.message(got.payload)
                await talk.send(frame(TEXT, deflater.message(said.upper()), rsv=RSV1, masked=False))

        site.origin.script = agree
        wire = site.open("full.test", sec_websocket_extensions="permessage-deflate; client_max_window_bits")
        deflater, inflater = Deflater(), Inflater()
        for word in (b"one and the same", b"one and the same", b"x" * 5000):
            wire.send(frame(TEXT, deflater.message(word), rsv=RSV1))
            got = wire.receive()
            assert (got.rsv, inflater.message(got.payload)) == (RSV1, word.upper())

    def test_absolute_form(self, site: Site) -> None:
        """`ws:` through the proxy port without a tunnel."""
        authority = f"full.test:{site.clear.port}"
        request = handshake(authority).replace(b"GET /ws ", f"GET http://{authority}/ws ".encode())
        reply, wire = upgrade(dial(site.proxy.port), request)
        assert reply.status == 101
        wire.send(frame(TEXT, b"hello"))
        assert wire.receive() == Frame(TEXT, b"hello")
        wire.send(frame(CONTINUATION, b"stray"))
        assert wire.receive().code == 1002


class TestHandshakes:
    def test_early_messages_are_judged_too(self, site: Site) -> None:
        """Sent with the handshake, before its answer."""
        tunnel = site.tunnel("read.test")
        tunnel.send(handshake(f"read.test:{site.origin.port}") + frame(PING, b"p") + frame(TEXT, b"sesame"))
        assert tunnel.reply().status == 101
        wire = Wire(tunnel)
        seen = wire.receive()
        if seen.opcode == PING:  # the origin's echo was faster than the verdict on what followed
            seen = wire.receive()
        assert (seen.opcode, seen.code) == (CLOSE, 1008)
        assert eventually(lambda: site.origin.connections[-1].closed)
        assert b"sesame" not in site.origin.take()

    def test_bytes_of_the_origin_right_behind_its_101(self, site: Site) -> None:
        async def eager(talk: Conversation) -> None:
            await talk.send(accept(talk) + frame(TEXT, b"welcome", masked=False))
            await talk.drain_away()

        site.origin.script = eager
        assert site.open().receive() == Frame(TEXT, b"welcome")

    @pytest.mark.parametrize(
        "fields",
        [
            {"sec_websocket_key": ["dGhlIHNhbXBsZSBub25jZQ==", "AQIDBAUGBwgJCgsMDQ4PEA=="]},
            {"sec_websocket_key": []},
            {"sec_websocket_key": "dG9vIHNob3J0"},
            {"sec_websocket_version": "12"},
            {"sec_websocket_version": ["13", "13"]},
            {"sec_websocket_version": []},
            {"connection": "keep-alive"},
            {"upgrade": "other"},
            {"connection": "Upgrade, Sec-WebSocket-Key"},
            {"content_length": "5"},
            {"transfer_encoding": "chunked"},
        ],
        ids=lambda fields: "-".join(f"{name}:{value}" for name, value in fields.items())[:40],
    )
    def test_what_is_no_handshake_is_a_plain_request(self, site: Site, fields: dict[str, Any]) -> None:
        async def plain(talk: Conversation) -> None:
            await talk.send(REPLY_OK)

        site.origin.script = plain
        reply, _ = site.ask("up.test", **fields)
        assert reply.status == 200
        assert b"upgrade" not in site.origin.take().lower()
        reply, _ = site.ask("full.test", **fields)
        assert (reply.status, reply.error) == (403, "policy_denied")
        assert reply.json()["detail"] == "websocket endpoint requires a valid WebSocket upgrade request"
        assert site.origin.take() == b""

    def test_http_1_0_has_no_upgrades(self, site: Site) -> None:
        request = handshake(f"full.test:{site.origin.port}").replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1)
        reply, _ = upgrade(site.tunnel("full.test"), request)
        assert (reply.status, reply.error) == (403, "policy_denied")
        assert site.origin.take() == b""

    def test_a_plain_request_on_a_websocket_endpoint(self, site: Site) -> None:
        with site.tunnel("full.test") as tunnel:
            tunnel.send(f"GET /ws HTTP/1.1\r\nHost: full.test:{site.origin.port}\r\n\r\n".encode())
            reply = tunnel.reply()
        assert (reply.status, reply.error) == (403, "policy_denied")

    @pytest.mark.parametrize(
        "fields",
        [
            {"sec_websocket_accept": "c3VycHJpc2U="},
            {"sec_websocket_accept": []},
            {"connection": "keep-alive"},
            {"upgrade": "h2c"},
            {"sec_websocket_protocol": "never-offered"},
            {"sec_websocket_protocol": ["chat", "chat"]},
            {"sec_websocket_extensions": "permessage-deflate"},
            {"sec_websocket_extensions": "x-own"},
        ],
        ids=str,
    )
    def test_a_bad_101_is_not_shown(self, site: Site, fields: dict[str, Any]) -> None:
        async def lie(talk: Conversation) -> None:
            await talk.send(accept(talk, **fields) + frame(TEXT, b"hello", masked=False))
            await talk.drain_away()

        site.origin.script = lie
        reply, _ = site.ask("full.test", sec_websocket_protocol="chat")
        assert (reply.status, reply.error) == (502, "upstream_protocol_error")

    def test_an_unasked_101(self, site: Site) -> None:
        async def switch(talk: Conversation) -> None:
            await talk.send(switching())
            await talk.drain_away()

        site.origin.script = switch
        with site.tunnel("up.test") as tunnel:
            tunnel.send(f"GET /a HTTP/1.1\r\nHost: up.test:{site.origin.port}\r\n\r\n".encode())
            reply = tunnel.reply()
        assert (reply.status, reply.error) == (502, "upstream_protocol_error")

    def test_a_refused_upgrade_is_answered_as_any_request(self, site: Site) -> None:
        async def busy(talk: Conversation) -> None:
            await talk.send(b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 4\r\n\r\nbusy")

        site.origin.script = busy
        reply, _ = site.ask("full.test")
        assert (reply.status, reply.body) == (426, b"busy")

    def test_a_subprotocol(self, site: Site) -> None:
        async def choose(talk: Conversation) -> None:
            await talk.send(accept(talk, sec_websocket_protocol="superchat"))
            await talk.drain_away()

        site.origin.script = choose
        reply, _ = site.ask("full.test", sec_websocket_protocol="chat, superchat")
        assert (reply.status, reply.value("sec-websocket-protocol")) == (101, "superchat")

    def test_a_real_client_is_told_why(self, site: Site) -> None:
        async def refused() -> tuple[int, bytes]:
            url = f"wss://rest.test:{site.origin.port}/ws"
            with pytest.raises(InvalidStatus) as caught:
                async with connect(url, proxy=site.proxy.url, ssl=site.context):
                    pass
            return caught.value.response.status_code, bytes(caught.value.response.body or b"")

        status, body = asyncio.run(asyncio.wait_for(refused(), 10))
        assert status == 403
        assert b"upgrade_refused" in body


class TestHttp2:
    """WebSockets are HTTP/1.1 here; who asks for one over HTTP/2 gets a clear no, not a hang (O-20)."""

    @pytest.fixture
    def client(self, site: Site) -> H2Client:
        tunnel = open_tunnel(site.proxy.port, f"full.test:{site.origin.port}")
        return H2Client(start_tls(tunnel, client_context(site.proxy.ca, ("h2",)), "full.test"))

    def head(self, site: Site, *more: tuple[str, str], method: str = "GET") -> list[tuple[str, str]]:
        authority = f"full.test:{site.origin.port}"
        pseudo = [(":method", method), (":scheme", "https"), (":authority", authority), (":path", "/ws")]
        return [*pseudo, *more]

    def test_the_upgrade_of_http1(self, site: Site, client: H2Client) -> None:
        reply = client.ask(self.head(site, ("upgrade", "websocket"), ("sec-websocket-version", "13")))
        assert (reply.status, reply.error) == (403, "upgrade_refused")

    def test_extended_connect(self, site: Site, client: H2Client) -> None:
        stream = client.start(self.head(site, (":protocol", "websocket"), method="CONNECT"), end=False)
        reply = client.reply(stream)
        assert reply.reset is not None or reply.status in (400, 403)

    def test_a_plain_request(self, site: Site, client: H2Client) -> None:
        reply = client.ask(self.head(site))
        assert (reply.status, reply.error) == (403, "policy_denied")


class TestEnds:
    def test_the_client_vanishes(self, site: Site) -> None:
        wire = site.open(tls=False)
        port = port_of(wire)
        wire.connection.close()
        assert eventually(lambda: site.clear.connections[-1].closed)
        assert closed_event(site, port)["outcome"] == "client_gone"

    def test_the_origin_vanishes_without_a_close(self, site: Site) -> None:
        async def vanish(talk: Conversation) -> None:
            await talk.send(accept(talk) + frame(TEXT, b"last words", masked=False))
            talk.close()

        site.clear.script = vanish
        wire = site.open(tls=False)
        assert wire.receive() == Frame(TEXT, b"last words")
        with pytest.raises((EndOfStream, ConnectionError)):
            wire.receive()
        assert closed_event(site, port_of(wire))["outcome"] == "upstream_gone"

    def test_under_tls_a_vanished_origin_is_no_clean_end(self, site: Site) -> None:
        async def vanish(talk: Conversation) -> None:
            await talk.send(accept(talk))
            talk.reset()

        site.origin.script = vanish
        authority = f"full.test:{site.origin.port}"
        tunnel = open_tunnel(site.proxy.port, authority)
        strict = site.context.wrap_socket(tunnel.socket, server_hostname="full.test", suppress_ragged_eofs=False)
        reply, wire = upgrade(Connection(strict), handshake(authority))
        assert reply.status == 101
        assert wire.connection.some() == b""
        assert wire.connection.reset

    def test_a_close_goes_through(self, site: Site) -> None:
        wire = site.open()
        wire.send(closing(4001, "bye"))
        got = wire.receive()
        assert (got.opcode, got.code, got.reason) == (CLOSE, 4001, "bye")
        assert wire.connection.closed_by_peer()
        assert closed_event(site, port_of(wire))["outcome"] == "complete"

    def test_a_slow_client(self, site: Site) -> None:
        """An origin that sends for ever, a client that reads nothing: what is not read is not taken."""

        async def flood(talk: Conversation) -> None:
            await talk.send(accept(talk))
            block = frame(BINARY, b"x" * 65536, masked=False)
            while True:
                await talk.send(block)

        site.origin.script = flood
        memory = site.proxy.resident()
        wire = site.open()
        connection = site.origin.connections[-1]
        assert eventually(lambda: settled(lambda: connection.sent))
        assert connection.sent < 32 * MIB
        assert site.proxy.resident() - memory < 8 * MIB
        assert wire.message() == b"x" * 65536

    def test_a_slow_origin(self, site: Site) -> None:
        over = threading.Event()

        async def sleepy(talk: Conversation) -> None:
            await talk.send(accept(talk))
            while not over.is_set():
                await talk.pause(0.05)
            talk.close()

        site.origin.script = sleepy
        memory = site.proxy.resident()
        wire = site.open()
        sent = [0]
        flooding = threading.Thread(target=flood_from, args=(wire, sent), daemon=True)
        flooding.start()
        assert eventually(lambda: settled(lambda: sent[0]))
        assert sent[0] < 32 * MIB
        assert site.proxy.resident() - memory < 8 * MIB
        # Not closed while the thread sends: the descriptor would be another connection's before it notices.
        socket.socket.shutdown(wire.connection.socket, socket.SHUT_RDWR)
        flooding.join(10)
        over.set()
        assert not flooding.is_alive()

    def test_bombs_in_both_directions(self, site: Site) -> None:
        """A gigabyte in a megabyte, in a frame of its own and announced as more."""

        async def agree(talk: Conversation) -> None:
            await talk.send(accept(talk, sec_websocket_extensions="permessage-deflate"))
            if (got := await read_frame(talk)) is not None and got.opcode == TEXT:
                await talk.send(frame(BINARY, bomb, rsv=RSV1, masked=False))
                await talk.drain_away()

        bomb = Deflater().message(b"\x00" * (64 * MIB))
        site.origin.script = agree
        memory = site.proxy.resident()
        down = site.open(sec_websocket_extensions="permessage-deflate")
        down.send(frame(TEXT, b"go"))
        while (got := down.receive()).opcode != CLOSE:
            pass
        assert (got.code, got.reason) == (1009, "upstream_protocol_error")
        up = site.open(sec_websocket_extensions="permessage-deflate")
        up.send(frame(BINARY, bomb, rsv=RSV1))
        got = up.receive()
        assert (got.code, got.reason) == (1009, "body_too_large")
        assert site.proxy.resident() - memory < 24 * MIB


def flood_from(wire: Wire, sent: list[int]) -> None:
    block = frame(BINARY, b"x" * 65536)
    try:
        while True:
            wire.send(block)
            sent[0] += len(block)
    except OSError:
        return


def settled(count: Callable[[], int]) -> bool:
    """True when something moved and nothing moves any more."""
    before = count()
    time.sleep(0.15)
    return before == count() > 0


def closed_event(site: Site, port: int) -> dict[str, Any]:
    """What is told of the end of the connection from this client port."""

    def closed() -> list[dict[str, Any]]:
        return [
            event["unmapped"]
            for event in site.proxy.events()
            if "exchanges" in event.get("unmapped", {}) and event["src_endpoint"]["port"] == port
        ]

    assert eventually(lambda: bool(closed()))
    return closed()[-1]


def port_of(wire: Wire) -> int:
    return int(wire.connection.socket.getsockname()[1])


class TestTimes:
    def test_a_quiet_websocket_outlives_every_idle_time_of_http(self, own: Own) -> None:
        """O-21: gateways that are silent for minutes."""
        short = dict.fromkeys(("keepalive", "response_idle", "response_head", "body_idle", "head", "raw_idle"), "300ms")
        site = own({"timeouts": short})
        for host in ("full.test", "up.test"):
            wire = site.open(host)
            wire.send(frame(TEXT, b"before"))
            assert wire.receive() == Frame(TEXT, b"before")
            time.sleep(0.7)
            wire.send(frame(TEXT, b"after"))
            assert wire.receive() == Frame(TEXT, b"after")

    def test_an_idle_limit_cuts_and_is_named(self, own: Own) -> None:
        site = own({"timeouts": {"websocket_idle": "300ms"}})
        wire = site.open()
        got = wire.receive()
        assert (got.opcode, got.code, got.reason) == (CLOSE, 1001, "request_timeout")
        wire.send(closing(1001))
        closed = closed_event(site, port_of(wire))
        assert (closed["outcome"], closed["limit"]) == ("cut", "timeouts.websocket_idle")

    def test_a_raw_one_has_the_same_limit(self, own: Own) -> None:
        site = own({"timeouts": {"websocket_idle": "300ms"}})
        wire = site.open("raw.test")
        with pytest.raises(EndOfStream):
            wire.receive()
        assert closed_event(site, port_of(wire))["limit"] == "timeouts.websocket_idle"


class TestChanges:
    def rewrite(self, site: Site, terms: dict[str, dict[str, Any]]) -> None:
        before = site.proxy.events_file.read_text().count('"state":"loaded"')
        site.proxy.policy_file.write_text(policy([site.origin.port, site.clear.port], terms))
        site.proxy.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: site.proxy.events_file.read_text().count('"state":"loaded"') > before)

    def test_a_reload_that_does_not_concern_it_keeps_it(self, own: Own) -> None:
        site = own()
        wire = site.open()
        half = frame(TEXT, b"half ", fin=False)
        wire.send(half)
        self.rewrite(site, TERMS | {"other.test": {"protocol": "rest", "access": "full"}})
        wire.send(frame(CONTINUATION, b"and half"))
        assert wire.message() == b"half and half"

    def test_one_that_does_closes_both_sides(self, own: Own) -> None:
        site = own()
        idle, other = site.open(), site.open("write.test")
        self.rewrite(site, TERMS | {"full.test": {"protocol": "websocket", "access": "read-only"}})
        got = idle.receive()
        assert (got.opcode, got.code, got.reason) == (CLOSE, 1012, "policy_denied")
        idle.send(closing(1012))
        assert idle.connection.closed_by_peer()
        sent = site.origin.connections[0].data.partition(b"\r\n\r\n")[2]
        assert (sent[0] & 0x0F, sent[1] & 0x7F) == (CLOSE, 2 + len("policy_denied"))
        other.send(frame(TEXT, b"still"))
        assert other.receive() == Frame(TEXT, b"still")
        assert eventually(lambda: '"limit":"policy_changed"' in site.proxy.events_file.read_text())

    def test_sigterm_says_goodbye_to_both_sides(self, own: Own) -> None:
        site = own()
        wire = site.open()
        site.proxy.process.send_signal(signal.SIGTERM)
        got = wire.receive()
        assert (got.opcode, got.code, got.reason) == (CLOSE, 1001, "")
        wire.send(closing(1001))
        assert site.proxy.process.wait(10) == 0
        sent = site.origin.connections[0].data.partition(b"\r\n\r\n")[2]
        assert (sent[0] & 0x0F, sent[1] & 0x7F) == (CLOSE, 2)


class TestEvents:
    def test_one_event_at_the_101_one_per_refused_message_one_at_the_end(self, own: Own) -> None:
        site = own()
        site.open("read.test", "/ws").send(frame(TEXT, b"sesame"))
        assert eventually(lambda: any("exchanges" in event.get("unmapped", {}) for event in site.proxy.events()))
        events = [event for event in site.proxy.events() if event["class_uid"] in (4001, 4002)]
        told = [
            (
                (event.get("http_request") or {}).get("http_method") or event.get("unmapped", {}).get("http_method"),
                event.get("http_response", {}).get("code"),
                event.get("disposition"),
            )
            for event in events
            if event["class_uid"] == 4002
        ]
        assert ("GET", 101, "Allowed") in told
        assert [method for method, *_ in told].count("WEBSOCKET_TEXT") == 1
        (closed,) = [event for event in events if "exchanges" in event.get("unmapped", {})]
        assert closed["unmapped"]["outcome"] == "denied"
        assert closed["unmapped"]["lane"] == site.lane
        assert closed["traffic"]["bytes_out"] > 0
        assert "sesame" not in site.proxy.events_file.read_text()
        assert "sesame" not in site.proxy.stderr()

    def test_allowed_messages_say_nothing(self, own: Own) -> None:
        site = own()
        wire = site.open()
        for _ in range(3):
            wire.send(frame(TEXT, b"sesame"))
            wire.receive()
        wire.send(closing(1000))
        wire.receive()
        assert eventually(lambda: any("exchanges" in event.get("unmapped", {}) for event in site.proxy.events()))
        text = site.proxy.events_file.read_text()
        assert "WEBSOCKET_TEXT" not in text
        assert "sesame" not in text

    def test_audited_messages_are_told(self, own: Own) -> None:
        site = own()
        wire = site.open("audit.test")
        wire.send(frame(TEXT, b"sesame"))
        assert wire.receive() == Frame(TEXT, b"sesame")
        assert eventually(lambda: "WEBSOCKET_TEXT" in site.proxy.events_file.read_text())


def test_32_unfinished_messages_64_that_wait_and_no_more(own: Own) -> None:
    site = own()
    half = frame(TEXT, b"half", fin=False)
    wires = [site.open(tls=False) for _ in range(97)]
    for wire in wires[:96]:
        wire.send(half)
    time.sleep(0.3)
    wires[96].send(half)
    got = wires[96].receive()
    assert (got.opcode, got.code, got.reason) == (CLOSE, 1013, "overloaded")
    for wire in wires[:96]:
        wire.send(frame(CONTINUATION, b" and half"))
    assert [wire.message() for wire in wires[:96]] == [b"half and half"] * 96


def half_a_text(wire: Wire) -> None:
    wire.send(frame(TEXT, b"half", fin=False))


def refused(wire: Wire) -> None:
    wire.send(frame(0x7))
    assert wire.receive().code == 1002


def closed(wire: Wire) -> None:
    wire.send(closing(1000))
    assert wire.receive().code == 1000


@pytest.mark.parametrize("leave", [half_a_text, refused, closed])
def test_nothing_of_a_crowd_stays(
    lane: str, origins: tuple[Origin, Origin], authority: OriginAuthority, leave: Callable[[Wire], None]
) -> None:
    """Tasks, relays, codecs and places for unfinished messages: more clients than there are places, in turns."""
    ports = [origin.port for origin in origins]
    aliases = dict.fromkeys(TERMS, "127.0.0.1")
    origins[1].script = echo_frames
    with InsideProxy(policy(ports), aliases=aliases, trust=authority.ca_file, settings=LANES[lane]) as proxy:
        tasks = proxy.tasks()
        for _ in range(2):
            for _ in range(20):
                authority_of = f"full.test:{ports[1]}"
                reply, wire = upgrade(open_tunnel(proxy.port, authority_of), handshake(authority_of))
                assert reply.status == 101
                leave(wire)
                wire.connection.close()
            assert eventually(lambda: proxy.tasks() == tasks)
        assert eventually(lambda: proxy.living(WebSocketRelay, Codec, Tunnel) == 0)


def test_masked_payload_that_looks_like_a_request_is_no_request(site: Site) -> None:
    """Cache poisoning by WebSocket payloads (RFC 6455 section 10.3): masked anew with a key nobody chose."""
    wire = site.open(tls=False)
    payload = b"GET /evil HTTP/1.1\r\nHost: victim.test\r\n\r\n"
    plain = b"\x81" + bytes((0x80 | len(payload),)) + masking(payload, b"\x00\x00\x00\x00")
    wire.send(plain)
    assert wire.receive() == Frame(TEXT, payload)
    assert payload not in site.clear.take()


def test_large_messages(site: Site, tmp_path: Path) -> None:
    wire = site.open()
    wire.send(frame(TEXT, b"x" * (4 * MIB)))
    assert wire.message() == b"x" * (4 * MIB)
    wire.send(frame(BINARY, b"y" * (6 * MIB)))
    assert wire.message() == b"y" * (6 * MIB)
    wire.send(frame(TEXT, b"x" * (4 * MIB + 1))[:100])
    got = wire.receive()
    assert (got.code, got.reason) == (1009, "body_too_large")
