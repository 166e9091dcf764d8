"""Frames to whole messages and back, over wsproto, bounded in size, fragments and inflation. One per direction.

The client's text is given whole, since it is judged; everything else is given in pieces as it arrives. Nothing here
waits: deadlines belong to whoever feeds it. http-surface.md 12.3.
"""

# ruff: noqa: ARG002 - the methods of wsproto's Extension take what they take

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import cast

from wsproto.extensions import Extension
from wsproto.frame_protocol import CloseReason, Frame, FrameDecoder, FrameProtocol, Opcode, ParseFailed, RsvBits

from egress.model.limits import KIB, MIB
from egress.websocket.handshake import Deflate

SLICE = 16 * KIB
FRAGMENTS = 4096
TEXT_BYTES = 4 * MIB
BINARY_FRAME_BYTES = 16 * MIB
RATIO = 100
RATIO_FREE = MIB


class Side(Enum):
    """Which end of the WebSocket sent what a codec reads."""

    CLIENT = "client"
    ORIGIN = "origin"


@dataclass(frozen=True, slots=True)
class Text:
    """A whole text message of the client."""

    data: str


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a message that is passed on as it comes: `data` is text or bytes as the message is."""

    data: str | bytes
    first: bool
    last: bool


@dataclass(frozen=True, slots=True)
class Ping:
    payload: bytes


@dataclass(frozen=True, slots=True)
class Pong:
    payload: bytes


@dataclass(frozen=True, slots=True)
class Close:
    """The peer closes; `code` is None when it gave none."""

    code: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Violation:
    """The peer broke a rule or a bound; `code` is the close code it gets. Nothing can be read after it."""

    code: int
    reason: str


type Event = Text | Piece | Ping | Pong | Close | Violation


class Codec:
    """Reads what `side` sends, writes what is sent on to the other side."""

    __slots__ = ("_broken", "_first", "_fragments", "_frame_bytes", "_parts", "_reader", "_size", "_whole", "_writer")

    def __init__(self, side: Side, deflate: Deflate | None) -> None:
        reads_client = side is Side.CLIENT
        self._reader = FrameProtocol(client=not reads_client, extensions=_extensions(deflate, side))
        self._writer = FrameProtocol(client=reads_client, extensions=_extensions(deflate, side))
        self._whole = reads_client
        self._parts: list[str] = []
        self._size = 0
        self._fragments = 0
        self._frame_bytes = 0
        self._first = True
        self._broken = False

    @property
    def assembling(self) -> bool:
        """True between the first and the last frame of a message."""
        return not self._first

    def feed(self, data: bytes) -> Iterator[Event]:
        """Events completed by `data`. Ends after a `Close` or a `Violation`."""
        for start in range(0, len(data), SLICE):
            if self._broken:
                return
            self._reader.receive_bytes(data[start : start + SLICE])
            try:
                for frame in self._reader.received_frames():
                    event = self._event(frame)
                    if event is None:
                        continue
                    self._broken = isinstance(event, Close | Violation)
                    yield event
                    if self._broken:
                        return
            except ParseFailed as failure:
                self._broken = True
                yield Violation(int(failure.code), "the frame is malformed")

    def _event(self, frame: Frame) -> Event | None:
        match frame.opcode:
            case Opcode.PING:
                return Ping(bytes(frame.payload))  # type: ignore[arg-type]
            case Opcode.PONG:
                return Pong(bytes(frame.payload))  # type: ignore[arg-type]
            case Opcode.CLOSE:
                code, reason = cast(tuple[int, str], frame.payload)
                return Close(None if code == CloseReason.NO_STATUS_RCVD else int(code), str(reason))
            case _:
                return self._data(frame)

    def _data(self, frame: Frame) -> Event | None:
        payload: str | bytes = frame.payload if isinstance(frame.payload, str) else bytes(frame.payload)  # type: ignore[arg-type]
        violation = self._bounds(frame, payload)
        if violation is not None:
            return violation
        first, self._first = self._first, frame.message_finished
        if not (self._whole and isinstance(payload, str)):
            if not payload and not first and not frame.message_finished:
                return None
            return Piece(payload, first, frame.message_finished)
        self._parts.append(payload)
        if not frame.message_finished:
            return None
        text = self._parts[0] if len(self._parts) == 1 else "".join(self._parts)
        self._parts = []
        return Text(text)

    def _bounds(self, frame: Frame, payload: str | bytes) -> Violation | None:
        self._size += len(payload)
        self._frame_bytes += len(payload)
        if frame.frame_finished:
            self._frame_bytes = 0
            self._fragments += 1
        too_many = self._fragments > FRAGMENTS
        # Characters are at most as many as bytes; a text of four-byte characters is caught by its encoded size.
        too_large = self._whole and isinstance(payload, str) and self._size > TEXT_BYTES
        if frame.message_finished:
            self._size = self._fragments = 0
        if too_many:
            return Violation(1002, "the message has too many fragments")
        if too_large:
            return Violation(1009, "the message is too large")
        if self._frame_bytes > BINARY_FRAME_BYTES:
            return Violation(1002, "the frame is too large")
        return None

    # what is sent on ---------------------------------------------------------------------------------------------

    def data(self, data: str | bytes, *, last: bool = True) -> bytes:
        return bytes(self._writer.send_data(data, fin=last))

    def ping(self, payload: bytes) -> bytes:
        return bytes(self._writer.ping(payload))

    def pong(self, payload: bytes) -> bytes:
        return bytes(self._writer.pong(payload))

    def close(self, code: int | None, reason: str = "") -> bytes:
        return bytes(self._writer.close(code, reason or None) if code is not None else self._writer.close())


def _extensions(deflate: Deflate | None, side: Side) -> list[Extension]:
    return [] if deflate is None else [_BoundedDeflate(deflate, side)]


class _BoundedDeflate(Extension):
    """permessage-deflate of one direction: inflates what `side` sent, deflates what goes on in its name.

    wsproto's own forgets that a message is compressed when a control frame comes between its fragments, and inflates
    without a bound.
    """

    name = "permessage-deflate"

    def __init__(self, terms: Deflate, side: Side) -> None:
        client = side is Side.CLIENT
        self._takeover = terms.client_takeover if client else terms.server_takeover
        self._bits = terms.client_bits if client else terms.server_bits
        self._inflater: zlib._Decompress | None = None
        self._deflater: zlib._Compress | None = None
        self._message_compressed: bool | None = None
        self._this_frame = False
        self._taken = 0
        self._given = 0

    def enabled(self) -> bool:
        return True

    def offer(self) -> bool | str:
        return True

    def accept(self, offer: str) -> bool | str | None:
        return offer

    def finalize(self, offer: str) -> None:
        return None

    def frame_inbound_header(
        self, proto: FrameDecoder | FrameProtocol, opcode: Opcode, rsv: RsvBits, payload_length: int
    ) -> CloseReason | RsvBits:
        if rsv.rsv1 and (opcode.iscontrol() or opcode is Opcode.CONTINUATION):
            return CloseReason.PROTOCOL_ERROR
        if not opcode.iscontrol() and opcode is not Opcode.CONTINUATION:
            self._message_compressed = rsv.rsv1
            self._taken = self._given = 0
        self._this_frame = not opcode.iscontrol() and bool(self._message_compressed)
        return RsvBits(True, False, False)

    def frame_inbound_payload_data(self, proto: FrameDecoder | FrameProtocol, data: bytes) -> bytes | CloseReason:
        return self._inflate(data) if self._this_frame else data

    def frame_inbound_complete(self, proto: FrameDecoder | FrameProtocol, fin: bool) -> bytes | CloseReason | None:
        if not fin or not self._this_frame:
            return None
        tail = self._inflate(b"\x00\x00\xff\xff")
        if not self._takeover:
            self._inflater = None
        return tail

    def _inflate(self, data: bytes) -> bytes | CloseReason:
        if self._inflater is None:
            self._inflater = zlib.decompressobj(-15)
        self._taken += len(data)
        allowed = RATIO_FREE + RATIO * self._taken - self._given
        try:
            inflated = self._inflater.decompress(data, max(1, allowed))
        except zlib.error:
            return CloseReason.INVALID_FRAME_PAYLOAD_DATA
        self._given += len(inflated)
        if self._inflater.unconsumed_tail:
            return CloseReason.MESSAGE_TOO_BIG
        if self._inflater.eof:
            self._inflater = None
        return inflated

    def frame_outbound(
        self, proto: FrameDecoder | FrameProtocol, opcode: Opcode, rsv: RsvBits, data: bytes, fin: bool
    ) -> tuple[RsvBits, bytes]:
        if opcode.iscontrol():
            return rsv, data
        if opcode is not Opcode.CONTINUATION:
            rsv = RsvBits(True, rsv.rsv2, rsv.rsv3)
        if self._deflater is None:
            self._deflater = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, -self._bits)
        out = self._deflater.compress(data)
        if fin:
            out += self._deflater.flush(zlib.Z_SYNC_FLUSH)
            out = out[:-4]
            if not self._takeover:
                self._deflater = None
        return rsv, out
