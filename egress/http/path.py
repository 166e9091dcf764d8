"""One canonical path: the text that policy judges and that goes upstream (http-surface.md section 6)."""

import re
from dataclasses import dataclass
from urllib.parse import quote_from_bytes, unquote_to_bytes

from egress.model.limits import LIMITS
from egress.model.message import Malformed, PathOddity
from egress.model.verdict import DenialCode


@dataclass(frozen=True, slots=True)
class CanonicalPath:
    text: str
    oddities: PathOddity = PathOddity.NONE


_SEGMENT = r"[A-Za-z0-9\-_~!$&'()*+,=:@][A-Za-z0-9\-._~!$&'()*+,=:@]*+"
_PLAIN = re.compile(rf"(?:/{_SEGMENT})*+/?\Z")
_SAFE = "-._~!$&'()*+,;=:@"
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ENCODED_SLASH = re.compile(r"%2[fF]")
_SECOND_ESCAPE = re.compile(rb"%(?:2[fFeE]|5[cC])")
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


def canonical_path(raw: str) -> CanonicalPath | Malformed:
    """Canonical form of the path part of a target, query already split off.

    Encoded slashes, double escapes and backslashes are kept and reported as oddities; the caller refuses them
    once it knows the endpoint (decision 36).
    """
    if len(raw) > LIMITS.path_bytes:
        return _malformed(f"path is longer than {LIMITS.path_bytes} bytes")
    if raw and _PLAIN.match(raw):
        return CanonicalPath(raw)
    if not raw:
        return CanonicalPath("/", PathOddity.CHANGED)
    if not raw.startswith("/"):
        return _malformed("request-target must be canonical")
    if _BAD_ESCAPE.search(raw):
        return _malformed("path holds a bad percent escape")
    segments = [_decode_segment(segment) for segment in raw[1:].split("/")]
    pieces = [piece for segment in segments for piece in segment]
    if any(_CONTROL.search(piece) for piece in pieces):
        return _malformed("path holds an encoded control byte")
    walked = _walk(segments)
    if isinstance(walked, Malformed):
        return walked
    text = "/" + "/".join("%2F".join(quote_from_bytes(piece, _SAFE) for piece in segment) for segment in walked)
    return CanonicalPath(text, _oddities(raw, text, pieces))


def _oddities(raw: str, text: str, pieces: list[bytes]) -> PathOddity:
    found = PathOddity.NONE if text == raw else PathOddity.CHANGED
    if _ENCODED_SLASH.search(raw):
        found |= PathOddity.ENCODED_SLASH
    if any(_SECOND_ESCAPE.search(piece) for piece in pieces):
        found |= PathOddity.DOUBLE_ESCAPE
    if any(b"\\" in piece for piece in pieces):
        found |= PathOddity.BACKSLASH
    return found


def _decode_segment(segment: str) -> list[bytes]:
    """One segment, decoded once and cut at its first `;`, as the pieces between encoded slashes."""
    pieces = []
    for piece in _ENCODED_SLASH.split(segment):
        kept, semicolon, _ = unquote_to_bytes(piece).partition(b";")
        pieces.append(kept)
        if semicolon:
            break
    return pieces


def _walk(segments: list[list[bytes]]) -> list[list[bytes]] | Malformed:
    """Remove dot and empty segments (RFC 3986 section 5.2.4); the root cannot be left."""
    kept: list[list[bytes]] = []
    for segment in segments:
        if len(segment) > 1:
            if b"." in segment or b".." in segment:
                return _malformed("path hides a dot segment behind an encoded slash")
            kept.append(segment)
        elif segment[0] == b"..":
            if not kept:
                return _malformed("path leaves the root")
            kept.pop()
        elif segment[0] not in (b"", b"."):
            kept.append(segment)
    last = segments[-1]
    if len(last) == 1 and last[0] in (b"", b".", b".."):
        kept.append([b""])
    return kept


def _malformed(reason: str) -> Malformed:
    return Malformed(reason, DenialCode.INVALID_REQUEST_TARGET)
