"""Tokens to meaning, for tunnels, the proxy port and replies."""

import base64

import pytest

from egress.http.head import check_connect, interpret_forward, interpret_response, interpret_tunnelled
from egress.http.lexer import WireStatus
from egress.model.address import Origin, Port, Scheme, parse_host
from egress.model.body import CHUNKED, NO_BODY, UNTIL_CLOSE, Framing, of_length
from egress.model.message import FieldLine, Malformed, PathOddity, RequestHead, ResponseHead, WireHead
from egress.model.verdict import DenialCode

ORIGIN = Origin(Scheme.HTTPS, parse_host("a.test"), Port(443))
HOST = (b"Host", b"a.test")
KEY = base64.b64encode(bytes(16))
CONNECT = WireHead(b"CONNECT", b"a.test:443", b"HTTP/1.1", ())


def wire(*lines: FieldLine, method: bytes = b"GET", target: bytes = b"/", version: bytes = b"HTTP/1.1") -> WireHead:
    return WireHead(method, target, version, lines)


def tunnelled(*lines: FieldLine, origin: Origin = ORIGIN, **how: bytes) -> RequestHead | Malformed:
    return interpret_tunnelled(wire(*lines, **how), origin)


def read(*lines: FieldLine, **how: bytes) -> RequestHead:
    head = interpret_tunnelled(wire(HOST, *lines, **how), ORIGIN)
    assert isinstance(head, RequestHead), head
    return head


def refused(head: object, code: DenialCode = DenialCode.MALFORMED_REQUEST) -> str:
    assert isinstance(head, Malformed), head
    assert head.code is code
    return head.reason


# authority ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [b"a.test", b"a.test:443", b"A.TEST.", b"a.test.:443"])
def test_host_names_the_tunnel(value: bytes) -> None:
    head = tunnelled((b"host", value))
    assert isinstance(head, RequestHead)
    assert (head.origin, head.fields) == (ORIGIN, ())


@pytest.mark.parametrize("value", [b"b.test", b"a.test:80", b"a.test:8443", b"x.a.test", b"10.0.0.1"])
def test_host_names_something_else(value: bytes) -> None:
    refused(tunnelled((b"Host", value)), DenialCode.REQUEST_AUTHORITY_MISMATCH)


def test_a_port_that_is_no_default_must_be_written() -> None:
    origin = Origin(Scheme.HTTPS, parse_host("a.test"), Port(8443))
    refused(tunnelled(HOST, origin=origin), DenialCode.REQUEST_AUTHORITY_MISMATCH)
    assert isinstance(tunnelled((b"Host", b"a.test:8443"), origin=origin), RequestHead)


def test_the_default_port_follows_what_the_first_bytes_showed() -> None:
    clear = Origin(Scheme.HTTP, parse_host("a.test"), Port(443))
    refused(tunnelled(HOST, origin=clear), DenialCode.REQUEST_AUTHORITY_MISMATCH)
    assert isinstance(tunnelled((b"Host", b"a.test:443"), origin=clear), RequestHead)


def test_host_is_there_once() -> None:
    assert refused(tunnelled()) == "Host is missing"
    assert refused(tunnelled(HOST, (b"HOST", b"a.test"))) == "several Host fields"
    assert isinstance(tunnelled(version=b"HTTP/1.0"), RequestHead)
    refused(tunnelled((b"Host", b"b.test"), version=b"HTTP/1.0"), DenialCode.REQUEST_AUTHORITY_MISMATCH)


@pytest.mark.parametrize("value", [b"decoy@a.test", b"a.test/", b"", b"a.test,b.test"])
def test_host_must_be_an_authority(value: bytes) -> None:
    assert "decoy" not in refused(tunnelled((b"Host", value)))


@pytest.mark.parametrize("target", [b"https://a.test/x", b"HTTPS://A.test:443/x"])
def test_absolute_form_of_the_tunnel_itself(target: bytes) -> None:
    assert read(target=target).path == "/x"


@pytest.mark.parametrize(
    "target", [b"https://b.test/", b"http://a.test/", b"https://a.test:8443/", b"http://a.test:443/", b"ftp://a.test/"]
)
def test_absolute_form_of_something_else(target: bytes) -> None:
    refused(tunnelled(HOST, target=target), DenialCode.REQUEST_AUTHORITY_MISMATCH)


def test_absolute_form_still_needs_host_and_both_must_agree() -> None:
    assert refused(tunnelled(target=b"https://a.test/")) == "Host is missing"
    refused(tunnelled((b"Host", b"b.test"), target=b"https://a.test/"), DenialCode.REQUEST_AUTHORITY_MISMATCH)


# fields ------------------------------------------------------------------------------------------------------------


def test_end_to_end_fields_keep_order_case_and_duplicates() -> None:
    lines = ((b"X-b", b"1"), (b"accept", b"*/*"), (b"X-B", b"2"))
    assert read(*lines).fields == lines


@pytest.mark.parametrize(
    "line",
    [
        (b"Connection", b"close"), (b"Keep-Alive", b"timeout=5"), (b"Proxy-Connection", b"keep-alive"),
        (b"Proxy-Authorization", b"Basic x"), (b"Proxy-Authenticate", b"Basic"), (b"Upgrade", b"unknown"),
        (b"TE", b"gzip"), (b"TE", b"trailers, gzip"), (b"Expect", b"100-continue"), (b"Content-Length", b"0"),
    ],
)  # fmt: skip
def test_what_speaks_to_this_hop_goes_no_further(line: FieldLine) -> None:
    assert read((b"A", b"1"), line).fields == ((b"A", b"1"),)


def test_what_connection_names_goes_no_further() -> None:
    head = read((b"X-Hop", b"1"), (b"Connection", b"x-hop, Close"), (b"x-hoP", b"2"), (b"X-Other", b"3"))
    assert (head.fields, head.keep_alive) == (((b"X-Other", b"3"),), False)


@pytest.mark.parametrize("value", [b"host", b"content-length", b"Transfer-Encoding", b"close, Host"])
def test_connection_may_not_name_what_makes_the_message(value: bytes) -> None:
    refused(tunnelled(HOST, (b"Connection", value)))


@pytest.mark.parametrize("value", [b"a b", b"a;b", b'"a"', b"a/b"])
def test_connection_options_are_tokens(value: bytes) -> None:
    refused(tunnelled(HOST, (b"Connection", value)))


def test_te_trailers_is_passed_on_for_grpc() -> None:
    assert read((b"te", b"trailers"), (b"A", b"1")).fields == ((b"A", b"1"), (b"TE", b"trailers"))
    assert read((b"TE", b"trailers"), (b"Connection", b"TE")).fields == ((b"TE", b"trailers"),)


# framing, expectations, persistence, upgrades ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "framing"),
    [
        ((b"Content-Length", b"5"), of_length(5)),
        ((b"transfer-encoding", b"Chunked"), CHUNKED),
        ((b"X", b"1"), NO_BODY),
    ],
)
def test_framing(line: FieldLine, framing: Framing) -> None:
    assert read(line, method=b"GET").framing == framing


def test_framing_faults_of_any_request() -> None:
    refused(tunnelled(HOST, (b"Content-Length", b"5"), (b"Transfer-Encoding", b"chunked")))
    refused(tunnelled(HOST, (b"Content-Length", b"5"), (b"content-length", b"6")))
    assert read((b"Content-Length", b"5"), (b"content-length", b"5")).framing == of_length(5)
    refused(tunnelled(HOST, (b"Transfer-Encoding", b"chunked"), version=b"HTTP/1.0"))


def test_http_1_0_asks_for_less() -> None:
    head = read((b"Connection", b"keep-alive"), (b"Expect", b"100-continue"), version=b"HTTP/1.0")
    assert (head.http10, head.keep_alive, head.expect_continue) == (True, False, False)


@pytest.mark.parametrize("value", [b"100-continue", b"100-Continue"])
def test_the_known_expectation(value: bytes) -> None:
    assert read((b"Expect", value)).expect_continue is True


@pytest.mark.parametrize("lines", [[(b"Expect", b"200-ok")], [(b"Expect", b"")], [(b"Expect", b"100-continue")] * 2])
def test_any_other_expectation_fails(lines: list[FieldLine]) -> None:
    refused(tunnelled(HOST, *lines), DenialCode.EXPECTATION_FAILED)


def test_a_websocket_keeps_its_handshake_fields_and_loses_the_hop_by_hop_ones() -> None:
    own = ((b"Sec-WebSocket-Key", KEY), (b"Sec-WebSocket-Version", b"13"))
    head = read((b"Upgrade", b"websocket"), (b"Connection", b"keep-alive, Upgrade"), *own)
    assert (head.upgrade, head.fields) == ("websocket", own)


def test_an_incomplete_upgrade_is_a_plain_request() -> None:
    head = read((b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"))
    assert (head.upgrade, head.fields) == (None, ())


def test_h2c_is_told_and_its_settings_go_no_further() -> None:
    head = read((b"Upgrade", b"h2c"), (b"HTTP2-Settings", b"AA"), (b"Connection", b"Upgrade, HTTP2-Settings"))
    assert (head.upgrade, head.fields) == ("h2c", ())


def test_paths_are_canonical_and_their_oddities_told() -> None:
    head = read(target=b"/pub/..%3b/admin?x=/../y")
    assert (head.path, head.query, head.oddities) == ("/admin", "x=/../y", PathOddity.CHANGED)
    assert head.target == "/admin?x=/../y"


@pytest.mark.parametrize("target", [b"*", b"/a#b", b"/..", b"a.test:443"])
def test_targets_that_name_no_path(target: bytes) -> None:
    refused(tunnelled(HOST, target=target), DenialCode.INVALID_REQUEST_TARGET)


def test_a_connect_inside_a_tunnel_is_no_request() -> None:
    refused(tunnelled(HOST, method=b"CONNECT", target=b"/"), DenialCode.INVALID_REQUEST_TARGET)


# the proxy port ------------------------------------------------------------------------------------------------------


def test_forward_takes_its_origin_from_the_target_alone() -> None:
    for lines in ((), ((b"Host", b"evil.test"),), ((b"Host", b"a"), (b"Host", b"b"))):
        head = interpret_forward(wire(*lines, target=b"http://A.test/x?y"))
        assert isinstance(head, RequestHead)
        assert head.origin == Origin(Scheme.HTTP, parse_host("a.test"), Port(80))
        assert (head.path, head.query, head.fields) == ("/x", "y", ())


def test_forward_with_a_port() -> None:
    head = interpret_forward(wire(target=b"http://[::1]:8080/"))
    assert isinstance(head, RequestHead)
    assert str(head.origin) == "[::1]:8080"


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (b"/", DenialCode.INVALID_REQUEST_TARGET),
        (b"*", DenialCode.INVALID_REQUEST_TARGET),
        (b"a.test:443", DenialCode.INVALID_REQUEST_TARGET),
        (b"http:///x", DenialCode.INVALID_REQUEST_TARGET),
        (b"https://a.test/", DenialCode.UNSUPPORTED_PROXY_SCHEME),
        (b"ftp://a.test/", DenialCode.UNSUPPORTED_PROXY_SCHEME),
        (b"ws://a.test/", DenialCode.UNSUPPORTED_PROXY_SCHEME),
    ],
)
def test_forward_refused(target: bytes, code: DenialCode) -> None:
    refused(interpret_forward(wire(target=target)), code)


def test_https_is_told_to_use_connect() -> None:
    assert "use CONNECT" in refused(
        interpret_forward(wire(target=b"https://a.test/")), DenialCode.UNSUPPORTED_PROXY_SCHEME
    )


@pytest.mark.parametrize(
    "lines",
    [
        [(b"Content-Length", b"5"), (b"Transfer-Encoding", b"chunked")],
        [(b"Content-Length", b"5"), (b"Content-Length", b"6")],
        [(b"Transfer-Encoding", b"gzip")],
        [(b"Connection", b"host")],
        [(b"Connection", b"a b")],
    ],
)
def test_connect_fields_are_checked(lines: list[FieldLine]) -> None:
    refused(check_connect(wire(*lines, method=b"CONNECT", target=b"a.test:443")))


def test_connect_fields_that_say_nothing_here() -> None:
    assert check_connect(CONNECT) is None
    lines = (
        (b"Host", b"other"),
        (b"Host", b"another"),
        (b"Content-Length", b"5"),
        (b"Proxy-Connection", b"keep-alive"),
    )
    assert check_connect(wire(*lines, method=b"CONNECT", target=b"a.test:443")) is None


# replies -------------------------------------------------------------------------------------------------------------


def reply(
    status: int, *lines: FieldLine, method: str = "GET", version: bytes = b"HTTP/1.1"
) -> ResponseHead | Malformed:
    return interpret_response(WireStatus(version, status, b"R", lines), method)


def test_a_reply_loses_hop_by_hop_fields_and_states_its_framing() -> None:
    lines = (
        (b"Content-Length", b"5"),
        (b"A", b"1"),
        (b"Connection", b"X-Hop"),
        (b"x-hop", b"1"),
        (b"Keep-Alive", b"x"),
    )
    assert reply(200, *lines) == ResponseHead(200, b"R", ((b"A", b"1"),), of_length(5), True)


def test_a_reply_that_says_nothing_runs_until_close() -> None:
    head = reply(200)
    assert isinstance(head, ResponseHead)
    assert (head.framing, head.keep_alive) == (UNTIL_CLOSE, True)


def test_persistence_of_replies() -> None:
    for lines, version, keep in (
        (((b"Connection", b"close"),), b"HTTP/1.1", False),
        (((b"Connection", b"keep-alive, CLOSE"),), b"HTTP/1.1", False),
        (((b"Connection", b"keep-alive"),), b"HTTP/1.0", False),
        ((), b"HTTP/1.1", True),
    ):
        head = reply(204, *lines, version=version)
        assert isinstance(head, ResponseHead)
        assert head.keep_alive is keep


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 304)])
def test_a_length_without_a_body_is_told_the_client(method: str, status: int) -> None:
    head = reply(status, (b"content-length", b"5"), method=method)
    assert isinstance(head, ResponseHead)
    assert (head.framing, head.fields) == (NO_BODY, ((b"Content-Length", b"5"),))


def test_a_204_has_neither_body_nor_length() -> None:
    head = reply(204, (b"Content-Length", b"5"))
    assert isinstance(head, ResponseHead)
    assert (head.framing, head.fields) == (NO_BODY, ())


@pytest.mark.parametrize(
    "lines",
    [
        [(b"Content-Length", b"5"), (b"Transfer-Encoding", b"chunked")],
        [(b"Content-Length", b"5"), (b"Content-Length", b"6")],
        [(b"Content-Length", b"+5")],
        [(b"Transfer-Encoding", b"gzip, chunked")],
    ],
)
def test_ambiguous_replies_are_the_origins_fault(lines: list[FieldLine]) -> None:
    refused(reply(200, *lines), DenialCode.UPSTREAM_PROTOCOL_ERROR)


def test_only_a_websocket_101_is_one() -> None:
    upgrade, connection = (b"Upgrade", b"WebSocket"), (b"Connection", b"upgrade")
    assert isinstance(reply(101, upgrade, connection), ResponseHead)
    for lines in ((upgrade,), (connection,), (connection, (b"Upgrade", b"h2c")), (connection, upgrade, upgrade)):
        refused(reply(101, *lines), DenialCode.UPSTREAM_PROTOCOL_ERROR)
