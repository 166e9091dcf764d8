"""Messages of an upgraded exchange under the generation that is current when they come."""

import pytest

from egress.model.verdict import Audited, DenialCode, ReasonCode, RuleKind
from egress.pipeline.session import BINARY_REFUSED, CAPACITY, POLICY_CHANGE, RULE, Refusal, Session, overloaded
from egress.policy.compiled import CompiledPolicy
from tests.support.opened import HOST, Opened, opened, upgraded
from tests.unit.policy.samples import entries


def endpoint(more: str, extra: str = "") -> CompiledPolicy:
    return entries(f"api: {{endpoints: [{{host: {HOST}, port: 443, {more}}}], binaries: [{{path: '/**'}}]}}\n{extra}")


def session(more: str, target: str = "/ws") -> Session:
    return upgraded(opened(endpoint(more)), target)[1]


def refusal(answer: Refusal | Audited | None) -> tuple[int, str, str | None]:
    assert isinstance(answer, Refusal), answer
    return answer.code, answer.method, answer.denial.reason_code


class TestRules:
    def test_full_access_takes_both_kinds(self) -> None:
        ours = session("protocol: websocket, access: full")
        assert ours.text("hello") is None
        assert ours.binary() is None

    def test_read_write_takes_text(self) -> None:
        ours = session("protocol: websocket, access: read-write")
        assert ours.text("hello") is None
        assert refusal(ours.binary()) == (BINARY_REFUSED, "WEBSOCKET_BINARY", ReasonCode.METHOD_PATH_DENIED)

    def test_read_only_takes_neither(self) -> None:
        ours = session("protocol: websocket, access: read-only")
        assert refusal(ours.text("hello")) == (RULE, "WEBSOCKET_TEXT", ReasonCode.METHOD_PATH_DENIED)
        assert refusal(ours.binary()) == (BINARY_REFUSED, "WEBSOCKET_BINARY", ReasonCode.METHOD_PATH_DENIED)

    def test_a_deny_rule_on_text(self) -> None:
        ours = session(
            "protocol: websocket, access: full, deny_rules: [{method: WEBSOCKET_TEXT, path: /locked/**}]", "/locked/a"
        )
        answer = ours.text("hello")
        assert refusal(answer) == (RULE, "WEBSOCKET_TEXT", ReasonCode.DENY_RULE)
        assert isinstance(answer, Refusal)
        assert answer.denial.rule is not None
        assert answer.denial.rule.kind is RuleKind.DENY
        assert ours.binary() is None

    def test_the_reason_holds_nothing_of_the_message(self) -> None:
        answer = session("protocol: websocket, access: read-only").text("sesame")
        assert isinstance(answer, Refusal)
        assert "sesame" not in repr(answer)

    def test_rest_with_upgrade_has_no_rules_for_messages(self) -> None:
        ours = session("protocol: rest, access: read-only, allow_upgrade: true")
        assert ours.text("hello") is None
        assert ours.binary() is None


class TestAudit:
    AUDITED = "protocol: websocket, enforcement: audit, access: read-only"

    def test_text_passes_and_says_what_would_be_denied(self) -> None:
        answer = session(self.AUDITED).text("hello")
        assert isinstance(answer, Audited)
        assert answer.denial.reason_code is ReasonCode.METHOD_PATH_DENIED

    def test_binary_is_not_softened(self) -> None:
        """Decision 34: its content was not even looked at."""
        assert refusal(session(self.AUDITED).binary()) == (
            BINARY_REFUSED, "WEBSOCKET_BINARY", ReasonCode.METHOD_PATH_DENIED
        )  # fmt: skip


class TestGenerations:
    @pytest.fixture
    def ours(self) -> Opened:
        return opened(endpoint("protocol: websocket, access: full"))

    def test_equal_terms_carry_on(self, ours: Opened) -> None:
        _, asked = upgraded(ours)
        ours.install(endpoint("protocol: websocket, access: full", "zoo: {endpoints: [{host: b.test, port: 1}]}"))
        assert asked.stale() is None
        assert asked.text("hello") is None
        assert ours.connection.lease.generation.number == 2

    @pytest.mark.parametrize("changed", ["protocol: websocket, access: read-write", "protocol: rest, access: full"])
    def test_other_terms_end_it(self, ours: Opened, changed: str) -> None:
        _, asked = upgraded(ours)
        ours.install(endpoint(changed))
        for answer in (asked.stale(), asked.text("hello"), asked.binary(), asked.text("again")):
            assert refusal(answer) == (POLICY_CHANGE, "WEBSOCKET_TEXT", ReasonCode.POLICY_CHANGED)

    def test_quarantine_ends_it(self, ours: Opened) -> None:
        _, asked = upgraded(ours)
        ours.install(None)
        assert refusal(asked.text("hello"))[0] == POLICY_CHANGE


def test_overload_has_a_close_code_that_invites_another_try() -> None:
    assert CAPACITY == 1013
    assert overloaded().code is DenialCode.OVERLOADED
