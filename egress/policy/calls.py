"""Method, tool and argument patterns of one endpoint's RPC rules, asked together."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from egress.policy.globs import Dialect, GlobIndex

_TEXT_BITS = 1024
"""Integers beyond have no text that a glob could be written for."""


class ArgumentMatcher:
    """One named tool argument and what it may be, as globs over the text of its value.

    Texts are those of strings as they are, of numbers in decimal, and `true` or `false`. Some servers find an argument
    under any letter case of its name, so other spellings of `name` count against the caller in both kinds of rule.
    """

    __slots__ = ("_folded", "_values", "name")

    def __init__(self, name: str, globs: Sequence[str]) -> None:
        self.name = name
        self._folded = name.casefold()
        self._values = GlobIndex([(glob, Dialect.VALUE) for glob in globs])

    def accepts(self, arguments: object) -> bool:
        """As an allow rule reads it: the argument is there and matches; of a list, every member does."""
        if not isinstance(arguments, Mapping) or self._spelled(arguments) != [self.name]:
            return False
        value = arguments[self.name]
        members = value if isinstance(value, list) else [value]
        texts = [_text(member) for member in members]
        return bool(texts) and all(text is not None and bool(self._values.match(text)) for text in texts)

    def fires(self, arguments: object) -> bool:
        """As a deny rule reads it: some scalar of the argument matches, however deep it is wrapped."""
        if not isinstance(arguments, Mapping):
            return False
        scalars = (scalar for name in self._spelled(arguments) for scalar in _scalars(arguments[name]))
        return any(text is None or bool(self._values.match(text)) for text in map(_text, scalars))

    def _spelled(self, arguments: Mapping[str, object]) -> list[str]:
        return [name for name in arguments if name.casefold() == self._folded]


@dataclass(frozen=True, slots=True)
class CallPattern:
    """What one rule says of a call. `glob` is None where the method is literal text."""

    method: str
    glob: Dialect | None
    tool: Sequence[str] = ()
    arguments: tuple[ArgumentMatcher, ...] = ()


class CallIndex:
    """The patterns of an endpoint's rules: allow rules first, then deny rules."""

    __slots__ = ("_methods", "_naming", "_owners", "_patterns", "_tools")

    def __init__(self, patterns: Sequence[CallPattern]) -> None:
        self._patterns = tuple(patterns)
        self._methods = GlobIndex([(pattern.method, pattern.glob) for pattern in patterns])
        tools = [(number, glob) for number, pattern in enumerate(patterns) for glob in pattern.tool]
        self._owners = tuple(number for number, _ in tools)
        self._naming = frozenset(self._owners)
        self._tools = GlobIndex([(glob, Dialect.VALUE) for _, glob in tools])

    def match(self, method: str, tool: str | None) -> list[int]:
        """Positions, in order, of the patterns for the method and, where they name tools, for the tool. Arguments are
        not looked at."""
        found = self.covering(method)
        if not self._naming or self._naming.isdisjoint(found):
            return found
        named = set() if tool is None else {self._owners[number] for number in self._tools.match(tool)}
        return [number for number in found if number not in self._naming or number in named]

    def covering(self, method: str) -> list[int]:
        """Positions of the patterns for the method, whatever tools they name."""
        return sorted(self._methods.match(method))

    def arguments(self, number: int) -> tuple[ArgumentMatcher, ...]:
        return self._patterns[number].arguments


def _scalars(value: object) -> Iterator[object]:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, Mapping):
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
        elif item is not None:
            yield item


def _text(value: object) -> str | None:
    """None for what no glob can speak of."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value) if value.bit_length() <= _TEXT_BITS else None
        case float():  # 1.0 and 1 are one number to JSON
            return str(int(value)) if value.is_integer() else repr(value)
        case _:
            return None
