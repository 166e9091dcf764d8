"""What frames may be: bounds of a message and permessage-deflate, as the wsproto extension of one direction.

wsproto's own deflate forgets that a message is compressed when a control frame comes between its fragments, and
inflates without a bound. http-surface.md 12.3.
"""

# ruff: noqa: ARG002 - the methods of wsproto's Extension take what they take

import zlib
from dataclasses import dataclass
from enum import Enum

from wsproto.extensions import Extension
from wsproto.frame_protocol import CloseReason, FrameDecoder, FrameProtocol, Opcode, RsvBits

from egress.model.limits import KIB, MIB
from egress.websocket.handshake import Deflate

type Proto = FrameDecoder | FrameProtocol

_TAIL = b"\x00\x00\xff\xff"  # RFC 7692 section 7.2.2
_OUR_BITS = 12
"""Window that we deflate with, within what was agreed: 32 KiB of memory per direction instead of 256."""
_OUR_MEMORY = 5
_OUR_LEVEL = 4
"""Half the time of the default level for a tenth more bytes."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """In bytes, but for `fragments`. The ratio holds beyond `ratio_free` bytes of one message: small ones of one
    repeated character compress better than any cap."""

    fragments: int = 4096
    text: int = 4 * MIB
    """A client's text, before and after inflating: it is held."""
    frame: int = 16 * MIB
    """One frame of what is not held."""
    ratio: int = 100
    ratio_free: int = 1 * MIB
    piece: int = 16 * KIB
    """What is not held is passed on in pieces of about this size."""


class Side(Enum):
    """Which end of the WebSocket sent what a codec reads."""

    CLIENT = "client"
    ORIGIN = "origin"


@dataclass(slots=True)
class _Message:
    """One message as far as it was read: bytes that its frames announced, bytes that came, bytes that those made."""

    held: bool = False
    compressed: bool = False
    fragments: int = 0
    wire: int = 0
    taken: int = 0
    inflated: int = 0


class FrameRules(Extension):
    """Checks what `side` sends, and sends a message on compressed when it came compressed. Every error is told by its
    close code."""

    name = "permessage-deflate"

    def __init__(self, terms: Deflate | None, side: Side, bounds: Bounds) -> None:
        self._bounds = bounds
        self._client = side is Side.CLIENT
        self._deflate = terms is not None
        self._takeover, self._bits = _terms(terms or Deflate(), side)
        self._inflater: zlib._Decompress | None = None
        self._deflater: zlib._Compress | None = None
        self._message = _Message()
        self._open = False
        self._announced: tuple[_Message, int] | None = None
        self._data_frame = False
        self._final_block = False
        self._deflating = False

    def enabled(self) -> bool:
        return True

    def offer(self) -> bool | str:
        return True

    def accept(self, offer: str) -> bool | str | None:
        return offer

    def finalize(self, offer: str) -> None:
        return None

    # reading -----------------------------------------------------------------------------------------------------

    def frame_inbound_header(
        self, proto: Proto, opcode: Opcode, rsv: RsvBits, payload_length: int
    ) -> CloseReason | RsvBits:
        """Bounds are checked on the lengths that are announced, so that nothing too large is even begun.

        wsproto asks again when the masking key was still to come: what is found here counts once payload is read.
        """
        self._data_frame = not opcode.iscontrol()
        if not self._data_frame:
            return RsvBits(False, False, False)
        first = opcode is not Opcode.CONTINUATION
        if first is self._open or (rsv.rsv1 and not first):
            return CloseReason.PROTOCOL_ERROR
        message = _Message(self._client and opcode is Opcode.TEXT, rsv.rsv1) if first else self._message
        if message.fragments >= self._bounds.fragments:
            return CloseReason.PROTOCOL_ERROR
        if message.held and message.wire + payload_length > self._bounds.text:
            return CloseReason.MESSAGE_TOO_BIG
        if not message.held and payload_length > self._bounds.frame:
            return CloseReason.PROTOCOL_ERROR
        self._announced = (message, payload_length)
        return RsvBits(self._deflate, False, False)

    def frame_inbound_payload_data(self, proto: Proto, data: bytes) -> bytes | CloseReason:
        if self._announced is not None:
            self._message, length = self._announced
            self._message.fragments += 1
            self._message.wire += length
            self._open, self._announced = True, None
        return self._inflate(data) if self._data_frame and self._message.compressed else data

    def frame_inbound_complete(self, proto: Proto, fin: bool) -> bytes | CloseReason | None:
        if not fin or not self._data_frame:
            return None
        self._open = False
        if not self._message.compressed:
            return None
        tail = b"" if self._final_block else self._inflate(_TAIL)
        if self._final_block or not self._takeover:
            self._inflater, self._final_block = None, False
        return tail

    def _inflate(self, data: bytes) -> bytes | CloseReason:
        if self._final_block:
            return CloseReason.INVALID_FRAME_PAYLOAD_DATA if data.strip(b"\x00") else b""
        if self._inflater is None:
            self._inflater = zlib.decompressobj(-15)
        message = self._message
        message.taken += len(data)
        ceiling = self._bounds.ratio_free + self._bounds.ratio * message.taken
        if message.held:
            ceiling = min(ceiling, self._bounds.text)
        try:
            inflated = self._inflater.decompress(data, ceiling - message.inflated + 1)
        except zlib.error:
            return CloseReason.INVALID_FRAME_PAYLOAD_DATA
        message.inflated += len(inflated)
        if message.inflated > ceiling:
            return CloseReason.MESSAGE_TOO_BIG
        if self._inflater.eof:
            # RFC 7692 section 7.2.3.4: a final block may end a message; only padding may follow it.
            self._final_block = True
            if self._inflater.unused_data.strip(b"\x00"):
                return CloseReason.INVALID_FRAME_PAYLOAD_DATA
        return inflated

    # writing -----------------------------------------------------------------------------------------------------

    def outbound(self, data: bytes, *, first: bool, last: bool) -> tuple[bool, bytes]:
        """RSV1 and payload of a frame that goes on."""
        if first:
            # A message goes on before the next one is read, so what was read last is what is written now.
            self._deflating = self._message.compressed
        if not self._deflating:
            return False, data
        if self._deflater is None:
            self._deflater = zlib.compressobj(_OUR_LEVEL, zlib.DEFLATED, -self._bits, _OUR_MEMORY)
        out = self._deflater.compress(data)
        if last:
            out += self._deflater.flush(zlib.Z_SYNC_FLUSH)
            out = out[: -len(_TAIL)]
            if not self._takeover:
                self._deflater = None
        return first, out


def _terms(terms: Deflate, side: Side) -> tuple[bool, int]:
    """Context takeover and our window bits of one direction."""
    client = side is Side.CLIENT
    bits = terms.client_bits if client else terms.server_bits
    return terms.client_takeover if client else terms.server_takeover, min(bits, _OUR_BITS)
