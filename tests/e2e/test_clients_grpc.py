"""A grpcio client: unary and streaming calls, trailers and errors, inspected on both sides of the proxy."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.grpc_origin import GrpcOrigin
from tests.support.proxy import EgressProcess, policy_text, rest
from tests.support.workload import Workload

CALLS = """
import json, os, sys, grpc
channel = grpc.secure_channel(sys.argv[1], grpc.ssl_channel_credentials())
call = lambda kind, name: getattr(channel, kind)("/test.Echo/" + name)
told = {
    "say": call("unary_unary", "Say")(b"hello", timeout=20).decode(),
    "empty": call("unary_unary", "Empty")(b"x", timeout=20).decode(),
    "large": len(call("unary_unary", "Say")(b"x" * 2_000_000, timeout=20)),
    "count": [m.decode() for m in call("unary_stream", "Count")(b"50", timeout=20)],
    "gather": call("stream_unary", "Gather")(iter([b"a", b"b", b"c"]), timeout=20).decode(),
    "chat": [m.decode() for m in call("stream_stream", "Chat")(iter([b"1", b"2", b"3"]), timeout=20)],
}
try:
    call("unary_unary", "Fail")(b"", timeout=20)
except grpc.RpcError as error:
    told["fail"] = [error.code().name, error.details()]
print(json.dumps(told))
"""

DENIED = """
import grpc, sys
channel = grpc.secure_channel(sys.argv[1], grpc.ssl_channel_credentials())
try:
    channel.unary_unary("/test.Echo/Fail")(b"", timeout=20)
except grpc.RpcError as error:
    print(error.code().name)
print(channel.unary_unary("/test.Echo/Say")(b"still here", timeout=20).decode())
"""


@dataclass
class Site:
    workload: Workload
    target: str
    narrow: str


@pytest.fixture(scope="module")
def site(authority: OriginAuthority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    wide, narrow = GrpcOrigin(authority, "grpc.test"), GrpcOrigin(authority, "narrow.test")
    policy = policy_text(
        rest("grpc.test", wide.port, ("POST", "/test.Echo/*")),
        rest("narrow.test", narrow.port, ("POST", "/test.Echo/Say")),
    )
    aliases = dict.fromkeys(("grpc.test", "narrow.test"), "127.0.0.1")
    with EgressProcess(policy, aliases=aliases, trust=authority.ca_file) as proxy:
        workload = Workload(proxy, tmp_path_factory.mktemp("grpc"))
        yield Site(workload, f"grpc.test:{wide.port}", f"narrow.test:{narrow.port}")
    wide.stop()
    narrow.stop()


def test_unary_and_streaming(site: Site) -> None:
    done = site.workload.python(CALLS, site.target)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "say": "hello",
        "empty": "",
        "large": 2_000_000,
        "count": [str(number) for number in range(50)],
        "gather": "abc",
        "chat": ["1", "2", "3"],
        "fail": ["RESOURCE_EXHAUSTED", "no more"],
    }


def test_a_denied_method_ends_its_stream_and_no_other(site: Site) -> None:
    done = site.workload.python(DENIED, site.narrow)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["PERMISSION_DENIED", "still here"]
