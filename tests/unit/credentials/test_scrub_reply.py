"""Which replies are scrubbed, and what becomes of their heads."""

import gzip
from dataclasses import replace

import pytest

from egress.credentials.scrub import Scrubber, ScrubPlan, ScrubStream, TrailerScrub, accept_encoding, plan_reply
from egress.model.body import CHUNKED, NO_BODY, Framing, of_length
from egress.model.message import FieldLine, ResponseHead
from egress.model.secret import Secret
from egress.model.verdict import Denial, DenialCode, Stage

TOKEN = "ghp_Ab3dEf6hIj9lMn2pQr5t"
FOUND = Scrubber.of((Secret(TOKEN),))
MASK = b"*" * len(TOKEN)


def head(*lines: tuple[str, str], status: int = 200, framing: Framing = CHUNKED) -> ResponseHead:
    fields = tuple((name.encode(), value.encode()) for name, value in lines)
    return ResponseHead(status, b"OK", fields, framing)


def plan(response: ResponseHead, mode: str = "all", method: str = "GET") -> ScrubPlan:
    made = plan_reply(response, method, FOUND, mode)
    assert isinstance(made, ScrubPlan)
    return made


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain", "text/event-stream", "TEXT/HTML; charset=utf-8", "application/json", "application/xml",
        "application/x-www-form-urlencoded", "application/x-ndjson", "application/jsonl", "application/json-seq",
        "application/javascript", "application/x-javascript", "application/vnd.api+json", "image/svg+xml",
        "application/problem+json;x=y", "application/x-amz-json-1.1", "multipart/form-data; boundary=x",
        "application/yaml", "", "nonsense", " ",
    ],
)  # fmt: skip
def test_bodies_that_carry_text_are_read(kind: str) -> None:
    made = plan(head(("Content-Type", kind)))
    assert isinstance(made.transform, ScrubStream)
    assert made.keeps_length
    assert made.transform.feed(TOKEN.encode()) == MASK
    assert made.hits == {0}


def test_a_body_of_no_type_is_read_and_so_is_one_of_several() -> None:
    assert isinstance(plan(head()).transform, ScrubStream)
    two = head(("Content-Type", "image/png"), ("content-type", "text/html"))
    assert isinstance(plan(two).transform, ScrubStream)


@pytest.mark.parametrize(
    "kind",
    [
        "application/octet-stream", "image/png", "application/zip", "application/grpc", "video/mp4",
        "application/vnd.amazon.eventstream", "application/x-jsonp-not", "font/woff2",
    ],
)  # fmt: skip
def test_other_media_pass_unread_but_not_their_fields(kind: str) -> None:
    made = plan(head(("Content-Type", kind), ("Location", f"/?k={TOKEN}")))
    assert made.head.fields[1] == (b"Location", b"/?k=" + MASK)
    body = TOKEN.encode()
    assert isinstance(made.transform, TrailerScrub)
    assert made.transform.feed(body) is body
    assert (made.transform.held, made.transform.release(), made.transform.finish()) == (0, b"", b"")
    assert made.transform.trailers(((b"X-Sum", body),)) == ((b"X-Sum", MASK),)
    assert (made.keeps_length, made.findings) == (True, ())


def test_the_head_is_masked_with_its_reason_and_nothing_else_of_it_changes() -> None:
    response = ResponseHead(
        401, TOKEN.encode(), ((b"Set-Cookie", b"a=" + TOKEN.encode()), (b"ETag", b'"1"')), of_length(3)
    )
    made = plan(response)
    assert made.head == ResponseHead(401, MASK, ((b"Set-Cookie", b"a=" + MASK), (b"ETag", b'"1"')), of_length(3))
    clean = head(("ETag", '"1"'))
    assert plan(clean).head is clean


@pytest.mark.parametrize(("method", "framing"), [("HEAD", of_length(9)), ("GET", NO_BODY)])
def test_replies_without_a_body_are_heads_only(method: str, framing: Framing) -> None:
    made = plan(head(("X-Echo", TOKEN), ("Content-Encoding", "odd"), framing=framing), "strict", method)
    assert (made.head.fields[0], made.transform, made.findings) == ((b"X-Echo", MASK), None, ())


def test_modes() -> None:
    echo = head(("X-Echo", TOKEN), ("Content-Type", "text/plain"))
    assert plan(echo, "off") == ScrubPlan(echo, None, set())
    headers = plan(echo, "headers")
    assert headers.head.fields[0] == (b"X-Echo", MASK)
    assert isinstance(headers.transform, TrailerScrub)
    assert isinstance(plan(echo, "strict").transform, ScrubStream)
    nothing = plan_reply(echo, "GET", Scrubber.of((Secret("short"),)), "all")
    assert nothing == ScrubPlan(echo, None, set())


CODED: tuple[FieldLine, ...] = (
    (b"Content-Type", b"application/json"), (b"Content-Encoding", b"gzip"), (b"ETag", b'"v1"'),
    (b"Accept-Ranges", b"bytes"), (b"Content-MD5", b"x"), (b"Content-Digest", b"x"), (b"Digest", b"x"),
    (b"Repr-Digest", b"x"), (b"Vary", b"*"),
)  # fmt: skip


def test_a_coded_body_is_sent_on_decoded_without_what_spoke_of_its_coding() -> None:
    made = plan(ResponseHead(200, b"OK", CODED, of_length(60)))
    assert made.head.fields == ((b"Content-Type", b"application/json"), (b"ETag", b'"v1"'), (b"Vary", b"*"))
    assert not made.keeps_length
    assert made.transform is not None
    assert made.transform.feed(gzip.compress(b"<" + TOKEN.encode() + b">")) == b"<" + MASK + b">"
    assert made.transform.finish() == b""


def test_identity_is_no_coding() -> None:
    made = plan(head(("Content-Encoding", "identity"), ("Content-Type", "text/plain")))
    assert made.keeps_length
    assert made.head.fields[0] == (b"Content-Encoding", b"identity")


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (head(("Content-Encoding", "dcb"), ("X-Echo", TOKEN)), "unknown content coding"),
        (head(("Content-Encoding", "gzip, br, zstd"), ("X-Echo", TOKEN)), "more than 2 content codings"),
        (head(("Content-Encoding", "gzip"), ("X-Echo", TOKEN), status=206), "part of a coded body"),
    ],
)
def test_what_cannot_be_undone_passes_with_a_finding_and_not_at_all_where_that_is_strict(
    response: ResponseHead, reason: str
) -> None:
    made = plan(response)
    assert made.findings == (reason,)
    assert made.head.fields == (response.fields[0], (b"X-Echo", MASK))
    assert isinstance(made.transform, TrailerScrub)
    assert plan_reply(response, "GET", FOUND, "strict") == Denial(
        Stage.UPSTREAM, DenialCode.UPSTREAM_PROTOCOL_ERROR, f"the reply cannot be scrubbed: {reason}"
    )
    # What is not read anyway need not be undone.
    media = replace(response, fields=(*response.fields, (b"Content-Type", b"image/png")))
    assert plan(media, "strict").findings == ()


def test_a_range_of_a_plain_body_is_scrubbed() -> None:
    made = plan(head(("Content-Type", "text/plain"), ("Content-Range", "bytes 0-23/900"), status=206))
    assert isinstance(made.transform, ScrubStream)


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ("gzip, deflate, br, zstd", "gzip, deflate, br, zstd"),
        ("gzip;q=1.0,dcb, dcz ;q=0.5, BR ; q=0.2", "gzip;q=1.0, BR ; q=0.2"),
        ("*", "identity"),
        ("compress, *;q=0.1", "identity"),
        ("", "identity"),
        ("identity;q=0, x-gzip", "identity;q=0, x-gzip"),
    ],
)
def test_no_coding_is_asked_for_that_could_not_be_undone(asked: str, sent: str) -> None:
    fields = ((b"Accept", b"*/*"), (b"accept-encoding", asked.encode()))
    assert accept_encoding(fields) == ((b"Accept", b"*/*"), (b"accept-encoding", sent.encode()))


def test_a_range_is_asked_for_without_a_coding() -> None:
    fields = ((b"range", b"bytes=9-"), (b"Accept-Encoding", b"gzip"), (b"accept-encoding", b"br"), (b"A", b"b"))
    assert accept_encoding(fields) == ((b"range", b"bytes=9-"), (b"A", b"b"), (b"Accept-Encoding", b"identity"))


def test_a_request_that_names_no_coding_is_left_alone() -> None:
    fields = ((b"Accept", b"*/*"),)
    assert accept_encoding(fields) is fields
