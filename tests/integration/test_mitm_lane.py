"""The mitm lane between real sockets: deadlines, back-pressure, ends, retries and origins of either kind."""

import asyncio
import json
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hyperframe.frame import GoAwayFrame

from tests.support.authorities import OriginAuthority
from tests.support.h2_client import H2Client, H2Reply
from tests.support.h2_origin import H2Origin, H2Talk, h2_ok
from tests.support.origins import Conversation, Origin, OriginLoop, answer, say_ok
from tests.support.proxy import EgressProcess, Endpoint, policy_text, rest
from tests.support.raw import client_context, eventually, open_tunnel, start_tls

MIB = 1024 * 1024
NAMES = ("h2.test", "h1.test")
MENU = {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "search"}, {"name": "delete_all"}]}}
CUT = {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "search"}]}}
LIST = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
TIMEOUTS = {"response_head": "700ms", "response_idle": "1500ms", "body_idle": "700ms", "keepalive": "2s"}


@dataclass
class Site:
    proxy: EgressProcess
    h2: H2Origin
    h1: Origin

    def client(self, name: str = "h2.test") -> H2Client:
        port = self.h2.port if name == "h2.test" else self.h1.port
        tunnel = open_tunnel(self.proxy.port, f"{name}:{port}", deadline=6)
        return H2Client(start_tls(tunnel, client_context(self.proxy.ca, ("h2",)), name))

    def head(self, path: str = "/x", method: str = "GET", *more: tuple[str, str], to: str = "h2.test") -> Any:
        port = self.h2.port if to == "h2.test" else self.h1.port
        return [(":method", method), (":scheme", "https"), (":authority", f"{to}:{port}"), (":path", path), *more]

    def exchanges(self) -> list[dict[str, Any]]:
        return [event for event in self.proxy.events() if event["class_uid"] == 4002]


def tools(host: str, port: int) -> Endpoint:
    """`/mcp` of an origin, where one tool may be called."""
    rules = [{"method": "tools/list"}, {"method": "tools/call", "tool": "search"}]
    return Endpoint(
        host,
        port,
        {"path": "/mcp", "protocol": "mcp", "enforcement": "enforce", "rules": [{"allow": rule} for rule in rules]},
    )


def outliving_goaway(client: H2Client) -> H2Client:
    """hyper-h2 takes a GOAWAY for the end of everything; this client goes on with what it has open."""

    def note(frame: GoAwayFrame) -> tuple[list[Any], list[Any]]:
        client.went_away = frame.error_code
        return [], []

    client.h2._frame_dispatch_table[GoAwayFrame] = note
    return client


def started(h2: H2Origin, h1: Origin, authority: OriginAuthority, timeouts: dict[str, str]) -> EgressProcess:
    return EgressProcess(
        policy_text(
            rest("h2.test", h2.port), rest("h1.test", h1.port), tools("h2.test", h2.port), tools("h1.test", h1.port)
        ),
        aliases=dict.fromkeys(NAMES, "127.0.0.1"),
        trust=authority.ca_file,
        settings={"timeouts": timeouts},
    )


@pytest.fixture(scope="module")
def origins(origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[tuple[H2Origin, Origin]]:
    h2 = H2Origin(origin_loop, authority.server_context("h2.test", alpn=("h2",)))
    h1 = Origin(origin_loop, authority.server_context("h1.test", alpn=("http/1.1",)))
    yield h2, h1
    h2.stop()
    h1.stop()


@pytest.fixture(scope="module")
def running(origins: tuple[H2Origin, Origin], authority: OriginAuthority) -> Iterator[Site]:
    with started(*origins, authority, TIMEOUTS) as proxy:
        site = Site(proxy, *origins)
        site.client().ask(site.head())  # mitmproxy is imported by the first tunnel that needs it
        yield site


@pytest.fixture
def site(running: Site) -> Site:
    running.h2.script = h2_ok
    running.h2.requests.clear()
    running.h1.script = say_ok
    running.h1.recording = True
    running.h1.connections.clear()
    running.h1.take()
    return running


# --- deadlines: one stream's, not the connection's


def test_a_silent_origin_is_a_504_on_its_stream(site: Site) -> None:
    async def script(talk: H2Talk) -> None:
        if talk.request.value(b":path") != b"/silent":
            await h2_ok(talk)

    site.h2.script = script
    client = site.client()
    silent = client.start(site.head("/silent"))
    assert client.ask(site.head("/x")).status == 200
    reply = client.reply(silent)
    assert (reply.status, reply.error) == (504, "upstream_timeout")
    assert eventually(lambda: site.h2.requests[0].reset is not None)
    assert client.ask(site.head("/x")).status == 200


def test_a_stalled_upload_is_a_408_on_its_stream(site: Site) -> None:
    client = site.client()
    stalled = client.start(site.head("/up", "POST"), end=False)
    client.send(stalled, b"abc")
    reply = client.reply(stalled)
    assert (reply.status, reply.error) == (408, "request_timeout")
    assert client.ask(site.head("/x")).status == 200


def test_a_quiet_grpc_call_is_no_stalled_upload(site: Site) -> None:
    """Its messages come when they come; the origin's answer is what is waited for."""
    client = site.client()
    call = client.start(
        site.head("/svc/Chat", "POST", ("content-type", "application/grpc"), ("te", "trailers")), end=False
    )
    assert client.reply(call).error == "upstream_timeout"


def test_a_response_that_stalls_is_reset(site: Site) -> None:
    async def script(talk: H2Talk) -> None:
        talk.headers(200)
        await talk.data(b"first")

    site.h2.script = script
    client = site.client()
    reply = client.ask(site.head("/x"))
    assert (reply.status, reply.body, reply.ended, reply.reset) == (200, b"first", False, 8)


def test_an_idle_connection_is_told_to_go(site: Site) -> None:
    client = site.client()
    assert client.ask(site.head()).status == 200
    began = time.monotonic()
    while client.went_away is None:
        assert client.pump()
    assert 1.5 < time.monotonic() - began < 9


# --- back-pressure


def test_a_client_that_does_not_read_holds_an_http1_origin_back(site: Site) -> None:
    async def endless(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while True:
            await talk.send(bytes(64 * 1024))

    site.h1.script = endless
    client = site.client("h1.test")
    memory = site.proxy.resident()
    client.start(site.head(to="h1.test"))
    time.sleep(0.8)
    sent = site.h1.connections[-1].sent
    time.sleep(0.4)
    assert site.h1.connections[-1].sent == sent
    assert sent < 12 * MIB  # mostly the kernel's buffers
    assert site.proxy.resident() - memory < 4 * MIB


def test_an_origin_that_does_not_read_holds_the_client_back(site: Site) -> None:
    """The windows that we open to the client are bounded: it stops long before it has sent everything."""

    async def deaf(talk: Conversation) -> None:
        await talk.pause(1.2)
        talk.close()

    site.h1.script = deaf
    client = site.client("h1.test")
    stream = client.start(site.head("/up", "POST", to="h1.test"), end=False)
    client.pump()
    sent = 0
    client._connection.socket.settimeout(0.3)
    memory = site.proxy.resident()
    try:
        while sent < 64 * MIB:
            room = min(client.h2.local_flow_control_window(stream), 16384)
            if room <= 0:
                client.pump()
                continue
            client.h2.send_data(stream, bytes(room))
            client.flush()
            sent += room
    except TimeoutError:
        pass
    assert sent < 16 * MIB
    assert site.proxy.resident() - memory < 6 * MIB


def test_events_arrive_when_they_are_sent(site: Site) -> None:
    """O-22: server-sent events over HTTP/2 from an HTTP/1 origin, within 100 ms. Each leaves the origin once the client
    has the one before."""
    sent: list[float] = []
    arrived: list[float] = []

    async def script(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(5):
            while len(arrived) < number:
                await talk.pause(0.005)
            sent.append(time.monotonic())
            await talk.send(b"9\r\ndata: %d\n\n\r\n" % number)
        await talk.send(b"0\r\n\r\n")

    site.h1.script = script
    client = site.client("h1.test")
    stream = client.start(site.head(to="h1.test"))
    while not client.replies[stream].ended:
        assert client.pump()
        arrived += [time.monotonic()] * (len(client.replies[stream].body) // 9 - len(arrived))
    assert min(there - here for here, there in zip(sent, arrived, strict=True)) < 0.1


# --- ends


@pytest.mark.parametrize("name", NAMES)
def test_a_client_that_vanishes_takes_its_requests_along(site: Site, name: str) -> None:
    ended: list[H2Talk] = []

    async def endless_h2(talk: H2Talk) -> None:
        try:
            talk.headers(200)
            for _ in range(100_000):
                await talk.data(bytes(1024))
        finally:
            ended.append(talk)  # the stream was reset, or the connection with it

    async def endless_h1(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while not talk.closing:
            await talk.send(bytes(1024))

    site.h2.script, site.h1.script = endless_h2, endless_h1
    client = site.client(name)
    stream = client.start(site.head(f"/vanished-{name}", to=name))
    while not client.replies[stream].body:
        client.pump()
    client._connection.socket.shutdown(socket.SHUT_RDWR)
    client._connection.close()
    if name == "h2.test":
        assert eventually(lambda: bool(ended))
    else:
        assert eventually(lambda: site.h1.connections[-1].closed)
    assert eventually(lambda: f"/vanished-{name}" in json.dumps(site.exchanges()))


def test_drain_lets_open_streams_finish(origins: tuple[H2Origin, Origin], authority: OriginAuthority) -> None:
    async def script(talk: H2Talk) -> None:
        talk.headers(200)
        await talk.data(b"first ")
        await asyncio.sleep(0.6)
        await talk.data(b"last", end=True)

    h2, h1 = origins
    h2.script = script
    with started(h2, h1, authority, {}) as proxy:
        site = Site(proxy, h2, h1)
        busy, idle = outliving_goaway(site.client()), site.client()
        idle.pump()
        stream = busy.start(site.head())
        while not busy.replies[stream].body:
            busy.pump()
        proxy.process.send_signal(signal.SIGTERM)
        while busy.went_away is None:
            assert busy.pump()
        while not busy.replies[stream].ended:
            assert busy.pump()
        assert busy.replies[stream].body == b"first last"
        while not idle.closed:
            idle.pump()
        assert idle.went_away == 0
        assert proxy.process.wait(10) == 0


def test_a_new_policy_refuses_the_next_stream_and_says_goaway(
    origins: tuple[H2Origin, Origin], authority: OriginAuthority
) -> None:
    h2, h1 = origins
    h2.script = h2_ok
    with started(h2, h1, authority, {}) as proxy:
        site = Site(proxy, h2, h1)
        client = site.client()
        assert client.ask(site.head()).status == 200
        proxy.policy_file.write_text(policy_text(rest("h1.test", h1.port)))
        proxy.process.send_signal(signal.SIGHUP)
        while client.went_away is None:
            assert client.pump()
        assert client.went_away == 0
        assert len(h2.requests) >= 1


# --- origins of either kind


def test_parallel_streams_to_an_http1_origin_share_its_pool(site: Site) -> None:
    async def slow(talk: Conversation) -> None:
        await talk.body()
        await talk.pause(0.1)
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    site.h1.script = slow
    client = site.client("h1.test")
    for _ in range(3):
        streams = [client.start(site.head(to="h1.test")) for _ in range(8)]
        assert [client.reply(stream).body for stream in streams] == [b"ok"] * 8
    assert len(site.h1.connections) <= 9


def test_chunks_and_trailers_of_an_http1_origin(site: Site) -> None:
    async def script(talk: Conversation) -> None:
        body = await talk.body()
        assert body.endswith(b"0\r\nx-up: 1\r\n\r\n")
        await talk.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n")
        await talk.send(b"x-sum: 6\r\ncontent-length: 1\r\n\r\n")

    site.h1.script = script
    client = site.client("h1.test")
    stream = client.start(site.head("/up", "POST", to="h1.test"), end=False)
    client.send(stream, b"hello")
    client.trailers(stream, [("x-up", "1"), ("transfer-encoding", "x")])
    reply = client.reply(stream)
    assert (reply.status, reply.body, reply.trailers) == (200, b"abc", [("x-sum", "6")])


def test_grpc_needs_http2_on_both_sides(site: Site) -> None:
    client = site.client("h1.test")
    head = site.head("/svc/Say", "POST", ("content-type", "application/grpc+proto"), to="h1.test")
    reply = client.ask(head, b"\0\0\0\0\0")
    assert (reply.status, reply.error) == (502, "upstream_protocol_error")
    assert site.h1.take() == b""
    assert client.ask(site.head(to="h1.test")).status == 200


@pytest.mark.parametrize("fields", [[(b":status", b"200"), (b"x", b"a\r\nb: c")], [(b":status", b"2000")]])
def test_a_malformed_reply_is_a_502(site: Site, fields: list[tuple[bytes, bytes]]) -> None:
    async def script(talk: H2Talk) -> None:
        await talk.body()
        talk._connection._h2.config.validate_outbound_headers = False
        talk._connection._h2.config.normalize_outbound_headers = False
        talk._connection.send_headers(talk.request.stream, fields, end=True)

    site.h2.script = script
    client = site.client()
    reply = client.ask(site.head())
    assert (reply.status, reply.error) == (502, "upstream_protocol_error")


@pytest.mark.parametrize(("length", "body"), [("5", b"abc"), ("2", b"abc")])
def test_a_reply_that_contradicts_its_length_is_cut(site: Site, length: str, body: bytes) -> None:
    async def script(talk: H2Talk) -> None:
        await talk.body()
        await talk.respond(200, body, content_length=length)

    site.h2.script = script
    client = site.client()
    reply = client.ask(site.head())
    assert (reply.status, reply.ended) == (200, False)
    assert reply.reset is not None
    site.h2.script = h2_ok
    assert client.ask(site.head()).status == 200


def test_an_early_response_ends_the_upload(site: Site) -> None:
    async def script(talk: H2Talk) -> None:
        await talk.respond(413, b"big")

    site.h2.script = script
    client = site.client()
    stream = client.start(site.head("/up", "POST"), end=False)
    reply = client.reply(stream)
    assert (reply.status, reply.body) == (413, b"big")
    while reply.reset is None:
        assert client.pump()
    assert reply.reset == 0


def test_expectations_are_the_origins_to_answer(site: Site) -> None:
    async def script(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 100 Continue\r\nX-Odd: 1\r\n\r\n")
        await talk.body()
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    site.h1.script = script
    client = site.client("h1.test")
    head = site.head("/up", "POST", ("expect", "100-continue"), ("content-length", "3"), to="h1.test")
    stream = client.start(head, end=False)
    while not client.replies[stream].interim:
        assert client.pump()
    client.send(stream, b"abc", end=True)
    assert (client.reply(stream).status, client.replies[stream].interim) == (200, [100])
    assert b"\r\nExpect: 100-continue\r\n" in site.h1.take()


# --- once more, where nothing can have happened


def test_a_refused_stream_is_tried_once_more(site: Site) -> None:
    async def script(talk: H2Talk) -> None:
        await talk.body()
        if len(site.h2.requests) == 1:
            talk.reset(7)
        else:
            await talk.respond(200, bytes(talk.request.body))

    site.h2.script = script
    client = site.client()
    reply = client.ask(site.head("/up", "POST"), b"hello")
    assert (reply.status, reply.body, len(site.h2.requests)) == (200, b"hello", 2)


def test_a_stream_above_the_last_id_moves_to_another_connection(site: Site) -> None:
    async def script(talk: H2Talk) -> None:
        await talk.body()
        if len(site.h2.requests) == 1:
            talk.go_away(0)
        else:
            await talk.respond(200, b"ok")

    site.h2.script = script
    before = site.h2.connection_count
    reply = site.client().ask(site.head())
    assert (reply.status, len(site.h2.requests), site.h2.connection_count - before) == (200, 2, 2)


def test_a_stream_that_is_refused_twice_is_told_so(site: Site) -> None:
    async def script(talk: H2Talk) -> None:
        await talk.body()
        talk.reset(7)

    site.h2.script = script
    reply = site.client().ask(site.head())
    assert (reply.status, reply.reset, len(site.h2.requests)) == (None, 7, 2)


def test_other_resets_are_passed_on_and_not_tried_again(site: Site) -> None:
    async def script(talk: H2Talk) -> None:
        await talk.body()
        talk.reset(13)

    site.h2.script = script
    reply = site.client().ask(site.head())
    assert (reply.status, reply.reset, len(site.h2.requests)) == (None, 13, 1)


# --- bodies that are read


def call(site: Site, name: str, body: bytes) -> H2Reply:
    client = site.client(name)
    return client.ask(
        site.head("/mcp", "POST", ("content-type", "application/json"), ("accept", "application/json"), to=name), body
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_menu_is_cut_to_what_may_be_called(site: Site, name: str) -> None:
    menu = json.dumps(MENU).encode()

    async def over_h2(talk: H2Talk) -> None:
        assert await talk.body() == LIST
        talk.headers(200, content_type="application/json", content_length=str(len(menu)))
        await talk.data(menu[:30])
        await talk.data(menu[30:], end=True)

    site.h2.script = over_h2
    site.h1.script = answer(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"%x\r\n%b\r\n0\r\nx-sum: 1\r\n\r\n" % (len(menu), menu)
    )
    reply = call(site, name, LIST)
    assert (reply.status, json.loads(reply.body)) == (200, CUT)
    assert reply.value("content-length") == str(len(reply.body))


@pytest.mark.parametrize("name", NAMES)
def test_a_menu_in_an_event_stream_is_cut_as_it_comes(site: Site, name: str) -> None:
    event = b"data: " + json.dumps(MENU).encode() + b"\n\n"

    async def over_h2(talk: H2Talk) -> None:
        talk.headers(200, content_type="text/event-stream")
        await talk.data(event[:20])
        await talk.data(event[20:], end=True)

    site.h2.script = over_h2
    site.h1.script = answer(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%b" % (len(event), event)
    )
    reply = call(site, name, LIST)
    assert reply.status == 200
    assert json.loads(reply.body.removeprefix(b"data: ")) == CUT
    assert reply.value("content-length") is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("menu", [b"no json", b'{"jsonrpc":"2.0","id":1,"result":{"tools":{}}}'])
def test_a_menu_that_cannot_be_read_is_not_passed_on(site: Site, name: str, menu: bytes) -> None:
    async def over_h2(talk: H2Talk) -> None:
        await talk.body()
        await talk.respond(200, menu, content_type="application/json")

    site.h2.script = over_h2
    site.h1.script = answer(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(menu), menu)
    )
    reply = call(site, name, LIST)
    assert (reply.status, reply.error) == (502, "upstream_protocol_error")


@pytest.mark.parametrize("name", NAMES)
def test_a_call_is_judged_before_anything_goes_upstream(site: Site, name: str) -> None:
    body = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"delete_all"}}'
    reply = call(site, name, body)
    told = json.loads(reply.body)
    assert (reply.status, told["id"], told["error"]["code"]) == (200, 7, -32003)
    assert site.h2.requests == []
    assert site.h1.take() == b""


def test_a_body_beyond_its_ceiling_is_refused_as_it_comes(site: Site) -> None:
    client = site.client("h1.test")
    stream = client.start(site.head("/mcp", "POST", ("content-type", "application/json"), to="h1.test"), end=False)
    client.send(stream, b" " * 70_000)
    reply = client.reply(stream)
    assert (reply.status, reply.error) == (413, "body_too_large")
    assert site.h1.take() == b""


# --- what is told


def test_one_event_per_stream(site: Site) -> None:
    client = site.client()
    client.ask(site.head("/told-a?token=hidden", "POST"), b"12345")
    client.ask([*site.head()[:2], (":authority", f"other.test:{site.h2.port}"), (":path", "/told-b")])

    def told() -> list[dict[str, Any]]:
        flows = [event["metadata"]["correlation_uid"] for event in site.exchanges() if "/told-a" in json.dumps(event)]
        return [event for event in site.exchanges() if event["metadata"]["correlation_uid"][:36] == flows[0][:36]]

    assert eventually(lambda: "/told-a" in json.dumps(site.exchanges()))
    assert eventually(lambda: len(told()) == 2)
    allowed, denied = told()
    assert [event["unmapped"]["lane"] for event in (allowed, denied)] == ["mitm", "mitm"]
    assert (allowed["action"], denied["status_detail"]) == ("Allowed", "request_authority_mismatch")
    assert "hidden" not in json.dumps(site.proxy.events())
