"""From a URL or a test's words to the head that a client would send."""

import sys
from typing import Any

import pytest

from egress.cli.question import (
    HttpRequest,
    Program,
    Unanswerable,
    ask_for_connection,
    ask_for_request,
    ask_from_test,
    evidence_of,
)
from egress.model.address import Origin, Port, Scheme, parse_host
from egress.model.intent import DEFAULT_AGENT, Ingress
from egress.model.message import Malformed, WireHead
from egress.pipeline.explain import Payload, Question
from egress.pipeline.explain_exchange import Content

NOBODY = Program()


def asked(url: str, method: str = "GET", **more: Any) -> Question:
    return ask_for_request(HttpRequest(url, method, **more), DEFAULT_AGENT, NOBODY)


def head(question: Question) -> WireHead:
    assert isinstance(question.request, WireHead)
    return question.request


@pytest.mark.parametrize(
    ("url", "target", "host"),
    [
        ("https://a.test/x?y=1", b"/x?y=1", b"a.test"),
        ("https://a.test", b"/", b"a.test"),
        ("https://a.test?q", b"/?q", b"a.test"),
        ("https://A.test:8443/x/../y#part", b"/x/../y", b"a.test:8443"),
        ("https://a.test:443/", b"/", b"a.test"),
        ("https://[2001:db8::1]/", b"/", b"[2001:db8::1]"),
    ],
)
def test_https_is_asked_inside_a_tunnel(url: str, target: bytes, host: bytes) -> None:
    question = asked(url, "POST")
    assert question.ingress is Ingress.CONNECT
    assert question.origin.scheme is Scheme.HTTPS
    assert (head(question).method, head(question).target) == (b"POST", target)
    assert head(question).lines == ((b"Host", host),)


def test_http_is_asked_in_absolute_form() -> None:
    question = asked("http://a.test:8080/x?y")
    assert question.ingress is Ingress.FORWARD
    assert question.origin == Origin(Scheme.HTTP, parse_host("a.test"), Port(8080))
    assert head(question).target == b"http://a.test:8080/x?y"


def test_fields_and_body_are_sent() -> None:
    question = asked("https://a.test/", "PUT", headers={"X-A": "1"}, body="häm".encode())
    assert head(question).lines == (
        (b"Host", b"a.test"), (b"Content-Type", b"application/json"), (b"Content-Length", b"4"), (b"X-A", b"1"),
    )  # fmt: skip
    assert question.content == Content("häm".encode())
    typed = asked("https://a.test/", "PUT", headers={"content-type": "text/plain"}, body=b"")
    assert head(typed).lines == ((b"Host", b"a.test"), (b"Content-Length", b"0"), (b"content-type", b"text/plain"))


@pytest.mark.parametrize(
    ("url", "scheme"),
    [("ws://a.test/x", Scheme.HTTP), ("wss://a.test/x", Scheme.HTTPS), ("http://a.test/x", Scheme.HTTP)],
)
def test_websockets_are_asked_inside_a_tunnel(url: str, scheme: Scheme) -> None:
    question = asked(url, messages=("one", b"two"))
    assert (question.ingress, question.origin.scheme) == (Ingress.CONNECT, scheme)
    assert head(question).target == b"/x"
    assert (b"Upgrade", b"websocket") in head(question).lines
    assert question.content.messages == ("one", b"two")


def test_what_is_structured_in_a_test_is_sent_as_json() -> None:
    request = {"url": "wss://a.test/", "body": {"a": [1]}}
    messages = ("as is", {"type": "ping"}, {"binary": "raw"}, ["x"])
    content = ask_from_test(request, DEFAULT_AGENT, NOBODY, messages).content
    assert content == Content(b'{"a": [1]}', ("as is", '{"type": "ping"}', b"raw", '["x"]'))


@pytest.mark.parametrize(
    ("method", "url"),
    [("GET /", "https://a.test/"), ("GET\r\nX: y", "https://a.test/"), ("GET", "https://a.test/a b")],
)
def test_what_no_client_can_send_is_malformed(method: str, url: str) -> None:
    assert isinstance(asked(url, method).request, Malformed)


@pytest.mark.parametrize("url", ["ftp://a.test/", "https://", "a.test/", "https://u:p@a.test/", "https://127.1/"])
def test_what_is_no_url_is_said_so(url: str) -> None:
    with pytest.raises(Unanswerable):
        asked(url)


def test_a_connection_has_host_and_port() -> None:
    question = ask_for_connection("a.test:443", Payload.NOTHING, DEFAULT_AGENT, NOBODY)
    assert question.origin == Origin(Scheme.TCP, parse_host("a.test"), Port(443))
    with pytest.raises(Unanswerable, match="port is missing"):
        ask_for_connection("a.test", Payload.NOTHING, DEFAULT_AGENT, NOBODY)


def test_tests_ask_in_three_ways() -> None:
    asked_for = [
        ask_from_test(request, DEFAULT_AGENT, NOBODY).request
        for request in ({"connect": "a.test:1"}, {"raw": "a.test:1"}, {"url": "https://a.test/", "method": "PUT"})
    ]
    assert asked_for[:2] == [Payload.NOTHING, Payload.RAW]
    assert isinstance(asked_for[2], WireHead)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({}, "give `url`, `connect` or `raw`"),
        ({"connect": "a.test:1", "method": "GET"}, "`connect` stands alone"),
        ({"url": "https://a.test/", "verb": "GET"}, "unknown key `verb`"),
        ({"url": "https://a.test/", "headers": ["x"]}, "must be a mapping"),
    ],
)
def test_tests_that_ask_nothing(request_: dict[str, Any], message: str) -> None:
    with pytest.raises(Unanswerable, match=message):
        ask_from_test(request_, DEFAULT_AGENT, NOBODY)


def test_evidence_has_digests_where_files_are() -> None:
    evidence = evidence_of(Program(sys.executable, ("/no/such/program",)))
    assert evidence is not None
    assert evidence.executable == sys.executable
    assert len(evidence.owners[0].sha256 or "") == 64
    assert [(process.executable, process.sha256) for process in evidence.ancestors] == [("/no/such/program", None)]
    assert evidence_of(NOBODY) is None
