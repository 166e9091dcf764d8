"""Content codings undone: gzip, deflate, br and zstd, whole or piece by piece (RFC 9110 section 8.4.1).

The only importer of the codecs. Output is bounded while it is made, so that a few kilobytes never become gigabytes.
"""

import gzip
import sys
import zlib
from collections.abc import Callable, Sequence
from typing import Protocol

import brotli  # type: ignore[import-untyped]

from egress.model.message import Malformed
from egress.model.verdict import DenialCode

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAX_STACKED = 2
"""Codings on top of each other; nobody honest uses more."""
RATIO = 100
"""Output bytes that one input byte pays for."""
FREE_BYTES = 64 * 1024
"""Output bytes that need no input to pay for them."""
_SAVED = 16 * 1024 * 1024
"""What a long stream may have saved up for one burst."""
_WINDOW_LOG = 23
"""zstd windows up to 8 MiB, as RFC 9659 asks of the content coding."""

_MAX_MEMBERS = 256
"""gzip members or zstd frames in one piece of input; a stream of empty ones would cost more than it says."""

_FAULTS = (zlib.error, brotli.error, zstd.ZstdError)


class _TooLarge(Exception):
    """A layer made more output than it has room for."""


class _Layer(Protocol):
    """One coding. `decode` takes the next input and returns all output it leads to, or raises `_TooLarge`."""

    def decode(self, data: bytes, room: int) -> bytes: ...

    @property
    def complete(self) -> bool:
        """True when the input may end here."""


class Decoder:
    """Feed coded bytes, get content. `end` says whether the input stopped where it may. Unusable after a fault."""

    __slots__ = ("_ceiling", "_empty", "_layers", "_made", "_paid")

    def __init__(self, layers: Sequence[_Layer], ceiling: int | None) -> None:
        self._layers = layers
        self._ceiling = ceiling
        self._paid = FREE_BYTES
        self._made = 0
        self._empty = True

    def feed(self, data: bytes) -> bytes | Malformed:
        """Content that `data` completes."""
        if not data or not self._layers:
            return self._counted(data)
        self._empty = False
        self._paid = min(self._paid, _SAVED) + RATIO * len(data)
        room = self._paid if self._ceiling is None else min(self._paid, self._ceiling - self._made)
        try:
            for layer in self._layers:
                data = layer.decode(data, room) if data else data
        except _TooLarge:
            return self._too_large()
        except _FAULTS:
            return Malformed("body does not match its content coding")
        self._paid -= len(data)
        return self._counted(data)

    def end(self) -> Malformed | None:
        """What is wrong with an input that ends now. No bytes at all are no coded body, which is fine."""
        if self._empty or all(layer.complete for layer in self._layers):
            return None
        return Malformed("coded body ends early")

    def _counted(self, data: bytes) -> bytes | Malformed:
        self._made += len(data)
        if self._ceiling is not None and self._made > self._ceiling:
            return self._too_large()
        return data

    def _too_large(self) -> Malformed:
        if self._ceiling is not None and self._paid > self._ceiling - self._made:
            return Malformed(f"decoded body is larger than {self._ceiling} bytes", DenialCode.BODY_TOO_LARGE)
        return Malformed(f"body expands more than {RATIO} times", DenialCode.BODY_TOO_LARGE)


def decoder(codings: Sequence[bytes], ceiling: int | None) -> Decoder | Malformed:
    """A decoder for the members of `Content-Encoding`, in the order in which they were applied. `ceiling` bounds the
    content in bytes; None leaves it to the ratio."""
    names = [name for coding in codings if (name := coding.lower()) != b"identity"]
    if len(names) > MAX_STACKED:
        return Malformed(f"more than {MAX_STACKED} content codings", DenialCode.UNSUPPORTED_ENCODING)
    if any(name not in _LAYERS for name in names):
        return Malformed("unknown content coding", DenialCode.UNSUPPORTED_ENCODING)
    return Decoder([_LAYERS[name]() for name in reversed(names)], ceiling)


def decode_body(data: bytes, codings: Sequence[bytes], ceiling: int) -> bytes | Malformed:
    """The content of a whole coded body of at most `ceiling` bytes."""
    made = decoder(codings, ceiling)
    if isinstance(made, Malformed):
        return made
    content = made.feed(data)
    return content if isinstance(content, Malformed) else made.end() or content


def encode_body(data: bytes, codings: Sequence[bytes]) -> bytes:
    """The other way round; `codings` in the order they are applied, each one that `decode_body` undoes."""
    for coding in codings:
        data = _ENCODERS[coding](data)
    return data


class _Gzip:
    """One or more gzip members back to back (RFC 1952 section 2.2)."""

    __slots__ = ("_inflater",)

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(wbits=31)

    @property
    def complete(self) -> bool:
        return self._inflater.eof

    def decode(self, data: bytes, room: int) -> bytes:
        output = b""
        for _ in range(_MAX_MEMBERS):
            if self._inflater.eof:
                self._inflater = zlib.decompressobj(wbits=31)
            output += _inflate(self._inflater, data, room - len(output))
            data = self._inflater.unused_data
            if not data:
                return output
        raise zlib.error("too many members")


class _Deflate:
    """A zlib stream (RFC 1950), or the bare deflate data that some send under this name."""

    __slots__ = ("_inflater", "_start")

    def __init__(self) -> None:
        self._inflater: zlib._Decompress | None = None
        self._start = b""

    @property
    def complete(self) -> bool:
        return self._inflater is not None and self._inflater.eof

    def decode(self, data: bytes, room: int) -> bytes:
        if self._inflater is None:
            data = self._start + data
            if len(data) < 2:
                self._start = data
                return b""
            zlib_header = data[0] & 15 == 8 and int.from_bytes(data[:2]) % 31 == 0
            self._inflater = zlib.decompressobj(wbits=15 if zlib_header else -15)
        if self._inflater.eof:
            raise zlib.error("data after the end")
        output = _inflate(self._inflater, data, room)
        if self._inflater.unused_data:
            raise zlib.error("data after the end")
        return output


def _inflate(inflater: "zlib._Decompress", data: bytes, room: int) -> bytes:
    output = inflater.decompress(data, room + 1)
    if len(output) > room:
        raise _TooLarge
    return output


class _Brotli:
    __slots__ = ("_decompressor",)

    def __init__(self) -> None:
        self._decompressor = brotli.Decompressor()

    @property
    def complete(self) -> bool:
        return bool(self._decompressor.is_finished())

    def decode(self, data: bytes, room: int) -> bytes:
        """The limit is soft: output comes in blocks, until none is left."""
        output = b""
        while piece := self._decompressor.process(data, output_buffer_limit=room + 1):
            output += piece
            if len(output) > room:
                raise _TooLarge
            if self._decompressor.is_finished():
                break
            data = b""
        return output


class _Zstandard:
    """One or more frames back to back (RFC 8878 section 3)."""

    __slots__ = ("_decompressor",)

    def __init__(self) -> None:
        self._decompressor = _zstd_frame()

    @property
    def complete(self) -> bool:
        return self._decompressor.eof

    def decode(self, data: bytes, room: int) -> bytes:
        output = b""
        for _ in range(_MAX_MEMBERS):
            if self._decompressor.eof:
                self._decompressor = _zstd_frame()
            output += self._decompressor.decompress(data, room + 1 - len(output))
            if len(output) > room:
                raise _TooLarge
            data = self._decompressor.unused_data
            if not data:
                return output
        raise zstd.ZstdError("too many frames")


def _zstd_frame() -> zstd.ZstdDecompressor:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})


_LAYERS: dict[bytes, type[_Gzip] | type[_Deflate] | type[_Brotli] | type[_Zstandard]] = {
    b"gzip": _Gzip,
    b"x-gzip": _Gzip,
    b"deflate": _Deflate,
    b"br": _Brotli,
    b"zstd": _Zstandard,
}


_ENCODERS: dict[bytes, Callable[[bytes], bytes]] = {
    b"gzip": gzip.compress,
    b"x-gzip": gzip.compress,
    b"deflate": zlib.compress,
    b"br": lambda data: bytes(brotli.compress(data, quality=5)),
    b"zstd": zstd.compress,
    b"identity": bytes,
}
