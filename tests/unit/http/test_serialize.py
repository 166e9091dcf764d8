"""Judged values to bytes, and back through the lexer."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.http.head import interpret_response, interpret_tunnelled
from egress.http.lexer import WireStatus, lex_request, lex_response
from egress.http.serialize import interim_bytes, request_bytes, response_bytes
from egress.model.address import Origin, Port, Scheme, parse_host
from egress.model.body import CHUNKED, NO_BODY, UNTIL_CLOSE, Framing, of_length
from egress.model.message import FieldLine, RequestHead, ResponseHead, WireHead

ORIGIN = Origin(Scheme.HTTPS, parse_host("a.test"), Port(8443))
HEAD = RequestHead("GET", ORIGIN, "/a", "b=c", ((b"Accept", b"*/*"),), NO_BODY)

names = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=10).map(lambda name: f"X-{name}".encode())
values = st.text([chr(code) for code in range(0x21, 0x7F)], max_size=10).map(str.encode)
fields = st.lists(st.tuples(names, values), max_size=6).map(tuple)
framings = st.one_of(st.just(NO_BODY), st.just(CHUNKED), st.integers(0, 2**63 - 1).map(of_length))


@pytest.mark.parametrize(
    ("head", "expect", "wire"),
    [
        (HEAD, None, b"GET /a?b=c HTTP/1.1\r\nHost: a.test:8443\r\nAccept: */*\r\n\r\n"),
        (replace(HEAD, query=None), None, b"GET /a HTTP/1.1\r\nHost: a.test:8443\r\nAccept: */*\r\n\r\n"),
        (replace(HEAD, query="", fields=()), None, b"GET /a? HTTP/1.1\r\nHost: a.test:8443\r\n\r\n"),
        (
            replace(HEAD, method="PUT", framing=of_length(0), fields=()),
            None,
            b"PUT /a?b=c HTTP/1.1\r\nHost: a.test:8443\r\nContent-Length: 0\r\n\r\n",
        ),
        (
            replace(HEAD, method="PUT", framing=CHUNKED, fields=()),
            b"100-continue",
            b"PUT /a?b=c HTTP/1.1\r\nHost: a.test:8443\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
        ),
        (
            replace(HEAD, upgrade="websocket", fields=()),
            None,
            b"GET /a?b=c HTTP/1.1\r\nHost: a.test:8443\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        ),
    ],
)
def test_request_heads(head: RequestHead, expect: bytes | None, wire: bytes) -> None:
    assert request_bytes(head, expect=expect) == wire


@given(
    fields, framings, st.sampled_from(["GET", "POST", "M-SEARCH", "!x"]), st.sampled_from([None, "", "a=b&c", "?%zz"])
)
def test_what_is_sent_reads_back_as_what_was_judged(
    lines: tuple[FieldLine, ...], framing: Framing, method: str, query: str | None
) -> None:
    head = RequestHead(method, ORIGIN, "/a/b%2Fc", query, lines, framing)
    wire = lex_request(request_bytes(head))
    assert isinstance(wire, WireHead)
    back = interpret_tunnelled(wire, ORIGIN)
    assert isinstance(back, RequestHead)
    assert replace(back, oddities=head.oddities) == head


@given(fields, framings, st.sampled_from([200, 201, 404, 503]), st.sampled_from([b"", b"OK", b"Two words", b"\xe9"]))
def test_replies_read_back_too(lines: tuple[FieldLine, ...], framing: Framing, status: int, reason: bytes) -> None:
    head = ResponseHead(status, reason, lines, framing)
    wire = lex_response(response_bytes(head, framing))
    assert isinstance(wire, WireStatus)
    back = interpret_response(wire, "GET")
    assert back == replace(head, framing=UNTIL_CLOSE if framing == NO_BODY else framing)


def test_reply_heads_state_the_framing_the_client_gets_and_our_own_lines() -> None:
    head = ResponseHead(200, b"OK", ((b"A", b"b"),), UNTIL_CLOSE)
    assert response_bytes(head, CHUNKED, extra=b"Connection: close\r\n") == (
        b"HTTP/1.1 200 OK\r\nA: b\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    assert response_bytes(head, UNTIL_CLOSE) == b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n"


def test_interim_heads_have_no_framing() -> None:
    head = ResponseHead(103, b"Early Hints", ((b"Link", b"<a>"),), NO_BODY)
    assert interim_bytes(head) == b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"


def test_the_repr_of_what_is_sent_shows_nothing_of_it() -> None:
    from egress.model.request import UpstreamRequest

    sent = UpstreamRequest(replace(HEAD, fields=((b"Authorization", b"hidden"),), query="token=hidden"))
    assert "hidden" not in repr(sent)
    assert "a.test" not in repr(sent)
