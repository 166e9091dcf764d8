"""Strict YAML 1.2 reader over libyaml's events: one document, no duplicate keys, no anchors, aliases or tags.

libyaml resolves scalars by YAML 1.1 (`no` is false, `22:30` is 1350), so the core schema is applied here.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml as libyaml

from egress.documents.diagnostic import Diagnostic, error
from egress.documents.location import KeyPath, Location, Position, SourceMap, Spot, line_of, position

MAX_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 64
MAX_NUMBER_LENGTH = 40
MAX_KEY_LENGTH = 1024

_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER_START = frozenset("+-.0123456789")
_INTEGER = re.compile(r"[-+]?[0-9]+\Z", re.ASCII)
_BASED = re.compile(r"0(?:o[0-7]+|x[0-9a-fA-F]+)\Z", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data (dict, list, str, int, float, bool, None) that remembers where each value stood."""

    name: str
    data: Any
    source: SourceMap

    def locate(self, path: KeyPath) -> Location:
        """Where the value at `path` begins, or the nearest value around it."""
        return self.source.value(path)

    def locate_key(self, path: KeyPath) -> Location:
        """Where the key of the value at `path` begins."""
        return self.source.key(path)

    def part(self, path: KeyPath) -> "Document":
        """What stands at `path`, as a document that remembers the same places."""
        data = self.data
        for step in path:
            data = data[step]
        return Document(self.name, data, self.source.part(path))


def read(text: bytes, name: str) -> Document | tuple[Diagnostic, ...]:
    """Read one document; `name` is the file name used in locations. On failure: every problem that was found."""
    if len(text) > MAX_BYTES:
        return (error(Location(name), f"the document is larger than {MAX_BYTES} bytes"),)
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as failure:
        line = text.count(b"\n", 0, failure.start) + 1
        return (error(Location(name, line, 1), "the document is not UTF-8"),)
    reader = _Reader(name, libyaml.CLoader(text))
    try:
        document = reader.document()
    except libyaml.YAMLError as failure:
        return (*reader.problems, _syntax(name, failure))
    except _TooDeep as failure:
        return (*reader.problems, error(failure.location, f"nested deeper than {MAX_DEPTH} levels"))
    return tuple(reader.problems) if reader.problems else document


def _syntax(name: str, failure: libyaml.YAMLError) -> Diagnostic:
    mark = getattr(failure, "problem_mark", None)
    problem = getattr(failure, "problem", None) or getattr(failure, "reason", None) or "unreadable"
    location = Location(name, mark.line + 1, mark.column + 1) if mark else Location(name)
    return error(location, f"not valid YAML: {problem}")


class _TooDeep(Exception):
    def __init__(self, location: Location) -> None:
        super().__init__(str(location))
        self.location = location


@dataclass(slots=True)
class _Reader:
    """One pass over the events, building data and spots side by side."""

    name: str
    parser: Any
    problems: list[Diagnostic] = field(default_factory=list)
    next_event: Callable[[], Any] = field(init=False)

    def __post_init__(self) -> None:
        self.next_event = self.parser.get_event

    def document(self) -> Document:
        self.next_event()  # stream start
        nothing = Document(self.name, None, SourceMap(self.name, Spot(0)))
        if isinstance(self.next_event(), libyaml.StreamEndEvent):
            self._problem(None, "the document is empty")
            return nothing
        top = self.next_event()
        data, root = self._value(top, 1)
        if data is None and not self.problems:
            self._problem(None, "the document is empty")
        self.next_event()  # document end
        last = self.next_event()
        if not isinstance(last, libyaml.StreamEndEvent):
            self._problem(last, "a second document starts here", "keep one document per file")
        spot = root if isinstance(root, Spot) else Spot(root)
        return Document(self.name, data, SourceMap(self.name, spot))

    def _value(self, event: Any, depth: int) -> tuple[Any, Position | Spot]:
        kind = type(event)
        mark = event.start_mark
        start = position(mark.line, mark.column)
        if kind is libyaml.AliasEvent:
            self._problem(event, f"aliases are not accepted (`*{event.anchor}`)", "write the value out")
            return None, start
        if event.tag is not None or event.anchor is not None:
            self._refuse_properties(event)
        if kind is libyaml.ScalarEvent:
            return self._scalar(event) if event.implicit[0] else event.value, start
        if depth > MAX_DEPTH:
            raise _TooDeep(self._location(event))
        spot = Spot(start)
        data = self._mapping(spot, depth) if kind is libyaml.MappingStartEvent else self._sequence(spot, depth)
        return data, spot

    def _mapping(self, spot: Spot, depth: int) -> dict[str, Any]:
        data: dict[str, Any] = {}
        while True:
            event = self.next_event()
            if type(event) is libyaml.MappingEndEvent:
                return data
            key = self._key(event, depth)
            value, place = self._value(self.next_event(), depth + 1)
            if key is None:
                continue
            mark = event.start_mark
            if key in data:
                first = spot.keys[key]
                self._problem(event, f"the key `{key}` is written twice", f"first written on line {line_of(first)}")
                continue
            data[key] = value
            spot.keys[key] = position(mark.line, mark.column)
            spot.values[key] = place

    def _sequence(self, spot: Spot, depth: int) -> list[Any]:
        data: list[Any] = []
        while True:
            event = self.next_event()
            if type(event) is libyaml.SequenceEndEvent:
                return data
            value, spot.values[len(data)] = self._value(event, depth + 1)
            data.append(value)

    def _key(self, event: Any, depth: int) -> str | None:
        """A key is text exactly as written: `443` and `"443"` are the same key."""
        if type(event) is not libyaml.ScalarEvent:
            self._problem(event, "a key must be plain text")
            self._value(event, depth + 1)
            return None
        if event.tag is not None or event.anchor is not None:
            self._refuse_properties(event)
        if len(event.value) > MAX_KEY_LENGTH:
            self._problem(event, f"a key is longer than {MAX_KEY_LENGTH} characters")
            return None
        if not event.value and event.implicit[0]:
            self._problem(event, "a key is empty")
            return None
        return str(event.value)

    def _scalar(self, event: Any) -> str | int | float | bool | None:
        """A plain scalar by the YAML 1.2 core schema."""
        text: str = event.value
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if text[0] not in _NUMBER_START:
            return text
        if _INTEGER.match(text) or _BASED.match(text):
            if len(text) > MAX_NUMBER_LENGTH:
                self._problem(event, "the number is too long", "put quotes around it if it is text")
                return None
            return int(text, 0) if text[1:2] in ("o", "x") else int(text)
        if len(text) <= MAX_NUMBER_LENGTH and _FLOAT.match(text):
            number = float(text)
            if number in (float("inf"), float("-inf")):
                self._problem(event, "the number is too large")
            return number
        return text

    def _refuse_properties(self, event: Any) -> None:
        if event.anchor is not None:
            self._problem(event, f"anchors are not accepted (`&{event.anchor}`)", "write the value out instead")
        if event.tag is not None:
            self._problem(event, "tags are not accepted", "leave the tag out; quotes make text of a number")

    def _problem(self, event: Any, message: str, hint: str = "") -> None:
        self.problems.append(error(self._location(event), message, hint))

    def _location(self, event: Any) -> Location:
        if event is None:
            return Location(self.name)
        return Location(self.name, event.start_mark.line + 1, event.start_mark.column + 1)
