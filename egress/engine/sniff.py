"""First bytes to protocol. Pure; the table is http-surface.md section 8."""

import re
from enum import Enum

from egress.http.fields import TOKEN


class Sniffed(Enum):
    """`NEED_MORE`: what is there could still become several of the others."""

    NEED_MORE = "need_more"
    TLS = "tls"
    HTTP1 = "http1"
    HTTP2 = "http2"
    OTHER = "other"


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

_KNOWN = re.compile(rb"(?:GET|HEAD|POST|PUT|DELETE|PATCH|OPTIONS|CONNECT|TRACE) ")
_TOKEN_LINE = re.compile(TOKEN + rb"{1,32}+ [\x21-\x7e]++ HTTP/1\.[01]\r\n")
_TOKEN_START = re.compile(TOKEN + rb"{1,32}+(?: |\Z)")


def sniff(data: bytes, limit: int) -> Sniffed:
    """Classify the first bytes of a tunnel; any token counts as a method once its whole request line is there.

    Many line protocols start with a word and a blank (`EHLO x`), so an unknown word alone is not HTTP.
    """
    if not data:
        return Sniffed.NEED_MORE
    if data[0] == 0x16:
        return _sniff_tls(data)
    if data.startswith(PREFACE[:8]):
        return Sniffed.HTTP2
    if PREFACE.startswith(data):
        return Sniffed.NEED_MORE
    if _KNOWN.match(data):
        return Sniffed.HTTP1
    if data.find(b"\n", 0, limit) >= 0:
        return Sniffed.HTTP1 if _TOKEN_LINE.match(data) else Sniffed.OTHER
    return Sniffed.NEED_MORE if len(data) < limit and _TOKEN_START.match(data) else Sniffed.OTHER


def _sniff_tls(data: bytes) -> Sniffed:
    if len(data) < 3:
        return Sniffed.NEED_MORE if b"\x16\x03".startswith(data[:2]) else Sniffed.OTHER
    return Sniffed.TLS if data[1] == 0x03 and data[2] <= 0x04 else Sniffed.OTHER
