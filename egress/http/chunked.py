"""Strict incremental chunked coding, both ways. RFC 9112 section 7.1.

Sizes are hexadecimal digits only; what follows the last chunk is never part of the body and is handed back, so
that a pipelined request is judged and not relayed.
"""

import re
from enum import Enum

from egress.http.fields import FORBIDDEN_TRAILERS, is_field_block, split_lines, without
from egress.model.limits import LIMITS
from egress.model.message import FieldLine, Malformed

LAST_CHUNK = b"0\r\n"

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?\Z")
_MAX_SIZE = 2**63 - 1


class _State(Enum):
    SIZE = 0
    DATA = 1
    AFTER_DATA = 2
    TRAILERS = 3
    DONE = 4


class ChunkedDecoder:
    """Each reader below consumes from a position and answers the next one, or None when bytes are missing.

    Feed wire bytes, get payload bytes. `done` when the body ended; then `rest` holds what came behind it."""

    __slots__ = ("_buffer", "_left", "_state", "rest", "trailers")

    def __init__(self) -> None:
        self._buffer = b""
        self._state = _State.SIZE
        self._left = 0
        self.trailers: tuple[FieldLine, ...] = ()
        self.rest = b""

    @property
    def done(self) -> bool:
        return self._state is _State.DONE

    def feed(self, data: bytes) -> list[bytes] | Malformed:
        """Payload pieces completed by `data`, in order."""
        buffer = self._buffer + data if self._buffer else data
        pieces: list[bytes] = []
        position = 0
        while not self.done:
            if self._state is _State.DATA:
                step: int | Malformed | None = self._read_data(buffer, position, pieces)
            elif self._state is _State.TRAILERS:
                step = self._read_trailers(buffer, position)
            else:
                step = self._read_line(buffer, position)
            if isinstance(step, Malformed):
                return step
            if step is None:
                self._buffer = buffer[position:]
                return pieces
            position = step
        self.rest += buffer[position:]
        self._buffer = b""
        return pieces

    def _read_data(self, buffer: bytes, position: int, pieces: list[bytes]) -> int | None:
        piece = buffer[position : position + self._left]
        if not piece:
            return None
        pieces.append(piece)
        self._left -= len(piece)
        if not self._left:
            self._state = _State.AFTER_DATA
        return position + len(piece)

    def _read_line(self, buffer: bytes, position: int) -> int | Malformed | None:
        """Read the CRLF behind data, or a size line; the position after it, or None when bytes are missing."""
        if self._state is _State.AFTER_DATA:
            ending = buffer[position : position + 2]
            if not b"\r\n".startswith(ending):
                return Malformed("chunk data is not followed by CRLF")
            if len(ending) < 2:
                return None
            self._state = _State.SIZE
            return position + 2
        end = buffer.find(b"\r\n", position, position + LIMITS.chunk_line_bytes)
        if end < 0:
            if len(buffer) - position >= LIMITS.chunk_line_bytes:
                return Malformed("chunk size line is too long")
            if b"\n" in buffer[position:]:
                return Malformed("chunk size line does not end with CRLF")
            return None
        size = _SIZE_LINE.match(buffer[position:end])
        if size is None or (length := int(size[1], 16)) > _MAX_SIZE:
            return Malformed("chunk size is malformed")
        self._left = length
        self._state = _State.DATA if length else _State.TRAILERS
        return end + 2

    def _read_trailers(self, buffer: bytes, position: int) -> int | Malformed | None:
        if buffer.startswith(b"\r\n", position):
            self._state = _State.DONE
            return position + 2
        end = buffer.find(b"\r\n\r\n", position, position + LIMITS.trailer_bytes)
        if end < 0:
            if len(buffer) - position >= LIMITS.trailer_bytes:
                return Malformed("trailers are too large")
            return None
        block = buffer[position : end + 2]
        if not is_field_block(block):
            return Malformed("trailer line is malformed")
        self.trailers = without(split_lines(block), FORBIDDEN_TRAILERS)
        self._state = _State.DONE
        return end + 4


def encode_chunk(data: bytes) -> bytes:
    """One chunk; `data` must not be empty, since an empty chunk ends the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def encode_end(trailers: tuple[FieldLine, ...] = ()) -> bytes:
    """The last chunk with its trailer section."""
    return LAST_CHUNK + b"".join([b"%b: %b\r\n" % line for line in trailers]) + b"\r\n"
