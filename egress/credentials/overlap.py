"""Can two patterns of scopes match the same request, and does one match all that another does? Conservative: a doubt
is a yes to the first and a no to the second."""

from collections.abc import Sequence

from egress.credentials.scope import Scope, Selector
from egress.policy import overlap

_WILD = frozenset("*?[{")


def hosts_meet(one: str, other: str) -> bool:
    return overlap.overlaps([overlap.selector_reading(one)], [overlap.selector_reading(other)], ".")


def paths_meet(one: str, other: str) -> bool:
    return one == other or overlap.overlaps(overlap.path_readings(one), overlap.path_readings(other), "/")


def selectors_meet(one: Selector, other: Selector) -> bool:
    return one.port == other.port and hosts_meet(one.host, other.host) and paths_meet(one.path, other.path)


def host_within(host: str, pattern: str) -> bool:
    """Is every host of `host` one of `pattern`?"""
    name, outer = host.lower().rstrip("."), pattern.lower().rstrip(".")
    return name == outer or overlap.covers([overlap.selector_reading(outer)], [overlap.selector_reading(name)], ".")


def path_within(path: str, pattern: str) -> bool:
    """Is every path of `path` one of `pattern`?"""
    return path == pattern or overlap.covers(overlap.path_readings(pattern), overlap.path_readings(path), "/")


def agents_meet(one: Sequence[str], other: Sequence[str]) -> bool:
    """May one agent have both? Globs of agent names; none is all."""
    return not one or not other or any(_globs_meet(left, right) for left in one for right in other)


def _globs_meet(one: str, other: str) -> bool:
    if _WILD.isdisjoint(one):
        return Scope((), agents=(other,)).serves(one)
    return not _WILD.isdisjoint(other) or Scope((), agents=(one,)).serves(other)
