"""`python -m benchmarks.inspection`: what inspection adds to a request or message, in CPU time of the decision alone.

No sockets: a policy is compiled, and each decision runs through the functions of the data path. Figures are medians.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from itertools import count

from egress.documents.yaml import Document, read
from egress.http.head import interpret_tunnelled
from egress.l7 import graphql, graphql_rules, mcp, websocket
from egress.model.address import Origin, Port, Scheme, parse_host
from egress.model.ids import GenerationNumber, new_flow_id
from egress.model.intent import DEFAULT_AGENT, EgressIntent, Ingress, SocketPair
from egress.model.message import RequestHead, WireHead
from egress.model.process import EvidenceUnavailable, IdentityMode, UnavailableReason
from egress.model.verdict import Allow, Denial, Verdict
from egress.policy.authorization import Authorization
from egress.policy.authorize import authorize
from egress.policy.compile import compile_policy
from egress.websocket.codec import Codec, Text
from egress.websocket.rules import Side

POLICY = b"""\
version: 1
network_policies:
  inspected:
    endpoints:
      - host: mcp.test
        port: 443
        protocol: mcp
        enforcement: enforce
        rules:
          - allow: {method: tools/call, tool: {any: ["read_*", search]}, params: {arguments: {path: "/data/*"}}}
        deny_rules:
          - {method: tools/call, tool: "*delete*"}
      - host: graphql.test
        port: 443
        protocol: graphql
        enforcement: enforce
        rules:
          - allow: {operation_type: query, operation_name: "Get*", fields: [viewer, "repo*"]}
        deny_rules:
          - {operation_type: mutation, fields: ["delete*"]}
      - host: ws.test
        port: 443
        protocol: websocket
        enforcement: enforce
        rules:
          - allow: {method: GET, path: "/**"}
          - allow: {method: WEBSOCKET_TEXT, path: "/**"}
    binaries: [{path: "/**"}]
"""
BODY_BYTES, QUERY_BYTES, MESSAGE_BYTES = 4096, 1024, 1024
ROUNDS, CALLS, NEW_CALLS = 15, 400, 40


@dataclass(frozen=True, slots=True)
class Goal:
    """One decision, how often a round makes it, and the microseconds it may take."""

    decide: Callable[[], object]
    bound: float
    calls: int = CALLS


def main() -> int:
    """Print every figure; 1 when one is over its bound."""
    missed = False
    for name, goal in goals().items():
        cost = microseconds(goal)
        missed |= cost > goal.bound
        print(f"{name:<34} {cost:8.1f} us   bound {goal.bound:7.1f}   {'over' if cost > goal.bound else 'ok'}")
    return int(missed)


def goals() -> Mapping[str, Goal]:
    numbers = count()
    return {
        "MCP tools/call, 4 KiB": Goal(_tool_call(), 60),
        "GraphQL query, 1 KiB, seen": Goal(_query(lambda: 0), 60),
        "GraphQL query, 1 KiB, new": Goal(_query(lambda: next(numbers)), 1300, NEW_CALLS),
        "WebSocket text, 1 KiB": Goal(_message(), 80),
    }


def microseconds(goal: Goal) -> float:
    """Median over rounds of the CPU time that one decision takes."""
    rounds = []
    for _ in range(ROUNDS):
        start = time.process_time_ns()
        for _ in range(goal.calls):
            goal.decide()
        rounds.append((time.process_time_ns() - start) / goal.calls / 1000)
    return statistics.median(rounds)


def _tool_call() -> Callable[[], object]:
    authorization, origin = _admitted("mcp.test")
    endpoint = authorization.endpoints[0]
    arguments = {"path": "/data/a", **{f"key{number}": f"value {number}" for number in range(160)}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "read_file", "arguments": arguments}}
    body = json.dumps(call).encode()
    arguments["text"] = "x" * (BODY_BYTES - len(body) - 12)
    body = json.dumps(call).encode()
    head = _head(origin, "/mcp", body)

    def decide() -> Verdict:
        operation = mcp.read_request(endpoint, head, body)
        return (
            operation if isinstance(operation, Denial) else mcp.judge_messages(authorization, endpoint, head, operation)
        )

    return _allowed(decide)


def _query(number: Callable[[], int]) -> Callable[[], object]:
    """Queries that differ in an alias; `number` tells which one is asked."""
    authorization, origin = _admitted("graphql.test")
    endpoint = authorization.endpoints[0]
    part = 'r%d: repository(owner: $owner, name: "r%d") { id name issues(first: $n) { nodes { id title } } }\n'
    parts = "".join(part % (number, number) for number in range(9))
    document = f"query GetIt($owner: String!, $n: Int!) {{\n  v00000000: viewer {{ login }}\n{parts}}}".ljust(
        QUERY_BYTES - 80
    )
    envelope = {"query": document, "operationName": "GetIt", "variables": {"owner": "x", "n": 5}}
    body = json.dumps(envelope).encode()
    head = _head(origin, "/graphql", body)

    def decide() -> Verdict:
        asked = body.replace(b"v00000000", b"v%08d" % number())
        found = graphql.read_request(endpoint, head, asked)
        if isinstance(found, Denial):
            return found
        return graphql_rules.judge_operations(authorization, endpoint, head, found)

    return _allowed(decide)


def _message() -> Callable[[], object]:
    authorization, origin = _admitted("ws.test")
    endpoint = authorization.endpoints[0]
    head = _head(origin, "/socket", b"")
    inward, outward = Codec(Side.CLIENT, None), Codec(Side.CLIENT, None)
    frame = Codec(Side.CLIENT, None).data("x" * MESSAGE_BYTES)

    def decide() -> Verdict:
        for event in inward.feed(frame):
            if isinstance(event, Text):
                outward.data(event.data)
                return websocket.judge_text(authorization, endpoint, head, event.data)
        raise AssertionError("a whole frame is a whole message")

    return _allowed(decide)


def _allowed(decide: Callable[[], Verdict]) -> Callable[[], object]:
    """Refusals cost something else."""
    verdict = decide()
    if not isinstance(verdict, Allow):
        raise TypeError(f"the benchmark's own request is refused: {verdict}")
    return decide


def _admitted(host: str) -> tuple[Authorization, Origin]:
    document = read(POLICY, "policy.yaml")
    if not isinstance(document, Document):
        raise TypeError("the benchmark's policy cannot be read")
    policy = compile_policy([document]).policy
    if policy is None:
        raise TypeError("the benchmark's policy is not valid")
    origin = Origin(Scheme.HTTPS, parse_host(host), Port(443))
    loopback = IPv4Address("127.0.0.1")
    pair = SocketPair(loopback, Port(1), loopback, Port(1))
    intent = EgressIntent(new_flow_id(), Ingress.CONNECT, DEFAULT_AGENT, origin, pair)
    nobody = EvidenceUnavailable(UnavailableReason.OFF, "not asked for")
    authorization = authorize(policy, intent, nobody, GenerationNumber(1), IdentityMode.OFF)
    if isinstance(authorization, Denial):
        raise TypeError(f"the benchmark's own connection is refused: {authorization}")
    return authorization, origin


def _head(origin: Origin, path: str, body: bytes) -> RequestHead:
    lines = (
        (b"Host", origin.host.name.encode()), (b"Content-Type", b"application/json"),
        (b"Accept", b"application/json, text/event-stream"), (b"Content-Length", b"%d" % len(body)),
    )  # fmt: skip
    head = interpret_tunnelled(WireHead(b"POST", path.encode(), b"HTTP/1.1", lines), origin)
    if not isinstance(head, RequestHead):
        raise TypeError(f"the benchmark's own head is refused: {head}")
    return head


if __name__ == "__main__":
    sys.exit(main())
