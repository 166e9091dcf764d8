"""JSON as every server reads it, or not at all: what two parsers could read differently is refused.

Owns the reading of untrusted JSON; what it means belongs to the protocols.
"""

from collections.abc import Iterable, Mapping
from math import isinf

import jiter

from egress.model.message import Malformed

MAX_DEPTH = 200
"""Levels of arrays and objects that jiter reads; beyond, the text is refused."""

_NOT_PLAIN = frozenset((dict, list, float))


def read_json(data: bytes) -> object | Malformed:
    """The value, or why there is none. Refused besides bad syntax (RFC 8259): duplicate keys however they are spelled,
    a byte order mark, any encoding but UTF-8, lone surrogates, NaN, numbers beyond a double, and deep nesting."""
    try:
        value: object = jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True, cache_mode="keys")
    except ValueError as error:
        return _fault(str(error))
    return value if _finite(value) else Malformed("JSON number out of range")


def spellings(*names: str) -> Mapping[str, str]:
    """What `lookalike` compares with: each name under its case-folded form."""
    return {name.casefold(): name for name in names}


def lookalike(keys: Iterable[str], names: Mapping[str, str]) -> bool:
    """Is some key one of `names` in other letter case? To decoders without case sensitivity (Go's, for one) that key
    is the name, so `{"query": …, "Query": …}` says one thing to them and another to everybody else."""
    return any(names.get(key.casefold(), key) != key for key in keys)


def _fault(message: str) -> Malformed:
    """The parser's own text quotes the input, so it is not passed on."""
    if message.startswith("Detected duplicate key"):
        return Malformed("duplicate JSON key")
    if message.startswith("recursion limit"):
        return Malformed(f"JSON is nested deeper than {MAX_DEPTH} levels")
    return Malformed("invalid JSON")


def _finite(value: object) -> bool:
    """jiter reads `1e999` as infinity, which no encoder may write back (RFC 8259 section 6). Only what could be one or
    hold one is looked at: most of a body is text."""
    pending = [value]
    for item in pending:
        if isinstance(item, float):
            if isinf(item):
                return False
        elif isinstance(item, dict):
            pending += [member for member in item.values() if type(member) in _NOT_PLAIN]
        elif isinstance(item, list):
            pending += [member for member in item if type(member) in _NOT_PLAIN]
    return True
