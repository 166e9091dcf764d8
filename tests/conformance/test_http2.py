"""HTTP/2 on the client's side: one verdict per stream, one reading of heads, and floods that end the connection."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.h2_client import H2Client
from tests.support.h2_origin import H2Origin, H2Talk, h2_ok
from tests.support.origins import Origin, OriginLoop, answer, say_ok
from tests.support.proxy import EgressProcess, opaque, policy_text, rest
from tests.support.raw import Connection, client_context, eventually, open_tunnel, start_tls

NAMES = ("h2.test", "h1.test", "off.test", "clear.test")
CONNECTION_ERROR_WAIT = 5.0


@dataclass
class Site:
    proxy: EgressProcess
    h2: H2Origin
    h1: Origin
    clear: H2Origin
    off: Origin

    def tls(self, name: str, port: int, alpn: tuple[str, ...] = ("h2",)) -> Connection:
        tunnel = open_tunnel(self.proxy.port, f"{name}:{port}")
        return start_tls(tunnel, client_context(self.proxy.ca, alpn), name)

    def client(self) -> H2Client:
        """HTTP/2 to an HTTP/2 origin."""
        return H2Client(self.tls("h2.test", self.h2.port))

    def head(self, path: str = "/public/x", method: str = "GET", *more: tuple[str, str]) -> list[tuple[str, str]]:
        return [
            (":method", method),
            (":scheme", "https"),
            (":authority", f"h2.test:{self.h2.port}"),
            (":path", path),
            *more,
        ]


@pytest.fixture(scope="module")
def site(origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[Site]:
    h2 = H2Origin(origin_loop, authority.server_context("h2.test", alpn=("h2",)), stream_limit=12)
    h1 = Origin(origin_loop, authority.server_context("h1.test", alpn=("http/1.1",)))
    clear = H2Origin(origin_loop, None)
    off = Origin(origin_loop)
    rules = (("GET", "/public/**"), ("POST", "/public/**"))
    policy = policy_text(
        rest("h2.test", h2.port, *rules),
        rest("h1.test", h1.port, *rules),
        rest("clear.test", clear.port, *rules),
        rest("off.test", off.port, *rules, http2="off"),
        opaque("clear.test", off.port, http2="off"),
    )
    with EgressProcess(policy, aliases=dict.fromkeys(NAMES, "127.0.0.1"), trust=authority.ca_file) as proxy:
        yield Site(proxy, h2, h1, clear, off)
    for origin in (h2, h1, clear, off):
        origin.stop()


@pytest.fixture(autouse=True)
def fresh(site: Site) -> None:
    site.h2.script = h2_ok
    site.h2.requests.clear()
    site.h1.script = say_ok
    site.h1.take()


def test_request_and_reply(site: Site) -> None:
    reply = site.client().ask(site.head("/public/x?q", "POST", ("content-type", "text/plain")), b"hello")
    assert (reply.status, reply.body, reply.ended) == (200, b"ok", True)
    (request,) = site.h2.requests
    assert bytes(request.body) == b"hello"
    assert request.value(b":path") == b"/public/x?q"
    assert request.value(b":authority") == f"h2.test:{site.h2.port}".encode()


def test_an_origin_that_knows_only_http1(site: Site) -> None:
    client = H2Client(site.tls("h1.test", site.h1.port))
    head = [(":method", "GET"), (":scheme", "https"), (":authority", f"h1.test:{site.h1.port}"), (":path", "/public/a")]
    reply = client.ask(head)
    assert (reply.status, reply.body) == (200, b"ok")
    assert site.h1.take().startswith(b"GET /public/a HTTP/1.1\r\n")


def test_prior_knowledge_in_clear(site: Site) -> None:
    with open_tunnel(site.proxy.port, f"clear.test:{site.clear.port}") as tunnel:
        client = H2Client(tunnel)
        authority = f"clear.test:{site.clear.port}"
        reply = client.ask([(":method", "GET"), (":scheme", "http"), (":authority", authority), (":path", "/public/a")])
    assert (reply.status, reply.body) == (200, b"ok")


def test_a_client_that_offers_both_gets_http1(site: Site) -> None:
    stream = site.tls("h2.test", site.h2.port, ("h2", "http/1.1"))
    assert stream.socket.selected_alpn_protocol() == "http/1.1"  # type: ignore[attr-defined]


def test_preface_where_http2_is_off(site: Site) -> None:
    with open_tunnel(site.proxy.port, f"off.test:{site.off.port}") as tunnel:
        tunnel.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        reply = tunnel.reply()
    assert (reply.status, reply.error) == (403, "unsupported_l7_protocol")


def test_denial_is_told_on_its_stream_only(site: Site) -> None:
    client = site.client()
    denied = client.ask(site.head("/secret"))
    assert (denied.status, denied.error) == (403, "policy_denied")
    assert denied.value("content-type") == "application/json"
    allowed = client.ask(site.head("/public/x"))
    assert (allowed.status, allowed.body) == (200, b"ok")
    assert len(site.h2.requests) == 1


def test_denial_in_the_middle_of_others(site: Site) -> None:
    client = site.client()
    streams = [client.start(site.head("/secret" if number % 3 == 0 else "/public/x")) for number in range(30)]
    replies = [client.reply(stream).status for stream in streams]
    assert replies == [403 if number % 3 == 0 else 200 for number in range(30)]
    assert len(site.h2.requests) == 20


@pytest.mark.parametrize(
    ("sent", "status", "error"),
    [
        ("/public/../secret", 403, "policy_denied"),
        ("/public/%2e%2e/secret", 403, "policy_denied"),
        ("/public/..;/secret", 403, "policy_denied"),
        ("/public/a%2fb", 400, "invalid_request_target"),
        ("/public/a%00", 400, "invalid_request_target"),
        ("/..", 400, "invalid_request_target"),
        ("*", 400, "invalid_request_target"),
        ("/public/a#b", 400, "invalid_request_target"),
        ("/public/\\..\\secret", 400, "invalid_request_target"),
    ],
)
def test_paths_are_read_as_in_http1(site: Site, sent: str, status: int, error: str) -> None:
    reply = site.client().ask(site.head(sent))
    assert (reply.status, reply.error) == (status, error)
    assert site.h2.requests == []


def test_the_canonical_path_goes_upstream(site: Site) -> None:
    assert site.client().ask(site.head("/x/../public//a/%7e")).status == 200
    assert site.h2.requests[0].value(b":path") == b"/public/a/~"


@pytest.mark.parametrize("named", ["other.test:{port}", "h2.test", "h2.test:1", "h1.test:{port}", "127.0.0.1:{port}"])
def test_authority_must_be_the_tunnels(site: Site, named: str) -> None:
    head = site.head()
    head[2] = (":authority", named.format(port=site.h2.port))
    reply = site.client().ask(head)
    assert (reply.status, reply.error) == (403, "request_authority_mismatch")
    assert site.h2.requests == []


def test_every_later_stream_is_held_to_the_authority(site: Site) -> None:
    client = site.client()
    assert client.ask(site.head()).status == 200
    head = site.head()
    head[2] = (":authority", f"other.test:{site.h2.port}")
    assert client.ask(head).error == "request_authority_mismatch"
    assert len(site.h2.requests) == 1


def refused(client: H2Client, head: list[tuple[str, str]], body: bytes = b"") -> bool:
    """A stream that came to nothing: a 4xx of ours, a reset, or the end of the connection."""
    reply = client.ask(head, body)
    return reply.error is not None or reply.reset is not None or client.closed or client.went_away is not None


@pytest.mark.parametrize(
    "extra",
    [
        ("host", "other.test"),
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        ("X-Upper", "case"),
        ("x-line", "a\r\nX-Smuggled: 1"),
        ("x-lf", "a\nb"),
        ("x-nul", "a\x00b"),
        ("x bad", "name"),
        ("x-colon:", "name"),
        ("", "empty"),
        (":unknown", "pseudo"),
        (":path", "/public/other"),
        (":authority", "other.test"),
        (":method", "DELETE"),
        ("content-length", "5"),
        ("content-length", "x"),
        ("content-length", "-1"),
    ],
    ids=lambda pair: repr(pair[0] + "=" + pair[1])[:40],
)
def test_heads_that_http1_would_smuggle(site: Site, extra: tuple[str, str]) -> None:
    """RFC 9113 section 8.2: connection fields, line ends and repeated pseudo-fields are malformed."""
    assert refused(site.client(), [*site.head(), extra])
    for request in site.h2.requests:
        assert b"smuggled" not in b"".join(value.lower() for _, value in request.headers)
    assert len(site.h2.requests) == 0


@pytest.mark.parametrize("missing", [0, 1, 2, 3], ids=["method", "scheme", "authority", "path"])
def test_missing_pseudo_fields(site: Site, missing: int) -> None:
    head = site.head()
    del head[missing]
    assert refused(site.client(), head)
    assert site.h2.requests == []


def test_pseudo_field_behind_a_field(site: Site) -> None:
    head = site.head()
    assert refused(site.client(), [*head[:3], ("x-a", "b"), head[3]])
    assert site.h2.requests == []


@pytest.mark.parametrize("scheme", ["http", "ftp", ""])
def test_scheme_must_be_the_tunnels(site: Site, scheme: str) -> None:
    head = site.head()
    head[1] = (":scheme", scheme)
    assert refused(site.client(), head)
    assert site.h2.requests == []


@pytest.mark.parametrize(("length", "body"), [("3", b"hello"), ("9", b"hello")])
def test_length_that_disagrees_with_the_data(site: Site, length: str, body: bytes) -> None:
    client = site.client()
    assert refused(client, site.head("/public/x", "POST", ("content-length", length)), body)
    for request in site.h2.requests:
        assert request.reset is not None or not request.ended.is_set()


@pytest.mark.parametrize("protocol", [None, "websocket"])
def test_connect_streams_are_refused(site: Site, protocol: str | None) -> None:
    """A CONNECT inside a tunnel would be a tunnel that nobody judged; RFC 8441 is not offered."""
    head = [(":method", "CONNECT"), (":authority", f"h2.test:{site.h2.port}")]
    if protocol:
        head = [*site.head("/public/x", "CONNECT"), (":protocol", protocol)]
    assert refused(site.client(), head)
    assert site.h2.requests == []


def test_cookies_are_joined_as_http1_needs_them(site: Site) -> None:
    """RFC 9113 section 8.2.3."""
    site.h1.script = answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    client = H2Client(site.tls("h1.test", site.h1.port))
    head = [(":method", "GET"), (":scheme", "https"), (":authority", f"h1.test:{site.h1.port}"), (":path", "/public/a")]
    assert client.ask([*head, ("cookie", "a=1"), ("cookie", "b=2")]).status == 200
    lines = [line for line in site.h1.take().split(b"\r\n") if line.lower().startswith(b"cookie:")]
    assert [line.split(b": ", 1)[1] for line in lines] == [b"a=1; b=2"]


def test_trailers_both_ways(site: Site) -> None:
    """O-26."""

    async def script(talk: H2Talk) -> None:
        await talk.body()
        await talk.respond(200, b"ok", trailers=[(b"x-down", b"2")])

    site.h2.script = script
    client = site.client()
    stream = client.start(site.head("/public/x", "POST"), end=False)
    client.send(stream, b"hello")
    client.trailers(stream, [("x-up", "1")])
    reply = client.reply(stream)
    assert (reply.body, reply.trailers) == (b"ok", [("x-down", "2")])
    assert site.h2.requests[0].trailers == [(b"x-up", b"1")]


def test_interim_replies(site: Site) -> None:
    async def script(talk: H2Talk) -> None:
        await talk.body()
        talk.headers(103, link="</a>")
        await talk.respond(200, b"ok")

    site.h2.script = script
    reply = site.client().ask(site.head())
    assert (reply.interim, reply.status, reply.body) == ([103], 200, b"ok")


def test_large_bodies_both_ways(site: Site) -> None:
    payload = bytes(range(256)) * 8192

    async def script(talk: H2Talk) -> None:
        await talk.respond(200, await talk.body())

    site.h2.script = script
    reply = site.client().ask(site.head("/public/x", "POST"), payload)
    assert reply.body == payload


def test_a_reply_without_body_ends_with_its_head(site: Site) -> None:
    """gRPC errors are one HEADERS frame that ends the stream; a DATA frame behind it is another message."""

    async def script(talk: H2Talk) -> None:
        await talk.body()
        talk.headers(200, end=True, grpc_status="8")

    site.h2.script = script
    reply = site.client().ask(site.head("/public/x", "POST"), b"hello")
    assert (reply.status, reply.value("grpc-status"), reply.ended_by_head) == (200, "8", True)


def test_a_request_without_body_ends_with_its_head(site: Site) -> None:
    assert site.client().ask(site.head()).status == 200
    assert site.h2.requests[0].ended_by_head


@pytest.mark.parametrize("code", [1, 2, 5, 7, 8, 11])
def test_a_reset_stays_on_its_stream(site: Site, code: int) -> None:
    """O-59."""

    async def script(talk: H2Talk) -> None:
        await talk.body()
        if talk.request.value(b":path") == b"/public/reset":
            talk.headers(200)
            await talk.data(b"part")
            talk.reset(code)
        else:
            await talk.respond(200, b"ok")

    site.h2.script = script
    client = site.client()
    streams = [client.start(site.head("/public/reset" if number == 4 else "/public/x")) for number in range(10)]
    replies = [client.reply(stream) for stream in streams]
    assert replies[4].reset is not None
    assert not replies[4].ended
    assert [reply.body for reply in replies if reply.reset is None] == [b"ok"] * 9


def test_more_streams_than_the_origin_allows(site: Site) -> None:
    """O-59: beyond the origin's limit of 12 streams wait or take another connection; none fails."""

    async def script(talk: H2Talk) -> None:
        await talk.body()
        await talk.respond(200, b"ok")

    site.h2.script = script
    client = site.client()
    streams = [client.start(site.head()) for _ in range(60)]
    assert [client.reply(stream).status for stream in streams] == [200] * 60


def test_origin_that_goes_away(site: Site) -> None:
    """O-59: what was accepted is finished, what comes later gets a new connection."""

    async def script(talk: H2Talk) -> None:
        await talk.body()
        if talk.request.value(b":path") == b"/public/last":
            talk.go_away(talk.request.stream)
        await talk.respond(200, b"ok")

    site.h2.script = script
    client = site.client()
    assert client.ask(site.head("/public/last")).status == 200
    again = client.ask(site.head("/public/next"))
    if client.went_away is not None or client.closed:
        again = site.client().ask(site.head("/public/next"))
    assert (again.status, again.body) == (200, b"ok")


def test_client_reset_reaches_the_origin(site: Site) -> None:
    async def script(talk: H2Talk) -> None:
        talk.headers(200)
        await talk.data(b"first")
        await talk.body()

    site.h2.script = script
    client = site.client()
    stream = client.start(site.head("/public/x", "POST"), end=False)
    while not client.replies[stream].body:
        client.pump()
    client.h2.reset_stream(stream, 8)
    client.flush()
    assert eventually(lambda: site.h2.requests[0].ended.is_set() or site.h2.requests[0].reset is not None)
    assert site.h2.requests[0].reset is not None


def test_a_stalled_stream_holds_no_other_back(site: Site) -> None:
    """Memory stays bounded when the client does not read one stream, and the others go on."""
    body = bytes(32 * 1024 * 1024)

    async def script(talk: H2Talk) -> None:
        await talk.body()
        await talk.respond(200, body if talk.request.value(b":path") == b"/public/big" else b"ok")

    site.h2.script = script
    client = site.client()
    # The connection's window is wide, as clients have it: only the stream's own is to stop the big one.
    client.h2.increment_flow_control_window(1024 * 1024)
    client.flush()
    memory = site.proxy.resident()
    big = client.start(site.head("/public/big"))
    client._on = lambda event: None if getattr(event, "stream_id", 0) == big else H2Client._on(client, event)  # type: ignore[method-assign]
    small = client.start(site.head("/public/small"))
    assert client.reply(small).body == b"ok"
    assert site.proxy.resident() - memory < 16 * 1024 * 1024


# --- floods: the connection ends, the process does not notice


def ended(client: H2Client) -> bool:
    try:
        for _ in range(200_000):
            if client.went_away is not None or not client.pump():
                return True
    except TimeoutError:
        return False
    except OSError:
        return True
    return False


def alive(site: Site) -> bool:
    return site.client().ask(site.head()).status == 200


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


@pytest.mark.parametrize(
    "flood",
    [
        pytest.param(lambda n: frame(9, 0, 1, b"\x00" * 4000), id="continuation"),
        pytest.param(lambda n: frame(6, 0, 0, b"pingpong"), id="ping"),
        pytest.param(lambda n: frame(4, 0, 0, b""), id="settings"),
    ],
)
@pytest.mark.timeout(60)
def test_floods_are_bounded(site: Site, flood) -> None:  # type: ignore[no-untyped-def]
    client = site.client()
    memory = site.proxy.resident()
    if flood(0)[3] == 9:
        client.send_raw(frame(1, 0, 1, b"\x82"))
    try:
        for number in range(4000):
            client.send_raw(flood(number))
    except OSError:
        pass
    assert site.proxy.resident() - memory < 32 * 1024 * 1024
    assert alive(site)


@pytest.mark.timeout(60)
def test_rapid_reset_is_bounded(site: Site) -> None:
    """CVE-2023-44487: streams opened and reset as fast as they go."""

    async def script(talk: H2Talk) -> None:
        await talk.body()

    site.h2.script = script
    client = site.client()
    try:
        for _ in range(2000):
            stream = client.start(site.head("/public/x", "POST"), end=False)
            client.h2.reset_stream(stream, 8)
            client.flush()
    except OSError:
        pass
    site.h2.script = h2_ok
    assert eventually(lambda: alive(site), 20)


@pytest.mark.parametrize(
    "junk",
    [
        pytest.param(frame(0, 0, 1, b"data on an idle stream"), id="data-on-idle"),
        pytest.param(frame(1, 4, 2, b"\x82"), id="even-stream"),
        pytest.param(frame(4, 0, 0, b"123"), id="settings-length"),
        pytest.param(frame(8, 0, 0, b"\x00\x00\x00\x00"), id="window-zero"),
        pytest.param(frame(1, 4, 1, b"\xff\xff\xff\xff\xff"), id="hpack"),
        pytest.param(b"\xff" * 64, id="noise"),
        pytest.param(b"\xff\xff\xff\x00\x00\x00\x00\x00\x01", id="frame-too-large"),
    ],
)
def test_protocol_errors_end_the_connection(site: Site, junk: bytes) -> None:
    client = site.client()
    client.pump()
    client.send_raw(junk)
    assert ended(client)
    assert alive(site)


def test_field_block_too_large(site: Site) -> None:
    """The bound of heads holds for the decoded list: HPACK makes large heads from few bytes."""
    client = site.client()
    assert refused(client, [*site.head(), *[(f"x-{number}", "v" * 1000) for number in range(64)]])
    assert site.h2.requests == []
