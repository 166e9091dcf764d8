"""Replies that are changed on their way to the client: the filter of a protocol, under content codings, then a mask."""

from typing import Protocol

from egress.http.coding import Decoder
from egress.model.message import FieldLine, Malformed

TAIL_BYTES = 8
"""A masked reply that holds fewer bytes than this lets them go after `TAIL_SECONDS` of silence: nothing that short is
a secret, and somebody may be waiting for it."""
TAIL_SECONDS = 0.1


class ReplyTransform(Protocol):
    """Changes the payload of one reply.

    `ceiling` is the number of bytes that must be held before anything of the reply may be sent, None for a stream.
    A `Malformed` ends the reply: as a refusal while it was held, by cutting it off after that.
    """

    ceiling: int | None

    def feed(self, data: bytes) -> bytes | Malformed:
        """What `data` becomes; a held reply is fed whole."""
        ...

    def finish(self) -> bytes | Malformed:
        """What is left at the end of the reply."""
        ...


class Decoded:
    """A transform behind a content coding: the client gets the payload decoded."""

    def __init__(self, inner: ReplyTransform, decoder: Decoder) -> None:
        self.ceiling = inner.ceiling
        self._inner = inner
        self._decoder = decoder

    def feed(self, data: bytes) -> bytes | Malformed:
        plain = self._decoder.feed(data)
        return plain if isinstance(plain, Malformed) else self._inner.feed(plain)

    def finish(self) -> bytes | Malformed:
        fault = self._decoder.end()
        return self._inner.finish() if fault is None else fault


class ReplyMask(Protocol):
    """Replaces bytes of a reply by as many others. It may hold back an end that it cannot judge yet."""

    @property
    def keeps_length(self) -> bool:
        """False when it undoes a content coding on the way."""
        ...

    @property
    def held(self) -> int:
        """Bytes held back."""
        ...

    def feed(self, data: bytes) -> bytes | Malformed:
        """What may go on now."""
        ...

    def release(self) -> bytes:
        """What is held back; it is judged with what follows all the same."""
        ...

    def finish(self) -> bytes | Malformed:
        """What is left at the end of the reply."""
        ...

    def trailers(self, lines: tuple[FieldLine, ...]) -> tuple[FieldLine, ...]:
        """The same for the fields behind the body."""
        ...


class Masked:
    """A transform whose last step is a mask: what the filter of a protocol lets pass is masked like everything else."""

    def __init__(self, mask: ReplyMask, first: ReplyTransform | None = None) -> None:
        self.ceiling = first.ceiling if first is not None else None
        self.keeps_length = mask.keeps_length and first is None
        self.trailers = mask.trailers
        self.release = mask.release
        self._mask = mask
        self._first = first

    @property
    def waits(self) -> bool:
        """Something is held back that must not be held for long."""
        return 0 < self._mask.held < TAIL_BYTES

    def feed(self, data: bytes) -> bytes | Malformed:
        passed = data if self._first is None else self._first.feed(data)
        return passed if isinstance(passed, Malformed) else self._mask.feed(passed)

    def finish(self) -> bytes | Malformed:
        rest = b"" if self._first is None else self._first.finish()
        masked = rest if isinstance(rest, Malformed) else self._mask.feed(rest)
        if isinstance(masked, Malformed):
            return masked
        end = self._mask.finish()
        return end if isinstance(end, Malformed) else masked + end
