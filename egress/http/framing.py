"""Content-Length and Transfer-Encoding to one `Framing`, or a refusal. RFC 9112 section 6."""

import re
from collections.abc import Sequence

from egress.model.body import CHUNKED, NO_BODY, UNTIL_CLOSE, Framing, of_length
from egress.model.message import Malformed

_DIGITS = re.compile(rb"[0-9]{1,19}\Z")
_MAX_LENGTH = 2**63 - 1


def request_framing(lengths: Sequence[bytes], codings: Sequence[bytes]) -> Framing | Malformed:
    """Framing of a request from all its Content-Length and Transfer-Encoding values."""
    return _explicit(lengths, codings) or NO_BODY


def response_framing(
    method: str, status: int, lengths: Sequence[bytes], codings: Sequence[bytes]
) -> Framing | Malformed:
    """Framing of a response to `method` (RFC 9112 section 6.3); without a statement it runs until close."""
    explicit = _explicit(lengths, codings)
    if isinstance(explicit, Malformed):
        return explicit
    if method == "HEAD" or status < 200 or status in (204, 304):
        return NO_BODY
    if method == "CONNECT" and status < 300:
        return NO_BODY
    return explicit or UNTIL_CLOSE


def _explicit(lengths: Sequence[bytes], codings: Sequence[bytes]) -> Framing | Malformed | None:
    if codings:
        if lengths:
            return Malformed("Content-Length and Transfer-Encoding exclude each other")
        if len(codings) > 1 or codings[0].lower() != b"chunked":
            return Malformed("Transfer-Encoding is not exactly chunked")
        return CHUNKED
    if not lengths:
        return None
    if len(set(lengths)) > 1:
        return Malformed("Content-Length values disagree")
    if not _DIGITS.match(lengths[0]) or (length := int(lengths[0])) > _MAX_LENGTH:
        return Malformed("Content-Length is not an unsigned number")
    return of_length(length)
