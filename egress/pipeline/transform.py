"""Replies that are changed on their way to the client: a filter of one protocol, under content codings."""

from typing import Protocol

from egress.http.coding import Decoder
from egress.model.message import Malformed


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
