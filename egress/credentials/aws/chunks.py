"""Bodies in `aws-chunked` coding, which is HTTP's chunked coding over again with a signature behind each size.

The signatures were made with keys that are worth nothing; they are dropped. Everything else is checked.
"""

from egress.credentials.aws.payload import Chunks, Payload
from egress.http.chunked import ChunkedDecoder
from egress.model.limits import KIB
from egress.model.message import FieldLine, Malformed

CHUNK_BYTES = 64 * KIB
"""Payload of one chunk of ours; S3 refuses chunks under 8 KiB before the last one."""

_ENDED_EARLY = Malformed("aws-chunked body ended early")
_OTHER_LENGTH = Malformed("aws-chunked body is not as long as x-amz-decoded-content-length says")
_MORE_BEHIND = Malformed("bytes behind the end of an aws-chunked body")


class ChunkStream:
    """Feed the body as the client sent it, get it as it goes on. Never gives out more than was announced."""

    __slots__ = ("_decoder", "_left", "_pending", "_rewraps")

    def __init__(self, payload: Payload) -> None:
        self._decoder = ChunkedDecoder()
        self._left = payload.length or 0
        self._rewraps = payload.chunks is Chunks.REWRAP
        self._pending = b""

    @property
    def trailers(self) -> tuple[FieldLine, ...]:
        """Fields behind the last chunk, without the signature over them."""
        return tuple([line for line in self._decoder.trailers if line[0].lower() != b"x-amz-trailer-signature"])

    def feed(self, data: bytes) -> bytes | Malformed:
        pieces = self._decoder.feed(data)
        if isinstance(pieces, Malformed):
            return pieces
        payload = b"".join(pieces)
        self._left -= len(payload)
        if self._left < 0:
            return _OTHER_LENGTH
        if self._decoder.rest:
            return _MORE_BEHIND
        return self._wrap(payload) if self._rewraps else payload

    def finish(self) -> bytes | Malformed:
        if not self._decoder.done:
            return _ENDED_EARLY
        if self._left:
            return _OTHER_LENGTH
        if not self._rewraps:
            return b""
        last = _chunk(self._pending) if self._pending else b""
        return last + b"0\r\n" + b"".join([b"%b:%b\r\n" % line for line in self.trailers]) + b"\r\n"

    def _wrap(self, payload: bytes) -> bytes:
        buffer = self._pending + payload
        whole = len(buffer) - len(buffer) % CHUNK_BYTES
        self._pending = buffer[whole:]
        return b"".join([_chunk(buffer[start : start + CHUNK_BYTES]) for start in range(0, whole, CHUNK_BYTES)])


def unwrap(payload: Payload, body: bytes) -> tuple[bytes, tuple[FieldLine, ...]] | Malformed:
    """A whole body without its chunks, and the fields that were behind them."""
    stream = ChunkStream(payload)
    plain = stream.feed(body)
    if isinstance(plain, Malformed):
        return plain
    rest = stream.finish()
    return rest if isinstance(rest, Malformed) else (plain + rest, stream.trailers)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
