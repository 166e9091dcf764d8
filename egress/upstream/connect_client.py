"""CONNECT to an HTTP proxy: one bounded exchange, after which the stream belongs to the tunnel."""

from typing import Protocol

from egress.http.lexer import NeedMore, find_head, lex_response
from egress.model.limits import LIMITS
from egress.model.message import Malformed
from egress.model.verdict import ReasonCode
from egress.upstream.digest import schemes_of
from egress.upstream.failure import Failure, Meaning, malformed, refused
from egress.upstream.plan import Place

_TICKET_SCHEMES = frozenset(("ntlm", "negotiate", "kerberos"))


class Duplex(Protocol):
    """What a handshake needs of a stream. Bytes that it does not take stay for whoever reads next."""

    buffer: bytes

    async def more(self, seconds: float | None, limit: str) -> bool: ...
    def take(self, size: int | None = None) -> bytes: ...
    def write(self, data: bytes) -> None: ...


def authorization_line(value: str | None) -> bytes:
    return b"" if value is None else b"Proxy-Authorization: %b\r\n" % value.encode()


async def open_tunnel(stream: Duplex, place: Place, authorization: str | None) -> Failure | None:
    """Ask for a tunnel and wait for its 200. Whoever calls sets the deadline."""
    authority = str(place).encode("ascii")
    line = authorization_line(authorization)
    stream.write(b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (authority, authority, line))
    for _ in range(LIMITS.proxy_interim_replies + 1):
        reply = await _read_head(stream)
        if isinstance(reply, Failure):
            return reply
        status, challenges = reply
        if status >= 200 or status == 101:
            return _judge(status, challenges, authenticated=authorization is not None)
    return malformed("sent too many interim replies")


async def _read_head(stream: Duplex) -> tuple[int, tuple[str, ...]] | Failure:
    scanned = 0
    while isinstance(found := find_head(stream.buffer, LIMITS.proxy_reply_bytes, scanned), NeedMore):
        scanned = len(stream.buffer)
        if not await stream.more(None, "upstream_proxy.handshake_timeout"):
            return malformed("closed the connection without a complete reply")
    if isinstance(found, Malformed):
        return malformed("sent a reply that cannot be read")
    wire = lex_response(stream.take(found))
    if isinstance(wire, Malformed):
        return malformed("sent a reply that cannot be read")
    names = b"proxy-authenticate"
    return wire.status, tuple(value.decode("latin-1") for name, value in wire.lines if name.lower() == names)


def _judge(status: int, challenges: tuple[str, ...], *, authenticated: bool) -> Failure | None:
    if status == 200:
        return None
    if status != 407:
        return refused(status, f"answered {status}")
    schemes = schemes_of(challenges)
    if schemes and _TICKET_SCHEMES.issuperset(schemes):
        text = f"accepts only {' and '.join(schemes)}, which is not spoken here (407)"
    elif authenticated:
        text = "rejected our credential (407)"
    else:
        text = "asks for a credential (407)"
    return Failure(ReasonCode.PROXY_AUTH_REJECTED, Meaning.REJECTED, text, challenges)
