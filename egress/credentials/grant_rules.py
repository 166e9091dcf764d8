"""Which token grant a request falls under: selectors, their scores, and what may not be ambiguous
(token-grants.md sections 2 and 3). Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from egress.credentials.scope import Place, Scope, Selector
from egress.credentials.snapshot import Placement
from egress.sdk.http import TlsOptions

_PATH_WEIGHT = 1_000_000
_HOST_WEIGHT, _STAR_COST, _LABEL_WEIGHT = 100_000, 10_000, 100


@dataclass(frozen=True, slots=True)
class AssertionSpec:
    """Who the proxy says it is. `scheme` is `spiffe`, `file`, `command`, `private_key_jwt` or a plugin's; `fields` is
    its canonical JSON."""

    scheme: str = "spiffe"
    fields: str = "{}"


@dataclass(frozen=True, slots=True)
class GrantSpec:
    """One `token_grant` of one provider instance."""

    provider: str
    credential: str
    token_endpoint: str
    audience: str = ""
    jwt_svid_audience: str = ""
    client_assertion_type: str = ""
    scopes: tuple[str, ...] = ()
    cache_ttl: int = 0
    cache_ttl_trust: bool = False
    grant: str = "client_credentials"
    assertion: AssertionSpec = field(default=AssertionSpec())
    client_id: str = ""
    resource: str = ""
    tls: TlsOptions = field(default=TlsOptions())
    placement: Placement = field(default=Placement("bearer"))
    requested_token_type: str = ""
    base: Path = field(default=Path())
    """The directory that relative paths of the assertion are relative to."""


@dataclass(frozen=True, slots=True)
class GrantChoice:
    """What one request needs: equal choices share a token. `key`: `host<TAB>port<TAB>path<TAB>provider:credential`."""

    key: str
    spec: GrantSpec
    audience: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GrantEntry:
    """One selector of a grant. `scope` holds the further limits of its provider."""

    selector: Selector
    choice: GrantChoice
    scope: Scope
    score: int = field(default=0)


def entry(selector: Selector, spec: GrantSpec, scope: Scope, audience: str, scopes: Sequence[str]) -> GrantEntry:
    """An entry with its key and score; empty audience and scopes are the grant's own."""
    key = f"{selector.host}\t{selector.port}\t{selector.path}\t{spec.provider}:{spec.credential}"
    choice = GrantChoice(key, spec, audience or spec.audience, tuple(scopes) or spec.scopes)
    return GrantEntry(selector, choice, scope, host_score(selector.host) + path_score(selector.path))


def host_score(pattern: str) -> int:
    stars = pattern.count("*")
    literal = len(pattern) - stars
    return max(0, _HOST_WEIGHT - _STAR_COST * stars) + _LABEL_WEIGHT * len(pattern.split(".")) + literal


def path_score(pattern: str) -> int:
    if pattern in ("", "**"):
        return 0
    return _PATH_WEIGHT + len(pattern) - pattern.count("*")


class GrantTable:
    """All selectors of one providers file. The highest score wins, then the greatest key."""

    def __init__(self, entries: Iterable[GrantEntry]) -> None:
        self._entries = sorted(entries, key=lambda one: (one.score, one.choice.key), reverse=True)

    def __bool__(self) -> bool:
        return bool(self._entries)

    @property
    def choices(self) -> tuple[GrantChoice, ...]:
        return tuple(one.choice for one in self._entries)

    def match(self, place: Place) -> GrantChoice | None:
        """The grant whose token a request to this place carries."""
        for one in self._entries:
            if one.selector.covers(place.host, place.port, place.path) and one.scope.admits(place):
                return one.choice
        return None


def ambiguous(entries: Sequence[GrantEntry]) -> list[tuple[GrantEntry, GrantEntry]]:
    """Pairs that one request could fall under with nothing to tell which is meant."""
    return [
        (one, other)
        for index, one in enumerate(entries)
        for other in entries[index + 1 :]
        if one.score == other.score
        and one.choice != other.choice
        and one.selector.port == other.selector.port
        and overlap(one.selector.host, other.selector.host)
        and _paths_overlap(one.selector.path, other.selector.path)
    ]


def overlap(one: str, other: str) -> bool:
    """Can some host match both patterns? Conservative: a doubt is a yes."""
    return _labels_overlap(one.split("."), other.split("."))


def _labels_overlap(one: Sequence[str], other: Sequence[str]) -> bool:
    if not one or not other:
        return not one and not other
    if one[0] == "**":
        return any(_labels_overlap(one[1:], other[count:]) for count in range(1, len(other) + 1))
    if other[0] == "**":
        return any(_labels_overlap(one[count:], other[1:]) for count in range(1, len(one) + 1))
    return _label_overlap(one[0], other[0]) and _labels_overlap(one[1:], other[1:])


def _label_overlap(one: str, other: str) -> bool:
    wild = frozenset("*?[")
    if not wild.intersection(one) and not wild.intersection(other):
        return one == other
    first, second = _ends(one), _ends(other)
    shorter = min(len(first[0]), len(second[0]))
    tail = min(len(first[1]), len(second[1]))
    return first[0][:shorter] == second[0][:shorter] and (not tail or first[1][-tail:] == second[1][-tail:])


def _ends(label: str) -> tuple[str, str]:
    """What stands before the first wildcard and behind the last."""
    places = [index for index, character in enumerate(label) if character in "*?[]"]
    return (label, label) if not places else (label[: places[0]], label[places[-1] + 1 :])


def _paths_overlap(one: str, other: str) -> bool:
    if not one or not other or one == other:
        return True
    first, second = one.split("*", maxsplit=1)[0], other.split("*", maxsplit=1)[0]
    return first.startswith(second) or second.startswith(first) if "*" in one + other else False
