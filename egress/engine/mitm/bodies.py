"""HTTP/1 bodies without a stream: payload out of one framing, and into another."""

from egress.http.chunked import ChunkedDecoder, encode_chunk, encode_end
from egress.model.body import Framing, FramingKind
from egress.model.message import FieldLine, Malformed


class BodyDecoder:
    """Feed wire bytes, get payload. `complete` once the framing says so; `rest` then holds what came behind."""

    __slots__ = ("_chunked", "_left", "complete", "framing", "rest")

    def __init__(self, framing: Framing) -> None:
        self.framing = framing
        self._left = framing.length or 0
        self._chunked = ChunkedDecoder() if framing.kind is FramingKind.CHUNKED else None
        self.complete = framing.empty
        self.rest = b""

    @property
    def trailers(self) -> tuple[FieldLine, ...]:
        return self._chunked.trailers if self._chunked is not None else ()

    def feed(self, data: bytes) -> bytes | Malformed:
        if self._chunked is not None:
            pieces = self._chunked.feed(data)
            if isinstance(pieces, Malformed):
                return pieces
            if self._chunked.done:
                self.complete = True
                self.rest = self._chunked.rest
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if self.framing.kind is FramingKind.UNTIL_CLOSE:
            return data
        payload = data[: self._left]
        self._left -= len(payload)
        if not self._left:
            self.complete = True
            self.rest = data[len(payload) :]
        return payload


class BodyEncoder:
    """Payload to wire bytes by the framing that the receiver was told."""

    __slots__ = ("_chunked",)

    def __init__(self, framing: Framing) -> None:
        self._chunked = framing.kind is FramingKind.CHUNKED

    def encode(self, payload: bytes) -> bytes:
        return encode_chunk(payload) if self._chunked and payload else payload

    def end(self, trailers: tuple[FieldLine, ...]) -> bytes:
        return encode_end(trailers) if self._chunked else b""
