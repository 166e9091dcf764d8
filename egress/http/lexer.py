"""Raw HTTP/1 head bytes to tokens; the only head lexer of the process.

Strict where leniency has been an attack: CRLF only, no folding, no blanks before `:`, exactly two spaces in the
request line (RFC 9112 sections 2 to 5). It finds tokens and gives them no meaning.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from egress.http.fields import TOKEN, VALUE, is_field_block, split_lines
from egress.model.message import FieldLine, Malformed, WireHead
from egress.model.verdict import DenialCode

REMEMBERED_HEADS = 256
"""Field blocks whose reading is remembered; each is at most a head long."""

END_OF_HEAD = b"\r\n\r\n"

_REQUEST_LINE = re.compile(rb"(" + TOKEN + rb"++) ([\x21-\x7e\x80-\xff]++) (HTTP/1\.[01])\r\n")
_STATUS_LINE = re.compile(rb"(HTTP/1\.[01]) ([1-9][0-9]{2})(?: (" + VALUE + rb"*+))?\r\n")
_BARE_LINE_FEED = re.compile(rb"(?<!\r)\n|\r(?=[^\n])")


@dataclass(frozen=True, slots=True)
class WireStatus:
    """Tokens of one response head, uninterpreted."""

    version: bytes
    status: int
    reason: bytes
    lines: tuple[FieldLine, ...]


class NeedMore:
    """The head is not complete yet."""


NEED_MORE = NeedMore()


def find_head(data: bytes | bytearray, limit: int, scanned: int = 0) -> int | NeedMore | Malformed:
    """Length of the head that `data` starts with, its blank line included.

    Refuses as early as possible: a bare LF or CR in an unfinished head would otherwise wait for the deadline.
    `scanned` bytes were looked at by an earlier call, so that a head that drips in costs what one at once does.
    """
    start = max(0, scanned - len(END_OF_HEAD) + 1)
    end = data.find(END_OF_HEAD, start, limit)
    if end >= 0:
        return end + len(END_OF_HEAD)
    if _BARE_LINE_FEED.search(data, start, limit):
        return Malformed("lines must end with CRLF")
    if len(data) >= limit:
        return Malformed(f"head is larger than {limit} bytes", DenialCode.HEAD_TOO_LARGE)
    return NEED_MORE


def lex_request(head: bytes) -> WireHead | Malformed:
    """Tokens of a complete request head, its blank line included."""
    line = _REQUEST_LINE.match(head)
    if line is None:
        return Malformed("request line is not METHOD SP target SP HTTP/1.x")
    lines = _lines(head[line.end() : -2])
    if isinstance(lines, str):
        return Malformed(lines)
    if not head.isascii() and not _is_utf8(head):
        return Malformed("head is not UTF-8")
    method, target, version = line.groups()
    return WireHead(method, target, version, lines)


def lex_response(head: bytes) -> WireStatus | Malformed:
    """Tokens of a complete response head. Values may hold any byte above 0x7f: origins still send Latin-1."""
    line = _STATUS_LINE.match(head)
    if line is None:
        return Malformed("status line is malformed", DenialCode.UPSTREAM_PROTOCOL_ERROR)
    lines = _lines(head[line.end() : -2])
    if isinstance(lines, str):
        return Malformed(lines, DenialCode.UPSTREAM_PROTOCOL_ERROR)
    version, status, reason = line.groups()
    return WireStatus(version, int(status), reason or b"", lines)


@lru_cache(maxsize=REMEMBERED_HEADS)
def _lines(block: bytes) -> tuple[FieldLine, ...] | str:
    """The field lines of a block, or which rule it breaks. A pure function of bytes that peers repeat."""
    return split_lines(block) if is_field_block(block) else _field_fault(block)


def _is_utf8(head: bytes) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _field_fault(block: bytes) -> str:
    """Say which rule the first bad field line breaks; runs on refusals only and repeats no content."""
    if _BARE_LINE_FEED.search(block):
        return "lines must end with CRLF"
    for number, line in enumerate(block.split(b"\r\n"), start=1):
        if is_field_block(line + b"\r\n"):
            continue
        name, colon, _ = line.partition(b":")
        if line[:1] in (b" ", b"\t"):
            return f"field line {number} is folded"
        if not colon:
            return f"field line {number} has no colon"
        if name != name.strip(b" \t"):
            return f"field line {number} has blanks before its colon"
        return f"field line {number} holds a byte that is not allowed there"
    return "field lines are malformed"
