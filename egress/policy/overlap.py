"""Do two patterns have a text in common, and does one cover the other? Conservative where the exact answer is dear:
`overlaps` may say yes and `covers` may say no without need, never the other way round."""

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import product

from egress.policy.globs import CharacterClass, Choice, Dialect, Token, Wild, parse
from egress.policy.hosts import HostPattern

_MAX_READINGS = 64


class Piece(Enum):
    """What stands for more than one text: a byte of a class we do not look into, any byte but the separator, runs."""

    CLASS = "class"
    ONE = "one"
    RUN = "run"
    ANY_RUN = "any_run"


type Reading = tuple[str | Piece, ...]
"""One pattern without alternatives: literal characters and pieces."""

_RUNS = frozenset((Piece.RUN, Piece.ANY_RUN))
_SELECTOR_PARTS = re.compile(r"\[[^\]]*\]|.")
_SELECTOR_PIECES = {"*": Piece.RUN, "?": Piece.ONE, "[": Piece.CLASS}
_WILDS = {Wild.ONE: Piece.ONE, Wild.RUN: Piece.RUN, Wild.ANY_RUN: Piece.ANY_RUN}


def path_readings(pattern: str) -> tuple[Reading, ...] | None:
    """All readings of an endpoint path (empty is every path); None when there are too many to compare."""
    if pattern in ("", "**", "/**"):
        return ((Piece.ANY_RUN,),)
    tokens = parse(pattern, Dialect.COVER)
    if tokens[-2:] == ("/", Wild.ANY_RUN):
        heads = _expand(tokens[:-2])
        return None if heads is None else tuple((*h, *t) for h in heads for t in ((), ("/", Piece.ANY_RUN)))
    return _expand(tokens)


def host_reading(pattern: HostPattern) -> Reading:
    """A host pattern as a reading with `.` as separator."""
    reading: list[str | Piece] = []
    for label in pattern.text.split("."):
        reading.extend((".",) if reading else ())
        reading.extend((Piece.ANY_RUN,) if label == "**" else (_star(character) for character in label))
    return tuple(reading)


def selector_reading(selector: str) -> Reading:
    """A middleware's host selector as a reading; a class stands for any byte."""
    reading: list[str | Piece] = []
    for label in selector.split("."):
        reading.extend((".",) if reading else ())
        if label == "**":
            reading.append(Piece.ANY_RUN)
        else:
            reading.extend(_SELECTOR_PIECES.get(part[0], part) for part in _SELECTOR_PARTS.findall(label))
    return tuple(reading)


def overlaps(left: Iterable[Reading] | None, right: Iterable[Reading] | None, separator: str) -> bool:
    """Is there a text that both match?"""
    if left is None or right is None:
        return True
    return any(_meet(one, other, separator) for one, other in product(left, right))


def covers(outer: Iterable[Reading] | None, inner: Iterable[Reading] | None, separator: str) -> bool:
    """Does `outer` match every text that `inner` matches?"""
    if outer is None or inner is None:
        return False
    outer = tuple(outer)
    return all(any(_contains(whole, part, separator) for whole in outer) for part in inner)


def _star(character: str) -> str | Piece:
    return Piece.RUN if character == "*" else character


def _expand(tokens: Sequence[Token]) -> tuple[Reading, ...] | None:
    """Braces and optional `**/` multiplied out."""
    readings: list[Reading] = [()]
    position = 0
    while position < len(tokens):
        token = tokens[position]
        position += 1
        options: tuple[Reading, ...]
        match token:
            case Wild.ANY_RUN if tokens[position : position + 1] == ("/",):
                position += 1
                options = ((), (Piece.ANY_RUN, "/"))
            case Wild():
                options = ((_WILDS[token],),)
            case CharacterClass():
                options = ((Piece.CLASS,),)
            case Choice(choices):
                expanded = [_expand(choice) for choice in choices]
                if any(choice is None for choice in expanded):
                    return None
                options = tuple(reading for choice in expanded if choice is not None for reading in choice)
            case _:
                options = ((token,),)
        readings = [(*reading, *option) for reading in readings for option in options]
        if len(readings) > _MAX_READINGS:
            return None
    return tuple(readings)


def _meet(left: Reading, right: Reading, separator: str) -> bool:
    """Walk both readings side by side over the bytes of a text that both would match."""
    seen = {(0, 0)}
    waiting = [(0, 0)]
    while waiting:
        i, j = waiting.pop()
        if i == len(left) and j == len(right):
            return True
        one = left[i] if i < len(left) else None
        other = right[j] if j < len(right) else None
        steps = [(i + 1, j)] if one in _RUNS else []
        steps += [(i, j + 1)] if other in _RUNS else []
        if one is not None and other is not None and _compatible(one, other, separator):
            steps.append((i + (one not in _RUNS), j + (other not in _RUNS)))
        new = [step for step in steps if step not in seen]
        seen.update(new)
        waiting.extend(new)
    return False


def _compatible(one: str | Piece, other: str | Piece, separator: str) -> bool:
    """Can both stand for the same byte?"""
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    if one == separator:
        return other in (Piece.CLASS, Piece.ANY_RUN)
    if other == separator:
        return one in (Piece.CLASS, Piece.ANY_RUN)
    return True


def _contains(outer: Reading, inner: Reading, separator: str) -> bool:
    """Inclusion: walk `inner` as if it were a text made of its own pieces."""
    states = _skip_runs(outer, {0})
    for piece in inner:
        states = _skip_runs(outer, {step for state in states for step in _steps(outer, state, piece, separator)})
        if not states:
            return False
    return len(outer) in states


def _skip_runs(outer: Reading, states: set[int]) -> set[int]:
    reached = set(states)
    for state in states:
        at = state
        while at < len(outer) and outer[at] in _RUNS:
            at += 1
            reached.add(at)
    return reached


def _steps(outer: Reading, state: int, piece: str | Piece, separator: str) -> Iterable[int]:
    if state >= len(outer):
        return
    want = outer[state]
    narrow = piece in (Piece.ONE, Piece.RUN) or (isinstance(piece, str) and piece != separator)
    if want is Piece.ANY_RUN or (want is Piece.RUN and narrow):
        yield state
    elif piece in _RUNS:
        return
    elif (want is Piece.ONE and narrow) or (want == piece and isinstance(piece, str)):
        yield state + 1
