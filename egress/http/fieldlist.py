"""HTTP/2 field lists to the tokens that `head` reads, and judged values back to field lists. RFC 9113 section 8.

A field list that RFC 9113 calls malformed never becomes tokens; what passes is read by the same code as HTTP/1.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from egress.http.authority import MISMATCH, agrees, host_field, read_host_field
from egress.http.fields import FORBIDDEN_TRAILERS, is_field_block, is_token
from egress.http.head import interpret_response
from egress.http.lexer import WireStatus
from egress.model.address import Origin
from egress.model.body import FramingKind
from egress.model.limits import LIMITS
from egress.model.message import FieldLine, Malformed, RequestHead, ResponseHead, WireHead
from egress.model.verdict import DenialCode

VERSION = b"HTTP/2"

_PSEUDO = frozenset((b":method", b":scheme", b":authority", b":path", b":protocol"))
_CONNECTION_SPECIFIC = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"http2-settings")
)
_TARGET = re.compile(rb"[\x21-\x7e\x80-\xff]++\Z")
_STATUS = re.compile(rb"[1-9][0-9]{2}\Z")
_CHUNKED = (b"Transfer-Encoding", b"chunked")

_TOO_LARGE = Malformed(f"head is larger than {LIMITS.tunnel_head_bytes} bytes", DenialCode.HEAD_TOO_LARGE)
_CONNECT = Malformed("CONNECT inside a tunnel, extended or not, is not accepted", DenialCode.UPGRADE_REFUSED)


def lex_fields(lines: Sequence[FieldLine], origin: Origin, *, ended: bool) -> WireHead | Malformed:
    """Tokens of one request's field list. `ended` when no body follows (END_STREAM on the head).

    How long a body is, HTTP/2 says by frames: a body without `Content-Length` is stated as chunked here, so that one
    reading decides about framing.
    """
    if sum([len(name) + len(value) + 4 for name, value in lines]) > LIMITS.tunnel_head_bytes:
        return _TOO_LARGE
    split = _split(lines)
    if isinstance(split, Malformed):
        return split
    pseudo, fields = split
    fault = _pseudo_fault(pseudo, origin) or _regular_fault(fields) or _text_fault(lines)
    if fault is not None:
        return fault
    hosts = _hosts(pseudo, fields, origin)
    if isinstance(hosts, Malformed):
        return hosts
    kept = [line for line in fields if line[0] not in (b"host", b"cookie")]
    cookies = [value for name, value in fields if name == b"cookie"]
    if cookies:
        kept.append((b"cookie", b"; ".join(cookies)))  # RFC 9113 section 8.2.3
    lengths = {value for name, value in kept if name == b"content-length"}
    if ended and lengths - {b"0"}:
        return Malformed("Content-Length announces a body that the stream does not have")
    if not ended and not lengths:
        kept.append(_CHUNKED)
    return WireHead(pseudo[b":method"], pseudo[b":path"], VERSION, (*hosts, *kept))


def read_response(lines: Sequence[FieldLine], method: str, *, ended: bool) -> ResponseHead | Malformed:
    """Meaning of an origin's field list, interim ones included, as the answer to a `method` request."""
    split = _split(lines)
    if isinstance(split, Malformed):
        return _upstream(split)
    pseudo, fields = split
    status = pseudo.get(b":status", b"")
    if len(pseudo) != 1 or not _STATUS.match(status):
        return _upstream(Malformed("the status of the reply is malformed"))
    fault = _regular_fault(fields)
    if fault is not None:
        return _upstream(fault)
    read = interpret_response(WireStatus(VERSION, int(status), b"", tuple(fields)), method)
    if isinstance(read, Malformed) or not ended or read.framing.kind is not FramingKind.LENGTH:
        return read
    if read.framing.length:
        return _upstream(Malformed("Content-Length announces a body that the reply does not have"))
    return read


def read_trailers(lines: Sequence[FieldLine]) -> tuple[FieldLine, ...] | Malformed:
    """Trailer fields without those that could act as framing, routing or credentials."""
    if sum([len(name) + len(value) + 4 for name, value in lines]) > LIMITS.trailer_bytes:
        return Malformed("trailers are too large")
    fault = _grammar_fault(lines)
    if fault is not None:
        return fault
    return tuple([(name, value) for name, value in lines if name not in FORBIDDEN_TRAILERS])


def request_list(head: RequestHead, *, expect: bool) -> list[FieldLine]:
    """The field list of a judged request."""
    fields = [
        (b":method", head.method.encode("ascii")),
        (b":scheme", head.origin.scheme.value.encode("ascii")),
        (b":authority", host_field(head.origin)),
        (b":path", head.target.encode("ascii")),
    ]
    fields += _lowered(head.fields)
    if head.framing.kind is FramingKind.LENGTH:
        fields.append((b"content-length", b"%d" % (head.framing.length or 0)))
    if expect:
        fields.append((b"expect", b"100-continue"))
    return fields


def response_list(head: ResponseHead) -> list[FieldLine]:
    """The field list of a checked response."""
    fields = [(b":status", b"%d" % head.status), *_lowered(head.fields)]
    if head.framing.kind is FramingKind.LENGTH:
        fields.append((b"content-length", b"%d" % (head.framing.length or 0)))
    return fields


def refusal_list(status: int, fields: Iterable[FieldLine], length: int) -> list[FieldLine]:
    return [(b":status", b"%d" % status), *_lowered(fields), (b"content-length", b"%d" % length)]


def trailer_list(lines: Iterable[FieldLine]) -> list[FieldLine]:
    return _lowered(lines)


def _lowered(lines: Iterable[FieldLine]) -> list[FieldLine]:
    return [(name.lower(), value) for name, value in lines]


def _upstream(fault: Malformed) -> Malformed:
    return replace(fault, code=DenialCode.UPSTREAM_PROTOCOL_ERROR)


def _split(lines: Sequence[FieldLine]) -> tuple[dict[bytes, bytes], list[FieldLine]] | Malformed:
    """Pseudo-header fields, each once and before all others, and the rest."""
    pseudo: dict[bytes, bytes] = {}
    for index, (name, value) in enumerate(lines):
        if name[:1] != b":":
            fields = list(lines[index:])
            if any(name[:1] == b":" for name, _ in fields):
                return Malformed("a pseudo-header field follows other fields")
            return pseudo, fields
        if name in pseudo:
            return Malformed("a pseudo-header field is repeated")
        pseudo[name] = value
    return pseudo, []


def _hosts(pseudo: dict[bytes, bytes], fields: Sequence[FieldLine], origin: Origin) -> list[FieldLine] | Malformed:
    """`:authority` as the one Host; a Host field beside it that says something else is an attack (section 8.3.1)."""
    hosts = [value for name, value in fields if name == b"host"]
    authority = pseudo.get(b":authority")
    if authority is not None:
        for value in hosts:
            host = read_host_field(value)
            if isinstance(host, Malformed):
                return host
            if not agrees(host, origin):
                return MISMATCH
        hosts = [authority]
    return [(b"Host", value) for value in hosts]


def _pseudo_fault(pseudo: dict[bytes, bytes], origin: Origin) -> Malformed | None:
    if not pseudo.keys() <= _PSEUDO:
        return Malformed("unknown pseudo-header field")
    method = pseudo.get(b":method", b"")
    if not is_token(method):
        return Malformed(":method is missing or no token")
    if method == b"CONNECT" or b":protocol" in pseudo:
        return _CONNECT
    if not _TARGET.match(pseudo.get(b":path", b"")):
        return Malformed(":path is missing or malformed", DenialCode.INVALID_REQUEST_TARGET)
    scheme = pseudo.get(b":scheme")
    if scheme is None:
        return Malformed(":scheme is missing")
    return None if scheme == origin.scheme.value.encode("ascii") else MISMATCH


def _regular_fault(fields: Sequence[FieldLine]) -> Malformed | None:
    fault = _grammar_fault(fields)
    if fault is not None:
        return fault
    for name, value in fields:
        if name in _CONNECTION_SPECIFIC:
            if name == b"upgrade":
                return Malformed("HTTP/2 has no Upgrade; speak HTTP/1.1 for this request", DenialCode.UPGRADE_REFUSED)
            return Malformed("a connection-specific field is not allowed in HTTP/2")
        if name == b"te" and value != b"trailers":
            return Malformed("TE may only say trailers in HTTP/2")
    return None


def _grammar_fault(fields: Sequence[FieldLine]) -> Malformed | None:
    """Tokens in lower case and clean values: HPACK carries any octet, CR and LF included."""
    names = b"".join([name for name, _ in fields])
    if names != names.lower():
        return Malformed("a field name holds an upper-case letter")
    block = b"".join([b"%b:%b\r\n" % line for line in fields])
    if not is_field_block(block) or block.count(b"\r\n") != len(fields) or b":" in names:
        return Malformed("a field holds a byte that is not allowed there")
    return None


def _text_fault(lines: Sequence[FieldLine]) -> Malformed | None:
    """What requests must keep and replies need not: UTF-8, and no blanks around values (section 8.2.1)."""
    values = [value for _, value in lines]
    if values != [value.strip(b" \t") for value in values]:
        return Malformed("a field value begins or ends with a blank")
    joined = b"\n".join(values)
    if not joined.isascii():
        try:
            joined.decode("utf-8")
        except UnicodeDecodeError:
            return Malformed("head is not UTF-8")
    return None
