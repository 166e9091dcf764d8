"""RPC calls against the rules of endpoints: all of them deny, those of the judged protocol allow, deny wins."""

from collections.abc import Iterator

from egress.l7.denials import denied, soften
from egress.model.message import RequestHead
from egress.model.operation import RpcCall, RpcMessages
from egress.model.verdict import Allow, Denial, ReasonCode, Verdict
from egress.policy.authorization import Authorization
from egress.policy.calls import ArgumentMatcher
from egress.policy.compiled import Endpoint, Protocol, Rule
from egress.policy.explain import MAX_MISSES, Aspect, Miss
from egress.policy.wording import printable

TOOL_CALL = "tools/call"
MAX_SHOWN_OPERATION = 200
_RPC = frozenset((Protocol.JSON_RPC, Protocol.MCP))

type _Found = tuple[Rule, tuple[ArgumentMatcher, ...]]


class CallRules:
    """The rules that bind calls to one path of a destination, as the owner of the path reads them."""

    __slots__ = ("_endpoints", "_protocol")

    def __init__(self, authorization: Authorization, endpoint: Endpoint, path: str) -> None:
        self._protocol = endpoint.protocol
        self._endpoints = [
            one
            for one in authorization.endpoints
            if one.protocol in _RPC and (one is endpoint or one.covers_path(path))
        ]

    def denying(self, call: RpcCall) -> Rule | None:
        """The first deny rule that fires, whichever RPC endpoint holds it."""
        for endpoint in self._endpoints:
            for rule, matchers in _deny_rules(endpoint, call.method, call.tool):
                if all(matcher.fires(call.arguments) for matcher in matchers):
                    return rule
        return None

    def allowing(self, call: RpcCall) -> Allow | None:
        """The first allow rule that matches; without a rule where the profile of an endpoint allows the method."""
        for endpoint in self._endpoints:
            if endpoint.protocol is not self._protocol:
                continue
            for rule, matchers in _allow_rules(endpoint, call.method, call.tool):
                if all(matcher.accepts(call.arguments) for matcher in matchers):
                    return Allow(rule.ref)
            if _profile_allows(endpoint, call.method):
                return Allow()
        return None

    def reachable(self, method: str, tool: str | None) -> bool:
        """Could some call of the method and tool pass, given the right arguments?"""
        for endpoint in self._endpoints:
            if any(not matchers for _, matchers in _deny_rules(endpoint, method, tool)):
                return False
        return any(
            endpoint.protocol is self._protocol
            and (_profile_allows(endpoint, method) or any(True for _ in _allow_rules(endpoint, method, tool)))
            for endpoint in self._endpoints
        )

    def open(self, method: str) -> bool:
        """Could some call of the method pass whatever tool it names, given the right arguments?"""
        return self.reachable(method, None) and not any(
            number >= len(endpoint.rules) and not endpoint.matchers.calls.arguments(number)
            for endpoint in self._endpoints
            for number in endpoint.matchers.calls.covering(method)
        )


def judge_calls(authorization: Authorization, endpoint: Endpoint, head: RequestHead, messages: RpcMessages) -> Verdict:
    """Each call on its own; one that is denied denies the whole request. Only POST carries calls."""
    entry = authorization.entry
    where = f"{head.method} {head.path}"
    if head.method != "POST":
        return soften(endpoint, denied(entry, f"{where} not permitted by policy"))
    rules = CallRules(authorization, endpoint, head.path)
    verdict: Allow | None = None
    for call in messages.calls:
        answer = _judge_call(rules, entry, where, call)
        if isinstance(answer, Denial):
            return soften(endpoint, answer)
        verdict = verdict or answer
    return verdict or Allow()


def _judge_call(rules: CallRules, entry: str, where: str, call: RpcCall) -> Allow | Denial:
    if rule := rules.denying(call):
        return denied(entry, f"{where} blocked by deny rule", rule.ref, operation=operation_name(call))
    if allow := rules.allowing(call):
        return allow
    code = ReasonCode.OPERATION_DENIED if call.tool is None else ReasonCode.TOOL_DENIED
    return denied(entry, f"{where} not permitted by policy", code=code, operation=operation_name(call))


def misses(
    authorization: Authorization, endpoint: Endpoint, head: RequestHead, messages: RpcMessages
) -> tuple[Miss, ...]:
    """Allow rules that come closest to the first call that none allows: those that miss the fewest aspects first, and
    among equals those for its method."""
    rules = CallRules(authorization, endpoint, head.path)
    refused = next((call for call in messages.calls if rules.allowing(call) is None), None)
    if refused is None:
        return ()
    found = [
        _miss(one, rule, missed)
        for one in authorization.endpoints
        if one.protocol is endpoint.protocol
        for number, rule in enumerate(one.rules)
        if (missed := tuple(_mismatches(one, number, head, refused)))
    ]
    return tuple(sorted(found, key=lambda miss: (len(miss.missed), Aspect.METHOD in miss.missed))[:MAX_MISSES])


def operation_name(call: RpcCall) -> str:
    """Method and tool, as they may stand in a reply or event."""
    name = call.method if call.tool is None else f"{call.method} {call.tool}"
    return printable(name[:MAX_SHOWN_OPERATION])


def _allow_rules(endpoint: Endpoint, method: str, tool: str | None) -> Iterator[_Found]:
    calls = endpoint.matchers.calls
    count = len(endpoint.rules)
    for number in calls.match(method, tool):
        if number < count:
            yield endpoint.rules[number], calls.arguments(number)


def _deny_rules(endpoint: Endpoint, method: str, tool: str | None) -> Iterator[_Found]:
    calls = endpoint.matchers.calls
    count = len(endpoint.rules)
    for number in calls.match(method, tool):
        if number >= count:
            yield endpoint.deny_rules[number - count], calls.arguments(number)


def _mismatches(endpoint: Endpoint, number: int, head: RequestHead, call: RpcCall) -> Iterator[Aspect]:
    calls = endpoint.matchers.calls
    if not endpoint.covers_path(head.path):
        yield Aspect.ENDPOINT_PATH
    if number not in calls.covering(call.method):
        yield Aspect.METHOD
    elif number not in calls.match(call.method, call.tool):
        yield Aspect.TOOL
    if not all(matcher.accepts(call.arguments) for matcher in calls.arguments(number)):
        yield Aspect.ARGUMENTS


def _miss(endpoint: Endpoint, rule: Rule, missed: tuple[Aspect, ...]) -> Miss:
    wanted = f"method {rule.method}"
    if rule.tool:
        wanted += f", tool {' or '.join(rule.tool)}"
    if rule.arguments:
        wanted += f", arguments {', '.join(name for name, _ in rule.arguments)}"
    if endpoint.path:
        wanted += f" below endpoint path {endpoint.path}"
    return Miss(endpoint.entry, endpoint.index, rule.ref, missed, wanted, rule.ref.location)


def _profile_allows(endpoint: Endpoint, method: str) -> bool:
    """The profile admits every method, but tools only where no allow rule names tools."""
    if not endpoint.mcp.allow_all_known_methods:
        return False
    return method != TOOL_CALL or not any(rule.tool or rule.arguments for rule in endpoint.rules)
