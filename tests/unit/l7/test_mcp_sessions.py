"""Sessions belong to the agent and program that opened them, for a while and within bounds."""

from dataclasses import dataclass, replace

import pytest

from egress.l7.mcp_sessions import SessionTable
from egress.model.intent import AgentName
from egress.model.limits import LIMITS
from egress.model.message import RequestHead
from egress.model.process import EvidenceUnavailable, UnavailableReason
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage
from egress.policy.authorization import Authorization
from tests.unit.l7.rpc import grant, head
from tests.unit.policy.samples import evidence, intent

MEMBERS = "protocol: mcp, rules: [{allow: {method: '*'}}]"
FOREIGN = Denial(
    Stage.L7, DenialCode.POLICY_DENIED, "the MCP session of this request was opened by another program",
    ReasonCode.OPERATION_DENIED, entry="e",
)  # fmt: skip


@dataclass
class HandClock:
    seconds: float = 0.0

    def now(self) -> float:
        return 1e9 + self.seconds

    def monotonic(self) -> float:
        return self.seconds


AUTHORIZATION, _ = grant(MEMBERS)


def caller(executable: str = "/usr/bin/agent", agent: str = "default", host: str | None = None) -> Authorization:
    asked = replace(AUTHORIZATION.intent, agent=AgentName(agent))
    if host is not None:
        asked = replace(asked, origin=intent(host).origin)
    return replace(AUTHORIZATION, intent=asked, evidence=evidence(executable))


def naming(session: bytes) -> RequestHead:
    return head("POST", "/mcp", (b"mcp-Session-id", session))


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def table(clock: HandClock) -> SessionTable:
    return SessionTable(clock, capacity=4, lifetime=100)


def test_bounds_in_service(clock: HandClock) -> None:
    table = SessionTable(clock)
    for number in range(LIMITS.mcp_sessions + 10):
        table.bind(caller(), b"%d" % number)
    assert len(table) == LIMITS.mcp_sessions == 4096
    clock.seconds = 24 * 3600 - 0.1
    assert table.check(caller("/bin/other"), naming(b"4000")) == FOREIGN
    clock.seconds = 24 * 3600
    assert table.check(caller("/bin/other"), naming(b"4001")) is None


def test_the_owner_passes_and_others_do_not(table: SessionTable) -> None:
    table.bind(caller(), b"s")
    assert table.check(caller(), naming(b"s")) is None
    assert table.check(caller("/bin/other"), naming(b"s")) == FOREIGN
    assert table.check(caller(agent="build-2"), naming(b"s")) == FOREIGN
    assert table.check(caller(), naming(b"s")) is None


def test_unknown_sessions_pass(table: SessionTable) -> None:
    table.bind(caller(), b"s")
    assert table.check(caller("/bin/other"), naming(b"S")) is None
    assert table.check(caller("/bin/other"), naming(b"")) is None
    assert table.check(caller("/bin/other"), head()) is None


def test_each_server_has_sessions_of_its_own(table: SessionTable) -> None:
    table.bind(caller(), b"s")
    assert table.check(caller("/bin/other", host="b.acme.test"), naming(b"s")) is None
    table.bind(caller("/bin/other", host="b.acme.test"), b"s")
    assert table.check(caller(), naming(b"s")) is None
    assert table.check(caller(host="b.acme.test"), naming(b"s")) == FOREIGN


def test_the_denial_is_told_under_the_entry_of_who_asks(table: SessionTable) -> None:
    table.bind(caller(), b"s")
    denied = table.check(replace(caller("/bin/other"), entry="theirs"), naming(b"s"))
    assert denied == replace(FOREIGN, entry="theirs")
    assert denied is not None
    assert denied.hard


def test_ended_sessions_are_forgotten(table: SessionTable) -> None:
    table.bind(caller(), b"s")
    table.end(caller(), b"s")
    table.end(caller(), b"s")
    assert len(table) == 0
    assert table.check(caller("/bin/other"), naming(b"s")) is None


def test_unused_sessions_are_forgotten_and_used_ones_kept(table: SessionTable, clock: HandClock) -> None:
    table.bind(caller(), b"used")
    table.bind(caller(), b"unused")
    clock.seconds = 99
    assert table.check(caller(), naming(b"used")) is None
    clock.seconds = 100
    assert table.check(caller("/bin/other"), naming(b"unused")) is None
    assert table.check(caller("/bin/other"), naming(b"used")) == FOREIGN
    assert len(table) == 1


def test_a_refused_use_does_not_keep_a_session(table: SessionTable, clock: HandClock) -> None:
    table.bind(caller(), b"s")
    clock.seconds = 99
    assert table.check(caller("/bin/other"), naming(b"s")) == FOREIGN
    clock.seconds = 100
    assert table.check(caller("/bin/other"), naming(b"s")) is None


def test_a_flood_of_sessions_pushes_out_the_own_ones(table: SessionTable) -> None:
    table.bind(caller("/bin/victim"), b"v")
    for number in range(50):
        table.bind(caller("/bin/flood"), b"%d" % number)
    assert len(table) == 4
    assert table.check(caller("/bin/other"), naming(b"v")) == FOREIGN
    assert table.check(caller("/bin/other"), naming(b"46")) is None
    assert [table.check(caller("/bin/other"), naming(b"%d" % n)) for n in (47, 48, 49)] == [FOREIGN] * 3


def test_a_full_table_forgets_the_longest_unused(table: SessionTable, clock: HandClock) -> None:
    for number in range(4):
        table.bind(caller(f"/bin/{number}"), b"%d" % number)
    assert table.check(caller("/bin/0"), naming(b"0")) is None
    table.bind(caller("/bin/new"), b"new")
    assert table.check(caller("/bin/x"), naming(b"1")) is None
    assert table.check(caller("/bin/x"), naming(b"0")) == FOREIGN
    clock.seconds = 150
    table.bind(caller("/bin/new"), b"newer")  # its own is expired, but so is an older one
    assert len(table) == 4
    assert table.check(caller("/bin/x"), naming(b"newer")) == FOREIGN


def test_a_session_opened_again_changes_hands(table: SessionTable) -> None:
    table.bind(caller(), b"s")
    table.bind(caller("/bin/other"), b"s")
    assert len(table) == 1
    assert table.check(caller("/bin/other"), naming(b"s")) is None
    assert table.check(caller(), naming(b"s")) == FOREIGN


def test_without_evidence_the_agent_alone_owns(table: SessionTable) -> None:
    unknown = replace(caller(), evidence=EvidenceUnavailable(UnavailableReason.OFF, ""))
    table.bind(unknown, b"s")
    assert table.check(unknown, naming(b"s")) is None
    assert table.check(caller(), naming(b"s")) == FOREIGN
    other = replace(unknown, intent=replace(unknown.intent, agent=AgentName("b")))
    assert table.check(other, naming(b"s")) == FOREIGN


def test_identifiers_are_not_kept(table: SessionTable) -> None:
    table.bind(caller(), b"hunter2-session")
    assert "hunter2" not in repr(table._bindings)
