"""What a judged message says when it is refused, and which messages have no rules. Decisions: tests/policies."""

import pytest

from egress.http.head import interpret_tunnelled
from egress.l7.judge import judge
from egress.l7.select import select
from egress.l7.websocket import BINARY, TEXT, judge_binary, judge_message, judge_text
from egress.model.message import RequestHead
from egress.model.verdict import Allow, Denial, DenialCode, ReasonCode, Stage
from egress.policy.authorization import Authorization
from egress.policy.compiled import Endpoint
from tests.support.opened import HOST, upgrade_head
from tests.unit.policy.samples import entries, granted


def asked(terms: str, target: str = "/ws") -> tuple[Authorization, Endpoint, RequestHead]:
    policy = entries(f"api: {{endpoints: [{{host: {HOST}, port: 443, {terms}}}], binaries: [{{path: '/**'}}]}}")
    authorization = granted(policy, HOST)
    head = interpret_tunnelled(upgrade_head(target), authorization.intent.origin)
    assert isinstance(head, RequestHead)
    endpoint = select(authorization, head)
    assert isinstance(endpoint, Endpoint)
    return authorization, endpoint, head


@pytest.mark.parametrize("method", [TEXT, BINARY])
def test_a_refused_message_is_named_by_its_method_and_path_alone(method: str) -> None:
    assert judge_message(*asked("protocol: websocket, access: read-only", "/ws?token=sesame"), method) == Denial(
        Stage.L7, DenialCode.POLICY_DENIED, f"{method} /ws not permitted by policy", ReasonCode.METHOD_PATH_DENIED,
        entry="api", hard=False,
    )  # fmt: skip


def test_a_deny_rule_is_named() -> None:
    denial = judge_text(
        *asked("protocol: websocket, access: full, deny_rules: [{method: WEBSOCKET_TEXT, path: /ws}]"), "hello"
    )
    assert isinstance(denial, Denial)
    assert (denial.reason, denial.reason_code) == ("WEBSOCKET_TEXT /ws blocked by deny rule", ReasonCode.DENY_RULE)
    assert denial.rule is not None
    assert denial.rule.id == "api/endpoints[0]/deny_rules[0]"


def test_a_handshake_that_is_none_says_what_is_missing() -> None:
    authorization, endpoint, head = asked("protocol: websocket, access: full")
    plain = RequestHead(head.method, head.origin, head.path, head.query, head.fields, head.framing)
    denial = judge(authorization, endpoint, plain)
    assert isinstance(denial, Denial)
    assert denial.hard
    assert denial.reason == "websocket endpoint requires a valid WebSocket upgrade request"


def test_an_upgrade_that_rest_refuses_says_what_would_allow_it() -> None:
    denial = judge(*asked("protocol: rest, access: full, enforcement: audit"))
    assert isinstance(denial, Denial)
    assert (denial.code, denial.hard) == (DenialCode.UPGRADE_REFUSED, True)
    assert denial.reason == "upgrade needs `allow_upgrade: true` or `protocol: websocket` on the endpoint"


def test_messages_behind_rest_have_no_rules() -> None:
    terms = asked("protocol: rest, allow_upgrade: true, rules: [{allow: {method: GET, path: /ws}}]")
    assert judge_text(*terms, "hello") == Allow()
    assert judge_binary(*terms) == Allow()


def test_verdicts_on_messages_are_remembered_by_path() -> None:
    """The same question is one look-up, however many messages ask it."""
    terms = asked("protocol: websocket, access: read-write")
    assert judge_text(*terms, "one") is judge_text(*terms, "two")
