"""A reply whose body is changed on its way to the client: held until it was read whole, or piece by piece."""

from dataclasses import replace

from egress.model.body import CHUNKED, of_length
from egress.model.message import Malformed, ResponseHead
from egress.pipeline.transform import ReplyTransform


class ChangedReply:
    """Feed what the origin sends, get what the client is sent. `head` is None while nothing of it may be sent."""

    __slots__ = ("_head", "_pieces", "_size", "_transform", "head")

    def __init__(self, head: ResponseHead, transform: ReplyTransform) -> None:
        self._head = head
        self._transform = transform
        self._pieces: list[bytes] = []
        self._size = 0
        self.head = replace(head, framing=CHUNKED) if transform.ceiling is None else None

    def feed(self, data: bytes) -> bytes | Malformed:
        ceiling = self._transform.ceiling
        if ceiling is None:
            return self._transform.feed(data)
        self._pieces.append(data)
        self._size += len(data)
        return Malformed("a reply that must be read is too large") if self._size > ceiling else b""

    def finish(self) -> bytes | Malformed:
        """What is left to send; now there is a `head`."""
        changed = self._transform.feed(b"".join(self._pieces)) if self.head is None else b""
        end = self._transform.finish() if isinstance(changed, bytes) else changed
        if isinstance(changed, Malformed) or isinstance(end, Malformed):
            return end
        if self.head is None:
            self.head = replace(self._head, framing=of_length(len(changed) + len(end)))
        return changed + end
