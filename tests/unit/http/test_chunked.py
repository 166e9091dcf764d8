"""Chunked coding: strict, incremental, and never a byte more than the body."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.http.chunked import ChunkedDecoder, encode_chunk, encode_end
from egress.model.limits import LIMITS
from egress.model.message import FieldLine, Malformed

names = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=8).map(lambda name: f"x-{name}".encode())
values = st.text([chr(code) for code in range(0x21, 0x7F)], max_size=8).map(str.encode)
trailer_lists = st.lists(st.tuples(names, values), max_size=4).map(tuple)


def feed(data: bytes, cuts: list[int]) -> tuple[bytes, ChunkedDecoder]:
    """Decode `data` cut at the given places."""
    decoder = ChunkedDecoder()
    payload = b""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in pairwise(places):
        pieces = decoder.feed(data[start:end])
        assert not isinstance(pieces, Malformed), pieces.reason
        assert all(pieces)
        payload += b"".join(pieces)
    return payload, decoder


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    trailer_lists,
    st.binary(max_size=30),
    st.lists(st.integers(0, 400), max_size=12),
)
def test_any_cutting_gives_the_same_payload_trailers_and_rest(
    chunks: list[bytes], trailers: tuple[FieldLine, ...], rest: bytes, cuts: list[int]
) -> None:
    wire = b"".join(map(encode_chunk, chunks)) + encode_end(trailers) + rest
    payload, decoder = feed(wire, cuts)
    assert payload == b"".join(chunks)
    assert (decoder.done, decoder.trailers, decoder.rest) == (True, trailers, rest)


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=6))
def test_whatever_comes_cutting_changes_no_verdict(data: bytes, cuts: list[int]) -> None:
    """A decoder that read one piece differently from two would let a smuggler choose."""

    def verdict(cuts: list[int]) -> object:
        decoder = ChunkedDecoder()
        payload = b""
        places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
        for start, end in pairwise(places):
            pieces = decoder.feed(data[start:end])
            if isinstance(pieces, Malformed):
                return "refused"
            payload += b"".join(pieces)
        return payload, decoder.done, decoder.rest, decoder.trailers

    assert verdict(cuts) == verdict([])


@pytest.mark.parametrize(
    ("wire", "payload"),
    [
        (b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b"0005\r\nhello\r\n000\r\n\r\n", b"hello"),
        (b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
        (b"a\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
        (b'1;name=value;"q"\r\nx\r\n0;last\r\n\r\n', b"x"),
        (b"1 \t\r\nx\r\n0\r\n\r\n", b"x"),
        (b"0\r\n\r\n", b""),
    ],
)
def test_accepted(wire: bytes, payload: bytes) -> None:
    assert feed(wire, [])[0] == payload
    assert feed(wire, list(range(len(wire))))[0] == payload


@pytest.mark.parametrize(
    "wire",
    [
        b"\r\n", b"g\r\n", b"+5\r\nhello", b"-1\r\n", b"0x5\r\nhello", b" 5\r\nhello", b"5\nhello\n", b"5\rhello\r\n",
        b"5_0\r\n", b"5\r\nhelloXX", b"5\r\nhello\n0\r\n\r\n", b"5\r\nhello\r0", b"5\r\nhello0\r\n\r\n",
        b"ffffffffffffffff\r\n", b"8000000000000000\r\n", b"11111111111111111\r\n", b";ext\r\n", b"5;a\x00\r\n",
        b"5;a\nb\r\nhello", b"5;a\rb\r\nhello", b"0\r\nno colon\r\n\r\n", b"0\r\nA : b\r\n\r\n", b"0\r\n A: b\r\n\r\n",
        b"0\r\nA: b\nC: d\r\n\r\n", b"0\r\n: b\r\n\r\n",
    ],
)  # fmt: skip
def test_refused(wire: bytes) -> None:
    decoder = ChunkedDecoder()
    assert isinstance(decoder.feed(wire), Malformed)
    drip = ChunkedDecoder()
    assert any(isinstance(drip.feed(wire[place : place + 1]), Malformed) for place in range(len(wire)))


def test_a_size_line_is_bounded_whether_or_not_it_ends() -> None:
    long = b"1;" + b"x" * LIMITS.chunk_line_bytes
    assert isinstance(ChunkedDecoder().feed(long), Malformed)
    assert isinstance(ChunkedDecoder().feed(long + b"\r\nx\r\n"), Malformed)
    fits = b"1;" + b"x" * (LIMITS.chunk_line_bytes - 4) + b"\r\n"
    assert ChunkedDecoder().feed(fits + b"y") == [b"y"]


def test_trailers_are_bounded_whether_or_not_they_end() -> None:
    long = b"0\r\nA: " + b"x" * LIMITS.trailer_bytes
    assert isinstance(ChunkedDecoder().feed(long), Malformed)
    assert isinstance(ChunkedDecoder().feed(long + b"\r\n\r\n"), Malformed)


def test_what_a_trailer_must_not_say_is_dropped() -> None:
    wire = b"0\r\nX-Sum: 1\r\nContent-Length: 9\r\nTransfer-Encoding: x\r\nhost: evil\r\nAuthorization: b\r\n\r\n"
    decoder = ChunkedDecoder()
    assert decoder.feed(wire) == []
    assert decoder.trailers == ((b"X-Sum", b"1"),)


def test_a_pipelined_request_stays_outside_the_body() -> None:
    following = b"GET /secret HTTP/1.1\r\nHost: a\r\n\r\n"
    payload, decoder = feed(b"1\r\nx\r\n0\r\n\r\n" + following, [])
    assert (payload, decoder.rest) == (b"x", following)
    assert decoder.feed(b"more") == []
    assert decoder.rest == following + b"more"


def test_large_chunks_pass_through_without_being_gathered() -> None:
    decoder = ChunkedDecoder()
    assert decoder.feed(b"100000\r\n" + bytes(1000)) == [bytes(1000)]
    assert decoder.feed(bytes(70000)) == [bytes(70000)]
    assert decoder._buffer == b""


def test_encoding() -> None:
    assert encode_chunk(bytes(26)) == b"1a\r\n" + bytes(26) + b"\r\n"
    assert encode_end() == b"0\r\n\r\n"
    assert encode_end(((b"X", b"1"), (b"Y", b""))) == b"0\r\nX: 1\r\nY: \r\n\r\n"
