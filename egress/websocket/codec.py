"""Frames to whole messages, read with wsproto, and back, bounded in size, fragments and inflation. One per direction.

The client's text is given whole, since it is judged; everything else is given in pieces as it arrives. Nothing here
waits: deadlines belong to whoever feeds it. http-surface.md 12.3.
"""

import codecs
import os
from collections.abc import Iterator
from dataclasses import dataclass

from wsproto.frame_protocol import Frame, FrameDecoder, Opcode, ParseFailed

from egress.websocket.handshake import Deflate
from egress.websocket.rules import Bounds, FrameRules, Side

BOUNDS = Bounds()
PROTOCOL, BAD_DATA, TOO_BIG = 1002, 1007, 1009
_FIN, _RSV1, _MASKED = 0x80, 0x40, 0x80
_WHY = {
    PROTOCOL: "a frame breaks the protocol or its bounds",
    BAD_DATA: "the message is not valid text or not validly compressed",
    TOO_BIG: "the message is too large",
}
_decoder = codecs.getincrementaldecoder("utf-8")


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
    """Reads what `side` sends, writes what is sent on to the other side. Nothing can be written behind a Close."""

    __slots__ = (
        "_bounds", "_broken", "_checker", "_closed", "_data", "_first", "_from_client", "_reader", "_rules", "_text",
        "_writing", "ended",
    )  # fmt: skip

    def __init__(self, side: Side, deflate: Deflate | None, bounds: Bounds = BOUNDS) -> None:
        from_client = side is Side.CLIENT
        self._rules = rules = FrameRules(deflate, side, bounds)
        self._reader = FrameDecoder(client=not from_client, extensions=[rules])
        self._from_client = from_client
        self._bounds = bounds
        self._data = bytearray()
        self._text = False
        self._checker = _decoder()
        self._first = True
        self._broken = False
        self._writing = False
        self._closed = False
        self.ended = False
        """True once the peer's Close was read."""

    @property
    def holding(self) -> bool:
        """True while part of a text is kept until its last frame."""
        return self._from_client and self._text and not self._first and not self.ended

    def feed(self, data: bytes | memoryview) -> Iterator[Event]:
        """Events completed by `data`. Each is to be sent on before the next is asked for.

        What follows a Close or a Violation is dropped (RFC 6455 section 1.4).
        """
        if self.ended or self._broken:
            return
        self._reader.receive_bytes(data)  # type: ignore[arg-type]  # any buffer will do
        try:
            while not self.ended and len(self._reader.buffer) and (frame := self._reader.process_buffer()) is not None:
                event = self._event(frame)
                if event is not None:
                    yield event
        except ParseFailed as failure:
            self._broken = True
            yield _violation(int(failure.code))
        except UnicodeDecodeError:
            self._broken = True
            yield _violation(BAD_DATA)

    def _event(self, frame: Frame) -> Event | None:
        payload: bytes = frame.payload  # type: ignore[assignment]  # text and close are decoded here, not by wsproto
        match frame.opcode:
            case Opcode.PING:
                return Ping(payload)
            case Opcode.PONG:
                return Pong(payload)
            case Opcode.CLOSE:
                close = _read_close(payload)
                self.ended = True
                return close
            case Opcode.CONTINUATION:
                pass
            case opcode:
                self._text = opcode is Opcode.TEXT
                self._first = True
        last = frame.frame_finished and frame.message_finished
        return self._whole(payload, last) if self._text and self._from_client else self._piece(payload, last)

    def _whole(self, payload: bytes, last: bool) -> Text | None:
        first, self._first = self._first, last
        if first and last:
            return Text(payload.decode())
        self._checker.decode(payload, final=last)  # fails with the first bad byte, however long the message is
        self._data += payload
        if not last:
            return None
        data, self._data = self._data, bytearray()
        return Text(data.decode())

    def _piece(self, payload: bytes, last: bool) -> Piece | None:
        """Small parts are gathered: a frame that arrives in a thousand segments must not go on as a thousand
        fragments, which receivers count."""
        if not last and len(self._data) + len(payload) < self._bounds.piece:
            self._data += payload
            return None
        if self._data:
            payload, self._data = bytes(self._data + payload), bytearray()
        first, self._first = self._first, last
        return Piece(self._checker.decode(payload, final=last) if self._text else payload, first, last)

    # what is sent on ---------------------------------------------------------------------------------------------

    def data(self, data: str | bytes, *, last: bool = True) -> bytes:
        """A message, or its next fragment."""
        payload = data.encode() if isinstance(data, str) else data
        opcode = Opcode.CONTINUATION if self._writing else Opcode.TEXT if isinstance(data, str) else Opcode.BINARY
        rsv1, payload = self._rules.outbound(payload, first=not self._writing, last=last)
        self._writing = not last
        return self._frame((_FIN if last else 0) | (_RSV1 if rsv1 else 0) | opcode, payload)

    def ping(self, payload: bytes) -> bytes:
        return self._frame(_FIN | Opcode.PING, payload)

    def pong(self, payload: bytes) -> bytes:
        return self._frame(_FIN | Opcode.PONG, payload)

    def close(self, code: int | None, reason: str = "") -> bytes:
        written = self._frame(_FIN | Opcode.CLOSE, b"" if code is None else code.to_bytes(2) + reason.encode())
        self._closed = True
        return written

    def _frame(self, start: int, payload: bytes) -> bytes:
        if self._closed:
            return b""
        size = len(payload)
        mask = _MASKED if self._from_client else 0
        if size <= 125:
            header = bytes((start, mask | size))
        elif size <= 0xFFFF:
            header = bytes((start, mask | 126)) + size.to_bytes(2)
        else:
            header = bytes((start, mask | 127)) + size.to_bytes(8)
        return header + _masked(payload) if mask else header + payload


def _masked(payload: bytes) -> bytes:
    """Key and payload. Every frame has a key that nobody can foresee, or payloads could be made that look like
    requests to an intermediary (RFC 6455 section 10.3)."""
    key = os.urandom(4)
    size = len(payload)
    stream = (key * ((size + 3) // 4))[:size]
    return key + (int.from_bytes(payload) ^ int.from_bytes(stream)).to_bytes(size)


def _violation(code: int) -> Violation:
    return Violation(code, _WHY.get(code, _WHY[PROTOCOL]))


def _read_close(payload: bytes) -> Close:
    """RFC 6455 section 7.4; 1004 to 1006 and 1015 may not be sent, 1016 to 2999 mean nothing yet."""
    if not payload:
        return Close(None, "")
    code = int.from_bytes(payload[:2])
    if len(payload) == 1 or not (1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999):
        raise ParseFailed("close code")
    try:
        return Close(code, payload[2:].decode())
    except UnicodeDecodeError:
        raise ParseFailed("close reason") from None
