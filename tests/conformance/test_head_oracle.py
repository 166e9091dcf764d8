"""h11 as the oracle for heads and bodies: what our lexer and framing accept, h11 must read the same way.

Refusing is always allowed, reading differently never is: the gap between two readings is where smuggling lives.
"""

from dataclasses import dataclass, replace

import h11
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from egress.http.chunked import ChunkedDecoder
from egress.http.head import interpret_response, interpret_tunnelled
from egress.http.lexer import NeedMore, WireStatus, find_head, lex_request, lex_response
from egress.model.address import Origin, Port, Scheme, parse_host
from egress.model.body import Framing, FramingKind
from egress.model.limits import LIMITS
from egress.model.message import Malformed, WireHead

ORIGIN = Origin(Scheme.HTTP, parse_host("a.test"), Port(80))

HEADS = (
    b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
    b"POST /x?y=1 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /x HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b'POST /x HTTP/1.1\r\nHost: a.test\r\ntransfer-encoding: Chunked\r\n\r\n3;q="1"\r\nabc\r\n0\r\nX-T: 1\r\n\r\n',
    b"PUT /x HTTP/1.1\r\nHost: a.test:80\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nConnection: close, x-a\r\nX-A: b\r\n\r\n",
    b"HEAD /a;b/%2e HTTP/1.0\r\nHost:a.test \r\nX-Long:\t v w \r\n\r\n",
)

TAILS = (b"", b"GET /second HTTP/1.1\r\nHost: a.test\r\n\r\n", b"\x00\xff", b"\r\n")

SPLICES = (
    b"Content-Length: 5\r\n", b"Content-Length: 0\r\n", b"Content-Length: +5\r\n", b"Content-Length: 5, 5\r\n",
    b"Content-Length : 5\r\n", b"Content-Length: 0x5\r\n", b"Content-Length:\r\n", b"Content-Length: 5 5\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding : chunked\r\n", b"Transfer-Encoding: identity\r\n",
    b"Transfer-Encoding: chunked, chunked\r\n", b"Transfer-Encoding:\x0bchunked\r\n",
    b"Transfer-Encoding: chunked\t\r\n",
    b"Transfer-Encoding\r\n : chunked\r\n", b" folded\r\n", b"X: y\r\n z\r\n", b"X: \x00\r\n", b"X: \r\r\n",
    b": empty\r\n",
    b"Host: b.test\r\n", b"\n", b"\r", b"\r\n", b"\n\n", b" ", b"\t", b"  ", b"HTTP/1.1", b"HTTP/0.9", b"0\r\n\r\n",
    b"5\r\n", b"-1\r\n",
    b"0x5\r\n", b"5;", b"fffffffffffffffff\r\n", b"00000000000000005\r\n", b"\xff", b"\x7f", b"\x80",
)  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """What one parser made of the bytes; `rest` is what follows the message, None when the message did not end."""

    first: tuple[bytes, ...]
    fields: tuple[tuple[bytes, bytes], ...]
    body: bytes
    rest: bytes | None
    refused: bool = False


@st.composite
def mutated(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """A well-formed message with a few splices, deletions, repeats and changed bytes, and something behind it."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(("splice", "line", "cut", "repeat", "byte"))):
            case "splice":
                data = data[:at] + draw(st.sampled_from(SPLICES)) + data[at:]
            case "line":
                start = data.find(b"\r\n", at) + 2
                data = data[:start] + draw(st.sampled_from(SPLICES)) + data[start:]
            case "cut":
                data = data[:at] + data[at + draw(st.integers(1, 4)) :]
            case "repeat":
                data = data[:at] + data[at : at + draw(st.integers(1, 20))] + data[at:]
            case "byte":
                data = data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
    return data + draw(st.sampled_from(TAILS))


def our_body(framing: Framing, data: bytes) -> tuple[bytes, bytes | None] | Malformed:
    match framing.kind:
        case FramingKind.NONE:
            return b"", data
        case FramingKind.LENGTH:
            length = framing.length or 0
            return data[:length], data[length:] if len(data) >= length else None
        case FramingKind.UNTIL_CLOSE:
            return data, None
        case FramingKind.CHUNKED:
            decoder = ChunkedDecoder()
            pieces = decoder.feed(data)
            if isinstance(pieces, Malformed):
                return pieces
            return b"".join(pieces), decoder.rest if decoder.done else None


def lowered(lines: tuple[tuple[bytes, bytes], ...]) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((name.lower(), value) for name, value in lines)


def our_request(data: bytes) -> Reading | Malformed | NeedMore:
    end = find_head(data, LIMITS.tunnel_head_bytes)
    if not isinstance(end, int):
        return end
    wire = lex_request(data[:end])
    if not isinstance(wire, WireHead):
        return wire
    head = interpret_tunnelled(wire, ORIGIN)
    if isinstance(head, Malformed):
        return head
    body = our_body(head.framing, data[end:])
    if isinstance(body, Malformed):
        return body
    return Reading((wire.method, wire.target, wire.version), lowered(wire.lines), *body)


def our_response(data: bytes, method: str) -> Reading | Malformed | NeedMore:
    end = find_head(data, LIMITS.tunnel_head_bytes)
    if not isinstance(end, int):
        return end
    wire = lex_response(data[:end])
    if not isinstance(wire, WireStatus):
        return wire
    head = interpret_response(wire, method)
    if isinstance(head, Malformed):
        return head
    body = our_body(head.framing, data[end:])
    if isinstance(body, Malformed):
        return body
    return Reading((str(wire.status).encode(), wire.version), lowered(wire.lines), *body)


def oracle(connection: h11.Connection, data: bytes) -> Reading:
    """h11's reading; raises `RemoteProtocolError` where it refuses the head. A refused body is one without an end."""
    connection.receive_data(data)
    first: tuple[bytes, ...] = ()
    fields: tuple[tuple[bytes, bytes], ...] = ()
    body = b""
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            if first:
                return Reading(first, lowered(fields), body, None, refused=True)
            raise
        match event:
            case h11.Request():
                first = (event.method, event.target, b"HTTP/" + event.http_version)
                fields = tuple(event.headers.raw_items())
            case h11.Response() | h11.InformationalResponse():
                first = (str(event.status_code).encode(), b"HTTP/" + event.http_version)
                fields = tuple(event.headers.raw_items())
                if isinstance(event, h11.InformationalResponse):
                    return Reading(first, lowered(fields), b"", connection.trailing_data[0])
            case h11.Data():
                body += event.data
            case h11.EndOfMessage() | h11.PAUSED:
                return Reading(first, lowered(fields), body, connection.trailing_data[0])
            case _:
                return Reading(first, lowered(fields), body, None)


def without_framing(reading: Reading) -> Reading:
    """h11 shows merged lengths and lower-cased codings; the framing itself is compared through the body."""
    dropped = (b"content-length", b"transfer-encoding")
    fields = tuple(line for line in reading.fields if line[0] not in dropped)
    return replace(reading, fields=fields)


def agree(ours: Reading, theirs: Reading) -> None:
    ours, theirs = without_framing(ours), without_framing(theirs)
    assert (ours.first, ours.fields) == (theirs.first, theirs.fields)
    if theirs.refused:
        assert ours.body.startswith(theirs.body)
        return
    assert ours.body == theirs.body
    if ours.rest is not None:
        assert ours.rest == theirs.rest


BUDGET = settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@BUDGET
@given(mutated(HEADS))
@example(
    b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\nGET /2 HTTP/1.1\r\n\r\n"
)
@example(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\nGET /2 HTTP/1.1\r\nHost: a.test\r\n\r\n")
def test_a_request_that_we_accept_is_read_alike_by_h11(data: bytes) -> None:
    ours = our_request(data)
    if isinstance(ours, Reading):
        try:
            theirs = oracle(h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20), data)
        except h11.RemoteProtocolError as error:
            pytest.fail(f"h11 refuses what we accept: {error}")
        agree(ours, theirs)


RESPONSES = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\nX: 1\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil close",
    b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 500 \r\nContent-Length: 0\r\n\r\n",
)


@BUDGET
@given(mutated(RESPONSES), st.sampled_from(("GET", "HEAD", "POST")))
@example(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n", "GET")
def test_a_response_that_we_accept_is_read_alike_by_h11(data: bytes, method: str) -> None:
    ours = our_response(data, method)
    if not isinstance(ours, Reading) or ours.first[0] == b"101":
        return
    client = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    client.send(h11.Request(method=method, target="/", headers=[("Host", "a.test")]))
    client.send(h11.EndOfMessage())
    try:
        theirs = oracle(client, data)
    except h11.RemoteProtocolError as error:
        pytest.fail(f"h11 refuses what we accept: {error}")
    agree(ours, theirs)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_chunks_decode_alike_however_the_bytes_are_cut(data: st.DataObject) -> None:
    payload = data.draw(st.sampled_from(HEADS[2:4])).partition(b"\r\n\r\n")[2] + data.draw(st.sampled_from(TAILS))
    whole = ChunkedDecoder()
    pieces = whole.feed(payload)
    assert not isinstance(pieces, Malformed)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(payload)), max_size=6)))
    stepwise = ChunkedDecoder()
    body = b""
    for start, end in zip([0, *cuts], [*cuts, len(payload)], strict=True):
        step = stepwise.feed(payload[start:end])
        assert not isinstance(step, Malformed)
        body += b"".join(step)
    assert (body, stepwise.rest, stepwise.trailers) == (b"".join(pieces), whole.rest, whole.trailers)
    assert stepwise.done
