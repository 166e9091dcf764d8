"""A body that nobody places credentials into, watched for placeholders while it streams, so that none reaches the
origin: also split across reads, percent- or base64-encoded, or under a content coding (credentials.md section 5.2)."""

import base64

from egress.credentials.placeholder import ALIAS, MARKER_BYTES, PREFIX, contains_marker
from egress.http.coding import Decoder, decoder
from egress.http.fields import list_members
from egress.model.message import FieldLine, Malformed

TAIL = 3 * MARKER_BYTES
"""Bytes held back: a marker with every byte percent-encoded."""


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
    return contains_marker(data) or any(form in data for form in _BASE64)


class Guard:
    """Feed the body piece by piece; what comes back may be sent. None: a marker, and nothing more may, ever."""

    __slots__ = ("_decoder", "_shut", "_tail")

    def __init__(self, decoding: Decoder | None = None) -> None:
        self._decoder = decoding
        self._shut = False
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
        if not isinstance(found, Malformed):
            return Guard(found)
        guard = Guard()
        guard._shut = True
        return guard

    def feed(self, data: bytes) -> bytes | None:
        plain = data if self._decoder is None or self._shut else self._decoder.feed(data)
        if self._shut or isinstance(plain, Malformed):
            self._shut = True
            return None
        window = self._tail + plain
        if marked(window):
            self._shut = True
            return None
        cut = max(0, len(window) - TAIL)
        self._tail = window[cut:]
        # Coded bytes pass as they are once their content was looked at: without its end a marker says nothing.
        return window[:cut] if self._decoder is None else data

    def finish(self) -> bytes | None:
        """What was held back."""
        if self._shut:
            return None
        tail, self._tail = self._tail, b""
        return tail if self._decoder is None else b""

    def finds(self, body: bytes) -> bool:
        """Look at a whole body at once."""
        return self.feed(body) is None
