"""Which token grant a request falls under: selectors, their scores, and what may not be ambiguous
(token-grants.md sections 2 and 3). Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from egress.credentials.overlap import agents_meet, selectors_meet
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
    """One selector of a grant: what an endpoint covers, or the part of it that an override names.

    `scope` holds the further limits of the provider. A request has to be inside the endpoint, whatever the override
    says: `within`.
    """

    selector: Selector
    within: Selector
    scope: Scope
    choice: GrantChoice
    score: int

    def covers(self, place: Place) -> bool:
        inside = self.within is self.selector or self.within.covers(place.host, place.port, place.path)
        return inside and self.selector.covers(place.host, place.port, place.path) and self.scope.admits(place)

    @property
    def token(self) -> tuple[GrantSpec, str, tuple[str, ...]]:
        """What is obtained, wherever it is used."""
        return self.choice.spec, self.choice.audience, self.choice.scopes


@dataclass(frozen=True, slots=True)
class Pattern:
    """A selector as it was written: `/**` is every path, and yet more definite than none."""

    host: str
    port: int
    path: str = ""

    @property
    def score(self) -> int:
        return host_score(self.host) + path_score(self.path)

    @property
    def selector(self) -> Selector:
        return Selector.of(self.host, self.port, self.path)


def entry(
    spec: GrantSpec, scope: Scope, endpoint: Pattern, override: Pattern, audience: str = "", scopes: Sequence[str] = ()
) -> GrantEntry:
    """What `override` says of `endpoint`, which may be the same; empty audience and scopes are the grant's own."""
    key = f"{override.host}\t{override.port}\t{override.path}\t{spec.provider}:{spec.credential}"
    choice = GrantChoice(key, spec, audience or spec.audience, tuple(scopes) or spec.scopes)
    selector = override.selector
    within = selector if override == endpoint else endpoint.selector
    return GrantEntry(selector, within, scope, choice, override.score)


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
            if one.covers(place):
                return one.choice
        return None


def ambiguous(entries: Sequence[GrantEntry]) -> list[tuple[GrantEntry, GrantEntry]]:
    """Pairs that one request could fall under with nothing to tell which token is meant."""
    return [
        (one, other)
        for index, one in enumerate(entries)
        for other in entries[index + 1 :]
        if one.score == other.score
        and one.token != other.token
        and agents_meet(one.scope.agents, other.scope.agents)
        and selectors_meet(one.selector, other.selector)
        and selectors_meet(one.within, other.within)
    ]
