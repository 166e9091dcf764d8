"""A large policy loads in seconds, and what a decision costs does not depend on its size."""

import time

from egress.documents.yaml import Document, read
from egress.policy.compile import compile_policy
from egress.policy.compiled import CompiledPolicy
from tests.unit.policy.samples import ask, evidence, granted

ENDPOINTS = 5000
RULES = 10
LOAD_SECONDS = 10.0
"""Twice what it may take on a quiet machine; anything quadratic takes minutes."""


def authored(wildcards: int) -> bytes:
    lines = ["version: 1", "network_policies:"]
    for number in range(ENDPOINTS):
        host = f"'*.w{number}.acme.test'" if number < wildcards else f"h{number}.acme.test"
        lines.append(f"  e{number}:\n    endpoints:\n    - host: {host}\n      port: 443\n      protocol: rest")
        lines.append("      enforcement: enforce\n      rules:")
        lines += [f"      - allow: {{method: GET, path: /r{number}/v{rule}/items/**}}" for rule in range(RULES)]
        lines.append(f"    binaries:\n    - path: /usr/bin/b{number}")
    return "\n".join(lines).encode()


def load(text: bytes) -> CompiledPolicy:
    document = read(text, "large.yaml")
    assert isinstance(document, Document)
    policy = compile_policy([document]).policy
    assert policy is not None
    return policy


def test_fifty_thousand_rules_load_in_seconds() -> None:
    text = authored(wildcards=ENDPOINTS // 2)
    started = time.process_time()
    policy = load(text)
    assert time.process_time() - started < LOAD_SECONDS
    assert len(policy.entries) == ENDPOINTS
    exact = granted(policy, f"h{ENDPOINTS - 1}.acme.test", by=evidence(f"/usr/bin/b{ENDPOINTS - 1}"))
    assert [endpoint.entry for endpoint in exact.endpoints] == [f"e{ENDPOINTS - 1}"]
    wild = granted(policy, "x.w7.acme.test", by=evidence("/usr/bin/b7"))
    assert [endpoint.entry for endpoint in wild.endpoints] == ["e7"]
    started = time.process_time()
    for number in range(1000):
        ask(policy, f"x{number}.elsewhere.test", by=evidence("/usr/bin/b7"))
    assert time.process_time() - started < 0.5
