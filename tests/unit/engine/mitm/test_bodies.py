"""Bodies without a stream: every framing, cut anywhere."""

import pytest

from egress.engine.mitm.bodies import BodyDecoder, BodyEncoder
from egress.model.body import CHUNKED, NO_BODY, UNTIL_CLOSE, Framing, of_length
from egress.model.message import Malformed

WIRE = b"3\r\nabc\r\n2\r\nde\r\n0\r\nx-sum: 5\r\n\r\n"


def fed(framing: Framing, data: bytes, step: int) -> tuple[bytes, bytes, bool]:
    """Payload, rest and completeness after feeding in pieces of `step`."""
    decoder = BodyDecoder(framing)
    payload = b""
    for start in range(0, len(data), step):
        if decoder.complete:
            return payload, decoder.rest + data[start:], True
        piece = decoder.feed(data[start : start + step])
        assert isinstance(piece, bytes)
        payload += piece
    return payload, decoder.rest, decoder.complete


@pytest.mark.parametrize("step", range(1, 12))
@pytest.mark.parametrize(
    ("framing", "data", "expected"),
    [
        (of_length(5), b"abcdeGET /", (b"abcde", b"GET /", True)),
        (of_length(9), b"abcde", (b"abcde", b"", False)),
        (CHUNKED, WIRE + b"GET /", (b"abcde", b"GET /", True)),
        (CHUNKED, WIRE[:-1], (b"abcde", b"", False)),
        (UNTIL_CLOSE, b"abcde", (b"abcde", b"", False)),
    ],
)
def test_any_cutting(framing: Framing, data: bytes, expected: tuple[bytes, bytes, bool], step: int) -> None:
    assert fed(framing, data, step) == expected


@pytest.mark.parametrize("framing", [NO_BODY, of_length(0)])
def test_no_body_is_complete_at_once(framing: Framing) -> None:
    assert BodyDecoder(framing).complete


def test_trailers() -> None:
    decoder = BodyDecoder(CHUNKED)
    decoder.feed(WIRE)
    assert decoder.trailers == ((b"x-sum", b"5"),)


def test_a_bad_chunk_is_malformed() -> None:
    assert isinstance(BodyDecoder(CHUNKED).feed(b"+3\r\nabc\r\n"), Malformed)


def test_encoding() -> None:
    chunked, counted = BodyEncoder(CHUNKED), BodyEncoder(of_length(3))
    assert (chunked.encode(b"abc"), chunked.encode(b""), chunked.end(())) == (b"3\r\nabc\r\n", b"", b"0\r\n\r\n")
    assert chunked.end(((b"a", b"b"),)) == b"0\r\na: b\r\n\r\n"
    assert (counted.encode(b"abc"), counted.end(((b"a", b"b"),))) == (b"abc", b"")
