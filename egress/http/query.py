"""Query strings decoded for matchers (policy.md 9.1). What goes upstream is the raw text, never this."""

import re
from urllib.parse import unquote_to_bytes

from egress.model.message import Malformed
from egress.model.verdict import DenialCode

type QueryPairs = tuple[tuple[str, str], ...]

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def decode_query(query: str | None, *, separators: str = "&") -> QueryPairs | Malformed:
    """Decoded (name, value) pairs in order. Deny rules read with `separators="&;"`, since some servers split there."""
    if not query:
        return ()
    if _BAD_ESCAPE.search(query):
        return _malformed("query holds a bad percent escape")
    pieces = query.split("&")
    if len(separators) > 1:
        pieces = [piece for part in pieces for piece in part.split(separators[1])]
    pairs = []
    for piece in pieces:
        if not piece:
            continue
        name, _, value = piece.partition("=")
        try:
            pairs.append((_decode(name), _decode(value)))
        except UnicodeDecodeError:
            return _malformed("query is not UTF-8")
    return tuple(pairs)


def _decode(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8")


def _malformed(reason: str) -> Malformed:
    return Malformed(reason, DenialCode.INVALID_REQUEST_TARGET)
