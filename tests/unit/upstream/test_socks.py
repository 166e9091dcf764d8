"""The SOCKS5 handshake, byte for byte."""

import pytest

from egress.model.secret import Secret
from egress.model.verdict import ReasonCode
from egress.upstream.failure import Meaning
from egress.upstream.socks import open_tunnel
from tests.unit.upstream.peers import ScriptedStream, bytewise
from tests.unit.upstream.routes import place

BOUND = b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"
SECRET = Secret("user:a:b")


@pytest.mark.parametrize(
    ("host", "asked"),
    [
        ("192.0.2.1", b"\x05\x01\x00\x01\xc0\x00\x02\x01\x01\xbb"),
        ("2001:db8::1", b"\x05\x01\x00\x04" + bytes.fromhex("20010db8000000000000000000000001") + b"\x01\xbb"),
        ("a.test", b"\x05\x01\x00\x03\x06a.test\x01\xbb"),
    ],
)
async def test_without_credential(host: str, asked: bytes) -> None:
    stream = ScriptedStream([b"\x05\x00", BOUND])
    assert await open_tunnel(stream, place(host, 443), None) is None
    assert stream.written == b"\x05\x01\x00" + asked


async def test_with_user_and_password() -> None:
    stream = ScriptedStream([b"\x05\x02", b"\x01\x00", BOUND])
    assert await open_tunnel(stream, place("192.0.2.1", 1), SECRET) is None
    assert stream.written == b"\x05\x02\x00\x02" + b"\x01\x04user\x03a:b" + b"\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x01"


async def test_a_credential_that_is_not_asked_for_is_not_sent() -> None:
    stream = ScriptedStream([b"\x05\x00", BOUND])
    assert await open_tunnel(stream, place("192.0.2.1", 1), SECRET) is None
    assert b"user" not in stream.written


@pytest.mark.parametrize(
    "bound", [BOUND, b"\x05\x00\x00\x03\x03abc\x00\x50", b"\x05\x00\x00\x04" + bytes(18)], ids=["v4", "name", "v6"]
)
async def test_bytes_behind_the_reply_belong_to_the_tunnel(bound: bytes) -> None:
    whole = b"\x05\x00" + bound + b"220 ready"
    for pieces in ([whole], bytewise(whole)):
        stream = ScriptedStream(pieces)
        assert await open_tunnel(stream, place("a.test", 1), None) is None
        assert stream.left == b"220 ready"


@pytest.mark.parametrize(
    ("pieces", "credential", "reason", "meaning"),
    [
        ([b"\x05\xff"], None, ReasonCode.PROXY_AUTH_REJECTED, Meaning.REJECTED),
        ([b"\x05\xff"], SECRET, ReasonCode.PROXY_AUTH_REJECTED, Meaning.REJECTED),
        ([b"\x05\x02", b"\x01\x01"], SECRET, ReasonCode.PROXY_AUTH_REJECTED, Meaning.REJECTED),
        ([b"\x05\x02"], None, ReasonCode.PROXY_MALFORMED_REPLY, Meaning.SILENT),
        ([b"\x05\x01"], None, ReasonCode.PROXY_MALFORMED_REPLY, Meaning.SILENT),
        ([b"\x04\x00"], None, ReasonCode.PROXY_MALFORMED_REPLY, Meaning.SILENT),
        ([b"HTTP/1.1 400 Bad\r\n\r\n"], None, ReasonCode.PROXY_MALFORMED_REPLY, Meaning.SILENT),
        ([], None, ReasonCode.PROXY_MALFORMED_REPLY, Meaning.SILENT),
        ([b"\x05\x00", BOUND[:9]], None, ReasonCode.PROXY_MALFORMED_REPLY, Meaning.SILENT),
        ([b"\x05\x00", b"\x05\x00\x00\x07"], None, ReasonCode.PROXY_MALFORMED_REPLY, Meaning.SILENT),
        *(([b"\x05\x00", bytes((5, code, 0, 1)) + bytes(6)], None, reason, meaning) for code, reason, meaning in (
            (1, ReasonCode.PROXY_REFUSED_502, Meaning.BUSY),
            (2, ReasonCode.PROXY_REFUSED_403, Meaning.DECIDED),
            (3, ReasonCode.PROXY_REFUSED_502, Meaning.BUSY),
            (4, ReasonCode.PROXY_REFUSED_502, Meaning.BUSY),
            (5, ReasonCode.PROXY_REFUSED_502, Meaning.BUSY),
            (6, ReasonCode.PROXY_REFUSED_504, Meaning.BUSY),
            (7, ReasonCode.PROXY_REFUSED_501, Meaning.BUSY),
            (8, ReasonCode.PROXY_REFUSED_501, Meaning.BUSY),
            (99, ReasonCode.PROXY_REFUSED_500, Meaning.BUSY),
        )),
    ],
)  # fmt: skip
async def test_refusals(pieces: list[bytes], credential: Secret | None, reason: ReasonCode, meaning: Meaning) -> None:
    failure = await open_tunnel(ScriptedStream(pieces), place("a.test", 1), credential)
    assert failure is not None
    assert (failure.reason, failure.meaning) == (reason, meaning)
