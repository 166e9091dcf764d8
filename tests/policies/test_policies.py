"""Decision tables: a policy and what is said to each connection or request, one row a decision.

A row reads `METHOD TARGET -> VERDICT` or, in a table of connections, `PROGRAM HOST:PORT -> VERDICT`. `(websocket)`
after the target asks for an upgrade. Verdicts are exact: decision, code, and the rule that decided.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from egress.http.head import interpret_tunnelled
from egress.l7.judge import judge
from egress.l7.select import select
from egress.model.message import Malformed, WireHead
from egress.model.verdict import Allow, Audited, Denial, RuleRef, Verdict
from egress.policy.authorization import Authorization
from egress.policy.compiled import CompiledPolicy
from tests.unit.policy.samples import ask, evidence, granted, policy

HERE = Path(__file__).parent
ROW = re.compile(r"(?P<subject>\S+) (?P<target>\S+)(?P<upgrade> \(websocket\))? +-> (?P<said>.+)")
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


def tables() -> list[tuple[Table, str]]:
    found = []
    for path in sorted(HERE.glob("*.yaml")):
        for raw in yaml.safe_load(path.read_text()):
            compiled = policy(raw["policy"])
            host, program = raw.get("host", "api.acme.test"), raw.get("program", "/usr/bin/curl")
            table = Table(f"{path.stem}: {raw['name']}", compiled, host, program, raw.get("connections", False))
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
        said = request_words(table, read["subject"], read["target"], HANDSHAKE if read["upgrade"] else ())
    assert said == read["said"]


def connection_words(found: Authorization | Denial) -> str:
    if isinstance(found, Denial):
        return f"deny {found.reason_code}"
    return f"allow {' '.join(f'{one.entry}[{one.index}]' for one in found.endpoints)}"


def request_words(table: Table, method: str, target: str, fields: tuple[tuple[bytes, bytes], ...]) -> str:
    authorization = granted(table.policy, table.host, by=evidence(table.program))
    lines = ((b"Host", table.host.encode()), *fields)
    head = interpret_tunnelled(
        WireHead(method.encode(), target.encode(), b"HTTP/1.1", lines), authorization.intent.origin
    )
    if isinstance(head, Malformed):
        return f"malformed {head.code.word}"
    endpoint = select(authorization, head)
    return words(endpoint if isinstance(endpoint, Denial) else judge(authorization, endpoint, head))


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
