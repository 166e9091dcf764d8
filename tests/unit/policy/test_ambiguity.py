"""Endpoint pairs that could decide one thing in two ways, and those that only look like it."""

import pytest

from egress.documents.diagnostic import Severity
from egress.policy.ambiguity import MAX_CONFLICTS
from tests.unit.policy.samples import compilation

REST = "protocol: rest, access: full, enforcement: enforce"
AUDITED = "protocol: rest, access: full, enforcement: audit"
GRAPHQL = "protocol: graphql, access: full, enforcement: enforce"
MCP = "protocol: mcp, enforcement: enforce, rules: [{allow: {method: ping}}]"
X = "host: x.a.test, port: 443"


def conflicts(*endpoints: str) -> list[str]:
    lines = "".join(
        f"  e{n}: {{endpoints: [{{{text}}}], binaries: [{{path: /b{n}}}]}}\n" for n, text in enumerate(endpoints)
    )
    found = compilation(f"version: 1\nnetwork_policies:\n{lines}")
    messages = [one.message for one in found.diagnostics if one.severity is Severity.ERROR]
    assert all("conflicts with" in message for message in messages), messages
    return [message.rpartition("): ")[2] for message in messages]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (f"{X}, {REST}", f"{X}, {AUDITED}",
         "the same requests, but different `enforcement`"),
        (f"{X}, {REST}", f"host: '*.a.test', port: 443, {REST}, allow_encoded_slash: true",
         "the same requests, but different `allow_encoded_slash`"),
        (f"{X}, {REST}", f"{X}, {REST}, allow_upgrade: true",
         "the same requests, but different `allow_upgrade`"),
        (f"{X}, {REST}", f"{X}, {REST}, http2: off",
         "the same requests, but different `http2`"),
        (f"{X}, {REST}, path: '/a*'", f"{X}, {REST}, path: '/*b', websocket: raw",
         "the same requests, but different `websocket`"),
        (X, f"{X}, tls: skip",
         "the same connection, but different `tls`"),
        (X, f"{X}, protocol: tcp",
         "the same connection, but different `protocol`"),
        (f"{X}, allowed_ips: [10.0.0.0/24]", f"{X}, allowed_ips: [10.0.1.0/24]",
         "the same connection, but different `allowed_ips`"),
        ("port: 443, allowed_ips: [10.0.0.0/24]", X,
         "the same connection, but different `allowed_ips`"),
        ("host: '*-a.a.test', port: 443, tls: skip", "host: 'b-*.a.test', ports: [80, 443]",
         "the same connection, but different `tls`"),
        (f"{X}, detect_timeout: 1s", f"{X}, detect_timeout: 2s",
         "the same requests, but different `detect_timeout`"),
        (f"{X}, {REST}", f"{X}, {GRAPHQL}",
         "the same requests, but `protocol: rest` and `protocol: graphql`"),
        (f"{X}, {REST}, path: '/**/aaaaaaaa'", f"{X}, {GRAPHQL}, path: '/g/**'",
         "the same requests, but `protocol: rest` and `protocol: graphql`"),
        (f"{X}, {MCP}",
         f"{X}, {MCP}, mcp: {{strict_tool_names: false}}",
         "the same requests, but different `strict_tool_names`"),
        (f"{X}, {MCP}", f"{X}, {MCP}, mcp: {{max_body_bytes: 1KiB}}",
         "the same requests, but different `body_limit`"),
    ],
)  # fmt: skip
def test_conflicts(one: str, other: str, expected: str) -> None:
    assert conflicts(one, other) == [expected]
    assert len(conflicts(other, one)) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (f"{X}, {REST}", f"{X}, protocol: rest, access: read-only, enforcement: enforce"),
        (f"{X}, {REST}", X),
        (f"{X}, {REST}", f"{X}, tls: terminate"),
        (f"{X}, {REST}", "host: y.a.test, port: 443, tls: skip"),
        (f"{X}, {REST}", "host: x.a.test, port: 8443, tls: skip"),
        (f"{X}, {REST}", "host: '*.x.a.test', port: 443, tls: skip"),
        (f"host: '*.x.a.test', port: 443, {REST}", "host: '*.y.a.test', port: 443, tls: skip"),
        (f"host: '*.a.test', port: 443, {REST}", "host: '*.b.test', port: 443, tls: skip"),
        (f"{X}, {REST}, path: /v1/**", f"{X}, {REST}, path: /v2/**, allow_upgrade: true"),
        (f"{X}, {REST}", f"{X}, {REST}, path: /v2/**, allow_upgrade: true"),
        (f"{X}, {REST}", f"{X}, protocol: graphql, access: full, enforcement: audit, path: /graphql"),
        (f"{X}, allowed_ips: [10.0.0.7/24]", f"{X}, allowed_ips: [10.0.0.0/24]"),
        (f"{X}, {MCP}", f"{X}, {MCP}, json_rpc: {{max_body_bytes: 64KiB}}"),
        ("host: '10.0.0.1', port: 443, tls: skip", f"host: '**.0.test', port: 443, {REST}"),
    ],
)  # fmt: skip
def test_no_conflicts(one: str, other: str) -> None:
    assert conflicts(one, other) == []
    assert conflicts(other, one) == []


def test_a_pair_is_reported_once_however_many_ports_it_shares() -> None:
    ports = "[80, 443, 8080, 8443]"
    assert conflicts(f"host: x.a.test, ports: {ports}", f"host: '*.a.test', ports: {ports}, tls: skip") == [
        "the same connection, but different `tls`"
    ]


def test_every_pair_is_reported_up_to_a_bound() -> None:
    some = [f"{X}, {REST}"] * 2 + [f"{X}, {REST}, allow_upgrade: true"] * 3
    assert len(conflicts(*some)) == 6
    many = [f"{X}, {REST}"] * 15 + [f"{X}, {REST}, allow_upgrade: true"] * 15
    assert len(conflicts(*many)) == MAX_CONFLICTS
