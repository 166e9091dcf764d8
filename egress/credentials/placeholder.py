"""What a placeholder looks like: recognised by syntax alone, in bytes. Knows no values (credentials.md section 2)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

PREFIX = b"openshell:resolve:env:"
ALIAS = b"OPENSHELL-RESOLVE-ENV-"
SHOWN = "[CREDENTIAL]"
MARKER_BYTES = 22
"""Length of both markers."""

REMEMBERED = 1024
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_PREFIX_TEXT, _ALIAS_TEXT = PREFIX.decode(), ALIAS.decode()
_KEY = re.compile(rb"[A-Za-z0-9_]+")
_ALIAS_CHARACTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.~")
_STABLE = re.compile(r"s([0-9a-f]{64})_(\w+)\Z", re.ASCII)
_REVISIONED = re.compile(r"v(0|[1-9][0-9]{0,19})_(\w+)\Z", re.ASCII)
_RESERVED = re.compile(r"(?:v[0-9]+|s[0-9a-f]{64})_\w+\Z", re.ASCII)
_MAX_REVISION = (1 << 64) - 1
_GLUE, _GLUED = b"openshell", b":resolve:env:"


def _hex_spellings(byte: int) -> set[str]:
    lower, upper = f"{byte:02x}", f"{byte:02X}"
    return {lower, upper, lower[0] + upper[1], upper[0] + lower[1]}


def _perhaps_escaped(marker: bytes) -> bytes:
    """A pattern for the marker with any of its bytes percent-encoded."""
    return b"".join(b"(?:%c|%%(?i:%02x))" % (byte, byte) for byte in marker)


_BYTES = {spelling.encode(): bytes([byte]) for byte in range(256) for spelling in _hex_spellings(byte)}
_ESCAPED_BYTE = re.compile(b"%%(?i:%s)" % b"|".join(sorted({b"%02x" % byte for byte in PREFIX + ALIAS})))
"""Found fast, and seldom in what is no escaped marker."""
_ESCAPED_MARKER = re.compile(b"|".join(map(_perhaps_escaped, (PREFIX, ALIAS))))


class Form(Enum):
    PLAIN = "plain"
    REVISIONED = "revisioned"
    STABLE = "stable"


@dataclass(frozen=True, slots=True)
class Placeholder:
    """What a token says. `alias`: it stood in the middle of a text of the shape that some client asks for."""

    key: str
    form: Form
    alias: bool = False
    revision: int = 0
    handle: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A placeholder in a text, from `start` to `end`; None as `token` where something begins like one and is none."""

    start: int
    end: int
    token: Placeholder | None


def reserved_key(key: str) -> bool:
    """Would this environment key be read as something else inside a placeholder?"""
    return _RESERVED.match(key) is not None


def spell(key: str, *, revision: int | None = None, handle: str = "") -> str:
    """The placeholder of a key."""
    inner = f"s{handle}_{key}" if handle else key if revision is None else f"v{revision}_{key}"
    return PREFIX.decode() + inner


def alias(placeholder: str, shape: str) -> str:
    """The same for clients that check the shape of a key: `shape` is what it begins with, such as `sk-`."""
    return shape + ALIAS.decode() + placeholder.removeprefix(PREFIX.decode())


def percent_decoded(data: bytes) -> bytes:
    """One lenient decode: `%` and two hex digits; anything else stays, so that `%%6f` hides nothing."""
    return _ESCAPE.sub(lambda match: _BYTES[match[1]], data) if b"%" in data else data


def has_raw_marker(data: bytes) -> bool:
    # `find`, since `in` on bytes first tries to read its operand as a number, at twice the cost.
    return data.find(PREFIX) >= 0 or data.find(ALIAS) >= 0


def contains_marker(data: bytes) -> bool:
    """Does a marker occur, as it is or percent-encoded once?"""
    if data.find(PREFIX) >= 0 or data.find(ALIAS) >= 0:
        return True
    escaped = _ESCAPED_BYTE.search(data) if data.find(b"%") >= 0 else None
    return escaped is not None and _ESCAPED_MARKER.search(data, max(0, escaped.start() - MARKER_BYTES)) is not None


def contains_marker_text(text: str) -> bool:
    """The same for a target, which is ASCII."""
    return (
        _PREFIX_TEXT in text
        or _ALIAS_TEXT in text
        or ("%" in text and contains_marker(text.encode("latin-1", "replace")))
    )


def parse(inner: str, *, is_alias: bool) -> Placeholder:
    """What stands behind a marker."""
    if (match := _STABLE.match(inner)) is not None:
        return Placeholder(match[2], Form.STABLE, is_alias, handle=match[1])
    if (match := _REVISIONED.match(inner)) is not None and int(match[1]) <= _MAX_REVISION:
        return Placeholder(match[2], Form.REVISIONED, is_alias, revision=int(match[1]))
    return Placeholder(inner, Form.PLAIN, is_alias)


@lru_cache(maxsize=REMEMBERED)
def whole(data: bytes) -> Placeholder | None:
    """The placeholder that `data` is, and nothing else. Clients send the same few again and again."""
    found = next(find(data), None)
    return found.token if found is not None and (found.start, found.end) == (0, len(data)) else None


def find(data: bytes) -> Iterator[Found]:
    """Every placeholder of a text, in order; two may be glued together."""
    position, plain, aliased = 0, data.find(PREFIX), data.find(ALIAS)
    while plain >= 0 or aliased >= 0:
        found = _plain(data, plain) if aliased < 0 or 0 <= plain < aliased else _aliased(data, aliased, position)
        yield found
        position = found.end
        # Only a marker that was passed is looked for again: else a text full of one kind is read to its end each time.
        if 0 <= plain < position:
            plain = data.find(PREFIX, position)
        if 0 <= aliased < position:
            aliased = data.find(ALIAS, position)


def _run(data: bytes, start: int) -> int:
    """The end of a key that begins at `start`; a prefix glued to it is not part of it."""
    match = _KEY.match(data, start)
    if match is None:
        return start
    end = match.end()
    if data.startswith(_GLUED, end) and data.endswith(_GLUE, start, end):
        end -= len(_GLUE)
    return end


def _plain(data: bytes, start: int) -> Found:
    begin = start + MARKER_BYTES
    end = _run(data, begin)
    return Found(start, max(end, begin), parse(data[begin:end].decode(), is_alias=False) if end > begin else None)


def _aliased(data: bytes, marker: int, floor: int) -> Found:
    """A whole token: what stands before and behind it is no character of an alias."""
    start = marker
    while start > floor and data[start - 1] in _ALIAS_CHARACTERS:
        start -= 1
    begin = marker + MARKER_BYTES
    end = _run(data, begin)
    bounded = (start == floor == 0 or start > floor or data[floor - 1] not in _ALIAS_CHARACTERS) and (
        end == len(data) or data[end] not in _ALIAS_CHARACTERS
    )
    good = start < marker and end > begin and bounded
    return Found(start, max(end, begin), parse(data[begin:end].decode(), is_alias=True) if good else None)
