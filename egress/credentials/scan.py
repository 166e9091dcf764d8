"""A body that nobody places credentials into, watched for placeholders while it streams, so that none reaches the
origin: also split across reads, percent- or base64-encoded, or under a content coding (credentials.md section 5.2)."""

import base64
import re

from egress.credentials.placeholder import ALIAS, MARKER_BYTES, PREFIX, has_raw_marker, percent_decoded
from egress.http.coding import Decoder, decoder
from egress.http.fields import list_members
from egress.model.message import FieldLine, Malformed

TAIL = 3 * MARKER_BYTES
"""Bytes held back: a marker with every byte percent-encoded."""

_ENCODED_LETTER = re.compile(rb"%(?:[4-7][0-9A-Fa-f]|3[aA]|5[fF]|2[dD])")
"""What some byte of a marker looks like percent-encoded."""


def _in_base64(marker: bytes) -> set[bytes]:
    """What a marker looks like inside base64, whatever stands before it."""
    found = set()
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + marker)
        # The first and last characters also hold bits of the neighbours.
        start = -(-before * 8 // 6)
        found.add(encoded[start : (before + len(marker)) * 8 // 6])
    return found


_BASE64 = tuple(_in_base64(PREFIX) | _in_base64(ALIAS))


def marked(data: bytes) -> bool:
    """Does a placeholder's marker occur in `data` in any form that is looked for?"""
    if has_raw_marker(data) or any(form in data for form in _BASE64):
        return True
    return _ENCODED_LETTER.search(data) is not None and has_raw_marker(percent_decoded(data))


class Guard:
    """Feed the body piece by piece; what comes back may be sent. None: a marker, and nothing more may."""

    __slots__ = ("_decoder", "_opaque", "_tail")

    def __init__(self, decoding: Decoder | None = None, *, opaque: bool = False) -> None:
        self._decoder = decoding
        self._opaque = opaque
        self._tail = b""

    @staticmethod
    def of(fields: tuple[FieldLine, ...]) -> "Guard":
        """For a request with these fields. A coding that cannot be undone hides what it codes: nothing is passed."""
        codings = [
            member for name, value in fields if name.lower() == b"content-encoding" for member in list_members(value)
        ]
        codings = [coding for coding in codings if coding not in (b"identity", b"aws-chunked")]
        if not codings:
            return Guard()
        found = decoder(codings, None)
        return Guard(opaque=True) if isinstance(found, Malformed) else Guard(found)

    def feed(self, data: bytes) -> bytes | None:
        if self._opaque:
            return None
        if self._decoder is not None:
            return data if self._look(data) else None
        window = self._tail + data
        if marked(window):
            return None
        cut = max(0, len(window) - TAIL)
        self._tail = window[cut:]
        return window[:cut]

    def finish(self) -> bytes | None:
        """What was held back."""
        if self._decoder is not None or self._opaque:
            return b""
        tail, self._tail = self._tail, b""
        return tail

    def finds(self, body: bytes) -> bool:
        """Look at a whole body at once."""
        return self.feed(body) is None

    def _look(self, data: bytes) -> bool:
        """Coded bytes pass as they are once their content has been looked at: without its end a marker says nothing."""
        assert self._decoder is not None
        plain = self._decoder.feed(data)
        if isinstance(plain, Malformed):
            return False
        window = self._tail + plain
        self._tail = window[-TAIL:]
        return not marked(window)
