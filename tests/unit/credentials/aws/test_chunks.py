"""Bodies in aws-chunked coding."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egress.credentials.aws.chunks import CHUNK_BYTES, ChunkStream, unwrap
from egress.credentials.aws.payload import Chunks, Payload, PayloadMode
from egress.http.chunked import ChunkedDecoder
from egress.model.body import CHUNKED, of_length
from egress.model.message import Malformed
from tests.unit.credentials.aws.samples import S3, field, planned, request, signed

SIGNATURE = b";chunk-signature=" + b"a" * 64
TRAILER = b"x-amz-checksum-crc32:AAAAAA==\r\nx-amz-trailer-signature:" + b"b" * 64 + b"\r\n"


def chunked(payload: bytes, size: int = 3, trailer: bytes = b"") -> bytes:
    """As a client sends it."""
    pieces = [payload[start : start + size] for start in range(0, len(payload), size)]
    chunks = [b"%x%b\r\n%b\r\n" % (len(piece), SIGNATURE, piece) for piece in pieces]
    return b"".join([*chunks, b"0" + SIGNATURE + b"\r\n", trailer, b"\r\n"])


def plain(length: int) -> Payload:
    return Payload(PayloadMode.UNSIGNED, chunks=Chunks.UNWRAP, length=length)


def rewrapped(length: int) -> Payload:
    return Payload(PayloadMode.TRAILER, chunks=Chunks.REWRAP, length=length)


def through(payload: Payload, wire: bytes, cuts: list[int]) -> bytes | Malformed:
    stream, sent, start = ChunkStream(payload), b"", 0
    for end in [*sorted(cut % (len(wire) + 1) for cut in cuts), len(wire)]:
        part = stream.feed(wire[start:end])
        if isinstance(part, Malformed):
            return part
        sent, start = sent + part, end
    rest = stream.finish()
    return rest if isinstance(rest, Malformed) else sent + rest


@given(payload=st.binary(max_size=60), size=st.integers(1, 9), cuts=st.lists(st.integers(0, 2000), max_size=6))
@settings(max_examples=60, deadline=None)
def test_any_division_gives_the_payload(payload: bytes, size: int, cuts: list[int]) -> None:
    assert through(plain(len(payload)), chunked(payload, size), cuts) == payload


@given(payload=st.binary(max_size=60), cuts=st.lists(st.integers(0, 2000), max_size=6))
@settings(max_examples=60, deadline=None)
def test_new_chunks_hold_the_payload_and_its_checksums(payload: bytes, cuts: list[int]) -> None:
    sent = through(rewrapped(len(payload)), chunked(payload, trailer=TRAILER), cuts)
    assert isinstance(sent, bytes)
    assert b"signature" not in sent
    decoder = ChunkedDecoder()
    pieces = decoder.feed(sent)
    assert not isinstance(pieces, Malformed)
    assert decoder.done
    assert b"".join(pieces) == payload
    assert decoder.trailers == ((b"x-amz-checksum-crc32", b"AAAAAA=="),)
    assert decoder.rest == b""


def test_new_chunks_are_large_enough_for_s3() -> None:
    payload = b"x" * (2 * CHUNK_BYTES + 5)
    sent = through(rewrapped(len(payload)), chunked(payload, 1000), list(range(0, 200_000, 777)))
    assert isinstance(sent, bytes)
    assert sent.startswith(b"10000\r\n")
    assert sent.endswith(b"\r\n5\r\nxxxxx\r\n0\r\n\r\n")
    assert len(sent) == len(payload) + 2 * 9 + 5 + 5


@pytest.mark.parametrize(
    ("wire", "length"),
    [
        (chunked(b"abc"), 2),
        (chunked(b"abc"), 4),
        (chunked(b"abc")[:-2], 3),
        (chunked(b"abc")[:-30], 3),
        (b"", 0),
        (b"3\r\nabcd\r\n0\r\n\r\n", 3),
        (b"x\r\n", 3),
        (b"-3\r\nabc\r\n", 3),
        (chunked(b"abc") + b"more", 3),
        (b"3;" + b"a" * 300 + b"\r\nabc\r\n", 3),
        (b"abc", 3),
        (chunked(b"abc", trailer=b"bad line\r\n"), 3),
    ],
)
@pytest.mark.parametrize("payload", [plain, rewrapped])
def test_a_body_that_is_not_what_it_says_goes_no_further(payload: object, wire: bytes, length: int) -> None:
    assert isinstance(through(payload(length), wire, []), Malformed)  # type: ignore[operator]
    assert isinstance(unwrap(payload(length), wire), Malformed)  # type: ignore[operator]


def test_never_more_than_was_announced() -> None:
    stream = ChunkStream(plain(4))
    assert stream.feed(b"4\r\nabcd\r\n") == b"abcd"
    assert isinstance(stream.feed(b"1\r\ne\r\n"), Malformed)


FIELDS = {
    "X-Amz-Content-Sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
    "Content-Encoding": "gzip, aws-chunked",
    "X-Amz-Decoded-Content-Length": "3",
}


def test_a_streaming_payload_goes_on_alone() -> None:
    head = request("PUT", S3, "/k", FIELDS, of_length(250))
    plan = planned(head, "sigv4:no_body")
    stream = plan.stream()
    assert stream is not None
    assert stream.feed(chunked(b"abc")) == b"abc"
    assert stream.finish() == b""
    sent, _ = signed(head, mode="sigv4:no_body")
    assert sent.framing == of_length(3)
    assert field(sent, "x-amz-content-sha256") == "UNSIGNED-PAYLOAD"
    assert field(sent, "content-encoding") == "gzip"
    assert field(sent, "x-amz-decoded-content-length") is None


def test_a_coding_of_chunks_alone_leaves_no_field() -> None:
    head = request("PUT", S3, "/k", {**FIELDS, "Content-Encoding": "aws-chunked"}, of_length(250))
    assert field(signed(head, mode="sigv4:no_body")[0], "content-encoding") is None


def test_a_streaming_body_with_checksums_keeps_them() -> None:
    fields = {**FIELDS, "X-Amz-Content-Sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
              "X-Amz-Trailer": "x-amz-checksum-crc32"}  # fmt: skip
    sent, _ = signed(request("PUT", S3, "/k", fields, of_length(250)), mode="sigv4:no_body")
    assert sent.framing == CHUNKED
    assert field(sent, "x-amz-content-sha256") == "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
    assert field(sent, "content-encoding") == "gzip, aws-chunked"
    assert field(sent, "x-amz-trailer") == "x-amz-checksum-crc32"
    assert field(sent, "x-amz-decoded-content-length") == "3"


def test_a_held_body_is_signed_without_chunks_and_its_checksums_become_fields() -> None:
    fields = {**FIELDS, "X-Amz-Content-Sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
              "X-Amz-Trailer": "x-amz-checksum-crc32"}  # fmt: skip
    head = request("PUT", S3, "/k", fields, CHUNKED)
    assert planned(head, "sigv4:body").stream() is None
    sent, body = signed(head, chunked(b"abc", trailer=TRAILER), "sigv4:body")
    assert body == b"abc"
    assert sent.framing == of_length(3)
    assert field(sent, "x-amz-checksum-crc32") == "AAAAAA=="
    assert field(sent, "x-amz-trailer") is None
    assert field(sent, "x-amz-content-sha256") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_body_that_was_held_for_another_stage_is_rewrapped_whole() -> None:
    fields = {**FIELDS, "X-Amz-Content-Sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"}
    sent, body = signed(request("PUT", S3, "/k", fields, CHUNKED), chunked(b"abc", trailer=TRAILER), "sigv4:no_body")
    assert body == b"3\r\nabc\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n"
    assert sent.framing == of_length(len(body))
