"""Method, path and query of one request against the rules of endpoints."""

from collections.abc import Iterator, Sequence

from egress.http.query import decode_query
from egress.model.message import Malformed
from egress.model.verdict import DenialCode
from egress.policy.compiled import Endpoint, Protocol, QueryPairs, Rule

_HTTP_RULES = frozenset((Protocol.REST, Protocol.WEBSOCKET))


class RestCall:
    """One request as REST rules see it. The query is decoded when a rule asks for it."""

    __slots__ = ("_pairs", "_wider", "method", "path", "query")

    def __init__(self, method: str, path: str, query: str | None) -> None:
        self.method = method.upper()  # rules compare without case
        self.path = path
        self.query = query
        self._pairs: QueryPairs | None = None
        self._wider: QueryPairs | None = None

    def fault(self) -> Malformed | None:
        """What is wrong with the query. Without an escape nothing can be."""
        if self.query is None or "%" not in self.query:
            return None
        if "%00" in self.query:
            return Malformed("query holds an encoded NUL", DenialCode.INVALID_REQUEST_TARGET)
        decoded = decode_query(self.query, separators="&;")
        return decoded if isinstance(decoded, Malformed) else None

    @property
    def pairs(self) -> QueryPairs:
        """The query as allow rules read it."""
        if self._pairs is None:
            self._pairs = _decoded(self.query, "&")
        return self._pairs

    @property
    def wider_pairs(self) -> QueryPairs:
        """The query as deny rules read it: some servers split at `;` too, so both readings count."""
        if self._wider is None:
            split = ";" in (self.query or "")
            self._wider = (*self.pairs, *_decoded(self.query, "&;")) if split else self.pairs
        return self._wider


class RuleSearch:
    """The rules of several endpoints whose method and path match one call; each endpoint's set is asked once."""

    __slots__ = ("_call", "_matches")

    def __init__(self, endpoints: Sequence[Endpoint], call: RestCall) -> None:
        self._call = call
        self._matches = [
            (endpoint, sorted(endpoint.matchers.paths.match(call.path)))
            for endpoint in endpoints
            if endpoint.protocol in _HTTP_RULES and endpoint.covers_path(call.path)
        ]

    def denying(self) -> Rule | None:
        """The first deny rule that fires, whichever HTTP endpoint holds it."""
        call = self._call
        for endpoint, numbers in self._matches:
            for rule in self._rules(numbers, endpoint.deny_rules, len(endpoint.rules)):
                if all(matcher.fires(call.wider_pairs) for matcher in rule.query):
                    return rule
        return None

    def allowing(self, protocol: Protocol) -> Rule | None:
        """The first allow rule that matches, among endpoints of the given protocol."""
        call = self._call
        for endpoint, numbers in self._matches:
            if endpoint.protocol is not protocol:
                continue
            for rule in self._rules(numbers, endpoint.rules, 0):
                if all(matcher.accepts(call.pairs) for matcher in rule.query):
                    return rule
        return None

    def _rules(self, numbers: Sequence[int], rules: Sequence[Rule], offset: int) -> Iterator[Rule]:
        for number in numbers:
            if 0 <= number - offset < len(rules) and rules[number - offset].covers_method(self._call.method):
                yield rules[number - offset]


def _decoded(query: str | None, separators: str) -> QueryPairs:
    decoded = decode_query(query, separators=separators)
    return () if isinstance(decoded, Malformed) else decoded  # `fault` is asked first
