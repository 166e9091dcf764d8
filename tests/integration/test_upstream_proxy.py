"""A corporate proxy that misbehaves in every way: one clear refusal each, in time, and not a byte of the client's
request outside the tunnel. And a network on which nothing is dialled but the proxy."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.origins import Conversation, Origin, OriginLoop, RawOrigin, Script
from tests.support.proxy import EgressProcess, opaque, policy_text, rest
from tests.support.raw import Reply, client_context, connect_head, dial, open_tunnel, start_tls

SECONDS = 1.0
"""`handshake_timeout` of the proxy under test."""

SECRET = b"POST /secret HTTP/1.1\r\nHost: origin.test\r\nContent-Length: 6\r\n\r\nsecret"


@dataclass
class Site:
    proxy: EgressProcess
    corporate: RawOrigin
    origin: Origin


@pytest.fixture(scope="module")
def site(origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[Site]:
    with running(origin_loop, authority) as site:
        yield site


@pytest.fixture(scope="module")
def good_site(origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[Site]:
    """A proxy of its own: good connections stay warm, and the next tunnel asks the corporate proxy nothing."""
    with running(origin_loop, authority) as site:
        yield site


@contextlib.contextmanager
def running(origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[Site]:
    corporate = RawOrigin(origin_loop)
    origin = Origin(origin_loop, authority.server_context("origin.test"))
    settings = {
        "upstream_proxy": {
            "proxies": {"corp": {"url": f"http://127.0.0.1:{corporate.port}"}},
            "handshake_timeout": SECONDS,
            "health": {"mode": "off"},
        }
    }
    policy = policy_text(rest("origin.test", origin.port), opaque("raw.test", 7000, tls="skip"))
    aliases = dict.fromkeys(("origin.test", "raw.test"), "127.0.0.1")
    with EgressProcess(policy, aliases=aliases, trust=authority.ca_file, settings=settings) as proxy:
        yield Site(proxy, corporate, origin)
    corporate.stop()
    origin.stop()


def says(*pieces: bytes, hang: bool = False) -> Script:
    """A proxy that reads the CONNECT, answers in these pieces, and closes or falls silent."""

    async def script(talk: Conversation) -> None:
        await talk.head()
        for piece in pieces:
            await talk.send(piece)
            await talk.pause(0.02)
        if hang:
            await talk.some()

    return script


async def resets(talk: Conversation) -> None:
    await talk.head()
    talk.reset()


async def drips(talk: Conversation) -> None:
    """A head that never ends, one byte at a time."""
    await talk.head()
    await talk.send(b"HTTP/1.1 200 OK\r\n")
    for _ in range(100):
        await talk.send(b"x")
        await talk.pause(0.1)


def ask(site: Site, script: Script, target: str | None = None) -> tuple[Reply, bytes]:
    """CONNECT with a request sent along early; the reply, and all that the corporate proxy was sent."""
    site.corporate.script = script
    site.corporate.take()
    authority = target or f"origin.test:{site.origin.port}"
    with dial(site.proxy.port) as client:
        client.send(connect_head(authority) + SECRET)
        reply = client.reply("CONNECT")
    return reply, site.corporate.take()


OK = b"HTTP/1.1 200 Connection established\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def head_of(size: int) -> bytes:
    """A 200 whose head is that many bytes."""
    start, end = b"HTTP/1.1 200 OK\r\nX: ", b"\r\n\r\n"
    return start + b"a" * (size - len(start) - len(end)) + end


CASES: list[tuple[str, Script, int, str, str]] = [
    ("407", says(b"HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm=x\r\n\r\n"), 502, "upstream_unreachable",
     "proxy_auth_rejected"),
    ("403", says(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno"), 502, "upstream_unreachable", "proxy_refused_403"),
    ("502", says(b"HTTP/1.1 502 Bad\r\n\r\n"), 502, "upstream_unreachable", "proxy_refused_502"),
    ("redirect", says(b"HTTP/1.1 302 Found\r\nLocation: http://login.test/\r\n\r\n"), 502, "upstream_unreachable",
     "proxy_refused_302"),
    ("204", says(b"HTTP/1.1 204 Fine\r\n\r\n"), 502, "upstream_unreachable", "proxy_refused_other"),
    ("101", says(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n"), 502, "upstream_unreachable", "proxy_refused_other"),
    ("four interim heads", says(CONTINUE * 4 + OK), 502, "upstream_unreachable", "proxy_malformed_reply"),
    ("8193 bytes of head", says(head_of(8193)), 502, "upstream_unreachable", "proxy_malformed_reply"),
    ("endless head", says(b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 4000), 502, "upstream_unreachable",
     "proxy_malformed_reply"),
    ("bare line feeds", says(b"HTTP/1.1 200 OK\n\n"), 502, "upstream_unreachable", "proxy_malformed_reply"),
    ("another protocol", says(b"220 smtp.test ESMTP\r\n\r\n"), 502, "upstream_unreachable", "proxy_malformed_reply"),
    ("half a head", says(b"HTTP/1.1 200 OK\r\nX: "), 502, "upstream_unreachable", "proxy_malformed_reply"),
    ("closes at once", says(), 502, "upstream_unreachable", "proxy_malformed_reply"),
    ("resets", resets, 502, "upstream_unreachable", "proxy_malformed_reply"),
    ("silence", says(hang=True), 504, "upstream_timeout", "proxy_timeout"),
    ("silence inside the head", says(b"HTTP/1.1 200", hang=True), 504, "upstream_timeout", "proxy_timeout"),
    ("drips", drips, 504, "upstream_timeout", "proxy_timeout"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("script", "status", "error", "reason"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_what_a_bad_proxy_answers(site: Site, script: Script, status: int, error: str, reason: str) -> None:
    started = time.monotonic()
    reply, sent = ask(site, script)
    assert time.monotonic() - started < SECONDS + 5.0
    document = reply.json()
    assert (reply.status, document["error"], document["reason_code"], document["via"]) == (
        status, error, reason, "upstream_proxy",
    )  # fmt: skip
    place = b"127.0.0.1:%d" % site.origin.port
    # One attempt, one CONNECT: the request that came early stayed here.
    assert sent == b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (place, place)
    assert site.origin.take() == b""


def through(site: Site, before: bytes = b"") -> Script:
    """A proxy that works, after saying something first."""

    async def script(talk: Conversation) -> None:
        await talk.head()
        await talk.send(before)
        await talk.splice("127.0.0.1", site.origin.port)

    return script


@pytest.mark.parametrize(
    "before",
    [OK, b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.1 200\r\n\r\n", CONTINUE * 3 + OK, head_of(8192),
     b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"],
    ids=["1.1", "1.0", "no reason", "three interim heads", "8192 bytes of head", "framing is ignored"],
)  # fmt: skip
def test_what_a_good_proxy_may_answer(good_site: Site, before: bytes) -> None:
    site = good_site
    site.corporate.script = through(site, before)
    tunnel = open_tunnel(site.proxy.port, f"origin.test:{site.origin.port}")
    with start_tls(tunnel, client_context(site.proxy.ca), "origin.test") as client:
        client.send(f"GET / HTTP/1.1\r\nHost: origin.test:{site.origin.port}\r\nConnection: close\r\n\r\n".encode())
        assert client.reply().body == b"ok"


@pytest.mark.parametrize("split", [1, 20, len(OK) - 2, len(OK)])
def test_bytes_behind_the_head_belong_to_the_tunnel(good_site: Site, split: int) -> None:
    site = good_site  # what went through a tunnel may be told late, to the next test
    whole = OK + b"220 ready\r\n"
    reply, _ = ask(site, says(whole[:split], whole[split:], hang=True), "raw.test:7000")
    assert reply.status == 200
    site.corporate.script = says(whole[:split], whole[split:], hang=True)
    with open_tunnel(site.proxy.port, "raw.test:7000") as client:
        assert client.exactly(11) == b"220 ready\r\n"


# a network that shows every packet ---------------------------------------------------------------------------------

_CAPTURE = """
import json, select, socket, struct, sys
sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
sniffer.bind((sys.argv[1], 0))
sniffer.settimeout(0.1)
print("ready", flush=True)
seen = set()
while not select.select([sys.stdin], [], [], 0)[0]:
    try:
        frame, address = sniffer.recvfrom(65536)
    except TimeoutError:
        continue
    if frame[12:14] == b"\\x08\\x00" and address[2] == 4:
        protocol, target = frame[23], socket.inet_ntoa(frame[30:34])
        port = struct.unpack("!H", frame[36:38])[0] if protocol in (6, 17) else 0
        seen.add((protocol, target, port))
print(json.dumps(sorted(seen)), flush=True)
"""

_CLIENT = """
import socket, sys
for target in sys.argv[2:]:
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=10)
    verb = "GET" if target.startswith("http") else "CONNECT"
    host = target.split("/")[2] if verb == "GET" else target
    connection.sendall(f"{verb} {target} HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n".encode())
    print(connection.recv(4096).split()[1].decode(), flush=True)
"""


class Namespace:
    """A network namespace with one link to the outside and a default route over it."""

    def __init__(self) -> None:
        tag = f"{os.getpid() % 10000:04}"
        self.name, self.inner, self.outer = f"egress{tag}", f"in{tag}", f"out{tag}"
        self.near, self.far = "198.51.100.2", "198.51.100.1"

    def __enter__(self) -> "Namespace":
        ip = ["ip", "-n", self.name]
        self._run("ip", "netns", "add", self.name)
        self._run("ip", "link", "add", self.outer, "type", "veth", "peer", "name", self.inner, "netns", self.name)
        self._run("ip", "addr", "add", f"{self.far}/30", "dev", self.outer)
        self._run("ip", "link", "set", self.outer, "up")
        self._run(*ip, "addr", "add", f"{self.near}/30", "dev", self.inner)
        self._run(*ip, "link", "set", self.inner, "up")
        self._run(*ip, "link", "set", "lo", "up")
        self._run(*ip, "route", "add", "default", "via", self.far)
        return self

    def __exit__(self, *_: object) -> None:
        self._run("ip", "netns", "del", self.name)

    @property
    def enter(self) -> list[str]:
        return ["ip", "netns", "exec", self.name]

    @staticmethod
    def _run(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)

    def capture(self) -> "subprocess.Popen[str]":
        """Runs until its standard input is closed."""
        process = subprocess.Popen(
            [*self.enter, sys.executable, "-c", _CAPTURE, self.inner],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process


DESTINATION = "10.99.99.7"
"""What policy allows."""

needs_namespaces = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")


@needs_namespaces
@pytest.mark.parametrize("fault", ["port closed", "silent host"])
def test_with_the_proxy_down_nothing_else_is_dialled(fault: str) -> None:
    """Every packet that leaves the namespace is looked at."""
    policy = policy_text(rest(DESTINATION, 443), rest(DESTINATION, 80), opaque(DESTINATION, 22))
    with Namespace() as space:
        corporate = space.far if fault == "port closed" else "192.0.2.99"
        settings = {
            "upstream_proxy": {
                "proxies": {"corp": {"url": f"http://{corporate}:3128"}},
                "handshake_timeout": "400ms",
                "plain_http": "connect",
                "health": {"interval": "200ms"},
            },
            # `ip netns exec` makes a mount namespace too, in which the test's own ancestors cannot be read.
            "identity": {"mode": "off"},
        }
        with EgressProcess(policy, settings=settings, launcher=space.enter) as proxy:
            capture = space.capture()
            asked = subprocess.run(
                [*space.enter, sys.executable, "-c", _CLIENT, str(proxy.port), f"{DESTINATION}:443",
                 f"{DESTINATION}:22", f"http://{DESTINATION}/"],
                capture_output=True, text=True, timeout=30, check=True,
            )  # fmt: skip
            seen = json.loads(capture.communicate(timeout=10)[0])
        status = "502" if fault == "port closed" else "504"
        assert asked.stdout.split() == [status] * 3
        assert [packet for packet in seen if packet[0] == 6] == [[6, corporate, 3128]]
        assert all(packet[1] != DESTINATION for packet in seen)


@needs_namespaces
def test_the_capture_would_have_seen_a_direct_connection() -> None:
    with Namespace() as space:
        settings = {"timeouts": {"connect": "500ms"}, "identity": {"mode": "off"}}
        with EgressProcess(policy_text(rest(DESTINATION, 443)), settings=settings, launcher=space.enter) as proxy:
            capture = space.capture()
            subprocess.run(
                [*space.enter, sys.executable, "-c", _CLIENT, str(proxy.port), f"{DESTINATION}:443"],
                capture_output=True, timeout=30, check=True,
            )  # fmt: skip
            seen = json.loads(capture.communicate(timeout=10)[0])
    assert [6, DESTINATION, 443] in seen
