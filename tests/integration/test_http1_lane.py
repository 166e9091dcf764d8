"""HTTP/1 in both lanes: exchanges that take their time, end early or meet a dead connection, as clients see it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.origins import REPLY_OK, Conversation, Origin, OriginLoop, Script, answer, say_ok
from tests.support.proxy import LANES, EgressProcess, policy_text, rest
from tests.support.raw import Connection, client_context, dial, eventually, open_tunnel, start_tls

HOST = "origin.test"


class Site:
    """One proxy, one origin in clear and one under TLS."""

    def __init__(self, proxy: EgressProcess, plain: Origin, tls: Origin) -> None:
        self.proxy = proxy
        self.plain = plain
        self.tls = tls
        self._context = client_context(proxy.ca)

    def tunnel(self) -> Connection:
        return start_tls(open_tunnel(self.proxy.port, f"{HOST}:{self.tls.port}"), self._context, HOST)

    def head(self, line: str, fields: str = "") -> bytes:
        """A request inside a tunnel to the TLS origin."""
        return f"{line} HTTP/1.1\r\nHost: {HOST}:{self.tls.port}\r\n{fields}\r\n".encode()

    def forward(self, method: str, path: str, fields: str = "", version: str = "1.1") -> bytes:
        return f"{method} http://{HOST}:{self.plain.port}{path} HTTP/{version}\r\n{fields}\r\n".encode()

    @contextmanager
    def scripted(self, script: Script) -> Iterator[None]:
        self.plain.script = self.tls.script = script
        try:
            yield
        finally:
            self.plain.script = self.tls.script = say_ok


@pytest.fixture(scope="module", params=LANES)
def site(request: pytest.FixtureRequest, origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[Site]:
    plain, tls = Origin(origin_loop), Origin(origin_loop, authority.server_context(HOST))
    policy = policy_text(rest(HOST, plain.port), rest(HOST, tls.port))
    with EgressProcess(
        policy, aliases={HOST: "127.0.0.1"}, trust=authority.ca_file, settings=LANES[request.param]
    ) as proxy:
        yield Site(proxy, plain, tls)
    plain.stop()
    tls.stop()


# replies that come early ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", [True, False], ids=["tunnel", "forward"])
def test_a_reply_that_comes_before_the_body_is_read_by_a_client_that_still_sends(site: Site, inside: bool) -> None:
    """Closed with bytes unread, the connection would be reset and the reply lost."""

    async def refuse_at_once(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 9\r\nConnection: close\r\n\r\ntoo large")
        talk.close()

    with site.scripted(refuse_at_once), site.tunnel() if inside else dial(site.proxy.port) as client:
        fields = "Content-Length: 100000\r\n"
        client.send(site.head("POST /up", fields) if inside else site.forward("POST", "/up", fields))
        client.send(bytes(20_000))
        time.sleep(0.1)
        client.send(bytes(20_000))
        reply = client.reply()
        assert (reply.status, reply.body, reply.complete) == (413, b"too large", True)
        assert reply.value("connection") == "close"


def test_a_reply_may_stream_while_the_request_still_does(site: Site) -> None:
    async def echo_pieces(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(5):
            piece = await talk.exactly(4)
            await talk.send(b"4\r\n%b\r\n" % piece)
        await talk.send(b"0\r\n\r\n")

    with site.scripted(echo_pieces), site.tunnel() as client:
        client.send(site.head("POST /both", "Content-Length: 20\r\n"))
        assert client.reply_head().status == 200
        for number in range(5):
            piece = b"%04d" % number
            client.send(piece)
            assert client.exactly(9) == b"4\r\n%b\r\n" % piece


@pytest.mark.parametrize("inside", [True, False], ids=["tunnel", "forward"])
def test_events_are_passed_on_as_they_come(site: Site, inside: bool) -> None:
    """Each leaves the origin once the client has the one before."""
    delays: list[float] = []

    async def tick(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(5):
            while len(delays) < number:
                await talk.pause(0.005)
            event = f"data: {time.monotonic()}\n\n".encode()
            await talk.send(b"%x\r\n%b\r\n" % (len(event), event))
        await talk.send(b"0\r\n\r\n")

    with site.scripted(tick), site.tunnel() if inside else dial(site.proxy.port) as client:
        client.send(site.head("GET /events") if inside else site.forward("GET", "/events"))
        assert client.reply_head().value("transfer-encoding") == "chunked"
        for _ in range(5):
            size = int(client.until(b"\r\n"), 16)
            event = client.exactly(size + 2)
            delays.append(time.monotonic() - float(event.split()[1]))
    assert min(delays) < 0.1, delays


def test_events_without_framing_reach_the_client_framed_and_end_cleanly(site: Site) -> None:
    async def until_close(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await talk.pause(0.05)
        await talk.send(b"data: 2\n\n")
        talk.close()

    with site.scripted(until_close), dial(site.proxy.port) as client:
        client.send(site.forward("GET", "/events"))
        reply = client.reply()
        assert (reply.value("transfer-encoding"), reply.body, reply.complete) == (
            "chunked",
            b"data: 1\n\ndata: 2\n\n",
            True,
        )
        client.send(site.forward("HEAD", "/again"))
        assert client.reply("HEAD").status == 200


# replies that end early ----------------------------------------------------------------------------------------------

HALF: dict[str, bytes] = {
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    "chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nhalf",
}


def half(reply: bytes, *, reset: bool = False) -> Script:
    async def script(talk: Conversation) -> None:
        await talk.send(reply)
        await talk.pause(0.02)
        talk.reset() if reset else talk.close()

    return script


@pytest.mark.parametrize("reply", HALF.values(), ids=HALF)
@pytest.mark.parametrize("reset", [False, True], ids=["fin", "reset"])
def test_a_reply_cut_short_never_looks_whole(site: Site, reply: bytes, reset: bool) -> None:
    with site.scripted(half(reply, reset=reset)):
        for client in (site.tunnel(), dial(site.proxy.port)):
            with client:
                inside = client.socket.type and hasattr(client.socket, "cipher")
                client.send(site.head("GET /half") if inside else site.forward("GET", "/half"))
                told = client.reply()
                assert (told.status, told.complete) == (200, False)


@pytest.mark.parametrize("reply", HALF.values(), ids=HALF)
def test_a_reply_cut_short_is_a_reset_for_a_client_that_reads_until_close(site: Site, reply: bytes) -> None:
    """HTTP/1.0 knows no chunks, and there a plain end of the connection is the end of the body."""
    with site.scripted(half(reply)), dial(site.proxy.port) as client:
        client.send(site.forward("GET", "/half", version="1.0"))
        told = client.reply()
        assert told.status == 200
        assert client.reset or not told.complete


def test_a_body_until_close_that_is_reset_never_looks_whole(site: Site) -> None:
    with site.scripted(half(b"HTTP/1.1 200 OK\r\n\r\nhalf", reset=True)), dial(site.proxy.port) as client:
        client.send(site.forward("GET", "/half"))
        assert client.reply().complete is False


# pooled connections --------------------------------------------------------------------------------------------------


def test_equal_tunnels_and_requests_share_a_connection(site: Site) -> None:
    before = len(site.tls.connections)
    for _ in range(3):
        with site.tunnel() as client:
            for _ in range(2):
                client.send(site.head("GET /shared"))
                assert client.reply().body == b"ok"
    assert len(site.tls.connections) - before <= 1


def test_an_origin_that_hung_up_while_idle_is_noticed(site: Site) -> None:
    """In clear a FIN is all there is; the next request, a streamed one, must not meet it."""

    async def answer_and_leave(talk: Conversation) -> None:
        await talk.body()
        await talk.send(REPLY_OK)
        await talk.pause(0.05)
        talk.close()

    with dial(site.proxy.port) as client:
        with site.scripted(answer_and_leave):
            client.send(site.forward("GET", "/first"))
            assert client.reply().status == 200
            time.sleep(0.15)
        client.send(site.forward("POST", "/second", "Content-Length: 3\r\n"))
        time.sleep(0.05)
        client.send(b"abc")
        assert client.reply().status == 200
        assert site.plain.requests[-1].body == b"abc"


def dies_once(times: list[int]) -> Script:
    """Answer the first request of a connection, hang up on its second without a word."""
    seen: list[Conversation] = []  # themselves: the id of one that is gone may be another's

    async def script(talk: Conversation) -> None:
        if not any(talk is known for known in seen):
            seen.append(talk)
            await talk.body()
            await talk.send(REPLY_OK)
            return
        times.append(len(talk.received.data))
        talk.close()

    return script


def test_a_request_on_a_dying_connection_is_sent_once_more(site: Site) -> None:
    deaths: list[int] = []
    with site.scripted(dies_once(deaths)), dial(site.proxy.port) as client:
        for path in ("/one", "/two"):
            client.send(site.forward("GET", path))
            assert client.reply().status == 200
        assert len(deaths) <= 1


def test_a_streamed_body_is_not_sent_twice(site: Site) -> None:
    deaths: list[int] = []
    with site.scripted(dies_once(deaths)), dial(site.proxy.port) as client:
        client.send(site.forward("GET", "/one"))
        assert client.reply().status == 200
        client.send(site.forward("POST", "/never-twice", "Content-Length: 6\r\n") + b"abc")
        time.sleep(0.1)
        client.send(b"def")
        reply = client.reply()
        assert (reply.status, reply.error) == (502, "upstream_protocol_error")
    assert [request.target for request in site.plain.requests].count(b"/never-twice") == 1


def test_an_origin_that_dies_twice_is_told(site: Site) -> None:
    async def hang_up(talk: Conversation) -> None:
        talk.close()

    with site.scripted(hang_up), dial(site.proxy.port) as client:
        client.send(site.forward("GET", "/x"))
        assert client.reply().error == "upstream_protocol_error"


# Expect --------------------------------------------------------------------------------------------------------------


async def continue_then_ok(talk: Conversation) -> None:
    await talk.send(b"HTTP/1.1 100 Continue\r\nX-Extra: 1\r\n\r\n")
    await say_ok(talk)


EXPECT = "Content-Length: 5\r\nexpect: 100-Continue\r\n"


def expecting(site: Site, script: Script, then: Callable[[Connection], None]) -> None:
    with site.scripted(script), site.tunnel() as client:
        client.send(site.head("PUT /obj", EXPECT))
        then(client)


def test_the_origins_continue_reaches_the_client_bare(site: Site) -> None:
    def then(client: Connection) -> None:
        assert client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"hello")
        assert client.reply().body == b"ok"

    expecting(site, continue_then_ok, then)
    assert site.tls.requests[-1].body == b"hello"
    assert site.tls.requests[-1].values(b"expect") == [b"100-continue"]


@pytest.mark.parametrize("line", ["417 Expectation Failed", "403 Forbidden"])
def test_a_final_status_comes_without_the_body_being_asked_for(site: Site, line: str) -> None:
    def then(client: Connection) -> None:
        began = time.monotonic()
        reply = client.reply()
        assert (reply.status, reply.interim) == (int(line[:3]), [])
        assert time.monotonic() - began < 0.9

    expecting(site, answer_at_once(f"HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n".encode()), then)


def answer_at_once(reply: bytes) -> Script:
    async def script(talk: Conversation) -> None:
        await talk.send(reply)

    return script


def test_silence_is_answered_by_us_within_about_a_second_and_only_once(site: Site) -> None:
    async def late_continue(talk: Conversation) -> None:
        assert await talk.exactly(2) == b"he"
        await talk.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await talk.exactly(3) == b"llo"
        await talk.send(REPLY_OK)

    def then(client: Connection) -> None:
        began = time.monotonic()
        assert client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert 0.5 < time.monotonic() - began < 5
        client.send(b"he")
        time.sleep(0.05)
        client.send(b"llo")
        reply = client.reply()
        assert (reply.status, reply.interim) == (200, [])

    expecting(site, late_continue, then)


def test_a_client_that_does_not_wait_is_not_made_to(site: Site) -> None:
    def then(client: Connection) -> None:
        time.sleep(0.05)
        began = time.monotonic()
        client.send(b"hello")
        assert client.reply().body == b"ok"
        assert time.monotonic() - began < 0.9

    expecting(site, say_ok, then)


# bounds --------------------------------------------------------------------------------------------------------------


def test_a_client_that_asks_and_never_reads_fills_no_memory(site: Site) -> None:
    body = bytes(200_000)
    with site.scripted(answer(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + body)):
        before, asked = site.proxy.resident(), len(site.plain.requests)
        with dial(site.proxy.port) as client:
            client.send(site.forward("GET", "/flood") * 400)
            time.sleep(0.7)
            assert site.proxy.resident() - before < 24 << 20
            assert len(site.plain.requests) - asked < 200
            for _ in range(400):
                assert len(client.reply().body) == 200_000


def test_trailers_pass_both_ways(site: Site) -> None:
    async def with_trailers(talk: Conversation) -> None:
        await talk.body()
        await talk.send(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\nSet-Cookie: a\r\n\r\n"
        )

    with site.scripted(with_trailers), site.tunnel() as client:
        client.send(site.head("POST /t", "Transfer-Encoding: chunked\r\n"))
        client.send(b"3;ext=1\r\nabc\r\n0\r\nX-In: 2\r\nHost: evil\r\n\r\n")
        reply = client.reply()
        assert (reply.body, reply.trailers) == (b"ok", [("X-Sum", "1")])
        assert site.tls.requests[-1].body == b"3\r\nabc\r\n0\r\nX-In: 2\r\n\r\n"


def test_a_client_that_left_stops_the_origin(site: Site) -> None:
    stopped = threading.Event()

    async def endless(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        await talk.drain_away()
        stopped.set()

    with site.scripted(endless):
        with site.tunnel() as client:
            client.send(site.head("GET /endless"))
            assert client.reply_head().status == 200
        assert stopped.wait(10)


def test_descriptors_come_back(site: Site) -> None:
    def crowd(count: int) -> None:
        for _ in range(count):
            with site.tunnel() as client:
                client.send(site.head("GET /x"))
                assert client.reply().status == 200

    crowd(5)  # what the first connections make is kept
    before = site.proxy.descriptors()
    crowd(20)
    assert eventually(lambda: site.proxy.descriptors() <= before + 3)
