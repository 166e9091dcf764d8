"""CONNECT: what is sent, which reply opens the tunnel, and whose the bytes behind it are."""

import pytest

from egress.model.verdict import ReasonCode
from egress.upstream.connect_client import open_tunnel
from egress.upstream.failure import Meaning
from tests.unit.upstream.peers import ScriptedStream, bytewise
from tests.unit.upstream.routes import place

OK = b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\n"


@pytest.mark.parametrize(
    ("host", "authorization", "sent"),
    [
        ("192.0.2.1", None, b"CONNECT 192.0.2.1:443 HTTP/1.1\r\nHost: 192.0.2.1:443\r\n\r\n"),
        ("fd00::1", None, b"CONNECT [fd00::1]:443 HTTP/1.1\r\nHost: [fd00::1]:443\r\n\r\n"),
        ("a.test", "Basic eA==",
         b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\nProxy-Authorization: Basic eA==\r\n\r\n"),
    ],
)  # fmt: skip
async def test_what_is_sent(host: str, authorization: str | None, sent: bytes) -> None:
    stream = ScriptedStream([OK])
    assert await open_tunnel(stream, place(host, 443), authorization) is None
    assert stream.written == sent


@pytest.mark.parametrize("behind", [b"", b"\x16\x03", b"220 ready\r\n\r\n"])
async def test_split_anywhere_the_head_ends_where_it_ends(behind: bytes) -> None:
    whole = b"HTTP/1.1 100 Continue\r\n\r\n" + OK + behind
    for split in range(len(whole) + 1):
        stream = ScriptedStream([piece for piece in (whole[:split], whole[split:]) if piece])
        assert await open_tunnel(stream, place("a.test", 1), None) is None
        assert stream.left == behind
    stream = ScriptedStream(bytewise(whole))
    assert await open_tunnel(stream, place("a.test", 1), None) is None
    assert stream.left == behind


def head_of(size: int) -> bytes:
    start, end = b"HTTP/1.1 200 OK\r\nX: ", b"\r\n\r\n"
    return start + b"a" * (size - len(start) - len(end)) + end


@pytest.mark.parametrize(
    ("reply", "reason", "meaning", "text"),
    [
        (head_of(8191), None, None, ""),
        (head_of(8192), None, None, ""),
        (head_of(8193), ReasonCode.PROXY_MALFORMED_REPLY, Meaning.SILENT, "sent a reply that cannot be read"),
        (b"HTTP/1.0 200 OK\r\n\r\n", None, None, ""),
        (b"HTTP/1.1 403 No\r\n\r\n", ReasonCode.PROXY_REFUSED_403, Meaning.DECIDED, "answered 403"),
        (b"HTTP/1.1 418 No\r\n\r\n", ReasonCode.PROXY_REFUSED_OTHER, Meaning.DECIDED, "answered 418"),
        (b"HTTP/1.1 201 Made\r\n\r\n", ReasonCode.PROXY_REFUSED_OTHER, Meaning.DECIDED, "answered 201"),
        (b"HTTP/1.1 302 There\r\n\r\n", ReasonCode.PROXY_REFUSED_302, Meaning.DECIDED, "answered 302"),
        (b"HTTP/1.1 503 Busy\r\n\r\n", ReasonCode.PROXY_REFUSED_503, Meaning.BUSY, "answered 503"),
        (b"HTTP/1.1 407 Who\r\n\r\n", ReasonCode.PROXY_AUTH_REJECTED, Meaning.REJECTED,
         "asks for a credential (407)"),
        (b"HTTP/1.1 407 Who\r\nProxy-Authenticate: NTLM\r\nProxy-Authenticate: Negotiate\r\n\r\n",
         ReasonCode.PROXY_AUTH_REJECTED, Meaning.REJECTED,
         "accepts only ntlm and negotiate, which is not spoken here (407)"),
        (b"HTTP/1.1 407 Who\r\nProxy-Authenticate: NTLM, Basic realm=x\r\n\r\n", ReasonCode.PROXY_AUTH_REJECTED,
         Meaning.REJECTED, "asks for a credential (407)"),
        (b"HTTP/2 200\r\n\r\n", ReasonCode.PROXY_MALFORMED_REPLY, Meaning.SILENT, "sent a reply that cannot be read"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", ReasonCode.PROXY_MALFORMED_REPLY, Meaning.SILENT,
         "sent a reply that cannot be read"),
        (b"SSH-2.0-x\r\n", ReasonCode.PROXY_MALFORMED_REPLY, Meaning.SILENT,
         "closed the connection without a complete reply"),
        (b"", ReasonCode.PROXY_MALFORMED_REPLY, Meaning.SILENT, "closed the connection without a complete reply"),
    ],
)  # fmt: skip
async def test_replies(reply: bytes, reason: ReasonCode | None, meaning: Meaning | None, text: str) -> None:
    failure = await open_tunnel(ScriptedStream([reply]), place("a.test", 1), None)
    assert (failure and failure.reason, failure and failure.meaning, failure.text if failure else "") == (
        reason, meaning, text,
    )  # fmt: skip


async def test_a_rejected_credential_is_told_apart_from_a_missing_one() -> None:
    failure = await open_tunnel(ScriptedStream([b"HTTP/1.1 407 Who\r\n\r\n"]), place("a.test", 1), "Basic eA==")
    assert failure is not None
    assert failure.text == "rejected our credential (407)"
