"""Bodies watched while they stream: however they are cut, coded or spelled, no placeholder passes."""

import base64
import gzip
import zlib
from collections.abc import Callable
from itertools import pairwise

import brotli  # type: ignore[import-untyped]
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from egress.credentials.scan import TAIL, Guard, marked
from tests.unit.credentials.samples import A, P

PLAIN = f"{P}KEY".encode()
ENCODED = "".join(f"%{byte:02X}" for byte in P.encode()).encode()
CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZIP": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstd.compress,
}


def coded(*codings: str) -> Guard:
    return Guard.of(tuple((b"Content-Encoding", coding.encode()) for coding in codings))


def passed(guard: Guard, pieces: list[bytes]) -> tuple[bytes, bool]:
    """What went through, and whether all of it did."""
    out = b""
    for piece in pieces:
        fed = guard.feed(piece)
        if fed is None:
            return out, False
        out += fed
    end = guard.finish()
    return (out, False) if end is None else (out + end, True)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def test_the_fully_encoded_marker_sent_as_65_bytes_and_1_lets_nothing_out() -> None:
    assert len(ENCODED) == TAIL == 66
    guard = Guard()
    assert guard.feed(ENCODED[:65]) == b""
    assert guard.feed(ENCODED[65:]) is None


@pytest.mark.parametrize("marker", [PLAIN, f"sk-{A}KEY".encode(), ENCODED], ids=["plain", "alias", "encoded"])
def test_byte_by_byte_what_came_before_may_be_out_and_no_byte_more(marker: bytes) -> None:
    before = b"." * 200
    out, whole = passed(Guard(), [bytes([byte]) for byte in before + marker + b"after"])
    assert not whole
    assert before.startswith(out)


def test_a_stopped_guard_stays_stopped() -> None:
    guard = Guard()
    assert guard.feed(PLAIN) is None
    assert guard.feed(b"innocent") is None
    assert guard.finish() is None


@pytest.mark.parametrize("lead", range(4))
@pytest.mark.parametrize("marker", [PLAIN, f"sk-{A}K".encode()], ids=["plain", "alias"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_markers_in_base64_at_any_offset(lead: int, marker: bytes, encode: Callable[[bytes], bytes]) -> None:
    assert marked(b"junk " + encode(b"\xff" * lead + marker + b"\xff\xfe") + b" junk")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"openshell",
        b"openshell:resolve:env",
        b"%6f%70%65%6e",
        base64.b64encode(b"openshell:resolve"),
        ENCODED[:65],
    ],
)
def test_what_holds_no_marker(data: bytes) -> None:
    assert not marked(data)
    assert passed(Guard(), [data]) == (data, True)


PIECES = st.lists(
    st.sampled_from([P, A, P[:11], P[11:], A[:5], A[5:], "K", "%6f", "%6F", "penshell:resolve:env:", "%", "%%", "6f",
                     "sk-", " ", "b3BlbnNoZWxsOnJlc29sdmU6ZW52O", ENCODED.decode()[:30], ENCODED.decode()[30:],
                     "x" * 80]),
    max_size=8,
).map(lambda parts: "".join(parts).encode())  # fmt: skip
CUTS = st.lists(st.integers(0, 1000), max_size=10)


@given(PIECES, CUTS)
def test_the_verdict_is_that_of_the_whole_body_however_it_is_cut(data: bytes, places: list[int]) -> None:
    out, whole = passed(Guard(), cut(data, places))
    assert whole is not marked(data)
    assert not marked(out)
    if whole:
        assert out == data
    else:
        assert data.startswith(out)


@given(PIECES, CUTS, st.sampled_from(list(CODINGS)))
def test_the_same_under_a_coding(data: bytes, places: list[int], coding: str) -> None:
    packed = CODINGS[coding](data)
    out, whole = passed(coded(coding), cut(packed, places))
    assert whole is not marked(data)
    if whole:
        assert out == packed
    else:
        assert packed.startswith(out)


@pytest.mark.parametrize("coding", CODINGS)
def test_a_marker_across_reads_under_a_coding(coding: str) -> None:
    packed = CODINGS[coding](bytes(range(256)) * 20 + ENCODED)
    out, whole = passed(coded(coding), [packed[at : at + 1] for at in range(len(packed))])
    assert not whole
    assert len(out) < len(packed)


def test_codings_on_top_of_each_other() -> None:
    packed = gzip.compress(zlib.compress(PLAIN))
    assert passed(coded("deflate", "gzip"), [packed]) == (b"", False)
    assert passed(coded("deflate, gzip"), [packed]) == (b"", False)
    clean = gzip.compress(zlib.compress(b"clean"))
    assert passed(coded("deflate", "gzip"), [clean]) == (clean, True)


@pytest.mark.parametrize("codings", [("sdch",), ("gzip", "sdch"), ("gzip, gzip, gzip",)])
def test_a_coding_that_cannot_be_undone_hides_everything(codings: tuple[str, ...]) -> None:
    assert coded(*codings).feed(b"x") is None


def test_what_does_not_match_its_coding_does_not_pass() -> None:
    assert coded("gzip").feed(b"no gzip at all") is None
    assert coded("gzip").feed(gzip.compress(b"\0" * 20_000_000)) is None


@pytest.mark.parametrize("codings", [(), ("identity",), ("aws-chunked",), ("Identity, AWS-chunked",)])
def test_codings_that_code_nothing(codings: tuple[str, ...]) -> None:
    assert passed(coded(*codings), [b"clean"]) == (b"clean", True)
    assert passed(coded(*codings), [PLAIN]) == (b"", False)


def test_a_whole_body_at_once() -> None:
    assert Guard().finds(b"a" + PLAIN)
    assert not Guard().finds(b"clean")
    assert coded("gzip").finds(gzip.compress(PLAIN))
    assert not coded("gzip").finds(gzip.compress(b"clean"))
