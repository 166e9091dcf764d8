"""The spellings in which a secret may come back: base64, hex, or as it is with any of its characters escaped.

A spelling is a sequence of units, one per character, and a unit is every way to write that character. Both the search
pattern and the exact reading are made from the same units, so they cannot disagree.
"""

import base64
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product

type Unit = tuple[bytes, ...]
"""Every way to write one character, the plain one first; none is shorter than that."""

HEAD_UNITS = 64
"""Units of a form that the search pattern spells out; longer ones are read to their end where their head was found."""
_TAIL_UNITS = 6

_SHORT_ESCAPES = {
    "\b": b"\\b", "\t": b"\\t", "\n": b"\\n", "\f": b"\\f", "\r": b"\\r", '"': b'\\"', "\\": b"\\\\", "/": b"\\/",
}  # fmt: skip
"""RFC 8259 section 7."""
_MARKUP = {
    '"': "quot",
    "&": "amp",
    "'": "apos",
    "<": "lt",
    ">": "gt",
    "+": "plus",
    "/": "sol",
    "=": "equals",
    "`": "grave",
}
"""What some template engine or other writes as a character reference in HTML and XML, and its name there."""


class Form:
    """One spelling family of the secret at index `secret`. Its representation shows nothing of it."""

    __slots__ = ("_literal", "_steps", "longest", "secret", "units")

    def __init__(self, secret: int, units: Sequence[Unit]) -> None:
        self.secret = secret
        self.units = tuple(units)
        self.longest = sum(max(map(len, unit)) for unit in self.units)
        self._steps = [_by_first(unit) for unit in self.units]
        plain = b"".join(unit[0] for unit in self.units)
        # Raw, these may also begin an escape of themselves: such spellings are read unit by unit.
        self._literal = b"" if any(mark in plain for mark in (b"%", b"\\", b"&")) else plain

    def read(self, data: bytes, at: int) -> tuple[int, bool]:
        """Where the longest spelling that begins at `at` ends, 0 when there is none; and whether one might still end
        beyond `data`."""
        literal = self._literal
        if literal:
            if data.startswith(literal, at):
                return at + len(literal), False
            if len(data) - at < len(literal) and literal.startswith(data[at:]):
                return 0, True
        ends = [at]
        open_ended = False
        for step in self._steps:
            ends, cut_off = _advance(step, data, ends)
            open_ended = open_ended or cut_off
            if not ends:
                return 0, open_ended
        return max(ends), open_ended


def _advance(step: Mapping[int, Unit], data: bytes, places: list[int]) -> tuple[list[int], bool]:
    """Where one character that begins at any of these places ends, and whether it might end beyond `data`."""
    ends: list[int] = []
    cut_off = False
    for place in places:
        if place == len(data):
            cut_off = True
            continue
        for written in step.get(data[place], ()):
            if data.startswith(written, place):
                ends.append(place + len(written))
            elif len(data) - place < len(written) and written.startswith(data[place:]):
                cut_off = True
    return (ends if len(ends) < 2 else list(set(ends))), cut_off


def forms_of(secret: int, text: str) -> list[Form]:
    """All forms of one secret."""
    data = text.encode("utf-8", "surrogateescape")
    units: list[Sequence[Unit]] = [
        [_character(character) for character in text],
        [_hexadecimal(byte) for byte in data],
        *[_base64(data, before) for before in range(3)],
    ]
    return [Form(secret, sequence) for sequence in units]


def search_pattern(forms: Sequence[Form]) -> bytes:
    """Finds where a form begins, by the first `HEAD_UNITS` of its units."""
    return b"|".join([b"".join(map(_any_of, form.units[:HEAD_UNITS])) for form in forms])


def tail_pattern(forms: Sequence[Form]) -> bytes:
    """Finds where the end of the data might begin a form: a beginning of it that stops there, or its first units."""
    return b"|".join(map(_beginnings, forms))


def _beginnings(form: Form) -> bytes:
    pattern = b""
    for index in reversed(range(_TAIL_UNITS)):
        unit = form.units[index]
        cut = {written[:size] for written in unit for size in range(1, len(written))}
        options = [_any_of(unit) + pattern]
        options += [_any_of(tuple(sorted(cut))) + rb"\z"] if cut else []
        options += [rb"\z"] if index else []
        pattern = b"(?:" + b"|".join(options) + b")"
    return pattern


@lru_cache(maxsize=2048)
def _by_first(unit: Unit) -> Mapping[int, Unit]:
    """The ways to write a character by their first byte."""
    return {first: tuple([written for written in unit if written[0] == first]) for first, *_ in unit}


@lru_cache(maxsize=2048)
def _any_of(written: Unit) -> bytes:
    return b"(?:" + b"|".join([b"".join([b"\\x%02x" % byte for byte in option]) for option in written]) + b")"


@lru_cache(maxsize=512)
def _character(character: str) -> Unit:
    """A character as it is, percent-encoded (form data writes a blank as `+`), escaped as in JSON, and as in markup."""
    raw = character.encode("utf-8", "surrogateescape")
    written = [raw, *_cases("".join([f"%{byte:02x}" for byte in raw]))]
    if character == " ":
        written.append(b"+")
    if not "\ud800" <= character <= "\udfff":
        codes = character.encode("utf-16-be")
        written += _cases("".join([f"\\u{codes[at : at + 2].hex()}" for at in range(0, len(codes), 2)]))
    if character in _SHORT_ESCAPES:
        written.append(_SHORT_ESCAPES[character])
    return (*written, *_references(character))


def _references(character: str) -> list[bytes]:
    name = _MARKUP.get(character)
    if name is None:
        return []
    return [f"&{name};".encode(), f"&#{ord(character)};".encode(), *_cases(f"&#x{ord(character):x};")]


@lru_cache(maxsize=256)
def _hexadecimal(byte: int) -> Unit:
    return tuple(_cases(f"{byte:02x}"))


def _base64(data: bytes, before: int) -> list[Unit]:
    """The characters that `data` alone decides when it stands `before` bytes after a multiple of three. Those that
    share bits with a neighbour are left out: they tell at most four bits each."""
    first, last = -(-8 * before // 6), 8 * (before + len(data)) // 6
    return [_sextet(character) for character in base64.b64encode(bytes(before) + data).decode()[first:last]]


@lru_cache(maxsize=64)
def _sextet(character: str) -> Unit:
    """Both alphabets (RFC 4648 sections 4 and 5); what may be escaped in them where they stand may be."""
    match character:
        case "+":
            return (b"+", b"-", *_cases("%2b"), *_cases("\\u002b"), *_references(character))
        case "/":
            return (b"/", b"_", b"\\/", *_cases("%2f"), *_cases("\\u002f"), *_references(character))
        case _:
            return (character.encode(),)


def _cases(text: str) -> list[bytes]:
    """`text` with its hexadecimal letters in every mixture of cases."""
    letters = [(letter, letter.upper()) if letter in "abcdef" else (letter,) for letter in text]
    return ["".join(choice).encode() for choice in product(*letters)]
