"""A reply whose body is changed on its way to the client: held until it was read whole, or piece by piece."""

from dataclasses import replace

from egress.model.body import CHUNKED, of_length
from egress.model.message import FieldLine, Malformed, ResponseHead
from egress.pipeline.transform import Masked, ReplyTransform


class ChangedReply:
    """Feed what the origin sends, get what the client is sent. `head` is None while nothing of it may be sent."""

    __slots__ = ("_head", "_mask", "_pieces", "_size", "_transform", "head", "keeps_length")

    def __init__(self, head: ResponseHead, transform: ReplyTransform) -> None:
        self._head = head
        self._transform = transform
        self._pieces: list[bytes] = []
        self._size = 0
        self._mask = transform if isinstance(transform, Masked) else None
        self.keeps_length = self._mask is not None and self._mask.keeps_length
        self.head: ResponseHead | None = None
        if transform.ceiling is None:
            self.head = head if self.keeps_length else replace(head, framing=CHUNKED)

    def feed(self, data: bytes) -> bytes | Malformed:
        ceiling = self._transform.ceiling
        if ceiling is None:
            return self._transform.feed(data)
        self._pieces.append(data)
        self._size += len(data)
        return Malformed("a reply that must be read is too large") if self._size > ceiling else b""

    @property
    def waits(self) -> bool:
        """A short end is held back, and must not be for long."""
        return self._mask is not None and self._mask.waits

    def release(self) -> bytes:
        """That end, when nothing has followed it."""
        return self._mask.release() if self._mask is not None else b""

    def trailers(self, lines: tuple[FieldLine, ...]) -> tuple[FieldLine, ...]:
        """Fields behind the body, as the client is sent them."""
        return self._mask.trailers(lines) if self._mask is not None else lines

    def finish(self) -> bytes | Malformed:
        """What is left to send; now there is a `head`."""
        changed = self._transform.feed(b"".join(self._pieces)) if self.head is None else b""
        end = self._transform.finish() if isinstance(changed, bytes) else changed
        if isinstance(changed, Malformed) or isinstance(end, Malformed):
            return end
        if self.head is None:
            self.head = replace(self._head, framing=of_length(len(changed) + len(end)))
        return changed + end
