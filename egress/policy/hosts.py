"""Host patterns of endpoints and host selectors of middleware: which are acceptable, and what they match.

Pattern and host are compared in A-label form, lower case, without a trailing dot. Wildcards never match IP literals.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from egress.model.address import Host, InvalidAddress, parse_host
from egress.policy.globs import PatternSet

RESERVED_HOSTS = frozenset(("inference.local", "policy.local", "gateway.local"))
"""Answered by the proxy itself; policy can't shadow them."""

_LABEL = re.compile(r"[a-z0-9_*-]{1,63}\Z")
_SELECTOR_LABEL = re.compile(r"(?:[a-z0-9_*?-]|\[!?[a-z0-9-]+\]){1,63}\Z")
# IDNA 2003 and 2008 turn these into different names, so a pattern with one of them could mean two hosts.
_AMBIGUOUS_CHARACTERS = frozenset("\u00df\u03c2\u200c\u200d")
_LITERAL_TAIL = 2


class HostPatternError(ValueError):
    """The pattern is refused; the message says why, the second line what to write instead."""


@dataclass(frozen=True, slots=True)
class HostPattern:
    """`text` is canonical. `literal` as in `Host`. A wildcard pattern has `*` in its text."""

    text: str
    literal: bool = False

    @property
    def wildcard(self) -> bool:
        return "*" in self.text

    @property
    def tail(self) -> str:
        """The last two labels. They are always literal, so patterns with different tails never overlap."""
        return ".".join(self.text.split(".")[-_LITERAL_TAIL:])

    @property
    def expression(self) -> str:
        """The regular expression of a wildcard pattern."""
        return r"\.".join(
            ".+" if label == "**" else re.escape(label).replace(r"\*", "[^.]*") for label in self.text.split(".")
        )


def parse_host_pattern(text: str) -> HostPattern:
    """Read the `host` of an endpoint, or raise `HostPatternError`."""
    name = _a_labels(text)
    if "*" not in name:
        return _exact(name)
    if any(character in name for character in "?[]{}"):
        raise HostPatternError("only `*` and `**` are wildcards in a host")
    labels = name.removesuffix(".").split(".")
    if len(labels) <= _LITERAL_TAIL:
        hint = "write the domain out, as in `*.example.com`"
        raise HostPatternError(f"a wildcard this wide would match a whole top-level domain or everything\n{hint}")
    if any("*" in label for label in labels[-_LITERAL_TAIL:]):
        raise HostPatternError("the last two labels of a host must be literal\nwrite the domain out")
    if any("**" in label and (position or label != "**") for position, label in enumerate(labels)):
        raise HostPatternError("`**` may only stand for whole labels at the front\nwrite `**.example.com`")
    if any("*" in label and label != "*" for label in labels[1:]):
        raise HostPatternError("a `*` inside a label may only stand in the first label\nwrite `*-eu.example.com`")
    if not all(_LABEL.match(label) for label in labels):
        raise HostPatternError("not a host pattern\nwrite a name such as `*.example.com`, without scheme, port or path")
    return HostPattern(".".join(labels))


def parse_host_selector(text: str) -> str:
    """Read one pattern of a middleware's `include` or `exclude` in canonical spelling, or raise `HostPatternError`."""
    name = _a_labels(text)
    if not name:
        raise HostPatternError("a host selector must not be empty")
    labels = name.split(".")
    if any("**" in label and label != "**" for label in labels):
        raise HostPatternError("`**` stands for whole labels; use `*` inside a label")
    if not all(_SELECTOR_LABEL.match(label) for label in labels):
        raise HostPatternError("not a host selector\nwrite a name such as `*.example.com`, without blanks or braces")
    return name


def _exact(name: str) -> HostPattern:
    if any(character in name for character in "/?#@") or (name.count(":") == 1 and not name.startswith("[")):
        raise HostPatternError("a host has no scheme, port or path\nwrite the bare name, and the port under `port`")
    try:
        host = parse_host(name)
    except InvalidAddress as error:
        raise HostPatternError(str(error)) from None
    return HostPattern(host.name, literal=host.literal)


def _a_labels(text: str) -> str:
    if text != text.strip():
        raise HostPatternError("a host has no blanks around it")
    if text.isascii():
        return text.lower()
    if _AMBIGUOUS_CHARACTERS.intersection(text):
        raise HostPatternError("this international name has two readings\nwrite its `xn--` form")
    try:
        return ".".join(label.encode("idna").decode("ascii") for label in text.split(".")).lower()
    except UnicodeError:
        raise HostPatternError("not an international name\nwrite its `xn--` form") from None


class HostTable[Item]:
    """Items by host pattern, for one port: exact names in a dictionary, wildcards in one set, the hostless last."""

    __slots__ = ("_exact", "_hostless", "_patterns", "_wildcard_items")

    def __init__(self, items: Sequence[tuple[HostPattern | None, Item]]) -> None:
        exact: dict[str, list[Item]] = {}
        wildcards: dict[str, list[Item]] = {}
        for pattern, item in items:
            if pattern is not None and pattern.wildcard:
                wildcards.setdefault(pattern.expression, []).append(item)
            elif pattern is not None:
                exact.setdefault(pattern.text, []).append(item)
        self._exact = {name: tuple(found) for name, found in exact.items()}
        self._wildcard_items = tuple(tuple(found) for found in wildcards.values())
        self._patterns = PatternSet(tuple(wildcards)) if wildcards else None
        self._hostless = tuple(item for pattern, item in items if pattern is None)

    def named(self, host: Host) -> list[Item]:
        """Items whose pattern names the host."""
        found = list(self._exact.get(host.name, ()))
        return found if host.literal else [*found, *self.covering(host.name)]

    def covering(self, name: str) -> list[Item]:
        """Items whose wildcard pattern matches the name."""
        if self._patterns is None:
            return []
        return [item for number in self._patterns.match(name) for item in self._wildcard_items[number]]

    def lookup(self, host: Host) -> list[Item]:
        """Items whose pattern names the host, and those without one."""
        return [*self.named(host), *self._hostless]
