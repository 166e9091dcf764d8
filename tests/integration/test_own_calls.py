"""The client of the proxy's own calls between real sockets: where it may go, whom it trusts, what it takes back."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

import pytest

from egress.destination.resolver import NameResolver, ResolverSettings, WorkloadHosts
from egress.destination.validate import DestinationSettings, OwnListeners
from egress.engine.carried import OriginStream
from egress.own_calls import own_client
from egress.sdk.http import HttpFailure, HttpReply, TlsOptions
from egress.tls.profile import TlsProfile
from egress.upstream.chain import ChainDialer
from egress.upstream.client import OwnClient
from egress.upstream.dial import Dialer, DialTimes
from egress.upstream.health import Health
from tests.support.authorities import OriginAuthority

type Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-One: a\r\nX-One: b\r\n\r\nfine"
SECRET = "canary-9f8e7d6c5b4a"


@dataclass
class Around:
    """Names from a workload's hosts file that lies; aliases and listeners of the operator."""

    names: NameResolver
    destinations: DestinationSettings = field(default_factory=DestinationSettings)
    own: OwnListeners = frozenset()

    def own_listeners(self) -> OwnListeners:
        return self.own


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> OriginAuthority:
    return OriginAuthority(tmp_path_factory.mktemp("ca"))


def client(around: Around | None = None, ca_file: Path | None = None) -> OwnClient:
    loop = asyncio.get_running_loop()
    dialer = ChainDialer(Dialer(lambda: OriginStream(loop), DialTimes()), Health(loop.time, lambda *_: None), loop)
    profile = TlsProfile(ca_file)
    where = around or Around(NameResolver(ResolverSettings()))
    return own_client(lambda: where, dialer, lambda: profile)


@asynccontextmanager
async def server(answer: Answer, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            size = next(
                (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0
            )
            await answer(head + await reader.readexactly(size), writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


def reply(data: bytes, seen: list[bytes] | None = None) -> Answer:
    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        if seen is not None:
            seen.append(request)
        writer.write(data)

    return answer


async def ask(http: OwnClient, url: str, *, timeout: float = 5.0, max_bytes: int = 1000, **more: object) -> HttpReply:
    return await http.request("POST", url, body=b"grant=x", timeout=timeout, max_bytes=max_bytes, **more)  # type: ignore[arg-type]


async def failure(http: OwnClient, url: str, **more: object) -> str:
    with pytest.raises(HttpFailure) as caught:
        await ask(http, url, **more)  # type: ignore[arg-type]
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return caught.value.reason


async def test_one_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    seen: list[bytes] = []
    async with server(reply(OK, seen)) as port:
        found = await ask(client(), f"http://127.0.0.1:{port}/token?x=1", headers={"Authorization": "Bearer t"})
    assert (found.status, found.body, found.header("x-one")) == (200, b"fine", "a")
    assert [value for name, value in found.headers if name.lower() == "x-one"] == ["a", "b"]
    head, _, body = seen[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /token?x=1 HTTP/1.1"
    assert {b"Host: 127.0.0.1:%d" % port, b"Authorization: Bearer t", b"Accept-Encoding: identity"} <= set(lines)
    assert body == b"grant=x"


async def test_a_reply_shows_nothing_of_itself() -> None:
    async with server(reply(OK)) as port:
        assert repr(await ask(client(), f"http://127.0.0.1:{port}/")) == "HttpReply(status=200)"


async def test_a_redirect_is_a_reply() -> None:
    async with server(
        reply(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
    ) as port:
        assert (await ask(client(), f"http://127.0.0.1:{port}/")).status == 302


async def test_no_cookie_comes_back() -> None:
    seen: list[bytes] = []
    http = client()
    async with server(reply(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n", seen)) as port:
        await ask(http, f"http://127.0.0.1:{port}/")
        await ask(http, f"http://127.0.0.1:{port}/")
    assert b"cookie" not in seen[1].lower()


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
async def test_a_large_reply_is_not_read(framing: str) -> None:
    async def flood(_: bytes, writer: asyncio.StreamWriter) -> None:
        fields = {
            "length": b"Content-Length: 100000000\r\n",
            "chunked": b"Transfer-Encoding: chunked\r\n",
            "close": b"",
        }
        writer.write(b"HTTP/1.1 200 OK\r\n" + fields[framing] + b"\r\n")
        while True:
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n" if framing == "chunked" else b"x" * 65536)
            await writer.drain()

    async with server(flood) as port:
        assert await failure(client(), f"http://127.0.0.1:{port}/") == "the reply is larger than 1000 bytes"


async def test_codings_are_not_undone() -> None:
    bomb = gzip.compress(b"x" * 100_000)
    fields = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    async with server(reply(fields + bomb)) as port:
        assert (await ask(client(), f"http://127.0.0.1:{port}/")).body == bomb


async def test_time_is_for_everything_together() -> None:
    async def drip(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with server(drip) as port:
        assert await failure(client(), f"http://127.0.0.1:{port}/", timeout=0.3) == "took too long"


async def reset(_: bytes, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reply(b"no HTTP\r\n\r\n"), "no HTTP that can be read"),
        (reply(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"), "no HTTP that can be read"),
        (reply(b""), "no HTTP that can be read"),
        (reply(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000), "no HTTP that can be read"),
    ],
)
async def test_replies_that_are_none(answer: Answer, reason: str) -> None:
    async with server(answer) as port:
        assert await failure(client(), f"http://127.0.0.1:{port}/") == reason


async def test_a_server_that_vanishes() -> None:
    async with server(reset) as port:
        assert await failure(client(), f"http://127.0.0.1:{port}/") in (
            "no HTTP that can be read",
            "the connection failed",
        )
    assert await failure(client(), f"http://127.0.0.1:{port}/") == "connect_refused"


@pytest.mark.parametrize("value", [f"{SECRET}\r\nX: y", f"{SECRET}\0", f"{SECRET}\u20ac"])
async def test_a_field_that_cannot_be_sent_is_not_quoted(value: str) -> None:
    async with server(reply(OK)) as port:
        reason = await failure(client(), f"http://127.0.0.1:{port}/", headers={"Authorization": value})
    assert SECRET not in reason


@pytest.mark.parametrize(
    "url",
    ["", "ftp://a.test/", "//a.test", "http://", "http://a.test:0x50/", f"http://{SECRET}@127.0.0.1/", "http://a b/"],
)
async def test_urls_that_are_none(url: str) -> None:
    assert SECRET not in await failure(client(), url)


# where it may go -----------------------------------------------------------------------------------------------------


async def test_localhost_is_this_host() -> None:
    async with server(reply(OK)) as port:
        assert (await ask(client(), f"http://localhost:{port}/")).body == b"fine"


async def test_an_alias_is_where_the_operator_says() -> None:
    around = Around(NameResolver(ResolverSettings()), DestinationSettings({"vault.test": ip_address("127.0.0.1")}))
    seen: list[bytes] = []
    async with server(reply(OK, seen)) as port:
        assert (await ask(client(around), f"http://vault.test:{port}/")).status == 200
    assert b"Host: vault.test:%d" % port in seen[0]


@pytest.mark.parametrize("address", ["169.254.169.254", "169.254.1.1", "0.0.0.0", "[fe80::1]", "[::]"])
async def test_addresses_that_nobody_calls(address: str) -> None:
    assert await failure(client(), f"http://{address}/latest") in ("ssrf_metadata", "ssrf_always_blocked")


async def test_an_alias_cannot_name_a_link_local_address() -> None:
    aliases = {"vault.invalid": ip_address("169.254.1.1")}
    around = Around(NameResolver(ResolverSettings(timeout=3.0)), DestinationSettings(aliases))
    reason = await failure(client(around), "https://vault.invalid/")
    assert reason in ("dns_no_answer", "dns_error", "dns_timeout")


async def test_a_listener_of_our_own_is_not_called() -> None:
    async with server(reply(OK)) as port:
        around = Around(NameResolver(ResolverSettings()), own=frozenset({(ip_address("127.0.0.1"), port)}))
        assert await failure(client(around), f"http://127.0.0.1:{port}/") == "own_listener"


@pytest.mark.parametrize("wanted", list(WorkloadHosts))
async def test_a_workload_does_not_say_where_our_calls_go(tmp_path: Path, wanted: WorkloadHosts) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "hosts").write_text("10.0.0.1 vault.invalid\n")
    around = Around(NameResolver(ResolverSettings(timeout=3.0, workload_hosts=wanted), lambda: tmp_path))
    reason = await failure(client(around), "https://vault.invalid/", timeout=4.0)
    assert reason in ("dns_no_answer", "dns_error", "dns_timeout")


# whom it trusts ------------------------------------------------------------------------------------------------------


async def test_trust_of_the_settings_and_of_one_server(authority: OriginAuthority) -> None:
    async with server(reply(OK), authority.server_context("localhost")) as port:
        url = f"https://localhost:{port}/"
        assert (await ask(client(ca_file=authority.ca_file), url)).status == 200
        assert (await ask(client(), url, tls=TlsOptions(ca_file=authority.ca_file))).status == 200
        assert (await failure(client(), url)).startswith("the certificate is not trusted: ")


async def test_a_certificate_for_another_name(authority: OriginAuthority) -> None:
    async with server(reply(OK), authority.server_context("other.test")) as port:
        reason = await failure(client(ca_file=authority.ca_file), f"https://localhost:{port}/")
    assert reason.startswith("the certificate is not trusted: Hostname mismatch")


async def test_a_client_certificate(authority: OriginAuthority, tmp_path: Path) -> None:
    key, chain = authority.key_pair("egress.test")
    (tmp_path / "key.pem").write_bytes(key)
    (tmp_path / "cert.pem").write_bytes(chain)
    context = authority.server_context("localhost")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.ca_file)
    async with server(reply(OK), context) as port:
        url = f"https://localhost:{port}/"
        own = TlsOptions(authority.ca_file, tmp_path / "cert.pem", tmp_path / "key.pem")
        assert (await ask(client(), url, tls=own)).status == 200
        assert await failure(client(ca_file=authority.ca_file), url) in (
            "no HTTP that can be read",
            "the connection failed",
        )
        lost = TlsOptions(client_cert=tmp_path / "gone.pem")
        assert await failure(client(), url, tls=lost) == "the TLS files cannot be read"
