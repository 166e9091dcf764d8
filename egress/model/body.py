"""How long a body is."""

from dataclasses import dataclass
from enum import StrEnum


class FramingKind(StrEnum):
    NONE = "none"
    LENGTH = "length"
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until_close"


@dataclass(frozen=True, slots=True)
class Framing:
    """Message framing (RFC 9112 section 6). `length` in bytes is set for LENGTH only."""

    kind: FramingKind
    length: int | None = None

    @property
    def empty(self) -> bool:
        """True when the message has no body at all."""
        return self.kind is FramingKind.NONE or self.length == 0


NO_BODY = Framing(FramingKind.NONE)
CHUNKED = Framing(FramingKind.CHUNKED)
UNTIL_CLOSE = Framing(FramingKind.UNTIL_CLOSE)


def of_length(length: int) -> Framing:
    return Framing(FramingKind.LENGTH, length)
