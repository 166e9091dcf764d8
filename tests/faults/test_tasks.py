"""After any crowd has gone, the proxy runs as many tasks and keeps as many connection objects as before it came."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from egress.engine.stream import Stream
from egress.engine.tunnel import Tunnel
from tests.support.authorities import OriginAuthority
from tests.support.inside import InsideProxy
from tests.support.origins import Conversation, Origin, OriginLoop, RawOrigin, echo, say_ok
from tests.support.proxy import LANES, opaque, policy_text, rest
from tests.support.raw import Connection, client_context, dial, eventually, open_tunnel, start_tls

CROWD = 25


class Site:
    """A proxy in this process and its origins; connecting takes one call."""

    def __init__(self, proxy: InsideProxy, origin: Origin, raw: RawOrigin) -> None:
        self.proxy = proxy
        self.origin = origin
        self.raw = raw
        self._context = client_context(proxy.ca)

    def tunnel(self) -> Connection:
        opened = open_tunnel(self.proxy.port, f"origin.test:{self.origin.port}")
        return start_tls(opened, self._context, "origin.test")

    def ask(self, client: Connection, path: str = "/") -> None:
        client.send(f"GET {path} HTTP/1.1\r\nHost: origin.test:{self.origin.port}\r\n\r\n".encode())


@pytest.fixture(scope="module", params=LANES)
def site(request: pytest.FixtureRequest, origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[Site]:
    origin = Origin(origin_loop, authority.server_context("origin.test"))
    raw = RawOrigin(origin_loop)
    raw.script = echo
    policy = policy_text(
        rest("origin.test", origin.port, ("GET", "/**"), ("POST", "/**")), opaque("raw.test", raw.port)
    )
    aliases = dict.fromkeys(("origin.test", "raw.test"), "127.0.0.1")
    settings = LANES[request.param] | {"timeouts": {"head": "10s"}}
    with InsideProxy(policy, aliases=aliases, trust=authority.ca_file, settings=settings) as proxy:
        yield Site(proxy, origin, raw)
    origin.stop()
    raw.stop()


async def endless(talk: Conversation) -> None:
    await talk.body()
    await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n")
    while True:
        await talk.send(bytes(65536))


def silent(site: Site) -> Connection:
    return dial(site.proxy.port)


def tunnelled(site: Site) -> Connection:
    return open_tunnel(site.proxy.port, f"origin.test:{site.origin.port}")


def idle(site: Site) -> Connection:
    client = site.tunnel()
    site.ask(client)
    assert client.reply().body == b"ok"
    return client


def inside_a_head(site: Site) -> Connection:
    client = site.tunnel()
    client.send(b"GET / HT")
    return client


def inside_an_upload(site: Site) -> Connection:
    client = site.tunnel()
    client.send(f"POST / HTTP/1.1\r\nHost: origin.test:{site.origin.port}\r\nContent-Length: 99\r\n\r\nabc".encode())
    return client


def inside_a_download(site: Site) -> Connection:
    site.origin.script = endless
    client = site.tunnel()
    site.ask(client)
    client.exactly(100_000)
    return client


def denied(site: Site) -> Connection:
    client = site.tunnel()
    client.send(f"DELETE / HTTP/1.1\r\nHost: origin.test:{site.origin.port}\r\n\r\n".encode())
    assert client.reply().status == 403
    return client


def raw(site: Site) -> Connection:
    client = open_tunnel(site.proxy.port, f"raw.test:{site.raw.port}")
    client.send(b"\x00\x01\x02")
    assert client.exactly(3) == b"\x00\x01\x02"
    return client


@pytest.mark.parametrize(
    "join", [silent, tunnelled, idle, inside_a_head, inside_an_upload, inside_a_download, denied, raw]
)
def test_nothing_of_a_crowd_stays(site: Site, join: Callable[[Site], Connection]) -> None:
    site.origin.script = say_ok
    site.origin.recording = False
    idle(site).close()
    assert eventually(lambda: site.proxy.living(Tunnel) == 0)
    tasks, streams = site.proxy.tasks(), site.proxy.living(Stream)
    with ExitStack() as crowd:
        for _ in range(CROWD):
            crowd.enter_context(join(site))
        if join is not denied:
            assert site.proxy.tasks() >= tasks + CROWD
    assert eventually(lambda: site.proxy.tasks() == tasks), site.proxy.tasks() - tasks
    assert eventually(lambda: site.proxy.living(Tunnel) == 0)
    # Warm upstream connections may stay: the pool keeps up to 16 for one origin.
    assert site.proxy.living(Stream) <= streams + 16
