"""Head bytes to tokens: strict, bounded, and the same whether a head comes at once or drips in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.http.lexer import NEED_MORE, NeedMore, WireStatus, find_head, lex_request, lex_response
from egress.model.message import Malformed, WireHead
from egress.model.verdict import DenialCode

LIMIT = 64


def test_a_head_ends_with_its_blank_line() -> None:
    assert find_head(b"GET / HTTP/1.1\r\n\r\nbody\r\n\r\n", LIMIT) == 18
    assert find_head(bytearray(b"GET / HTTP/1.1\r\n\r"), LIMIT) is NEED_MORE
    assert find_head(b"", LIMIT) is NEED_MORE


def test_the_bound_counts_the_whole_head() -> None:
    head = b"GET / HTTP/1.1\r\nA: " + b"x" * (LIMIT - 23) + b"\r\n\r\n"
    assert len(head) == LIMIT
    assert find_head(head, LIMIT) == LIMIT
    too_large = find_head(head, LIMIT - 1)
    assert isinstance(too_large, Malformed)
    assert too_large.code is DenialCode.HEAD_TOO_LARGE
    assert isinstance(find_head(b"x" * LIMIT, LIMIT), Malformed)
    assert find_head(b"x" * (LIMIT - 1), LIMIT) is NEED_MORE


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\n", b"\n", b"GET / HTTP/1.1\r\nA: b\n\r\n", b"GET\rX", b"\r\r", b"A: b\r\n\n"]
)
def test_bare_line_ends_are_refused_before_the_head_is_whole(data: bytes) -> None:
    refused = find_head(data, LIMIT)
    assert isinstance(refused, Malformed)
    assert refused.code is DenialCode.MALFORMED_REQUEST


@given(st.lists(st.sampled_from([b"GET / HTTP/1.1", b"\r\n", b"\r", b"\n", b"A: b", b"x"]), max_size=12).map(b"".join))
def test_a_head_that_drips_in_ends_where_one_at_once_does(data: bytes) -> None:
    found: int | NeedMore | Malformed = NEED_MORE
    for end in range(1, len(data) + 1):
        found = find_head(data[:end], LIMIT, end - 1)
        if not isinstance(found, NeedMore):
            break
    once = find_head(data, LIMIT)
    if isinstance(once, int) and isinstance(found, Malformed):
        # Refused early for what the lexer refuses with the whole head in hand.
        assert isinstance(lex_request(data[:once]), Malformed)
    elif data and not data.endswith(b"\r"):
        assert type(found) is type(once)
        assert not isinstance(once, int) or found == once


@pytest.mark.parametrize(
    ("head", "wire"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", WireHead(b"GET", b"/", b"HTTP/1.1", ())),
        (b"get * HTTP/1.0\r\n\r\n", WireHead(b"get", b"*", b"HTTP/1.0", ())),
        (
            b"M-SEARCH a:1 HTTP/1.1\r\nHost:a\r\nX:  b c\t\r\nx:\r\n\r\n",
            WireHead(b"M-SEARCH", b"a:1", b"HTTP/1.1", ((b"Host", b"a"), (b"X", b"b c"), (b"x", b""))),
        ),
        ("GET /é HTTP/1.1\r\nX: ü\r\n\r\n".encode(), WireHead(b"GET", "/é".encode(), b"HTTP/1.1", ((b"X",
        "ü".encode()),))),
    ],
)  # fmt: skip
def test_requests(head: bytes, wire: WireHead) -> None:
    assert lex_request(head) == wire


@pytest.mark.parametrize(
    "line",
    [
        b"GET /", b"GET  / HTTP/1.1", b"GET /  HTTP/1.1", b" GET / HTTP/1.1", b"GET / HTTP/1.1 ", b"GET\t/ HTTP/1.1",
        b"GET /a b HTTP/1.1", b"GET / HTTP/1.2", b"GET / HTTP/2.0", b"GET / HTTP/0.9", b"GET / http/1.1",
        b"GET / HTTP/1.1x",
        b"GET / HTTP/11", b"G@T / HTTP/1.1", b"GET: / HTTP/1.1", b" / HTTP/1.1", b"GET  HTTP/1.1",
        b"GET /\x00 HTTP/1.1",
        b"GET /\x7f HTTP/1.1", b"\r\nGET / HTTP/1.1", b"GET / HTTP/1.1\x00", b"GET /\x0b HTTP/1.1", b"",
    ],
)  # fmt: skip
def test_request_lines_refused(line: bytes) -> None:
    refused = lex_request(line + b"\r\n\r\n")
    assert isinstance(refused, Malformed)
    assert refused.code is DenialCode.MALFORMED_REQUEST


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (b"A: b\r\n c\r\n", "field line 2 is folded"),
        (b" A: b\r\n", "field line 1 is folded"),
        (b"A: b\r\nB\r\n", "field line 2 has no colon"),
        (b"A : b\r\n", "field line 1 has blanks before its colon"),
        (b"A\t: b\r\n", "field line 1 has blanks before its colon"),
        (b"A: b\x00\r\n", "field line 1 holds a byte that is not allowed there"),
        (b": b\r\n", "field line 1 holds a byte that is not allowed there"),
        (b"A: b\nX: c\r\n", "lines must end with CRLF"),
        (b"A: b\rX: c\r\n", "lines must end with CRLF"),
        (b"A: \xff\r\n", "head is not UTF-8"),
        (b"A: \xc0\xaf\r\n", "head is not UTF-8"),
    ],
)
def test_field_lines_refused_with_their_number_and_none_of_their_text(fields: bytes, reason: str) -> None:
    assert lex_request(b"GET / HTTP/1.1\r\n" + fields + b"\r\n") == Malformed(reason)
    if reason != "head is not UTF-8":
        refused = lex_response(b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n")
        assert refused == Malformed(reason, DenialCode.UPSTREAM_PROTOCOL_ERROR)


@pytest.mark.parametrize(
    ("line", "status", "reason"),
    [
        (b"HTTP/1.1 200 OK", 200, b"OK"),
        (b"HTTP/1.0 404 Not Found", 404, b"Not Found"),
        (b"HTTP/1.1 204", 204, b""),
        (b"HTTP/1.1 204 ", 204, b""),
        (b"HTTP/1.1 599  two blanks", 599, b" two blanks"),
        (b"HTTP/1.1 200 \xe9", 200, b"\xe9"),
    ],
)
def test_responses(line: bytes, status: int, reason: bytes) -> None:
    assert lex_response(line + b"\r\nA: \xff\r\n\r\n") == WireStatus(line[:8], status, reason, ((b"A", b"\xff"),))


@pytest.mark.parametrize(
    "line",
    [b"HTTP/1.1", b"HTTP/1.1 20 OK", b"HTTP/1.1 2000 OK", b"HTTP/1.1 099 OK", b"HTTP/1.1  200 OK", b"HTTP/2 200 OK",
     b"ICY 200 OK", b"HTTP/1.1 200 O\x00K", b"HTTP/1.1 +20 OK", b"http/1.1 200 OK", b"HTTP/1.1 200OK",
     b" HTTP/1.1 200 OK"],
)  # fmt: skip
def test_status_lines_refused(line: bytes) -> None:
    refused = lex_response(line + b"\r\n\r\n")
    assert isinstance(refused, Malformed)
    assert refused.code is DenialCode.UPSTREAM_PROTOCOL_ERROR
