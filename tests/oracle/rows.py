"""Rows of the decision oracle and the answer that our own stages give to each."""

import json
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from egress.documents.yaml import Document, read
from egress.http.head import interpret_forward, interpret_tunnelled
from egress.l7.inspect import body_ceiling, inspect, undo_coding
from egress.l7.judge import judge
from egress.l7.select import select
from egress.l7.websocket import judge_binary, judge_text
from egress.model.address import InvalidAddress, Origin, Port, Scheme, parse_host
from egress.model.ids import FlowId, GenerationNumber
from egress.model.intent import DEFAULT_AGENT, EgressIntent, Ingress, SocketPair
from egress.model.message import Malformed, RequestHead, WireHead
from egress.model.process import IdentityMode, Process, ProcessEvidence
from egress.model.verdict import Allow, Audited, Denial, DenialCode, Stage, Verdict
from egress.policy.authorization import Authorization
from egress.policy.authorize import authorize
from egress.policy.compile import Compilation, compile_policy
from egress.policy.compiled import Endpoint

ROOT = Path(__file__).parents[3] / "shared" / "oracle"
_SOCKETS = SocketPair(ip_address("10.0.0.9"), Port(40000), ip_address("10.0.0.1"), Port(3128))


@dataclass(frozen=True)
class Row:
    id: str
    policy: str
    query: dict[str, Any]
    expected: dict[str, Any]
    departs: bool
    reason: str | None


@dataclass(frozen=True)
class Answer:
    """`endpoint` is the one that owned the request, None when the decision fell before."""

    decision: str
    entry: str | None
    endpoint: Endpoint | None
    denial: Denial | None


def rows(family: str) -> list[Row]:
    path = ROOT / f"{family}.jsonl"
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        raw = json.loads(line)
        departs = "egress_expect" in raw
        expected = raw["egress_expect"] if departs else raw["expect"]
        reason = None if departs else raw["expect"].get("reason")
        found.append(Row(raw["id"], raw["policy"], raw["query"], expected, departs, reason))
    return found


@lru_cache(maxsize=512)
def compiled(policy: str) -> Compilation:
    document = read((ROOT / policy).read_bytes(), Path(policy).name)
    assert isinstance(document, Document)
    return compile_policy([document])


def answer(row: Row) -> Answer:
    """Connection decision, interpretation of the head, endpoint choice and judgement, as the data path runs them."""
    query = row.query
    authorization = _authorize(row)
    if isinstance(authorization, Denial):
        return Answer("deny", None, None, authorization)
    if query["kind"] == "connect":
        return Answer("allow", authorization.entry, None, None)
    head = _head(query, authorization.intent.origin)
    if isinstance(head, Denial):
        return Answer("deny", authorization.entry, None, head)
    endpoint = select(authorization, head)
    if isinstance(endpoint, Denial):
        return Answer("deny", authorization.entry, None, endpoint)
    return _answer(_verdict(query, authorization, endpoint, head), authorization.entry, endpoint)


def _verdict(query: dict[str, Any], authorization: Authorization, endpoint: Endpoint, head: RequestHead) -> Verdict:
    """Of the request or, behind a handshake that is let through, of the message."""
    if query["kind"] == "http":
        return _request_verdict(query.get("body", "").encode(), authorization, endpoint, head)
    handshake = judge(authorization, endpoint, head)
    if isinstance(handshake, Denial):
        return handshake
    if query["kind"] == "ws_text":
        return judge_text(authorization, endpoint, head, query["body"])
    verdict = judge_binary(authorization, endpoint, head)
    return verdict.denial if isinstance(verdict, Audited) else verdict  # decision 34


def _request_verdict(body: bytes, authorization: Authorization, endpoint: Endpoint, head: RequestHead) -> Verdict:
    ceiling = body_ceiling(endpoint)
    if ceiling is None:
        return judge(authorization, endpoint, head)
    if len(body) > ceiling:
        return Denial(Stage.L7, DenialCode.BODY_TOO_LARGE, "")
    decoded = undo_coding(head, body, ceiling)
    if isinstance(decoded, Malformed):
        return _refused(decoded)
    operation = inspect(endpoint, *decoded)
    return operation if isinstance(operation, Denial) else judge(authorization, endpoint, decoded[0], operation)


def _answer(verdict: Verdict, entry: str, endpoint: Endpoint) -> Answer:
    match verdict:
        case Allow():
            return Answer("allow", entry, endpoint, None)
        case Audited(denial):
            return Answer("audit", entry, endpoint, denial)
        case Denial():
            return Answer("deny", entry, endpoint, verdict)


def _authorize(row: Row) -> Authorization | Denial:
    query = row.query
    policy = compiled(row.policy).policy
    assert policy is not None
    scheme = {"https": Scheme.HTTPS, "http": Scheme.HTTP}.get(query.get("scheme", ""), Scheme.TCP)
    try:
        host = parse_host(query["host"])
    except InvalidAddress as error:
        return _refused(Malformed(str(error), DenialCode.INVALID_CONNECT_TARGET))
    ingress = Ingress.FORWARD if scheme is Scheme.HTTP else Ingress.CONNECT
    intent = EgressIntent(FlowId("f"), ingress, DEFAULT_AGENT, Origin(scheme, host, Port(query["port"])), _SOCKETS)
    evidence = ProcessEvidence(
        owners=(Process(100, 1, query["binary"], None),),
        ancestors=tuple(Process(90 - depth, 1, path, None) for depth, path in enumerate(query["ancestors"])),
    )
    return authorize(policy, intent, evidence, GenerationNumber(1), IdentityMode.REQUIRED)


def _head(query: dict[str, Any], origin: Origin) -> RequestHead | Denial:
    target = query["path"] if query["query"] is None else f"{query['path']}?{query['query']}"
    if query["scheme"] == "http":
        target = f"http://{origin}{target}"
    lines = [(b"Host", str(origin).encode())]
    lines += [(name.encode(), value.encode()) for name, value in query.get("headers", {}).items()]
    if "body" in query and query["kind"] == "http":
        lines.append((b"Content-Length", str(len(query["body"].encode())).encode()))
    wire = WireHead(query["method"].encode(), target.encode(), b"HTTP/1.1", tuple(lines))
    head = interpret_forward(wire) if query["scheme"] == "http" else interpret_tunnelled(wire, origin)
    return _refused(head) if isinstance(head, Malformed) else head


def _refused(malformed: Malformed) -> Denial:
    return Denial(Stage.L7, malformed.code, malformed.reason)
