"""Field lists of HTTP/2: what is malformed, what becomes of the rest, and what is written."""

import pytest

from egress.http.fieldlist import (
    VERSION,
    lex_fields,
    read_response,
    read_trailers,
    refusal_list,
    request_list,
    response_list,
)
from egress.model.address import Host, Origin, Port, Scheme
from egress.model.body import CHUNKED, NO_BODY, of_length
from egress.model.message import FieldLine, Malformed, RequestHead, ResponseHead, WireHead
from egress.model.verdict import DenialCode

ORIGIN = Origin(Scheme.HTTPS, Host("a.test", literal=False), Port(8443))
GET = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"a.test:8443"), (b":path", b"/x?q")]


def without(name: bytes) -> list[FieldLine]:
    return [line for line in GET if line[0] != name]


def code_of(found: object) -> DenialCode:
    assert isinstance(found, Malformed), found
    return found.code


def test_a_request_becomes_tokens() -> None:
    assert lex_fields([*GET, (b"accept", b"*/*")], ORIGIN, ended=True) == WireHead(
        b"GET", b"/x?q", VERSION, ((b"Host", b"a.test:8443"), (b"accept", b"*/*"))
    )


def test_a_body_of_unstated_length_is_chunked() -> None:
    wire = lex_fields(GET, ORIGIN, ended=False)
    assert isinstance(wire, WireHead)
    assert wire.lines[-1] == (b"Transfer-Encoding", b"chunked")


def test_a_stated_length_stays() -> None:
    wire = lex_fields([*GET, (b"content-length", b"5")], ORIGIN, ended=False)
    assert isinstance(wire, WireHead)
    assert wire.lines[1:] == ((b"content-length", b"5"),)


def test_cookie_crumbs_are_joined() -> None:
    wire = lex_fields([*GET, (b"cookie", b"a=1"), (b"x", b"y"), (b"cookie", b"b=2")], ORIGIN, ended=True)
    assert isinstance(wire, WireHead)
    assert wire.lines[1:] == ((b"x", b"y"), (b"cookie", b"a=1; b=2"))


def test_host_stands_in_for_authority() -> None:
    wire = lex_fields([*without(b":authority"), (b"host", b"a.test:8443")], ORIGIN, ended=True)
    assert isinstance(wire, WireHead)
    assert wire.lines == ((b"Host", b"a.test:8443"),)


@pytest.mark.parametrize("host", [b"a.test:8443", b"A.TEST:8443", b"a.test.:8443"])
def test_a_host_that_says_the_same_is_dropped(host: bytes) -> None:
    wire = lex_fields([*GET, (b"host", host)], ORIGIN, ended=True)
    assert isinstance(wire, WireHead)
    assert wire.lines == ((b"Host", b"a.test:8443"),)


@pytest.mark.parametrize(
    ("host", "code"),
    [
        (b"b.test:8443", DenialCode.REQUEST_AUTHORITY_MISMATCH),
        (b"a.test", DenialCode.REQUEST_AUTHORITY_MISMATCH),
        (b"u@a.test:8443", DenialCode.MALFORMED_REQUEST),
        (b"", DenialCode.MALFORMED_REQUEST),
    ],
)
def test_a_host_that_says_something_else(host: bytes, code: DenialCode) -> None:
    assert code_of(lex_fields([*GET, (b"host", host)], ORIGIN, ended=True)) is code


@pytest.mark.parametrize(
    "line",
    [
        (b"Accept", b"*/*"),
        (b"x y", b"1"),
        (b"", b"1"),
        (b"x:y", b"1"),
        (b"x", b"1\r\nhost: b.test"),
        (b"x", b"1\n"),
        (b"x\r\ny", b"1"),
        (b"x", b"\x00"),
        (b"x", b" 1"),
        (b"x", b"1\t"),
        (b"x", b"\xff"),
        (b":path", b"/other"),
        (b":x", b"1"),
        (b"connection", b"close"),
        (b"proxy-connection", b"keep-alive"),
        (b"keep-alive", b"timeout=5"),
        (b"transfer-encoding", b"chunked"),
        (b"http2-settings", b"AAMAAABkAAQAAP__"),
        (b"te", b"gzip"),
    ],
)
def test_lines_that_are_malformed(line: FieldLine) -> None:
    assert code_of(lex_fields([*GET, line], ORIGIN, ended=True)) is DenialCode.MALFORMED_REQUEST


def test_utf8_is_not_cut_together_from_two_values() -> None:
    lines = [*GET, (b"x", b"\xc3"), (b"y", b"\xa9")]
    assert code_of(lex_fields(lines, ORIGIN, ended=True)) is DenialCode.MALFORMED_REQUEST


@pytest.mark.parametrize("name", [b":method", b":scheme"])
def test_a_pseudo_field_is_missing(name: bytes) -> None:
    assert code_of(lex_fields(without(name), ORIGIN, ended=True)) is DenialCode.MALFORMED_REQUEST


@pytest.mark.parametrize("path", [b"", b"/a b", b"/\x00", b"/\x7f"])
def test_a_path_that_is_none(path: bytes) -> None:
    lines = [*without(b":path"), (b":path", path)]
    assert code_of(lex_fields(lines, ORIGIN, ended=True)) is DenialCode.INVALID_REQUEST_TARGET


def test_the_scheme_is_the_tunnels() -> None:
    lines = [*without(b":scheme"), (b":scheme", b"http")]
    assert code_of(lex_fields(lines, ORIGIN, ended=True)) is DenialCode.REQUEST_AUTHORITY_MISMATCH


@pytest.mark.parametrize(
    "lines",
    [
        [(b":method", b"CONNECT"), (b":authority", b"a.test:8443")],
        [*without(b":method"), (b":method", b"CONNECT"), (b":protocol", b"websocket")],
        [*GET, (b"upgrade", b"websocket")],
    ],
)
def test_upgrades_are_refused_by_name(lines: list[FieldLine]) -> None:
    assert code_of(lex_fields(lines, ORIGIN, ended=True)) is DenialCode.UPGRADE_REFUSED


@pytest.mark.parametrize("length", [b"5", b"x", b"00"])
def test_a_length_without_a_body(length: bytes) -> None:
    lines = [*GET, (b"content-length", length)]
    assert code_of(lex_fields(lines, ORIGIN, ended=True)) is DenialCode.MALFORMED_REQUEST


def test_size_is_of_the_decoded_list() -> None:
    lines = [*GET, *[(b"x", b"v" * 1000)] * 17]
    assert code_of(lex_fields(lines, ORIGIN, ended=True)) is DenialCode.HEAD_TOO_LARGE


def test_a_response_is_read() -> None:
    lines = [(b":status", b"200"), (b"content-length", b"3"), (b"server", b"x")]
    assert read_response(lines, "GET", ended=False) == ResponseHead(
        200, b"", ((b"server", b"x"),), of_length(3), keep_alive=False
    )


def test_a_response_to_head_keeps_its_length_as_a_field() -> None:
    response = read_response([(b":status", b"200"), (b"content-length", b"3")], "HEAD", ended=True)
    assert isinstance(response, ResponseHead)
    assert (response.framing, response.fields) == (NO_BODY, ((b"Content-Length", b"3"),))


@pytest.mark.parametrize(
    ("lines", "ended"),
    [
        ([(b"server", b"x")], False),
        ([(b":status", b"20")], False),
        ([(b":status", b"abc")], False),
        ([(b":status", b"200"), (b":path", b"/")], False),
        ([(b":status", b"200"), (b":status", b"200")], False),
        ([(b":status", b"200"), (b"x", b"a\r\nb: c")], False),
        ([(b":status", b"200"), (b"transfer-encoding", b"chunked")], False),
        ([(b":status", b"200"), (b"content-length", b"1"), (b"content-length", b"2")], False),
        ([(b":status", b"200"), (b"content-length", b"1")], True),
    ],
)
def test_responses_that_are_malformed(lines: list[FieldLine], ended: bool) -> None:
    assert code_of(read_response(lines, "GET", ended=ended)) is DenialCode.UPSTREAM_PROTOCOL_ERROR


def test_trailers_that_could_steer_are_dropped() -> None:
    lines = [(b"grpc-status", b"0"), (b"content-length", b"1"), (b"authorization", b"x")]
    assert read_trailers(lines) == ((b"grpc-status", b"0"),)


@pytest.mark.parametrize("line", [(b":path", b"/"), (b"X", b"1"), (b"x", b"1\r\ny: 2"), (b"x", b"v" * 9000)])
def test_trailers_that_are_malformed(line: FieldLine) -> None:
    assert isinstance(read_trailers([line]), Malformed)


@pytest.mark.parametrize(
    ("framing", "expected"),
    [(NO_BODY, []), (CHUNKED, []), (of_length(7), [(b"content-length", b"7")])],
)
def test_a_judged_request_is_written(framing: object, expected: list[FieldLine]) -> None:
    head = RequestHead("PUT", ORIGIN, "/a", "b", ((b"X-Name", b"V"),), framing)  # type: ignore[arg-type]
    assert request_list(head, expect=False) == [
        (b":method", b"PUT"),
        (b":scheme", b"https"),
        (b":authority", b"a.test:8443"),
        (b":path", b"/a?b"),
        (b"x-name", b"V"),
        *expected,
    ]


def test_expect_is_passed_on_when_asked() -> None:
    head = RequestHead("PUT", ORIGIN, "/a", None, (), CHUNKED, expect_continue=True)
    assert request_list(head, expect=True)[-1] == (b"expect", b"100-continue")


def test_responses_and_refusals_are_written_in_lower_case() -> None:
    response = ResponseHead(201, b"Created", ((b"X-A", b"B"),), of_length(2))
    assert response_list(response) == [(b":status", b"201"), (b"x-a", b"B"), (b"content-length", b"2")]
    assert refusal_list(403, [(b"Content-Type", b"application/json")], 9) == [
        (b":status", b"403"),
        (b"content-type", b"application/json"),
        (b"content-length", b"9"),
    ]
