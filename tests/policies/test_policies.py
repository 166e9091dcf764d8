"""Decision tables: a policy and what is said to each connection or request, one row a decision.

A row reads `METHOD TARGET [BODY] -> VERDICT` or, in a table of connections, `PROGRAM HOST:PORT -> VERDICT`.
`(websocket)` after the target asks for an upgrade; `WEBSOCKET_TEXT` and `WEBSOCKET_BINARY` are messages after one.
`fields` of a table go with each of its requests; `wrap` is what stands around each body, which takes the place of
`%s` in it as a JSON string. Verdicts are exact: decision, code, and the rule that decided.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from egress.http.head import interpret_tunnelled
from egress.l7.inspect import body_ceiling, inspect, undo_coding
from egress.l7.judge import judge
from egress.l7.select import select
from egress.l7.websocket import BINARY, TEXT, judge_binary, judge_text
from egress.model.message import Malformed, RequestHead, WireHead
from egress.model.verdict import Allow, Audited, Denial, RuleRef, Stage, Verdict
from egress.policy.authorization import Authorization
from egress.policy.compiled import CompiledPolicy, Endpoint
from tests.unit.policy.samples import ask, evidence, granted, policy

HERE = Path(__file__).parent
ROW = re.compile(
    r"(?P<subject>\S+) (?P<target>\S+)(?P<upgrade> \(websocket\))?(?: (?P<body>\S.*?))? +-> (?P<said>.+)", re.DOTALL
)
HANDSHAKE = (
    (b"Connection", b"Upgrade"),
    (b"Upgrade", b"websocket"),
    (b"Sec-WebSocket-Version", b"13"),
    (b"Sec-WebSocket-Key", b"dGhlIHNhbXBsZSBub25jZQ=="),
)


@dataclass(frozen=True)
class Table:
    name: str
    policy: CompiledPolicy
    host: str
    program: str
    connections: bool
    fields: tuple[tuple[bytes, bytes], ...]
    wrap: str | None


def tables() -> list[tuple[Table, str]]:
    found = []
    for path in sorted(HERE.glob("*.yaml")):
        for raw in yaml.safe_load(path.read_text()):
            compiled = policy(raw["policy"])
            host, program = raw.get("host", "api.acme.test"), raw.get("program", "/usr/bin/curl")
            fields = tuple((name.encode(), str(value).encode()) for name, value in raw.get("fields", {}).items())
            table = Table(
                f"{path.stem}: {raw['name']}", compiled, host, program, raw.get("connections", False), fields,
                raw.get("wrap"),
            )  # fmt: skip
            found += [(table, row) for row in raw["rows"]]
    return found


ROWS = tables()


@pytest.mark.parametrize(("table", "row"), ROWS, ids=[f"{table.name}: {row}" for table, row in ROWS])
def test_row(table: Table, row: str) -> None:
    read = ROW.fullmatch(row)
    assert read is not None, row
    if table.connections:
        host, _, port = read["target"].rpartition(":")
        found = ask(table.policy, host, int(port), by=evidence(read["subject"]))
        said = connection_words(found)
    else:
        said = request_words(table, read)
    assert said == read["said"]


def connection_words(found: Authorization | Denial) -> str:
    if isinstance(found, Denial):
        return f"deny {found.reason_code}"
    return f"allow {' '.join(f'{one.entry}[{one.index}]' for one in found.endpoints)}"


def request_words(table: Table, row: re.Match[str]) -> str:
    """The verdict on a request or message, by the stages that the data path runs."""
    authorization = granted(table.policy, table.host, by=evidence(table.program))
    message = row["subject"].startswith("WEBSOCKET_")
    method = b"GET" if message else row["subject"].encode()
    body = wrapped(table, row["body"] or "")
    lines = [(b"Host", table.host.encode()), *table.fields, *(HANDSHAKE if message or row["upgrade"] else ())]
    if body and not message:
        lines.append((b"Content-Length", str(len(body)).encode()))
    wire = WireHead(method, row["target"].encode(), b"HTTP/1.1", tuple(lines))
    head = interpret_tunnelled(wire, authorization.intent.origin)
    if isinstance(head, Malformed):
        return f"malformed {head.code.word}"
    endpoint = select(authorization, head)
    if isinstance(endpoint, Denial):
        return words(endpoint)
    if message:
        return words(message_verdict(authorization, endpoint, head, row["subject"], body))
    return words(request_verdict(authorization, endpoint, head, body))


def request_verdict(authorization: Authorization, endpoint: Endpoint, head: RequestHead, body: bytes) -> Verdict:
    ceiling = body_ceiling(endpoint)
    if ceiling is None:
        return judge(authorization, endpoint, head)
    assert len(body) <= ceiling
    decoded = undo_coding(head, body, ceiling)
    if isinstance(decoded, Malformed):
        return Denial(Stage.L7, decoded.code, decoded.reason)
    operation = inspect(endpoint, *decoded)
    return operation if isinstance(operation, Denial) else judge(authorization, endpoint, decoded[0], operation)


def message_verdict(
    authorization: Authorization, endpoint: Endpoint, head: RequestHead, kind: str, body: bytes
) -> Verdict:
    handshake = judge(authorization, endpoint, head)
    if isinstance(handshake, Denial):
        return handshake
    if kind == TEXT:
        return judge_text(authorization, endpoint, head, body.decode())
    assert kind == BINARY
    return judge_binary(authorization, endpoint, head)


def wrapped(table: Table, body: str) -> bytes:
    return (table.wrap % json.dumps(body) if table.wrap and body else body).encode()


def words(verdict: Verdict) -> str:
    match verdict:
        case Allow(rule):
            return f"allow{place(rule)}"
        case Audited(denial):
            return f"audit {denial.reason_code}{place(denial.rule)}"
        case Denial():
            code = verdict.reason_code or verdict.code.word
            return f"{'hard ' if verdict.hard else ''}deny {code}{place(verdict.rule)}"


def place(rule: RuleRef | None) -> str:
    return f" {rule.id.replace('/endpoints[', '[').replace(']/', '].')}" if rule is not None else ""
