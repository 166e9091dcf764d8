"""Content codings: what decodes, what does not, and what it may cost."""

import gzip
import os
import tracemalloc
import zlib
from collections.abc import Callable
from functools import cache

import brotli  # type: ignore[import-untyped]
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from egress.http.coding import FREE_BYTES, MAX_STACKED, RATIO, Decoder, decode_body, decoder
from egress.model.message import Malformed
from egress.model.verdict import DenialCode

TEXT = b'{"query": "{ viewer { id } }"}\n' * 40
CEILING = 65536

MISMATCH = Malformed("body does not match its content coding")
EARLY = Malformed("coded body ends early")
UNKNOWN = Malformed("unknown content coding", DenialCode.UNSUPPORTED_ENCODING)
BOMB = Malformed("body expands more than 100 times", DenialCode.BODY_TOO_LARGE)


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


def quick_brotli(data: bytes) -> bytes:
    return bytes(brotli.compress(data, quality=1))


def zstandard(data: bytes) -> bytes:
    return bytes(zstd.compress(data))


@cache
def bomb(encode: Callable[[bytes], bytes]) -> bytes:
    return encode(bytes(8_000_000))


CODINGS: list[tuple[bytes, Callable[[bytes], bytes]]] = [
    (b"gzip", gzip.compress),
    (b"x-gzip", gzip.compress),
    (b"GZip", gzip.compress),
    (b"deflate", zlib.compress),
    (b"deflate", raw_deflate),
    (b"br", quick_brotli),
    (b"zstd", zstandard),
]
NAMES = ["gzip", "x-gzip", "upper case", "zlib", "raw deflate", "br", "zstd"]
each_coding = pytest.mark.parametrize(("coding", "encode"), CODINGS, ids=NAMES)


def open_decoder(*codings: bytes, ceiling: int | None = None) -> Decoder:
    made = decoder(codings, ceiling)
    assert isinstance(made, Decoder)
    return made


@each_coding
class TestEachCoding:
    def test_decodes(self, coding: bytes, encode: Callable[[bytes], bytes]) -> None:
        assert decode_body(encode(TEXT), [coding], CEILING) == TEXT

    def test_decodes_nothing_coded(self, coding: bytes, encode: Callable[[bytes], bytes]) -> None:
        assert decode_body(encode(b""), [coding], CEILING) == b""

    def test_no_bytes_are_no_coded_body(self, coding: bytes, encode: Callable[[bytes], bytes]) -> None:
        assert decode_body(b"", [coding], CEILING) == b""

    def test_truncated_anywhere(self, coding: bytes, encode: Callable[[bytes], bytes]) -> None:
        coded = encode(TEXT)
        for end in range(1, len(coded)):
            assert decode_body(coded[:end], [coding], CEILING) == EARLY

    def test_trailing_garbage(self, coding: bytes, encode: Callable[[bytes], bytes]) -> None:
        assert decode_body(encode(TEXT) + b"garbage", [coding], CEILING) == MISMATCH

    def test_trailing_garbage_in_a_later_piece(self, coding: bytes, encode: Callable[[bytes], bytes]) -> None:
        stream = open_decoder(coding)
        assert stream.feed(encode(TEXT)) == TEXT
        assert stream.feed(b"garbage") == MISMATCH

    def test_not_coded_at_all(self, coding: bytes, encode: Callable[[bytes], bytes]) -> None:
        assert decode_body(b"\xffplain text, not coded", [coding], CEILING) == MISMATCH

    def test_exact_ceiling(self, coding: bytes, encode: Callable[[bytes], bytes]) -> None:
        assert decode_body(encode(TEXT), [coding], len(TEXT)) == TEXT
        over = Malformed(f"decoded body is larger than {len(TEXT) - 1} bytes", DenialCode.BODY_TOO_LARGE)
        assert decode_body(encode(TEXT), [coding], len(TEXT) - 1) == over

    def test_byte_by_byte(self, coding: bytes, encode: Callable[[bytes], bytes]) -> None:
        stream = open_decoder(coding)
        pieces = [stream.feed(bytes((byte,))) for byte in encode(TEXT)]
        assert b"".join(piece for piece in pieces if isinstance(piece, bytes)) == TEXT
        assert stream.end() is None

    def test_bomb(self, coding: bytes, encode: Callable[[bytes], bytes]) -> None:
        assert decode_body(bomb(encode), [coding], 100_000_000) == BOMB

    def test_bomb_in_a_stream(self, coding: bytes, encode: Callable[[bytes], bytes]) -> None:
        assert open_decoder(coding).feed(bomb(encode)) == BOMB

    def test_small_bodies_may_expand_freely(self, coding: bytes, encode: Callable[[bytes], bytes]) -> None:
        zeros = bytes(FREE_BYTES)
        assert decode_body(encode(zeros), [coding], CEILING) == zeros

    def test_below_every_other_coding(self, coding: bytes, encode: Callable[[bytes], bytes]) -> None:
        for outer, outer_encode in CODINGS:
            assert decode_body(outer_encode(encode(TEXT)), [coding, outer], CEILING) == TEXT


@each_coding
@given(data=st.binary(max_size=3000), cuts=st.lists(st.integers(1, 400), max_size=6))
def test_any_cut_gives_the_same(coding: bytes, encode: Callable[[bytes], bytes], data: bytes, cuts: list[int]) -> None:
    coded, stream, output = encode(data), open_decoder(coding, ceiling=CEILING), b""
    for size in [*cuts, len(coded)]:
        piece, coded = coded[:size], coded[size:]
        decoded = stream.feed(piece)
        assert isinstance(decoded, bytes)
        output += decoded
    assert stream.end() is None
    assert output == data


@pytest.mark.parametrize("codings", [[b"compress"], [b"aes128gcm"], [b"gzip", b"nope"], [b""], [b"gzip;q=1"], [b"*"]])
def test_unknown(codings: list[bytes]) -> None:
    assert decode_body(b"x", codings, CEILING) == UNKNOWN


def test_at_most_two_codings() -> None:
    coded = gzip.compress(gzip.compress(gzip.compress(TEXT)))
    assert MAX_STACKED == 2
    said = Malformed("more than 2 content codings", DenialCode.UNSUPPORTED_ENCODING)
    assert decode_body(coded, [b"gzip"] * 3, CEILING) == said


@pytest.mark.parametrize("codings", [[], [b"identity"], [b"Identity", b"identity", b"identity"]])
def test_identity(codings: list[bytes]) -> None:
    assert decode_body(TEXT, codings, CEILING) == TEXT
    assert decode_body(TEXT, codings, len(TEXT)) == TEXT
    over = Malformed("decoded body is larger than 10 bytes", DenialCode.BODY_TOO_LARGE)
    assert decode_body(TEXT, codings, 10) == over
    assert decode_body(gzip.compress(TEXT), [b"identity", b"gzip", b"identity"], CEILING) == TEXT


def test_order_matters() -> None:
    assert decode_body(gzip.compress(brotli.compress(TEXT)), [b"gzip", b"br"], CEILING) == MISMATCH


@pytest.mark.parametrize(("coding", "encode"), [(b"gzip", gzip.compress), (b"zstd", zstandard)])
def test_members_follow_one_another(coding: bytes, encode: Callable[[bytes], bytes]) -> None:
    assert decode_body(encode(b"one ") + encode(b"") + encode(b"two"), [coding], CEILING) == b"one two"
    assert decode_body(encode(b"one ") + encode(b"two")[:-3], [coding], CEILING) == EARLY


@pytest.mark.parametrize(("coding", "encode"), [(b"gzip", gzip.compress), (b"zstd", zstandard)])
def test_a_stream_of_empty_members_ends(coding: bytes, encode: Callable[[bytes], bytes]) -> None:
    empty = encode(b"")
    assert decode_body(empty * 256, [coding], CEILING) == b""
    assert decode_body(empty * 257, [coding], CEILING) == MISMATCH


def test_one_stream_ends_the_other_codings() -> None:
    for encode, coding in ((zlib.compress, b"deflate"), (raw_deflate, b"deflate"), (quick_brotli, b"br")):
        assert decode_body(encode(b"one") + encode(b"two"), [coding], CEILING) == MISMATCH


def test_corrupted_checksum() -> None:
    coded = bytearray(gzip.compress(TEXT))
    coded[-6] ^= 1
    assert decode_body(bytes(coded), [b"gzip"], CEILING) == MISMATCH


def test_window_beyond_eight_mebibytes() -> None:
    large = zstd.compress(b"x" * 100, options={zstd.CompressionParameter.window_log: 25})
    frame = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 25})
    streamed = frame.compress(TEXT) + frame.flush()
    assert decode_body(large, [b"zstd"], CEILING) == b"x" * 100  # a frame that states its size has a window that small
    assert decode_body(streamed, [b"zstd"], CEILING) == MISMATCH


def test_a_bomb_costs_little_memory() -> None:
    bombs = [(name, bomb(encode)) for name, encode in CODINGS]
    tracemalloc.start()
    for name, coded in bombs:
        assert decode_body(coded, [name], 10_000_000_000) == BOMB
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000


def test_two_stage_bomb() -> None:
    inner = bomb(gzip.compress)
    assert decode_body(gzip.compress(inner), [b"gzip", b"gzip"], 100_000_000) == BOMB
    assert decode_body(brotli.compress(inner), [b"gzip", b"br"], 100_000_000) == BOMB


def test_a_long_honest_stream_saves_up_no_bomb() -> None:
    """What incompressible data paid for must not come due in one burst."""
    stream = open_decoder(b"gzip")
    compressor = zlib.compressobj(wbits=31)
    for _ in range(4):
        piece = os.urandom(64 * 1024)
        coded = compressor.compress(piece) + compressor.flush(zlib.Z_SYNC_FLUSH)
        assert stream.feed(coded) == piece
    burst = compressor.compress(bytes(22_000_000)) + compressor.flush()
    assert stream.feed(burst) == BOMB


def test_a_compressible_stream_passes_at_its_own_pace() -> None:
    stream = open_decoder(b"gzip")
    compressor = zlib.compressobj(wbits=31)
    for number in range(200):
        line = b"data: %d %s\n\n" % (number, b"tick " * 100)
        assert stream.feed(compressor.compress(line) + compressor.flush(zlib.Z_SYNC_FLUSH)) == line


def test_the_ratio_is_what_it_says() -> None:
    assert RATIO == 100
    line = os.urandom(1024)
    honest = line * 80
    assert decode_body(zlib.compress(honest), [b"deflate"], 10_000_000) == honest
