"""Which lane relays a tunnel: a pure table over the authorization and the first bytes, evaluated once.

Lanes differ in speed and coverage, never in verdict; the choice decides nothing.
"""

from enum import StrEnum

from egress.engine.sniff import Sniffed
from egress.policy.compiled import Endpoint, Http2

H1 = "http/1.1"
H2 = "h2"


class Lane(StrEnum):
    HTTP1 = "http1"
    MITM = "mitm"
    OPAQUE = "opaque"
    REFUSED = "refused"


def http2_of(endpoints: tuple[Endpoint, ...]) -> Http2:
    """What the endpoints of one connection together say: one that forbids h2 forbids it, one that prefers it may."""
    settings = {endpoint.http2 for endpoint in endpoints}
    if Http2.OFF in settings:
        return Http2.OFF
    return Http2.PREFER if Http2.PREFER in settings else Http2.AUTO


def choose_alpn(offers: tuple[bytes, ...], http2: Http2) -> tuple[str, ...]:
    """The ALPN protocols we answer from: h2 only where it is wanted or nothing else is offered (decision 9)."""
    wants_h2 = b"h2" in offers and http2 is not Http2.OFF
    if wants_h2 and (http2 is Http2.PREFER or b"http/1.1" not in offers):
        return (H2,)
    return (H1,)


def choose_lane(sniffed: Sniffed, alpn: str | None, http2: Http2, *, inspected: bool, fast_lane: bool) -> Lane:
    """The lane for bytes in clear (`alpn` None) or decrypted. `sniffed` is never TLS or NEED_MORE here."""
    if alpn == H2 or sniffed is Sniffed.HTTP2:
        if http2 is Http2.OFF and alpn != H2:
            return Lane.REFUSED if inspected else Lane.OPAQUE
        return Lane.MITM if sniffed is Sniffed.HTTP2 else _unreadable(inspected=inspected)
    if sniffed is Sniffed.HTTP1:
        return Lane.HTTP1 if fast_lane else Lane.MITM
    return _unreadable(inspected=inspected)


def _unreadable(*, inspected: bool) -> Lane:
    return Lane.REFUSED if inspected else Lane.OPAQUE
