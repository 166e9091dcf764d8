"""Glob dialects of the policy language, turned into linear-time matchers. The only importer of RE2 in this package.

Everything is matched as bytes, so that `?` is one byte and executables with names that are not UTF-8 still match.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import re2  # type: ignore[import-untyped]

from egress.model.errors import LimitExceeded

MAX_PATTERN_LENGTH = 4096
MAX_BRACE_DEPTH = 4

_PLAIN = re.compile(r"[^*?\[\]{}\\,]+")
_BASE_MEMORY = 1 << 18
_MEMORY_PER_PATTERN = 1 << 15
_MAX_MEMORY = 1 << 28


class GlobError(ValueError):
    """The pattern says nothing that could be matched; the message says why."""


class Dialect(Enum):
    """Which bytes `*` and `?` do not cross, and whether a trailing `/**` covers the bare prefix too.

    `PATH`: rule paths and binaries. `COVER`: deny paths and endpoint paths, where `/admin/**` that misses `/admin`
    would be a hole. `VALUE`: query values, tool and operation names; a deny for `delete*` has to catch `delete.all`.
    """

    PATH = ("/", False)
    COVER = ("/", True)
    VALUE = ("", False)

    def __init__(self, separator: str, cover: bool) -> None:
        self.separator = separator
        self.cover = cover


class Wild(Enum):
    """What a pattern holds besides literal characters."""

    ONE = "?"
    RUN = "*"
    ANY_RUN = "**"


@dataclass(frozen=True, slots=True)
class CharacterClass:
    """`[a-z]`, `[!a]`; a negated class can match the separator."""

    negated: bool
    ranges: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """`{a,b}`."""

    options: "tuple[tuple[Token, ...], ...]"


type Token = str | Wild | CharacterClass | Choice


@dataclass(slots=True)
class _Parser:
    text: str
    separator: str
    at: int = 0
    depth: int = 0

    def sequence(self) -> tuple[Token, ...]:
        tokens: list[Token] = []
        while self.at < len(self.text):
            if plain := _PLAIN.match(self.text, self.at):
                tokens.extend(plain[0])
                self.at = plain.end()
                continue
            character = self.text[self.at]
            if self.depth and character in ",}":
                break
            self.at += 1
            tokens.append(self._token(character))
        return tuple(tokens)

    def _token(self, character: str) -> Token:
        match character:
            case "*":
                return self._star()
            case "?":
                return Wild.ONE
            case "[":
                return self._class()
            case "{":
                return self._choice()
            case "\\":
                return self._escaped()
            case "}" | "]":
                raise GlobError(f"`{character}` closes nothing; write `\\{character}` for the character itself")
            case _:
                return character

    def _star(self) -> Wild:
        start = self.at - 1
        while self.text[self.at : self.at + 1] == "*":
            self.at += 1
        before, after = self.text[start - 1 : start], self.text[self.at : self.at + 1]
        alone = before in ("", self.separator) and after in ("", self.separator)
        if self.at - start == 2 and not self.depth and (alone or not self.separator):
            return Wild.ANY_RUN
        return Wild.RUN if self.separator else Wild.ANY_RUN

    def _escaped(self) -> str:
        if self.at == len(self.text):
            raise GlobError("the pattern ends in a lone `\\`")
        self.at += 1
        return self.text[self.at - 1]

    def _class(self) -> CharacterClass:
        end = self.text.find("]", self.at)
        if end < 0:
            raise GlobError("`[` is never closed; write `\\[` for the character itself")
        inside = self.text[self.at : end]
        self.at = end + 1
        negated = inside[:1] in ("!", "^")
        members = inside[1:] if negated else inside
        if not members or not members.isascii() or "\\" in members or "[" in members:
            raise GlobError("a class in `[]` needs plain ASCII characters or ranges")
        return CharacterClass(negated, tuple(_ranges(members)))

    def _choice(self) -> Choice:
        self.depth += 1
        if self.depth > MAX_BRACE_DEPTH:
            raise GlobError(f"braces are nested deeper than {MAX_BRACE_DEPTH}")
        options = [self.sequence()]
        while self.text[self.at : self.at + 1] == ",":
            self.at += 1
            options.append(self.sequence())
        if self.text[self.at : self.at + 1] != "}":
            raise GlobError("`{` is never closed; write `\\{` for the character itself")
        self.at += 1
        self.depth -= 1
        return Choice(tuple(options))


def _ranges(members: str) -> Iterable[tuple[str, str]]:
    at = 0
    while at < len(members):
        low = high = members[at]
        if members[at + 1 : at + 2] == "-" and at + 2 < len(members):
            high = members[at + 2]
            at += 2
        if low > high:
            raise GlobError(f"the range `{low}-{high}` is upside down")
        yield low, high
        at += 1


def parse(pattern: str, dialect: Dialect) -> tuple[Token, ...]:
    """The tokens of a pattern, or `GlobError`."""
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise GlobError(f"the pattern is longer than {MAX_PATTERN_LENGTH} characters")
    return _Parser(pattern, dialect.separator).sequence()


@lru_cache(maxsize=4096)
def translate(pattern: str, dialect: Dialect) -> str:
    """The pattern as a regular expression over bytes (in Latin-1), to be matched against a whole text."""
    if pattern == "**":
        return ".*"
    tokens = parse(pattern, dialect)
    separator = dialect.separator
    if dialect.cover and tokens[-2:] == (separator, Wild.ANY_RUN):
        return f"{_expression(tokens[:-2], separator)}(?:{separator}.*)?"
    return _expression(tokens, separator)


def _expression(tokens: Sequence[Token], separator: str) -> str:
    parts: list[str] = []
    inside = f"[^{separator}]" if separator else "."
    for token in tokens:
        match token:
            case Wild.ONE:
                parts.append(inside)
            case Wild.RUN:
                parts.append(f"{inside}*")
            case Wild.ANY_RUN:
                parts.append(".*")
            case CharacterClass(negated, ranges):
                members = "".join(f"{_literal(low)}-{_literal(high)}" for low, high in ranges)
                parts.append(f"[{'^' if negated else ''}{members}]")
            case Choice(options):
                parts.append(f"(?:{'|'.join(_expression(option, separator) for option in options)})")
            case "/" if separator == "/" and parts and parts[-1] == ".*":
                parts[-1] = "(?:.*/)?"  # `**/` is zero or more whole segments, so its separator goes with it
            case str():
                parts.append(_ESCAPED.get(token) or _literal(token))
    return "".join(parts)


def _literal(text: str) -> str:
    return "".join(_escape(byte) for byte in text.encode("utf-8", "surrogateescape"))


def _escape(byte: int) -> str:
    return chr(byte) if byte < 128 and chr(byte).isalnum() else f"\\x{byte:02x}"


_ESCAPED = {chr(byte): _escape(byte) for byte in range(128)}


def is_literal(pattern: str) -> bool:
    """True when the pattern holds no wildcard of any dialect."""
    return not any(character in pattern for character in "*?[]{}\\")


class PatternSet:
    """Many regular expressions asked at once: one pass over the text, whatever their number.

    RE2 reports running out of memory as "nothing matched", which would let a request slip past a deny rule. A
    pattern that matches everything stands last as the witness that the pass ran to its end.
    """

    __slots__ = ("_set", "_witness")

    def __init__(self, expressions: Sequence[str]) -> None:
        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1
        options.dot_nl = True
        options.log_errors = False
        options.never_capture = True
        options.max_mem = min(_BASE_MEMORY + len(expressions) * _MEMORY_PER_PATTERN, _MAX_MEMORY)
        self._witness = len(expressions)
        self._set = re2.Set.FullMatchSet(options)
        try:
            for expression in (*expressions, ".*"):
                self._set.Add(expression.encode("latin-1"))
            self._set.Compile()
            self.match("")  # the budget is only put to the test by a first pass
        except (re2.error, LimitExceeded):
            raise GlobError("the patterns are too large to match together") from None

    def match(self, text: str) -> list[int]:
        """Indexes of the expressions that match the whole text, in no order."""
        found: list[int] = self._set.Match(text.encode("utf-8", "surrogateescape")) or []
        if self._witness not in found:
            raise LimitExceeded("pattern_memory")
        found.remove(self._witness)
        return found


class GlobIndex:
    """Globs of possibly different dialects, asked together; dialect None is literal text. Paths and executables are
    absolute, so `/**` is all."""

    __slots__ = ("_always", "_ids", "_literals", "_patterns")

    def __init__(self, globs: Sequence[tuple[str, Dialect | None]]) -> None:
        literals: dict[str, list[int]] = {}
        always: list[int] = []
        expressions: dict[int, str] = {}
        for number, (pattern, dialect) in enumerate(globs):
            if dialect is None or is_literal(pattern):
                literals.setdefault(pattern, []).append(number)
            elif matches_everything(pattern, dialect):
                always.append(number)
            else:
                expressions[number] = translate(pattern, dialect)
        self._always = tuple(always)
        self._literals = {text: (*always, *numbers) for text, numbers in literals.items()}
        self._ids = tuple(expressions)
        self._patterns = PatternSet(tuple(expressions.values())) if expressions else None

    def match(self, text: str) -> Sequence[int]:
        """Positions of the globs that match the whole text, in no order."""
        found = self._literals.get(text, self._always)
        if self._patterns is None:
            return found
        ids = self._ids
        return [*found, *(ids[number] for number in self._patterns.match(text))]


def matches_everything(pattern: str, dialect: Dialect) -> bool:
    return pattern in ("**", "/**" if dialect.separator else "*")
