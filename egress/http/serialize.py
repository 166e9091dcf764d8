"""Judged values to HTTP/1.1 bytes. What was judged is what is sent: nothing here reads wire bytes."""

from egress.http.authority import host_field
from egress.model.body import Framing, FramingKind
from egress.model.message import FieldLine, RequestHead, ResponseHead

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
ESTABLISHED = b"HTTP/1.1 200 Connection Established\r\n\r\n"

_CLOSE = b"Connection: close\r\n"


def request_bytes(head: RequestHead, *, expect: bytes | None = None, proxy: bytes | None = None) -> bytes:
    """A request head in origin-form with `Host` first and framing stated once.

    `expect` is the `Expect` value to pass on, when the origin is to answer it. `proxy` holds field lines for a proxy
    that is at the other end: the request is in absolute-form then (RFC 9112 section 3.2.2).
    """
    host = host_field(head.origin)
    authority = b"" if proxy is None else b"http://" + host
    line = b"%b %b%b HTTP/1.1\r\nHost: %b\r\n"
    parts = [line % (head.method.encode("ascii"), authority, head.target.encode("ascii"), host)]
    if proxy is not None:
        parts.append(proxy)
    parts += [b"%b: %b\r\n" % line for line in head.fields]
    parts.append(_framing(head.framing))
    if head.upgrade is not None:
        parts.append(b"Connection: Upgrade\r\nUpgrade: %b\r\n" % head.upgrade.encode("ascii"))
    if expect is not None:
        parts.append(b"Expect: %b\r\n" % expect)
    parts.append(b"\r\n")
    return b"".join(parts)


def response_bytes(head: ResponseHead, framing: Framing, *, extra: bytes = b"") -> bytes:
    """A response head whose body the client will read by `framing`; `extra` holds whole field lines of ours."""
    parts = [b"HTTP/1.1 %d %b\r\n" % (head.status, head.reason)]
    parts += [b"%b: %b\r\n" % line for line in head.fields]
    parts += [_framing(framing), extra, b"\r\n"]
    return b"".join(parts)


def interim_bytes(head: ResponseHead) -> bytes:
    """A 1xx head; it has no framing."""
    return b"".join([b"HTTP/1.1 %d %b\r\n" % (head.status, head.reason), field_bytes(head.fields), b"\r\n"])


def field_bytes(lines: tuple[FieldLine, ...]) -> bytes:
    return b"".join([b"%b: %b\r\n" % line for line in lines])


def close_line() -> bytes:
    return _CLOSE


def _framing(framing: Framing) -> bytes:
    match framing.kind:
        case FramingKind.LENGTH:
            return b"Content-Length: %d\r\n" % (framing.length or 0)
        case FramingKind.CHUNKED:
            return b"Transfer-Encoding: chunked\r\n"
        case FramingKind.NONE | FramingKind.UNTIL_CLOSE:
            return b""
