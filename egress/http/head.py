"""Tokens to meaning: the only place where a request or response head is interpreted.

Pure functions of frozen values; what clients and origins repeat is remembered, the last few hundred heads of it.
Refuses what it cannot state unambiguously; repairs nothing. http-surface.md sections 2, 4, 7 and 10.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from egress.http.authority import MISMATCH, agrees, read_host_field
from egress.http.fields import HOP_BY_HOP, UNLISTABLE, is_token, list_members
from egress.http.framing import request_framing, response_framing
from egress.http.lexer import REMEMBERED_HEADS, WireStatus
from egress.http.target import Target, read_target
from egress.http.upgrade import Upgrade, requested_upgrade
from egress.model.address import DEFAULT_PORTS, Origin, Scheme
from egress.model.body import FramingKind
from egress.model.message import FieldLine, Malformed, RequestHead, ResponseHead, WireHead
from egress.model.verdict import DenialCode

_SPECIAL = HOP_BY_HOP | {
    b"host", b"content-length", b"transfer-encoding", b"expect", b"te", b"http2-settings"
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Fields of one head: end-to-end ones in order, and the values of those that steer the message."""

    fields: Sequence[FieldLine]
    special: Mapping[bytes, list[bytes]]


@lru_cache(maxsize=REMEMBERED_HEADS)
def interpret_tunnelled(wire: WireHead, origin: Origin) -> RequestHead | Malformed:
    """Meaning of a request inside a tunnel to `origin` (scheme already known): its authority must be the tunnel's."""
    sorted_fields = _sort(wire.lines)
    target = read_target(wire.target)
    if isinstance(target, Malformed):
        return target
    fault = _authority_fault(wire, target, sorted_fields.special.get(b"host", []), origin)
    if fault is not None:
        return fault
    return _request(wire, target, sorted_fields, origin)


def interpret_forward(wire: WireHead) -> RequestHead | Malformed:
    """Meaning of an absolute-form request on the proxy port: the target names the origin, `Host` is not looked at."""
    target = read_target(wire.target)
    if isinstance(target, Malformed):
        return target
    if target.authority is None:
        return Malformed("the proxy port takes CONNECT or an absolute-form target", DenialCode.INVALID_REQUEST_TARGET)
    if target.scheme != Scheme.HTTP:
        hint = "use CONNECT for https URLs" if target.scheme == Scheme.HTTPS else "only http is forwarded"
        return Malformed(hint, DenialCode.UNSUPPORTED_PROXY_SCHEME)
    port = target.authority.port or DEFAULT_PORTS[Scheme.HTTP]
    origin = Origin(Scheme.HTTP, target.authority.host, port)
    return _request(wire, target, _sort(wire.lines), origin)


def check_connect(wire: WireHead) -> Malformed | None:
    """Fields of a CONNECT head are validated and then ignored."""
    special = _sort(wire.lines).special
    options = _connection_options(special)
    if isinstance(options, Malformed):
        return options
    framing = request_framing(special.get(b"content-length", ()), special.get(b"transfer-encoding", ()))
    return framing if isinstance(framing, Malformed) else None


@lru_cache(maxsize=REMEMBERED_HEADS)
def interpret_response(wire: WireStatus, method: str) -> ResponseHead | Malformed:
    """Meaning of an origin's response head to a `method` request (RFC 9112 section 6.3)."""
    sorted_fields = _sort(wire.lines)
    special = sorted_fields.special
    if wire.status == 101 and not _to_websocket(special):
        return Malformed("101 without the fields of a WebSocket", DenialCode.UPSTREAM_PROTOCOL_ERROR)
    framing = response_framing(
        method, wire.status, special.get(b"content-length", ()), special.get(b"transfer-encoding", ())
    )
    if isinstance(framing, Malformed):
        return Malformed(framing.reason, DenialCode.UPSTREAM_PROTOCOL_ERROR)
    fields = sorted_fields.fields
    options: list[bytes] = []
    if b"connection" in special:
        options = [member for value in special[b"connection"] for member in list_members(value)]
        named = frozenset(options)
        fields = [line for line in fields if line[0].lower() not in named]
    if framing.kind is FramingKind.NONE and b"content-length" in special and (method == "HEAD" or wire.status == 304):
        fields = [*fields, (b"Content-Length", special[b"content-length"][0])]
    keep_alive = wire.version == b"HTTP/1.1" and b"close" not in options
    return ResponseHead(wire.status, wire.reason, tuple(fields), framing, keep_alive)


def _to_websocket(special: Mapping[bytes, list[bytes]]) -> bool:
    """RFC 6455 section 4.1: what a 101 must say; we ask for no other protocol."""
    options = [member for value in special.get(b"connection", ()) for member in list_members(value)]
    return b"upgrade" in options and [value.lower() for value in special.get(b"upgrade", ())] == [b"websocket"]


@lru_cache(maxsize=REMEMBERED_HEADS)
def _sort(lines: tuple[FieldLine, ...]) -> _Sorted:
    """Sorted once per distinct list: a client repeats its fields on most requests, an origin on most replies."""
    fields: list[FieldLine] = []
    special: dict[bytes, list[bytes]] = {}
    for line in lines:
        name = line[0].lower()
        if name in _SPECIAL:
            special.setdefault(name, []).append(line[1])
        else:
            fields.append(line)
    return _Sorted(tuple(fields), special)


def _authority_fault(wire: WireHead, target: Target, hosts: list[bytes], origin: Origin) -> Malformed | None:
    if len(hosts) > 1:
        return Malformed("several Host fields")
    if target.authority is not None and (target.scheme != origin.scheme or not agrees(target.authority, origin)):
        return MISMATCH
    if not hosts:
        return None if wire.version == b"HTTP/1.0" else Malformed("Host is missing")
    host = read_host_field(hosts[0])
    if isinstance(host, Malformed):
        return host
    return None if agrees(host, origin) else MISMATCH


def _connection_options(special: Mapping[bytes, list[bytes]]) -> list[bytes] | Malformed:
    options = [member for value in special.get(b"connection", ()) for member in list_members(value)]
    for option in options:
        if not is_token(option):
            return Malformed("Connection option is not a token")
        if option in UNLISTABLE:
            return Malformed("Connection may not name a framing or routing field")
    return options


def _request(wire: WireHead, target: Target, sorted_fields: _Sorted, origin: Origin) -> RequestHead | Malformed:
    """Join the parts; `CONNECT` and `TRACE`-like oddities are policy's business, a bad form is ours."""
    if wire.method == b"CONNECT":
        return Malformed("CONNECT inside a tunnel", DenialCode.INVALID_REQUEST_TARGET)
    special, fields = sorted_fields.special, sorted_fields.fields
    framing = request_framing(special.get(b"content-length", ()), special.get(b"transfer-encoding", ()))
    if isinstance(framing, Malformed):
        return framing
    if special.get(b"transfer-encoding") and wire.version == b"HTTP/1.0":
        return Malformed("Transfer-Encoding in HTTP/1.0")
    options: list[bytes] = []
    if b"connection" in special:
        found = _connection_options(special)
        if isinstance(found, Malformed):
            return found
        options = found
        fields = [line for line in fields if line[0].lower() not in options]
    upgrade = None
    if b"upgrade" in special or b"http2-settings" in special:
        wanted = requested_upgrade(wire.method, wire.lines, options)
        # With a body, where frames begin would be a matter of opinion; HTTP/1.0 has no upgrades (RFC 9110 section 7.8).
        whole = framing.empty and wire.version != b"HTTP/1.0"
        upgrade = wanted.value if wanted is Upgrade.H2C or (wanted is Upgrade.WEBSOCKET and whole) else None
    expect = special.get(b"expect")
    if expect and [value.lower() for value in expect] != [b"100-continue"]:
        return Malformed("unknown expectation", DenialCode.EXPECTATION_FAILED)
    if special.get(b"te") == [b"trailers"]:
        fields = [*fields, (b"TE", b"trailers")]
    return RequestHead(
        wire.method.decode("ascii"),
        origin,
        target.path.text,
        target.query,
        tuple(fields),
        framing,
        keep_alive=b"close" not in options and wire.version != b"HTTP/1.0",
        expect_continue=bool(expect) and wire.version != b"HTTP/1.0",
        upgrade=upgrade,
        oddities=target.path.oddities,
        http10=wire.version == b"HTTP/1.0",
        raw_path=target.raw_path,
    )
