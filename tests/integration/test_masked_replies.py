"""Replies that a scrubber masks, between real sockets: lengths, trailers, and how long ends wait, in each lane."""

import gzip
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from egress.credentials.scrub import Scrubber, plan_reply
from egress.model.message import ResponseHead
from egress.model.secret import Secret
from egress.model.verdict import Denial
from egress.pipeline.exchange import Exchange
from egress.pipeline.transform import Masked
from tests.support.authorities import OriginAuthority
from tests.support.h2_client import H2Client
from tests.support.h2_origin import H2Origin, H2Talk
from tests.support.inside import InsideProxy
from tests.support.origins import Conversation, Origin, OriginLoop, answer
from tests.support.proxy import LANES, policy_text, rest
from tests.support.raw import Connection, client_context, open_tunnel, start_tls

HOST, H2_HOST = "h1.test", "h2.test"
TOKEN = b"ghp_Ab3dEf6hIj9lMn2pQr5t"
MASK = b"*" * len(TOKEN)
SCRUBBER = Scrubber.of((Secret(TOKEN.decode()),))


@dataclass
class Site:
    proxy: InsideProxy
    origin: Origin
    h2: H2Origin

    def tunnel(self) -> Connection:
        return start_tls(
            open_tunnel(self.proxy.port, f"{HOST}:{self.origin.port}"), client_context(self.proxy.ca), HOST
        )

    def ask(self, client: Connection, line: str = "GET /x") -> None:
        client.send(f"{line} HTTP/1.1\r\nHost: {HOST}:{self.origin.port}\r\n\r\n".encode())

    def h2_client(self) -> H2Client:
        tunnel = open_tunnel(self.proxy.port, f"{H2_HOST}:{self.h2.port}", deadline=6)
        return H2Client(start_tls(tunnel, client_context(self.proxy.ca, ("h2",)), H2_HOST))

    def h2_start(self, client: H2Client, *more: tuple[str, str]) -> int:
        authority = f"{H2_HOST}:{self.h2.port}"
        return client.start(
            [(":method", "GET"), (":scheme", "https"), (":authority", authority), (":path", "/x"), *more]
        )


def respond(self: Exchange, response: ResponseHead) -> ResponseHead | Denial:
    """As if every connection had resolved the token."""
    checked = RESPOND(self, response)
    plan = plan_reply(checked, self.method, SCRUBBER, "all") if isinstance(checked, ResponseHead) else checked
    if isinstance(plan, Denial):
        return plan
    if plan.transform is not None:
        self.transform = Masked(plan.transform, self.transform)
    return plan.head


RESPOND = Exchange.respond


@pytest.fixture(scope="module", params=LANES)
def site(request: pytest.FixtureRequest, origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[Site]:
    origin = Origin(origin_loop, authority.server_context(HOST))
    h2 = H2Origin(origin_loop, authority.server_context(H2_HOST, alpn=("h2",)))
    with (
        pytest.MonkeyPatch.context() as patch,
        InsideProxy(
            policy_text(rest(HOST, origin.port), rest(H2_HOST, h2.port)),
            aliases=dict.fromkeys((HOST, H2_HOST), "127.0.0.1"),
            trust=authority.ca_file,
            settings=LANES[request.param],
        ) as proxy,
    ):
        patch.setattr(Exchange, "respond", respond)
        yield Site(proxy, origin, h2)
    origin.stop()
    h2.stop()


def test_a_length_stays_and_the_connection_with_it(site: Site) -> None:
    body = b'{"token":"' + TOKEN + b'"}'
    reply = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Echo: %b\r\nContent-Length: %d\r\n\r\n%b"
    site.origin.script = answer(reply % (TOKEN, len(body), body))
    with site.tunnel() as client:
        for _ in range(2):
            site.ask(client)
            got = client.reply()
            assert (got.value("content-length"), got.value("transfer-encoding")) == (str(len(body)), None)
            assert (got.body, got.value("x-echo")) == (b'{"token":"' + MASK + b'"}', MASK.decode())


def test_chunks_and_trailers(site: Site) -> None:
    async def halves(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (b"<" + TOKEN[:9], TOKEN[9:20], TOKEN[20:] + b">" + TOKEN[:3]):
            await talk.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            await talk.pause(0.02)
        await talk.send(b"0\r\nX-Sum: %b\r\n\r\n" % TOKEN)

    site.origin.script = halves
    with site.tunnel() as client:
        site.ask(client)
        got = client.reply()
        assert (got.body, got.trailers) == (b"<" + MASK + b">" + TOKEN[:3], [("X-Sum", MASK.decode())])


def test_trailers_of_a_body_that_is_not_read(site: Site) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n"
    site.origin.script = answer(head + b"18\r\n%b\r\n0\r\nX-Sum: %b\r\n\r\n" % (TOKEN, TOKEN))
    with site.tunnel() as client:
        site.ask(client)
        got = client.reply()
        assert (got.body, got.trailers) == (TOKEN, [("X-Sum", MASK.decode())])


@pytest.mark.parametrize("counted", [True, False], ids=["length", "until close"])
def test_a_short_end_waits_a_tenth_of_a_second(site: Site, counted: bool) -> None:
    async def hesitating(talk: Conversation) -> None:
        length = b"Content-Length: 29\r\n" if counted else b""
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n%b\r\nsee: ghp_" % length)
        await talk.pause(1.0)
        await talk.send(TOKEN[4:])
        talk.close()

    site.origin.script = hesitating
    with site.tunnel() as client:
        start = time.monotonic()
        site.ask(client)
        head = client.reply_head()
        assert head.value("content-length") == ("29" if counted else None)
        first = client.exactly(9) if counted else client.exactly(len(b"5\r\nsee: \r\n4\r\nghp_\r\n"))
        assert (first.endswith(b"ghp_"), first.startswith(b"see: ")) == (counted, counted)
        assert time.monotonic() - start > 0.09
        end = MASK[4:] if counted else b"14\r\n" + MASK[4:] + b"\r\n0\r\n\r\n"
        assert client.exactly(len(end)) == end


def test_a_longer_end_waits_for_what_follows(site: Site) -> None:
    async def hesitating(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 30\r\n\r\nsee: " + TOKEN[:8])
        await talk.pause(0.4)
        await talk.send(TOKEN[8:] + b"!")

    site.origin.script = hesitating
    with site.tunnel() as client:
        site.ask(client)
        client.reply_head()
        assert client.exactly(5) == b"see: "
        start = time.monotonic()
        assert client.exactly(25) == MASK + b"!"
        assert time.monotonic() - start > 0.25


def test_a_coded_reply_comes_decoded_and_complete(site: Site) -> None:
    coded = gzip.compress(b"[" + TOKEN + b"," * 50_000 + b"]")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    site.origin.script = answer(head % len(coded) + coded)
    with site.tunnel() as client:
        for _ in range(2):
            site.ask(client)
            got = client.reply()
            assert (got.value("content-encoding"), got.value("transfer-encoding")) == (None, "chunked")
            assert got.body == b"[" + MASK + b"," * 50_000 + b"]"


def test_a_coded_reply_that_breaks_off_never_looks_whole(site: Site) -> None:
    coded = gzip.compress(b"[" * 9)[:-4]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    site.origin.script = answer(head % len(coded) + coded)
    with site.tunnel() as client:
        site.ask(client)
        assert not client.reply().complete


def test_heads_alone(site: Site) -> None:
    site.origin.script = answer(b"HTTP/1.1 304 Not Modified\r\nETag: %b\r\n\r\n" % TOKEN)
    with site.tunnel() as client:
        for _ in range(2):
            site.ask(client)
            assert client.reply().value("etag") == MASK.decode()


def test_http2_keeps_its_length_and_masks_trailers(site: Site) -> None:
    async def echo(talk: H2Talk) -> None:
        await talk.respond(200, b"<" + TOKEN + b">", [(b"x-sum", TOKEN)], content_length="26", x_echo=TOKEN.decode())

    site.h2.script = echo
    client = site.h2_client()
    got = client.reply(site.h2_start(client))
    assert (got.value("content-length"), got.value("x-echo")) == ("26", MASK.decode())
    assert (got.body, got.trailers) == (b"<" + MASK + b">", [("x-sum", MASK.decode())])


def test_http2_short_ends_and_frame_borders(site: Site) -> None:
    async def hesitating(talk: H2Talk) -> None:
        talk.headers(200, content_type="text/plain")
        await talk.data(b"see: ")
        await talk.data(b"ghp_")
        await talk.request.ended.wait()
        await talk.data(TOKEN[4:8])
        await talk.data(TOKEN[8:] + b"!" + TOKEN[:5], end=True)

    site.h2.script = hesitating
    client = site.h2_client()
    stream = client.start(
        [(":method", "POST"), (":scheme", "https"), (":authority", f"{H2_HOST}:{site.h2.port}"), (":path", "/x")],
        end=False,
    )
    start = time.monotonic()
    while len(client.replies[stream].body) < 9:
        client.pump()
    assert 0.05 < time.monotonic() - start < 1
    assert client.replies[stream].body == b"see: ghp_"
    client.send(stream, b"go", end=True)
    assert client.reply(stream).body == b"see: ghp_" + MASK[4:] + b"!" + TOKEN[:5]


def test_a_reply_of_trailers_alone_ends_with_its_head(site: Site) -> None:
    async def refuse(talk: H2Talk) -> None:
        talk.headers(200, end=True, content_type="application/grpc", grpc_status="7", grpc_message=TOKEN.decode())

    site.h2.script = refuse
    client = site.h2_client()
    got = client.reply(site.h2_start(client, ("te", "trailers")))
    assert (got.ended_by_head, got.value("grpc-message")) == (True, MASK.decode())


def test_http10_clients_get_lengths_too(site: Site) -> None:
    site.origin.script = answer(b"HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n" + TOKEN)
    with site.tunnel() as client:
        client.send(f"GET /x HTTP/1.0\r\nHost: {HOST}:{site.origin.port}\r\n\r\n".encode())
        got = client.reply()
        assert (got.value("content-length"), got.body) == ("24", MASK)
