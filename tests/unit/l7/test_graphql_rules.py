"""Exact verdicts on GraphQL operations, and why rules missed. The tables of tests/policies hold the breadth."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egress.l7.graphql_rules import BLOCKED, MUTATION_OVER_GET, UNKNOWN, judge_operations, misses
from egress.model.body import NO_BODY
from egress.model.message import RequestHead
from egress.model.operation import GraphqlOperation, GraphqlOperations
from egress.model.verdict import Allow, Audited, Denial, DenialCode, ReasonCode, RuleKind, RuleRef, Stage, Verdict
from egress.policy.authorization import Authorization
from egress.policy.compiled import Endpoint, Protocol
from egress.policy.explain import MAX_MISSES, Aspect
from tests.unit.policy.samples import entries, granted, intent

RULES = """[{allow: {operation_type: query, operation_name: "Get*", fields: [viewer, "repo*"]}}, \
{allow: {operation_type: mutation, fields: [addStar]}}, \
{allow: {operation_type: mutation, fields: [ping], over: get}}]"""
DENY = "[{operation_type: '*', fields: ['delete*']}]"


def authorization(mode: str = "enforce", protocol: str = "graphql", more: str = "") -> Authorization:
    handshake = ", {allow: {method: GET, path: /graphql}}]" if protocol == "websocket" else "]"
    endpoint = (
        f"{{host: a.test, port: 443, path: /graphql, protocol: {protocol}, enforcement: {mode:7}, "
        f"rules: {RULES[:-1]}{handshake}, deny_rules: {DENY}}}"
    )
    return granted(entries(f"e: {{endpoints: [{endpoint}{more}], binaries: [{{path: /**}}]}}"), "a.test")


def head(method: str = "POST", query: str | None = None) -> RequestHead:
    return RequestHead(method, intent("a.test").origin, "/graphql", query, (), NO_BODY)


def operation(kind: str, *fields: str, name: str = "") -> GraphqlOperation:
    return GraphqlOperation(kind, name, fields)


def judged(given: Authorization, *operations: GraphqlOperation, over_get: bool = False) -> Verdict:
    asked = head("GET" if over_get else "POST")
    return judge_operations(given, given.endpoints[0], asked, GraphqlOperations(operations, over_get))


def place(verdict: Verdict) -> str | None:
    assert not isinstance(verdict, Audited)
    return verdict.rule.id if verdict.rule is not None else None


def blocked(named: str, rule: RuleRef | None = None) -> Denial:
    code = ReasonCode.OPERATION_DENIED if rule is None else ReasonCode.DENY_RULE
    return Denial(
        Stage.L7, DenialCode.POLICY_DENIED, BLOCKED, code, entry="e", rule=rule, hard=False, operation=named
    )  # fmt: skip


def test_allow_names_its_rule() -> None:
    verdict = judged(authorization(), operation("query", "repository", "viewer", name="GetIt"))
    assert isinstance(verdict, Allow)
    assert place(verdict) == "e/endpoints[0]/rules[0]"


def test_a_batch_is_named_by_its_first_rule() -> None:
    verdict = judged(authorization(), operation("mutation", "addStar"), operation("query", "viewer", name="GetIt"))
    assert isinstance(verdict, Allow)
    assert place(verdict) == "e/endpoints[0]/rules[1]"


def test_no_rule_is_a_soft_denial_that_names_the_operation() -> None:
    found = judged(authorization(), operation("query", "a", "b", name="Other"))
    assert found == blocked("query Other { a, b }")
    assert judged(authorization(), operation("subscription", "x")) == blocked("subscription { x }")


def test_a_deny_rule_is_named_and_wins() -> None:
    found = judged(authorization(), operation("mutation", "addStar", "deleteAll"))
    (endpoint,) = authorization().endpoints
    assert found == blocked("mutation { addStar, deleteAll }", endpoint.deny_rules[0].ref)
    assert place(found) == "e/endpoints[0]/deny_rules[0]"


def test_audit_softens() -> None:
    given = authorization("audit")
    assert judged(given, operation("query", "x")) == Audited(blocked("query { x }"))
    assert judged(given, operation("query", "viewer", name="Get")) == Allow(given.endpoints[0].rules[0].ref)


def test_unregistered() -> None:
    unknown = GraphqlOperation("", "", (), registered=False)
    expected = Denial(
        Stage.L7, DenialCode.POLICY_DENIED, UNKNOWN, ReasonCode.PERSISTED_QUERY_UNKNOWN, entry="e", hard=False
    )
    assert judged(authorization(), unknown) == expected
    assert judged(authorization("audit"), unknown) == Audited(expected)


@pytest.mark.parametrize("mode", ["enforce", "audit"])
def test_mutations_over_get(mode: str) -> None:
    given = authorization(mode)
    allowed_by_post = judged(given, operation("mutation", "addStar"), over_get=True)
    assert allowed_by_post == replace(blocked("mutation { addStar }"), reason=MUTATION_OVER_GET, hard=True)
    never_allowed = judged(given, operation("mutation", "closeAll"), over_get=True)
    assert never_allowed == replace(blocked("mutation { closeAll }"), hard=True)
    verdict = judged(given, operation("mutation", "ping"), over_get=True)
    assert isinstance(verdict, Allow)
    assert place(verdict) == "e/endpoints[0]/rules[2]"


def test_a_hard_denial_comes_before_softer_ones() -> None:
    """In audit mode a soft denial of one operation must not carry a hard one of another past."""
    operations = (operation("query", "x"), operation("mutation", "addStar"))
    found = judged(authorization("audit"), *operations, over_get=True)
    assert found == replace(blocked("mutation { addStar }"), reason=MUTATION_OVER_GET, hard=True)


def test_a_query_string_that_cannot_be_read_is_hard() -> None:
    given = authorization("audit")
    operations = GraphqlOperations((operation("query", "x"),))
    found = judge_operations(given, given.endpoints[0], head(query="a=%00"), operations)
    assert found == Denial(
        Stage.L7, DenialCode.INVALID_REQUEST_TARGET, "query holds an encoded NUL", entry="e"
    )  # fmt: skip


def test_http_deny_rules_bind_operations() -> None:
    rest = ", {host: a.test, port: 443, protocol: rest, access: full, deny_rules: [{method: POST, path: /graphql}]}"
    given = authorization(more=rest)
    found = judged(given, operation("query", "viewer", name="Get"))
    assert found == Denial(
        Stage.L7, DenialCode.POLICY_DENIED, "POST /graphql blocked by deny rule", ReasonCode.DENY_RULE,
        entry="e", rule=given.endpoints[1].deny_rules[0].ref, hard=False,
    )  # fmt: skip


def test_rest_rules_allow_no_operation() -> None:
    rest = ", {host: a.test, port: 443, protocol: rest, access: full}"
    assert judged(authorization(more=rest), operation("query", "x")) == blocked("query { x }")


class TestWebSocket:
    def test_operations(self) -> None:
        given = authorization(protocol="websocket")
        verdict = judged(given, operation("mutation", "addStar"))
        assert isinstance(verdict, Allow)
        assert place(verdict) == "e/endpoints[0]/rules[1]"
        assert judged(given, operation("query", "viewer")) == blocked("query { viewer }")

    def test_message_rules(self) -> None:
        deny = "[{method: WEBSOCKET_TEXT, path: /**}]"
        rest = f", {{host: a.test, port: 443, protocol: rest, access: full, deny_rules: {deny}}}"
        found = judged(authorization(protocol="websocket", more=rest), operation("mutation", "addStar"))
        assert isinstance(found, Denial)
        assert found.reason == "WEBSOCKET_TEXT /graphql blocked by deny rule"

    def test_graphql_rules_over_http_allow_no_message(self) -> None:
        both = ", {host: a.test, port: 443, path: /graph*, protocol: graphql, access: full}"
        assert judged(authorization(protocol="websocket", more=both), operation("query", "x")) == blocked("query { x }")

    def test_a_control_message_asks_for_nothing(self) -> None:
        assert judged(authorization(protocol="websocket")) == Allow()


def test_endpoints_of_other_paths_take_no_part() -> None:
    deny = "[{operation_type: query}]"
    other = f", {{host: a.test, port: 443, path: /other, protocol: graphql, access: full, deny_rules: {deny}}}"
    given = authorization(more=other)
    assert isinstance(judged(given, operation("query", "viewer", name="Get")), Allow)
    assert judged(given, operation("query", "x")) == blocked("query { x }")


def test_long_operations_are_named_in_short() -> None:
    found = judged(authorization(), operation("query", *(f"field{number}" for number in range(900)), name="N" * 300))
    assert isinstance(found, Denial)
    assert found.operation == "query " + "N" * 249 + "…"


class TestMisses:
    def missed(
        self, *operations: GraphqlOperation, over_get: bool = False, more: str = ""
    ) -> list[tuple[str, tuple[Aspect, ...]]]:
        given = authorization(more=more)
        found = misses(given, given.endpoints[0], head(), GraphqlOperations(operations, over_get))
        return [(miss.rule.id, miss.missed) for miss in found if miss.rule is not None]

    def test_nearest_first(self) -> None:
        assert self.missed(operation("query", "viewer", name="Other")) == [
            ("e/endpoints[0]/rules[0]", (Aspect.OPERATION_NAME,)),
            ("e/endpoints[0]/rules[1]", (Aspect.OPERATION_TYPE, Aspect.FIELDS)),
            ("e/endpoints[0]/rules[2]", (Aspect.OPERATION_TYPE, Aspect.FIELDS, Aspect.OVER)),
        ]

    def test_over(self) -> None:
        assert self.missed(operation("mutation", "addStar"), over_get=True)[0] == (
            "e/endpoints[0]/rules[1]",
            (Aspect.OVER,),
        )

    def test_what_is_allowed_misses_nothing(self) -> None:
        assert self.missed(operation("query", "viewer", name="Get")) == []

    def test_only_the_operations_that_nothing_allows(self) -> None:
        allowed, not_allowed = operation("mutation", "addStar"), operation("mutation", "close")
        assert self.missed(allowed, not_allowed) == self.missed(not_allowed)

    def test_other_paths(self) -> None:
        other = ", {host: a.test, port: 443, path: /other, protocol: graphql, access: read-only}"
        assert self.missed(operation("query", "x"), more=other)[0] == (
            "e/endpoints[1]/rules[0]",
            (Aspect.ENDPOINT_PATH,),
        )

    def test_wording(self) -> None:
        given = authorization()
        found = misses(given, given.endpoints[0], head(), GraphqlOperations((operation("mutation", "ping"),)))
        assert str(found[0]) == (
            f"e/endpoints[0]/rules[1] ({given.endpoints[0].rules[1].ref.location}) misses by fields: "
            "it lists operation type mutation, fields addStar below endpoint path /graphql"
        )

    def test_bounded(self) -> None:
        more = "".join(f", {{host: a.test, port: 443, path: /p{n}, protocol: graphql, access: full}}" for n in range(9))
        assert len(self.missed(operation("query", "x"), more=more)) == MAX_MISSES


FIELDS = st.lists(st.sampled_from(["viewer", "repo", "repository", "addStar", "deleteAll", "ping", "x"]), max_size=3)
OPERATIONS = st.builds(
    GraphqlOperation,
    st.sampled_from(["query", "mutation", "subscription"]),
    st.sampled_from(["", "Get", "GetIt", "Other"]),
    FIELDS.map(lambda names: tuple(sorted(set(names)))),
)


def naive(operation: GraphqlOperation, *, over_get: bool) -> bool:
    """The policy above, by hand."""
    fields = set(operation.fields)
    if any(name.startswith("delete") for name in fields) or not fields:
        return False
    if operation.type == "query":
        return operation.name.startswith("Get") and all(name == "viewer" or name.startswith("repo") for name in fields)
    return operation.type == "mutation" and fields == ({"ping"} if over_get else {"addStar"})


@settings(max_examples=200, deadline=None)
@given(st.lists(OPERATIONS, min_size=1, max_size=3), st.booleans())
def test_verdicts_equal_a_naive_reading(operations: list[GraphqlOperation], over_get: bool) -> None:
    verdict = judged(ENFORCED, *operations, over_get=over_get)
    assert isinstance(verdict, Allow) == all(naive(one, over_get=over_get) for one in operations)
    audited = judged(AUDITED, *operations, over_get=over_get)
    match verdict:
        case Denial(hard=True):
            assert audited == verdict
        case Denial():
            assert isinstance(audited, Audited)
            assert audited.denial.reason == verdict.reason
        case _:
            assert isinstance(audited, Allow)


ENFORCED = authorization()
AUDITED = authorization("audit")


def test_the_sample_is_what_it_says() -> None:
    (endpoint,) = ENFORCED.endpoints
    assert isinstance(endpoint, Endpoint)
    assert endpoint.protocol is Protocol.GRAPHQL
    assert [rule.ref.kind for rule in (*endpoint.rules, *endpoint.deny_rules)] == [RuleKind.ALLOW] * 3 + [RuleKind.DENY]
