"""First bytes to protocol: the table of http-surface.md section 8, cut anywhere."""

import pytest

from egress.engine.sniff import PREFACE, Sniffed, sniff

LIMIT = 16384
METHODS = b"GET HEAD POST PUT DELETE PATCH OPTIONS CONNECT TRACE".split()


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", Sniffed.NEED_MORE),
        (b"\x16\x03\x01", Sniffed.TLS),
        (b"\x16\x03\x00\x00\x05", Sniffed.TLS),
        (b"\x16\x03\x04rest", Sniffed.TLS),
        (b"\x16\x03\x05", Sniffed.OTHER),
        (b"\x16\x02\x01", Sniffed.OTHER),
        (b"\x16\x16", Sniffed.OTHER),
        (b"\x17\x03\x03", Sniffed.OTHER),
        (b"\x80\x2e\x01", Sniffed.OTHER),
        (PREFACE, Sniffed.HTTP2),
        (PREFACE[:8], Sniffed.HTTP2),
        (b"PRI * HTTP/1.1\r\n", Sniffed.HTTP2),
        (b"PRI * XTTP\r\n", Sniffed.OTHER),
        *((method + b" /", Sniffed.HTTP1) for method in METHODS),
        (b"GET ", Sniffed.HTTP1),
        (b"GET", Sniffed.NEED_MORE),
        (b"GETX /", Sniffed.NEED_MORE),
        (b"PROPFIND /dav HTTP/1.1\r\n", Sniffed.HTTP1),
        (b"PROPFIND /dav HTTP/1.1", Sniffed.NEED_MORE),
        (b"M-SEARCH * HTTP/1.1\r\n", Sniffed.HTTP1),
        (b"EHLO client\r\n", Sniffed.OTHER),
        (b"EHLO client", Sniffed.NEED_MORE),
        (b"USER me HTTP/1.9\r\n", Sniffed.OTHER),
        (b"SSH-2.0-x\r\n", Sniffed.OTHER),
        (b"get / HTTP/1.1\r\n", Sniffed.HTTP1),
        (b" GET / HTTP/1.1\r\n", Sniffed.OTHER),
        (b"\r\nGET / HTTP/1.1\r\n", Sniffed.OTHER),
        (b"A" * 33, Sniffed.OTHER),
        (b"A" * 32, Sniffed.NEED_MORE),
        (b"\x00", Sniffed.OTHER),
        (b"*1\r\n$4\r\nPING\r\n", Sniffed.OTHER),
        (b"{\"a\": 1}\n", Sniffed.OTHER),
    ],
)  # fmt: skip
def test_table(data: bytes, found: Sniffed) -> None:
    assert sniff(data, LIMIT) is found


@pytest.mark.parametrize(
    "data",
    [b"\x16\x03\x01\x02\x00", PREFACE, b"GET / HTTP/1.1\r\n", b"PROPFIND /dav HTTP/1.1\r\n", b"POST /x HTTP/1.0\r\n",
     b"PUT /", b"PATCH /x", b"EHLO x\r\n", b"\x00\x01"],
)  # fmt: skip
def test_fewer_bytes_never_say_something_else(data: bytes) -> None:
    whole = sniff(data, LIMIT)
    for end in range(len(data)):
        assert sniff(data[:end], LIMIT) in (Sniffed.NEED_MORE, whole)


def test_a_line_that_never_ends_is_no_request() -> None:
    assert sniff(b"PROPFIND /" + b"a" * 50, 60) is Sniffed.OTHER
    assert sniff(b"PROPFIND /" + b"a" * 40, 60) is Sniffed.NEED_MORE
