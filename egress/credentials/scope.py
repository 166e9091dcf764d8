"""Does this credential reach this request? Hosts, ports and paths, and the further limits of who asks and how
(credentials.md sections 4.1 and 15)."""

import re
from dataclasses import dataclass, field

from egress.credentials.placeholder import SHOWN
from egress.model.address import parse_host
from egress.policy.globs import Dialect, GlobIndex, PatternSet

_ANY_PATH = frozenset(("", "**", "/**"))
_WILD = frozenset("*?[")
_LABEL = re.compile(r"(?:[a-z0-9_*?-]|\[!?(?:[a-z]-[a-z]|[0-9]-[0-9]|[a-z0-9])+\])+\Z")
_RANGE = re.compile(r"(.)-(.)")
_CLASS = re.compile(r"\\\[(!?[a-z0-9\\-]+)\\\]")


@dataclass(frozen=True, slots=True)
class Place:
    """One request as scopes see it: host in lower case without trailing dot, canonical path with `[CREDENTIAL]` for
    placeholders and without query, executables of the owner and its ancestors."""

    host: str
    port: int
    path: str
    method: str
    agent: str
    binaries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Selector:
    """A host pattern, a port and a path pattern; an empty path is every path."""

    host: str
    port: int
    path: str = ""
    _host: PatternSet | None = field(default=None, compare=False, repr=False)
    _path: GlobIndex | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def of(host: str, port: int, path: str = "") -> "Selector":
        """Raises `ValueError` for what is no pattern."""
        name = host.strip().lower().rstrip(".")
        if not 1 <= port <= 65535:
            raise ValueError(f"{port} is no port")
        compiled = None
        if not _WILD.isdisjoint(name) and ":" not in name:
            compiled = PatternSet([r"\.".join([_label(label, name) for label in name.split(".")])])
        else:
            name = parse_host(name).name
        plain = path.strip()
        if plain in _ANY_PATH:
            return Selector(name, port, "", compiled)
        # The word for a placeholder is no class of characters.
        glob = plain.replace(SHOWN, rf"\[{SHOWN[1:-1]}\]")
        return Selector(name, port, plain, compiled, GlobIndex([(glob, Dialect.COVER)]))

    def covers_authority(self, host: str, port: int) -> bool:
        if port != self.port:
            return False
        if self._host is None:
            return host == self.host
        return not _is_literal(host) and bool(self._host.match(host))

    def covers(self, host: str, port: int, path: str) -> bool:
        if not self.covers_authority(host, port):
            return False
        return self._path is None or path == self.path or bool(self._path.match(path))


def _is_literal(host: str) -> bool:
    """Wildcards stand for names; an address has to be written out."""
    return ":" in host or host.rpartition(".")[2].isdigit()


def _label(label: str, name: str) -> str:
    """One label of a host pattern as a regular expression; a label is never empty."""
    if not _LABEL.match(label) or ("**" in label and label != "**"):
        raise ValueError(f"`{name}` is no host pattern")
    if label == "**":
        return r"[^.]+(?:\.[^.]+)*"
    if label == "*":
        return "[^.]+"
    return _CLASS.sub(_class, re.escape(label).replace(r"\*", "[^.]*").replace(r"\?", "[^.]"))


def _class(match: "re.Match[str]") -> str:
    """The characters between brackets; a negated class holds no dot either."""
    inside = match[1].replace(r"\-", "-")
    if any(low > high for low, high in _RANGE.findall(inside)):
        raise ValueError("a range in `[]` is upside down")
    return f"[^{inside[1:]}.]" if inside.startswith("!") else f"[{inside}]"


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a credential may be used, and by whom. Empty limits leave everything to the selectors."""

    selectors: tuple[Selector, ...]
    binaries: tuple[str, ...] = ()
    methods: frozenset[str] = frozenset()
    agents: tuple[str, ...] = ()
    _binaries: GlobIndex | None = field(default=None, compare=False, repr=False)
    _agents: GlobIndex | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.binaries:
            index = GlobIndex([(glob, Dialect.PATH) for glob in self.binaries])
            object.__setattr__(self, "_binaries", index)
        if self.agents:
            object.__setattr__(self, "_agents", GlobIndex([(glob, Dialect.VALUE) for glob in self.agents]))

    def reaches(self, place: Place) -> bool:
        """Every part must agree."""
        return any(selector.covers(place.host, place.port, place.path) for selector in self.selectors) and self.admits(
            place
        )

    def admits(self, place: Place) -> bool:
        """The limits beside the destination: method, agent, executable."""
        return (
            (not self.methods or place.method in self.methods)
            and self.serves(place.agent)
            and (self._binaries is None or any(self._binaries.match(binary) for binary in place.binaries))
        )

    def serves(self, agent: str) -> bool:
        """Is the agent one of those that the provider is attached to?"""
        return self._agents is None or bool(self._agents.match(agent))
