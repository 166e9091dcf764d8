"""Method, path and query of one request against the rules of endpoints."""

from collections.abc import Sequence

from egress.http.query import QueryPairs, decode_query
from egress.model.message import Malformed
from egress.policy.compiled import Endpoint, Protocol, QueryMatcher, Rule

_HTTP_RULES = frozenset((Protocol.REST, Protocol.WEBSOCKET))


def denying_rule(endpoints: Sequence[Endpoint], method: str, path: str, pairs: QueryPairs) -> Rule | None:
    """The first deny rule that fires, whichever HTTP endpoint holds it."""
    for endpoint in endpoints:
        rules = endpoint.deny_rules
        if not rules or endpoint.protocol not in _HTTP_RULES or not endpoint.covers_path(path):
            continue
        offset = len(endpoint.rules)
        for number in endpoint.matchers.paths.match(path):
            rule = rules[number - offset] if number >= offset else None
            if rule is not None and rule.covers_method(method) and _fires(rule.query, pairs):
                return rule
    return None


def allowing_rule(
    endpoints: Sequence[Endpoint], protocol: Protocol, method: str, path: str, pairs: QueryPairs
) -> Rule | None:
    """The first allow rule that matches, among endpoints of the selected endpoint's protocol."""
    for endpoint in endpoints:
        if endpoint.protocol is not protocol or not endpoint.covers_path(path):
            continue
        rules = endpoint.rules
        for number in sorted(endpoint.matchers.paths.match(path)):
            if number < len(rules) and rules[number].covers_method(method) and _accepts(rules[number].query, pairs):
                return rules[number]
    return None


def read_queries(query: str | None) -> tuple[QueryPairs, QueryPairs] | Malformed:
    """The query as allow rules read it, and as deny rules do: some servers split at `;` too."""
    pairs = decode_query(query)
    if isinstance(pairs, Malformed):
        return pairs
    if query is None or ";" not in query:
        return pairs, pairs
    wider = decode_query(query, separators="&;")
    return wider if isinstance(wider, Malformed) else (pairs, (*pairs, *wider))


def _accepts(matchers: Sequence[QueryMatcher], pairs: QueryPairs) -> bool:
    """Every named key is there, and all of its values match."""
    for matcher in matchers:
        values = [value for name, value in pairs if name == matcher.name]
        if not values or not all(matcher.values.match(value) for value in values):
            return False
    return True


def _fires(matchers: Sequence[QueryMatcher], pairs: QueryPairs) -> bool:
    """Every named key has some value that matches."""
    return all(any(name == matcher.name and matcher.values.match(value) for name, value in pairs)
               for matcher in matchers)  # fmt: skip
