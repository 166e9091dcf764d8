"""Does this credential reach this request? Hosts, ports and paths, and the further limits of who asks and how
(credentials.md sections 4.1 and 15)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from egress.policy.globs import Dialect, GlobError, GlobIndex

_ANY_PATH = frozenset(("", "**", "/**"))
_LABEL = re.compile(r"(?:[a-z0-9_*?-]|\[!?[a-z0-9-]+\])+\Z")


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
    _host: "re.Pattern[str] | None" = field(default=None, compare=False, repr=False)
    _path: GlobIndex | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def of(host: str, port: int, path: str = "") -> "Selector":
        """Raises `ValueError` for what is no pattern."""
        name = host.strip().lower().rstrip(".")
        if not 1 <= port <= 65535:
            raise ValueError(f"{port} is no port")
        compiled = None
        if any(character in name for character in "*?["):
            compiled = re.compile(r"\.".join(_label(label) for label in _labels(name)) + r"\Z")
        elif not name:
            raise ValueError("the host is empty")
        plain = path.strip()
        if plain in _ANY_PATH:
            return Selector(name, port, "", compiled)
        try:
            return Selector(name, port, plain, compiled, GlobIndex([(plain, Dialect.COVER)]))
        except GlobError as error:
            raise ValueError(str(error)) from error

    def covers_authority(self, host: str, port: int) -> bool:
        if port != self.port:
            return False
        return self._host.match(host) is not None if self._host is not None else host == self.host

    def covers(self, host: str, port: int, path: str) -> bool:
        if not self.covers_authority(host, port):
            return False
        return self._path is None or path == self.path or bool(self._path.match(path))


def _labels(name: str) -> Iterable[str]:
    for label in name.split("."):
        if not _LABEL.match(label):
            raise ValueError(f"`{name}` is no host pattern")
        yield label


def _label(label: str) -> str:
    if label == "**":
        return r"[^.]+(?:\.[^.]+)*"
    text, index = "", 0
    while index < len(label):
        character = label[index]
        if character == "[":
            end = label.index("]", index)
            inside = label[index + 1 : end]
            text += f"[^{re.escape(inside[1:])}.]" if inside.startswith("!") else f"[{inside}]"
            index = end
        else:
            text += {"*": "[^.]*", "?": "[^.]"}.get(character, re.escape(character))
        index += 1
    return f"(?=[^.]){text}"


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
