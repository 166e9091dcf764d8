"""Frames to whole messages and back, over wsproto, bounded in size, fragments and inflation. One per direction.

The client's text is given whole, since it is judged; everything else is given in pieces as it arrives. Nothing here
waits: deadlines belong to whoever feeds it. http-surface.md 12.3.
"""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass

from wsproto.frame_protocol import Frame, FrameDecoder, FrameProtocol, Opcode, ParseFailed

from egress.websocket.handshake import Deflate
from egress.websocket.rules import Bounds, FrameRules, Side

BOUNDS = Bounds()
PROTOCOL, BAD_DATA, TOO_BIG = 1002, 1007, 1009
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
        "_bounds", "_broken", "_checker", "_closed", "_data", "_first", "_from_client", "_reader", "_text", "_writer",
        "ended",
    )  # fmt: skip

    def __init__(self, side: Side, deflate: Deflate | None, bounds: Bounds = BOUNDS) -> None:
        from_client = side is Side.CLIENT
        rules = FrameRules(deflate, side, bounds)
        self._reader = FrameDecoder(client=not from_client, extensions=[rules])
        self._writer = FrameProtocol(client=from_client, extensions=[rules] if deflate is not None else [])
        self._from_client = from_client
        self._bounds = bounds
        self._data = bytearray()
        self._text = False
        self._checker = _decoder()
        self._first = True
        self._broken = False
        self._closed = False
        self.ended = False
        """True once the peer's Close was read."""

    @property
    def holding(self) -> bool:
        """True while part of a text is kept until its last frame."""
        return self._from_client and self._text and not self._first

    def feed(self, data: bytes | memoryview) -> Iterator[Event]:
        """Events completed by `data`. Each is to be sent on before the next is asked for.

        What follows a Close or a Violation is dropped (RFC 6455 section 1.4).
        """
        if self.ended or self._broken:
            return
        self._reader.receive_bytes(data)  # type: ignore[arg-type]  # any buffer will do
        try:
            while not self.ended and (frame := self._reader.process_buffer()) is not None:
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
        return b"" if self._closed else bytes(self._writer.send_data(data, fin=last))

    def ping(self, payload: bytes) -> bytes:
        return b"" if self._closed else bytes(self._writer.ping(payload))

    def pong(self, payload: bytes) -> bytes:
        return b"" if self._closed else bytes(self._writer.pong(payload))

    def close(self, code: int | None, reason: str = "") -> bytes:
        if self._closed:
            return b""
        self._closed = True
        return bytes(self._writer.close(code, reason or None) if code is not None else self._writer.close())


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
