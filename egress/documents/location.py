"""Which line and column a value of a document came from."""

from dataclasses import dataclass, field

type KeyPath = tuple[str | int, ...]
"""Keys and list positions from the top of a document down to one value."""


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A place in a file, counted from 1. Line 0 means the file as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


type Position = int
"""Line and column in one number. A document has a great many of them, and numbers cost the collector nothing."""

_SHIFT = 24


def position(line: int, column: int) -> Position:
    """Line and column counted from 0, as libyaml does."""
    return line + 1 << _SHIFT | column + 1


def line_of(place: Position) -> int:
    return place >> _SHIFT


@dataclass(slots=True)
class Spot:
    """Where a mapping or list begins, and where its keys and values do. Lists have no `keys`."""

    start: Position
    keys: dict[str | int, Position] = field(default_factory=dict)
    values: "dict[str | int, Position | Spot]" = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceMap:
    """Finds values and keys of one document. What is not there is found at the nearest value around it."""

    file: str
    root: Spot

    def value(self, path: KeyPath) -> Location:
        """Where the value at `path` begins."""
        found = self._walk(path)
        return self._location(found.start if isinstance(found, Spot) else found)

    def key(self, path: KeyPath) -> Location:
        """Where the key (or list item) at `path` begins."""
        parent = self._walk(path[:-1])
        if isinstance(parent, Spot) and path and path[-1] in parent.keys:
            return self._location(parent.keys[path[-1]])
        return self.value(path)

    def part(self, path: KeyPath) -> "SourceMap":
        """The places below `path`."""
        found = self._walk(path)
        return SourceMap(self.file, found if isinstance(found, Spot) else Spot(found))

    def _walk(self, path: KeyPath) -> "Position | Spot":
        found: Position | Spot = self.root
        for part in path:
            if isinstance(found, Spot):
                found = found.values.get(part, found)
        return found

    def _location(self, place: Position) -> Location:
        return Location(self.file, line_of(place), place & (1 << _SHIFT) - 1)


def path_text(path: KeyPath) -> str:
    """`network_policies.api.endpoints[0].port`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text
