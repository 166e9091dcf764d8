"""Field rules: grammar, hop-by-hop names, and names that never cross the proxy. RFC 9110 section 5, 7.6."""

import re

from egress.model.message import FieldLine

TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
VALUE = rb"[\t\x20-\x7e\x80-\xff]"

_TOKEN_ONLY = re.compile(TOKEN + rb"++\Z")
_FIELD_BLOCK = re.compile(rb"(?:" + TOKEN + rb"++:" + VALUE + rb"*+\r\n)*+\Z")

HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"proxy-authenticate", b"upgrade")
)

UNLISTABLE = frozenset((b"host", b"content-length", b"transfer-encoding"))
"""Names that `Connection` may not list: removing them would change what the message is."""

FORBIDDEN_TRAILERS = frozenset(
    (
        b"authorization", b"connection", b"content-encoding", b"content-length", b"content-range", b"content-type",
        b"cookie", b"expect", b"host", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
        b"proxy-connection", b"set-cookie", b"te", b"trailer", b"transfer-encoding", b"upgrade",
    )
)  # fmt: skip
"""Trailer fields that could act as framing, routing or credentials (RFC 9110 section 6.5.1); they are dropped."""


def is_token(value: bytes) -> bool:
    return _TOKEN_ONLY.match(value) is not None


def is_field_block(block: bytes) -> bool:
    """True when `block` is zero or more well-formed field lines, each ended by CRLF."""
    return _FIELD_BLOCK.match(block) is not None


def split_lines(block: bytes) -> tuple[FieldLine, ...]:
    """Field lines of a block that `is_field_block` accepted: names as written, values without outer blanks."""
    return tuple(
        [(name, value.strip(b" \t")) for name, _, value in [line.partition(b":") for line in block.split(b"\r\n")[:-1]]]
    )


def list_members(value: bytes) -> list[bytes]:
    """Non-empty members of a comma-separated list, lower case."""
    return [member for item in value.lower().split(b",") if (member := item.strip(b" \t"))]


def without(lines: tuple[FieldLine, ...], names: frozenset[bytes] | set[bytes]) -> tuple[FieldLine, ...]:
    """`lines` without those whose lower-case name is in `names`."""
    return tuple([line for line in lines if line[0].lower() not in names])
