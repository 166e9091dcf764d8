"""Exact verdicts, and that remembering them changes nothing. The tables of tests/policies hold the breadth."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.l7.judge import judge
from egress.l7.rest import RestCall
from egress.l7.select import select
from egress.model.body import NO_BODY
from egress.model.errors import LimitExceeded
from egress.model.message import Malformed, PathOddity, RequestHead
from egress.model.verdict import Allow, Audited, Denial, DenialCode, ReasonCode, RuleKind, RuleRef, Stage, Verdict
from egress.policy.authorization import Authorization
from egress.policy.compiled import VERDICT_LIMIT, Endpoint
from egress.policy.globs import PatternSet
from tests.unit.policy.samples import entries, evidence, granted, intent

RULES = "[{allow: {method: GET, path: '/v1/**', query: {q: 'a*'}}}, {allow: {method: PUT, path: /v1/x}}]"
DENY = "[{method: '*', path: '/v1/secret/**'}]"


def authorization(mode: str = "enforce") -> Authorization:
    text = f"host: a.test, port: 443, protocol: rest, enforcement: {mode:7}, rules: {RULES}, deny_rules: {DENY}"
    return granted(entries(f"e: {{endpoints: [{{{text}}}], binaries: [{{path: /**}}]}}"), "a.test")


def head(method: str, path: str, query: str | None = None) -> RequestHead:
    return RequestHead(method, intent("a.test").origin, path, query, (), NO_BODY)


def verdict(given: Authorization, asked: RequestHead) -> Verdict:
    endpoint = select(given, asked)
    assert isinstance(endpoint, Endpoint)
    return judge(given, endpoint, asked)


def ref(kind: RuleKind, index: int, column: int) -> RuleRef:
    return RuleRef("e", 0, kind, index, f"policy.yaml:3:{column}")


def test_allow_names_its_rule() -> None:
    assert verdict(authorization(), head("PUT", "/v1/x")) == Allow(ref(RuleKind.ALLOW, 1, 149))


def test_no_rule_is_a_soft_denial() -> None:
    assert verdict(authorization(), head("POST", "/v1/x")) == Denial(
        Stage.L7, DenialCode.POLICY_DENIED, "POST /v1/x not permitted by policy", ReasonCode.METHOD_PATH_DENIED,
        entry="e", hard=False,
    )  # fmt: skip


def test_a_deny_rule_is_named_and_wins() -> None:
    found = verdict(authorization(), head("GET", "/v1/secret", "q=a"))
    assert found == Denial(
        Stage.L7, DenialCode.POLICY_DENIED, "GET /v1/secret blocked by deny rule", ReasonCode.DENY_RULE,
        entry="e", rule=ref(RuleKind.DENY, 0, 200), hard=False,
    )  # fmt: skip
    assert verdict(authorization("audit"), head("GET", "/v1/secret", "q=a")) == Audited(found)


def test_a_reason_never_holds_the_query() -> None:
    found = verdict(authorization(), head("GET", "/v1/x", "q=hunter2"))
    assert isinstance(found, Denial)
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("q=%zz", "query holds a bad percent escape"),
        ("q=%ff", "query is not UTF-8"),
        ("q=a%00", "query holds an encoded NUL"),
        ("a=1;q=%ff", "query is not UTF-8"),
    ],
)
def test_an_unreadable_query_is_refused_in_audit_too(query: str, reason: str) -> None:
    assert verdict(authorization("audit"), head("GET", "/v1/x", query)) == Denial(
        Stage.L7, DenialCode.INVALID_REQUEST_TARGET, reason, entry="e", hard=True
    )


@pytest.mark.parametrize(
    ("oddity", "key"),
    [
        (PathOddity.ENCODED_SLASH, "allow_encoded_slash"),
        (PathOddity.DOUBLE_ESCAPE, "allow_double_escape"),
        (PathOddity.BACKSLASH, "allow_backslash"),
    ],
)
def test_an_odd_path_names_the_key_that_would_permit_it(oddity: PathOddity, key: str) -> None:
    odd = replace(head("PUT", "/v1/x"), oddities=oddity | PathOddity.CHANGED)
    found = verdict(authorization("audit"), odd)
    assert isinstance(found, Denial)
    assert (found.code, found.hard) == (DenialCode.INVALID_REQUEST_TARGET, True)
    assert f"`{key}: true`" in found.reason


def test_a_changed_path_is_accepted_unless_the_endpoint_wants_it_canonical() -> None:
    changed = replace(head("PUT", "/v1/x"), oddities=PathOddity.CHANGED)
    assert isinstance(verdict(authorization(), changed), Allow)


def test_an_upgrade_needs_the_word_of_the_endpoint() -> None:
    found = verdict(authorization("audit"), replace(head("PUT", "/v1/x"), upgrade="websocket"))
    assert found == Denial(
        Stage.L7, DenialCode.UPGRADE_REFUSED,
        "upgrade needs `allow_upgrade: true` or `protocol: websocket` on the endpoint", entry="e", hard=True,
    )  # fmt: skip


def test_a_protocol_that_is_not_read_is_refused_in_audit_too() -> None:
    compiled = entries(
        "e: {endpoints: [{host: a.test, port: 443, protocol: graphql, access: full, enforcement: audit}], "
        "binaries: [{path: /**}]}"
    )
    assert verdict(granted(compiled, "a.test"), head("POST", "/graphql")) == Denial(
        Stage.L7, DenialCode.UNSUPPORTED_L7_PROTOCOL, "`protocol: graphql` cannot be inspected by this version",
        entry="e", hard=True,
    )  # fmt: skip


methods = st.sampled_from(["GET", "HEAD", "PUT", "POST", "get"])
paths = st.sampled_from(["/v1", "/v1/", "/v1/x", "/v1/secret", "/v1/secret/x", "/", "/v2"])
queries = st.sampled_from([None, "", "q=a", "q=b", "q=a&q=b", "q=a;q=b", "q=%61", "q=%zz", "q=a%00"])


@given(st.lists(st.tuples(methods, paths, queries), max_size=30))
def test_a_remembered_verdict_is_the_verdict(asked: list[tuple[str, str, str | None]]) -> None:
    remembering = authorization()
    for method, path, query in asked:
        assert verdict(remembering, head(method, path, query)) == verdict(authorization(), head(method, path, query))


def test_entries_are_not_mixed_up_in_memory() -> None:
    """Two callers of one policy share its memory; what each may do does not leak to the other."""
    compiled = entries("""
a: {endpoints: [{host: a.test, port: 443, protocol: rest, access: full}], binaries: [{path: /bin/a}]}
b: {endpoints: [{host: a.test, port: 443, protocol: rest, access: read-only}], binaries: [{path: '/bin/*'}]}
""")
    wide, narrow = (granted(compiled, "a.test", by=evidence(f"/bin/{name}")) for name in "ab")
    for _ in range(2):
        assert isinstance(verdict(wide, head("POST", "/x")), Allow)
        assert isinstance(verdict(narrow, head("POST", "/x")), Denial)


def test_memory_is_bounded_and_long_targets_are_not_kept() -> None:
    given = authorization()
    memory = given.endpoints[0].matchers.verdicts
    verdict(given, head("GET", "/v1/" + "x" * 600))
    assert len(memory) == 0
    for number in range(VERDICT_LIMIT + 5):
        verdict(given, head("GET", f"/v1/{number}"))
    assert 0 < len(memory) <= VERDICT_LIMIT


def test_a_pattern_engine_that_gave_up_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """RE2 out of memory looks like "no deny rule matched"; it must break the request, not open it."""

    class GivesUp:
        def Match(self, text: bytes) -> None:
            return None

    patterns = PatternSet(["a.*"])
    monkeypatch.setattr(patterns, "_set", GivesUp())
    with pytest.raises(LimitExceeded):
        patterns.match("abc")


def test_queries_are_decoded_once_and_only_when_a_rule_asks() -> None:
    call = RestCall("get", "/", "a=1;b=2")
    assert call.method == "GET"
    assert call.fault() is None
    assert call.pairs == (("a", "1;b=2"),)
    assert call.wider_pairs == (("a", "1;b=2"), ("a", "1"), ("b", "2"))
    assert isinstance(RestCall("GET", "/", "%").fault(), Malformed)
    assert RestCall("GET", "/", None).pairs == ()
