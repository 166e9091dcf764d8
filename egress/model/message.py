"""HTTP heads, before and after interpretation."""

from dataclasses import dataclass
from enum import Flag

from egress.model.address import Origin
from egress.model.body import Framing
from egress.model.verdict import DenialCode

type FieldLine = tuple[bytes, bytes]
"""Name as written and value without surrounding blanks."""


@dataclass(frozen=True, slots=True)
class WireHead:
    """Tokens of one request head, uninterpreted. `version` is `HTTP/1.0`, `HTTP/1.1` or `HTTP/2`."""

    method: bytes
    target: bytes
    version: bytes
    lines: tuple[FieldLine, ...]


class PathOddity(Flag):
    """Things in a path that some endpoints permit and others refuse."""

    NONE = 0
    ENCODED_SLASH = 1
    DOUBLE_ESCAPE = 2
    BACKSLASH = 4
    CHANGED = 8
    """Canonicalisation altered the path."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """One request as it is judged and sent.

    `path` is canonical (http-surface.md section 6), `query` the raw bytes after the first `?`. `fields` are
    end-to-end fields in order and case, without `Host`, framing and hop-by-hop fields. `upgrade` is `websocket` for
    a complete handshake, `h2c` for an attempt at that.
    """

    method: str
    origin: Origin
    path: str
    query: str | None
    fields: tuple[FieldLine, ...]
    framing: Framing
    keep_alive: bool = True
    expect_continue: bool = False
    upgrade: str | None = None
    oddities: PathOddity = PathOddity.NONE
    http10: bool = False
    """The client speaks HTTP/1.0: no chunked coding, no interim replies, one request."""
    raw_path: str | None = None
    """The path as the client wrote it, where `path` is spelled otherwise: object keys are not paths everywhere."""

    @property
    def target(self) -> str:
        """Origin-form, as it goes upstream."""
        return self.path if self.query is None else f"{self.path}?{self.query}"


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """One response head, hop-by-hop fields and framing taken out of `fields`."""

    status: int
    reason: bytes
    fields: tuple[FieldLine, ...]
    framing: Framing
    keep_alive: bool = True


@dataclass(frozen=True, slots=True)
class Malformed:
    """A peer's bytes that state nothing unambiguous. `reason` repeats none of them."""

    reason: str
    code: DenialCode = DenialCode.MALFORMED_REQUEST
