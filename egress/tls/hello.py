"""Reads a TLS ClientHello out of the first bytes of a connection: server name and ALPN, nothing else.

Pure: no sockets, no TLS library. It never raises on what a peer sends, and it decides nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from egress.model.limits import LIMITS

_HANDSHAKE = 22
_CLIENT_HELLO = 1
_MAX_FRAGMENT = 1 << 14
_SERVER_NAME = 0
_ALPN = 16
_HOST_NAME = 0


@dataclass(frozen=True, slots=True)
class ClientHello:
    """What the client asks for; `sni` as written, None when it was left out; `alpn` in the client's order."""

    sni: str | None
    alpn: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class NeedMore:
    """The bytes so far may become a ClientHello."""


@dataclass(frozen=True, slots=True)
class NotTls:
    """The first bytes cannot start a TLS connection."""


@dataclass(frozen=True, slots=True)
class BadHello:
    """TLS by its first bytes, but no ClientHello that says one thing only. Refuse it: relayed raw, it would let a
    lenient origin read a name that we did not judge. `reason` repeats none of the bytes."""

    reason: str


type HelloResult = ClientHello | NeedMore | NotTls | BadHello

_NEED_MORE = NeedMore()
_NOT_TLS = NotTls()


class _Broken(Exception):
    """A length points outside its container, or a field is not what its RFC says."""


class _Incomplete(Exception):
    """The ClientHello goes on past the bytes at hand."""


def read_hello(data: bytes, limit: int = LIMITS.hello_bytes) -> HelloResult:
    """Read the ClientHello at the start of `data`, which may hold any number of bytes after it."""
    if not _may_be_tls(data):
        return _NOT_TLS
    try:
        return _read_body(_handshake_body(data, limit))
    except _Incomplete:
        return _NEED_MORE
    except _Broken as broken:
        return BadHello(str(broken))


def _may_be_tls(data: bytes) -> bool:
    """Content type handshake, then record version 3.0 to 3.4 (RFC 8446 section 5.1)."""
    if data[:1] not in (b"", b"\x16") or data[1:2] not in (b"", b"\x03"):
        return False
    return len(data) < 3 or data[2] <= 4


def _handshake_body(data: bytes, limit: int) -> bytes:
    """The body of the first handshake message, put together from as many records as it was cut into."""
    message = bytearray()
    position = 0
    while True:
        if len(message) >= 4:
            if message[0] != _CLIENT_HELLO:
                raise _Broken("first handshake message is no ClientHello")
            wanted = 4 + int.from_bytes(message[1:4])
            if wanted > limit:
                raise _Broken(f"ClientHello is longer than {limit} bytes")
            if len(message) >= wanted:
                return bytes(message[4:wanted])
        if position > limit:
            # Thousands of one-byte records would otherwise stay under the bound on the message itself.
            raise _Broken(f"ClientHello takes more than {limit} bytes of records")
        fragment, position = _next_fragment(data, position)
        message += fragment


def _next_fragment(data: bytes, position: int) -> tuple[bytes, int]:
    """One record's content, or as much of it as has arrived, and where the next record starts."""
    header = data[position : position + 5]
    if header and header[0] != _HANDSHAKE:
        raise _Broken("another record interrupts the ClientHello")
    if len(header) < 5:
        raise _Incomplete
    length = int.from_bytes(header[3:5])
    if not 0 < length <= _MAX_FRAGMENT:
        raise _Broken("record length is out of range")
    start = position + 5
    fragment = data[start : start + length]
    if not fragment:
        raise _Incomplete
    return fragment, start + length


class _Reader:
    """Takes length-prefixed vectors (RFC 8446 section 3.4) off a buffer."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def finished(self) -> bool:
        return self._position == len(self._data)

    def take(self, count: int) -> bytes:
        end = self._position + count
        if end > len(self._data):
            raise _Broken("a length in the ClientHello is out of range")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width))

    def vector(self, width: int) -> bytes:
        return self.take(self.number(width))


def _read_body(body: bytes) -> ClientHello:
    reader = _Reader(body)
    reader.take(2 + 32)  # legacy_version and random (RFC 8446 section 4.1.2)
    if len(reader.vector(1)) > 32:
        raise _Broken("session id is too long")
    reader.vector(2)  # cipher suites
    reader.vector(1)  # compression methods
    sni: str | None = None
    alpn: tuple[bytes, ...] = ()
    for kind, content in _extensions(reader):
        if kind == _SERVER_NAME:
            sni = _server_name(content)
        elif kind == _ALPN:
            alpn = _protocols(content)
    return ClientHello(sni, alpn)


def _extensions(reader: _Reader) -> Iterator[tuple[int, bytes]]:
    if reader.finished:  # TLS 1.2 allows a hello without extensions (RFC 5246 section 7.4.1.2)
        return
    extensions = _Reader(reader.vector(2))
    if not reader.finished:
        raise _Broken("bytes follow the extensions")
    seen: set[int] = set()
    while not extensions.finished:
        kind = extensions.number(2)
        if kind in seen:
            raise _Broken("an extension is repeated")
        seen.add(kind)
        yield kind, extensions.vector(2)


def _server_name(content: bytes) -> str:
    """The one host name of the extension (RFC 6066 section 3)."""
    reader = _Reader(content)
    names = _Reader(reader.vector(2))
    kind, name = names.number(1), names.vector(2)
    if kind != _HOST_NAME or not name or not names.finished or not reader.finished:
        raise _Broken("server name is not exactly one host name")
    if not all(0x21 <= byte <= 0x7E for byte in name):
        raise _Broken("server name is not printable ASCII")
    return name.decode("ascii")


def _protocols(content: bytes) -> tuple[bytes, ...]:
    """The names of the ALPN extension (RFC 7301 section 3.1)."""
    reader = _Reader(content)
    names = _Reader(reader.vector(2))
    found: list[bytes] = []
    while not names.finished:
        found.append(names.vector(1))
    if not reader.finished or not found or not all(found):
        raise _Broken("ALPN list is empty or holds an empty name")
    return tuple(found)
