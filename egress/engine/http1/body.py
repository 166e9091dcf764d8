"""Bodies over HTTP/1 streams: payload in by one framing, out by another, in constant memory."""

from egress.engine.stream import End, Stream
from egress.http.chunked import ChunkedDecoder, encode_chunk, encode_end
from egress.model.body import Framing, FramingKind
from egress.model.errors import PeerError
from egress.model.message import FieldLine, Malformed


class BodyReader:
    """Payload pieces of one message. `complete` once the framing says so; a body that stops before is a `PeerError`."""

    __slots__ = ("_decoder", "_left", "complete", "framing", "size", "stream")

    def __init__(self, stream: Stream, framing: Framing) -> None:
        self.stream = stream
        self.size = 0
        self.framing = framing
        self._left = framing.length or 0
        self._decoder = ChunkedDecoder() if framing.kind is FramingKind.CHUNKED else None
        self.complete = framing.empty

    @property
    def trailers(self) -> tuple[FieldLine, ...]:
        return self._decoder.trailers if self._decoder is not None else ()

    async def next(self, seconds: float | None, limit: str) -> bytes | Malformed:
        """The next payload, `b""` once `complete`. Bytes behind the body stay in the stream."""
        while not self.complete:
            if not self.stream.buffer and not await self.stream.more(seconds, limit):
                self.ended()
                break
            payload = self._consume()
            if payload:
                if not isinstance(payload, Malformed):
                    self.size += len(payload)
                return payload
        return b""

    def buffered(self) -> bytes | Malformed:
        """What can be read without waiting."""
        payload = self._consume() if self.stream.buffer and not self.complete else b""
        if not isinstance(payload, Malformed):
            self.size += len(payload)
        return payload

    def _consume(self) -> bytes | Malformed:
        if self._decoder is not None:
            pieces = self._decoder.feed(self.stream.take())
            if isinstance(pieces, Malformed):
                return pieces
            if self._decoder.done:
                self.complete = True
                if self._decoder.rest:
                    self.stream.put_back(self._decoder.rest)
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if self.framing.kind is FramingKind.UNTIL_CLOSE:
            return self.stream.take()
        payload = self.stream.take(self._left)
        self._left -= len(payload)
        self.complete = not self._left
        return payload

    def ended(self) -> None:
        """The stream ended: fine for a body that runs until a clean close, a cut-off for every other."""
        if self.framing.kind is FramingKind.UNTIL_CLOSE and self.stream.end is End.CLEAN:
            self.complete = True
            return
        raise PeerError(self.stream.side, "message was cut short")


class BodyWriter:
    """Payload to wire bytes by the framing that the receiver was told."""

    __slots__ = ("_chunked",)

    def __init__(self, framing: Framing) -> None:
        self._chunked = framing.kind is FramingKind.CHUNKED

    def encode(self, payload: bytes) -> bytes:
        return encode_chunk(payload) if self._chunked and payload else payload

    def end(self, trailers: tuple[FieldLine, ...]) -> bytes:
        return encode_end(trailers) if self._chunked else b""
