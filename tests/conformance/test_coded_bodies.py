"""Bodies that must be read, in every lane: what is judged is what is sent, and what cannot be read is refused."""

import gzip
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import brotli  # type: ignore[import-untyped]
import h11
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.origins import Origin, OriginLoop
from tests.support.proxy import LANES, EgressProcess, Endpoint, policy_text
from tests.support.raw import Reply, open_tunnel

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

HOST = "rpc.test"
CEILING = 4096
RPC = {
    "protocol": "json-rpc", "enforcement": "enforce", "json_rpc": {"max_body_bytes": CEILING},
    "rules": [{"allow": {"method": "files.read"}}],
}  # fmt: skip
CODINGS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstd.compress,
    "identity": bytes,
}
ALLOWED = b'{"jsonrpc":"2.0","id":1,"method":"files.read"}'
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=8), below, max_size=4),
    max_leaves=8,
)
METHODS = st.sampled_from(["files.read", "files.write", "Files.read", "files.read "])


@dataclass
class Arena:
    """One proxy per lane in front of one origin."""

    proxies: dict[str, EgressProcess]
    origin: Origin

    def post(self, lane: str, body: bytes, *fields: str) -> tuple[Reply, bytes]:
        """The reply, and what reached the origin."""
        self.origin.take()
        typed = any(line.startswith("Content-Type:") for line in fields)
        lines = "".join(f"{line}\r\n" for line in (*fields, *(() if typed else ("Content-Type: application/json",))))
        authority = f"{HOST}:{self.origin.port}"
        head = f"POST /rpc HTTP/1.1\r\nHost: {authority}\r\nContent-Length: {len(body)}\r\n{lines}\r\n"
        with open_tunnel(self.proxies[lane].port, authority, deadline=5) as client:
            client.send(head.encode() + body)
            return client.reply("POST"), self.origin.take()


@pytest.fixture(scope="module")
def arena(origin_loop: OriginLoop) -> Iterator[Arena]:
    origin = Origin(origin_loop)
    policy = policy_text(Endpoint(HOST, origin.port, RPC))
    proxies = {
        lane: EgressProcess(policy, aliases={HOST: "127.0.0.1"}, settings=chosen) for lane, chosen in LANES.items()
    }
    yield Arena(proxies, origin)
    for proxy in proxies.values():
        proxy.stop()
    origin.stop()


def arrived(data: bytes) -> tuple[dict[bytes, bytes], bytes]:
    """Fields and body of the one request at the origin, as h11 reads it."""
    reader = h11.Connection(h11.SERVER)
    reader.receive_data(data)
    fields: dict[bytes, bytes] = {}
    body = b""
    while not isinstance(event := reader.next_event(), h11.EndOfMessage):
        if isinstance(event, h11.Request):
            fields = dict(event.headers)
        assert isinstance(event, h11.Request | h11.Data)
        body += event.data if isinstance(event, h11.Data) else b""
    return fields, body


@pytest.mark.timeout(120)
@pytest.mark.parametrize("lane", LANES)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(method=METHODS, parameters=JSON, coding=st.sampled_from(sorted(CODINGS)))
def test_a_coded_call_is_judged_and_sent_decoded(
    arena: Arena, lane: str, method: str, parameters: object, coding: str
) -> None:
    named = parameters if isinstance(parameters, dict | list) else [parameters]
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": named}).encode()
    reply, upstream = arena.post(lane, CODINGS[coding](body), f"Content-Encoding: {coding}")
    if method != "files.read":
        assert (reply.status, upstream) == (403, b"")
        return
    assert reply.status == 200, reply.body
    fields, content = arrived(upstream)
    assert content == body
    assert b"content-encoding" not in fields
    assert fields[b"content-length"] == b"%d" % len(body)


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_bomb_is_too_large(arena: Arena, lane: str, coding: str) -> None:
    bomb = CODINGS[coding](b" " * 1_000_000 + ALLOWED)
    assert len(bomb) < CEILING
    reply, upstream = arena.post(lane, bomb, f"Content-Encoding: {coding}")
    assert (reply.status, reply.error, upstream) == (413, "body_too_large", b"")


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_coded_body_that_is_cut_off_is_refused(arena: Arena, lane: str, coding: str) -> None:
    reply, upstream = arena.post(lane, CODINGS[coding](ALLOWED)[:-3], f"Content-Encoding: {coding}")
    assert (400 <= reply.status < 500, upstream) == (True, b"")


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(
    ("field", "status", "error"),
    [
        ("Content-Encoding: compress", 415, "unsupported_encoding"),
        ("Content-Encoding: gzip, unheard-of", 415, "unsupported_encoding"),
        ("Content-Type: application/json; charset=utf-16", 415, "unsupported_encoding"),
    ],
)
def test_what_cannot_be_read_is_refused(arena: Arena, lane: str, field: str, status: int, error: str) -> None:
    reply, upstream = arena.post(lane, ALLOWED, field)
    assert (reply.status, reply.error, upstream) == (status, error, b"")


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(
    "body",
    [
        b"\xef\xbb\xbf" + ALLOWED,
        ALLOWED.decode().encode("utf-16"),
        ALLOWED[:-1] + b',"params":[NaN]}',
        ALLOWED[:-1] + b',"params":[Infinity]}',
        ALLOWED[:-1] + b',"method":"files.write"}',
        ALLOWED[:-1] + b',"params":{"a":1,"a":2}}',
        ALLOWED[:-1] + b',"params":["\xff"]}',
        ALLOWED[:-1],
        ALLOWED + b"{}",
        b"",
    ],
    ids=["bom", "utf-16", "nan", "infinity", "method-twice", "key-twice", "no-utf-8", "truncated", "two", "empty"],
)
def test_bodies_that_readers_differ_on_are_refused(arena: Arena, lane: str, body: bytes) -> None:
    reply, upstream = arena.post(lane, body)
    assert (reply.status, reply.error, upstream) == (400, "invalid_jsonrpc_request", b"")
