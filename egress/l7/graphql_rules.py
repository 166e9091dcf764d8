"""GraphQL operations against rules, for requests and for WebSocket messages (policy.md 11)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from egress.l7.denials import denied, http_denial, soften
from egress.model.message import RequestHead
from egress.model.operation import GraphqlOperation, GraphqlOperations
from egress.model.verdict import Allow, Denial, ReasonCode, RuleRef, Verdict
from egress.policy.authorization import Authorization
from egress.policy.compiled import Endpoint, Protocol, Rule, ValueGlobs
from egress.policy.explain import MAX_MISSES, Aspect, Miss
from egress.policy.globs import Dialect, GlobIndex

BLOCKED = "GraphQL operation blocked by endpoint policy"
UNKNOWN = "GraphQL persisted query is not registered"
MUTATION_OVER_GET = "GraphQL mutation over GET needs a rule that says `over: get`"

_MESSAGE = "WEBSOCKET_TEXT"
_MAX_NAMED = 256
_HOLDS_OPERATIONS = frozenset((Protocol.GRAPHQL, Protocol.WEBSOCKET))


def judge_operations(
    authorization: Authorization, endpoint: Endpoint, head: RequestHead, operations: GraphqlOperations
) -> Verdict:
    """The verdict on the operations of one request, or of one message on the WebSocket that `head` opened.

    Deny rules of every endpoint take part, those over method and path included; allow rules only of endpoints that
    speak the selected protocol. Each operation must be allowed by one rule alone.
    """
    if endpoint.protocol is Protocol.WEBSOCKET:
        head = replace(head, method=_MESSAGE)
    speaking = [
        one for one in authorization.endpoints if one.protocol in _HOLDS_OPERATIONS and one.covers_path(head.path)
    ]
    found = [
        _judge_one(authorization.entry, endpoint.protocol, speaking, operation, over_get=operations.over_get)
        for operation in operations.operations
    ]
    denials = [one for one in (*found, http_denial(authorization, head)) if isinstance(one, Denial)]
    if denials:
        return soften(endpoint, next((denial for denial in denials if denial.hard), denials[0]))
    return Allow(next((one for one in found if isinstance(one, RuleRef)), None))


def misses(
    authorization: Authorization, endpoint: Endpoint, head: RequestHead, operations: GraphqlOperations
) -> tuple[Miss, ...]:
    """Allow rules that come closest to the operations that none allows, those that miss the fewest aspects first."""
    found: dict[Miss, None] = {}
    for operation in operations.operations:
        near = [
            (one, rule, tuple(_aspects(one, head, rule, operation, over_get=operations.over_get)))
            for one in authorization.endpoints
            if one.protocol is endpoint.protocol
            for rule in one.rules
            if rule.operation_type
        ]
        if all(missed for _, _, missed in near):
            found |= dict.fromkeys(_miss(one, rule, missed) for one, rule, missed in near)
    return tuple(sorted(found, key=lambda miss: len(miss.missed))[:MAX_MISSES])


def _judge_one(
    entry: str, protocol: Protocol, endpoints: Sequence[Endpoint], operation: GraphqlOperation, *, over_get: bool
) -> RuleRef | Denial:
    if not operation.registered:
        return denied(entry, UNKNOWN, code=ReasonCode.PERSISTED_QUERY_UNKNOWN)
    rules = [rule for one in endpoints if one.protocol is protocol for rule in one.rules]
    allowed = _allowing(rules, operation, over_get=over_get)
    deny_rules = (rule for one in endpoints for rule in one.deny_rules)
    fired = next((rule.ref for rule in deny_rules if _fires(rule, operation)), None)
    if allowed is not None and fired is None:
        return allowed
    denial = replace(denied(entry, BLOCKED, fired, ReasonCode.OPERATION_DENIED), operation=_named(operation))
    if allowed is not None or not over_get or operation.type != "mutation":
        return denial
    only_over = _allowing(rules, operation, over_get=False) is not None
    return replace(denial, reason=MUTATION_OVER_GET if only_over else BLOCKED, hard=True)


def _allowing(rules: Sequence[Rule], operation: GraphqlOperation, *, over_get: bool) -> RuleRef | None:
    """The first rule that covers the whole operation."""
    for rule in rules:
        if next(_mismatches(rule, operation, over_get=over_get), None) is None:
            return rule.ref
    return None


def _mismatches(rule: Rule, operation: GraphqlOperation, *, over_get: bool) -> Iterator[Aspect]:
    """What of an operation an allow rule does not cover."""
    if not _covers_type(rule, operation):
        yield Aspect.OPERATION_TYPE
    if not _covers_name(rule, operation):
        yield Aspect.OPERATION_NAME
    if rule.fields:
        globs = _compiled(rule.fields)
        if not operation.fields or not all(globs.match(name) for name in operation.fields):
            yield Aspect.FIELDS
    if rule.over if not over_get else (operation.type == "mutation" and not rule.over):
        yield Aspect.OVER


def _fires(rule: Rule, operation: GraphqlOperation) -> bool:
    """Does a deny rule cover some of the operation?"""
    if not _covers_type(rule, operation) or not _covers_name(rule, operation):
        return False
    return not rule.fields or any(_compiled(rule.fields).match(name) for name in operation.fields)


def _covers_type(rule: Rule, operation: GraphqlOperation) -> bool:
    """False for rules over method and path, which name no type."""
    return rule.operation_type in ("*", operation.type)


def _covers_name(rule: Rule, operation: GraphqlOperation) -> bool:
    return not rule.operation_name or bool(_compiled((rule.operation_name,)).match(operation.name))


@lru_cache(maxsize=4096)
def _compiled(globs: ValueGlobs) -> GlobIndex:
    return GlobIndex([(glob, Dialect.VALUE) for glob in globs])


def _named(operation: GraphqlOperation) -> str:
    """The operation as a person would name it, without arguments: `mutation Close { closeIssue, viewer }`."""
    name = f"{operation.type} {operation.name}".rstrip()
    text = f"{name} {{ {', '.join(operation.fields)} }}"
    return text if len(text) <= _MAX_NAMED else f"{text[: _MAX_NAMED - 1]}…"


def _aspects(
    endpoint: Endpoint, head: RequestHead, rule: Rule, operation: GraphqlOperation, *, over_get: bool
) -> Iterator[Aspect]:
    if not endpoint.covers_path(head.path):
        yield Aspect.ENDPOINT_PATH
    yield from _mismatches(rule, operation, over_get=over_get)


def _miss(endpoint: Endpoint, rule: Rule, missed: tuple[Aspect, ...]) -> Miss:
    wanted = f"operation type {rule.operation_type}"
    if rule.operation_name:
        wanted += f", name {rule.operation_name}"
    if rule.fields:
        wanted += f", fields {', '.join(rule.fields)}"
    if rule.over:
        wanted += f", over {rule.over}"
    if endpoint.path:
        wanted += f" below endpoint path {endpoint.path}"
    return Miss(endpoint.entry, endpoint.index, rule.ref, missed, wanted, rule.ref.location)
