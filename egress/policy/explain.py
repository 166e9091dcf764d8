"""Why nothing matched: the entries and rules that came closest, and what kept each of them from matching.

For people, not for decisions: nothing here is asked while a request is judged.
"""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from egress.model.address import Host
from egress.model.intent import EgressIntent
from egress.model.process import Evidence, ProcessEvidence
from egress.model.verdict import RuleRef
from egress.policy.authorize import admits, caller_of, endpoints_for
from egress.policy.compiled import CompiledPolicy, Endpoint, Entry, QueryPairs, Rule
from egress.policy.wording import printable

MAX_MISSES = 5
MAX_COMPARED_HOSTS = 2000
_NEAR = 0.75


class Aspect(StrEnum):
    """What of a connection or request did not fit."""

    HOST = "host"
    PORT = "port"
    BINARY = "binary"
    ENDPOINT_PATH = "endpoint_path"
    METHOD = "method"
    PATH = "path"
    QUERY = "query"
    OPERATION_TYPE = "operation_type"
    OPERATION_NAME = "operation_name"
    FIELDS = "fields"
    OVER = "over"
    TOOL = "tool"
    ARGUMENTS = "arguments"


@dataclass(frozen=True, slots=True)
class Miss:
    """One endpoint or rule that nearly matched. `missed` lists every aspect that did not fit, `wanted` what it lists.

    `location` is where it stands in the document.
    """

    entry: str
    endpoint: int
    rule: RuleRef | None
    missed: tuple[Aspect, ...]
    wanted: str
    location: str

    def __str__(self) -> str:
        aspects = " and ".join(aspect.replace("_", " ") for aspect in self.missed)
        name = self.rule.id if self.rule is not None else f"{self.entry}/endpoints[{self.endpoint}]"
        return f"{name} ({self.location}) misses by {aspects}: it lists {self.wanted}"


def nearest_miss(policy: CompiledPolicy, intent: EgressIntent, evidence: Evidence) -> tuple[Miss, ...]:
    """Endpoints that would have admitted the connection but for one aspect: binary, else port, else host."""
    host, port = intent.origin.host, intent.origin.port
    caller = caller_of(evidence)
    listed = endpoints_for(policy, host, port)
    if listed:
        refused = [endpoint for endpoint in listed if not admits(policy, policy.entries[endpoint.entry], caller)]
        return _bounded(_by_binary(endpoint, policy.entries[endpoint.entry], evidence) for endpoint in refused)
    if elsewhere := policy.hosts.named(host):
        return _bounded(_by_port(endpoint) for endpoint in elsewhere)
    return _bounded(_by_host(endpoint) for endpoint in _alike(policy, host))


def nearest_rules(endpoints: Sequence[Endpoint], method: str, path: str, pairs: QueryPairs) -> tuple[Miss, ...]:
    """Allow rules that come closest to a request, those that miss the fewest aspects first."""
    misses = [
        miss for endpoint in endpoints if endpoint.inspected for miss in _rule_misses(endpoint, method, path, pairs)
    ]
    return tuple(sorted(misses, key=lambda miss: len(miss.missed))[:MAX_MISSES])


def _rule_misses(endpoint: Endpoint, method: str, path: str, pairs: QueryPairs) -> Iterable[Miss]:
    covered = endpoint.covers_path(path)
    matching = set(endpoint.matchers.paths.match(path))
    for number, rule in enumerate(endpoint.rules):
        checks = (
            (Aspect.ENDPOINT_PATH, covered),
            (Aspect.METHOD, rule.covers_method(method.upper())),
            (Aspect.PATH, number in matching),
            (Aspect.QUERY, all(matcher.accepts(pairs) for matcher in rule.query)),
        )
        missed = tuple(aspect for aspect, fits in checks if not fits)
        if missed:
            yield Miss(endpoint.entry, endpoint.index, rule.ref, missed, _described(endpoint, rule), rule.ref.location)


def _described(endpoint: Endpoint, rule: Rule) -> str:
    text = f"{rule.method} {rule.path}".strip() or str(endpoint.protocol)
    if rule.query:
        text += f" with query {', '.join(matcher.name for matcher in rule.query)}"
    return f"{text} below endpoint path {endpoint.path}" if endpoint.path else text


def _by_binary(endpoint: Endpoint, entry: Entry, evidence: Evidence) -> Miss:
    listed = ", ".join(binary.path for binary in entry.binaries) or "no binaries"
    if isinstance(evidence, ProcessEvidence) and any(binary.sha256 for binary in entry.binaries):
        listed += f" (pinned by sha256; the caller is {printable(evidence.executable)})"
    return Miss(entry.key, endpoint.index, None, (Aspect.BINARY,), listed, entry.location)


def _by_port(endpoint: Endpoint) -> Miss:
    ports = ", ".join(str(port) for port in endpoint.ports)
    return Miss(endpoint.entry, endpoint.index, None, (Aspect.PORT,), f"port {ports}", endpoint.location)


def _by_host(endpoint: Endpoint) -> Miss:
    return Miss(endpoint.entry, endpoint.index, None, (Aspect.HOST,), f"host {endpoint.host}", endpoint.location)


def _alike(policy: CompiledPolicy, host: Host) -> list[Endpoint]:
    """Endpoints whose host looks like the one asked for: a parent or child of it, or spelled nearly the same."""
    by_host: dict[str, Endpoint] = {}
    for entry in policy.entries.values():
        for endpoint in entry.endpoints:
            if endpoint.host:
                by_host.setdefault(endpoint.host, endpoint)
    name = host.name
    related = [text for text in by_host if _related(text.lstrip("*").lstrip("."), name)]
    similar = difflib.get_close_matches(name, list(by_host)[:MAX_COMPARED_HOSTS], n=MAX_MISSES, cutoff=_NEAR)
    return [by_host[text] for text in dict.fromkeys((*similar, *related))]


def _related(pattern: str, name: str) -> bool:
    return bool(pattern) and (pattern == name or name.endswith(f".{pattern}") or pattern.endswith(f".{name}"))


def _bounded(misses: Iterable[Miss]) -> tuple[Miss, ...]:
    return tuple(miss for miss, _ in zip(misses, range(MAX_MISSES), strict=False))
