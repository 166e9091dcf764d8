"""From an opened connection to a lane: first bytes, TLS terminated once, then the lane that the table names."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from egress.engine.http1 import lane as http1
from egress.engine.http1.client_side import send_refusal
from egress.engine.opaque import relay as opaque
from egress.engine.select import H2, Lane, choose_alpn, choose_lane, http2_of
from egress.engine.sniff import Sniffed, sniff
from egress.engine.stream import DeadlineExceeded
from egress.engine.tunnel import Tunnel
from egress.events.event import ConnectionDecided, FlowContext
from egress.http.replies import Scene, refusal
from egress.model.address import Host, InvalidAddress, Scheme, parse_host
from egress.model.destination import TlsMode
from egress.model.errors import PeerError
from egress.model.limits import LIMITS
from egress.model.message import RequestHead
from egress.model.outcome import RelayOutcome
from egress.model.process import ProcessEvidence
from egress.model.verdict import Denial, DenialCode, Stage
from egress.tls.cache import ContextCache
from egress.tls.hello import BadHello, ClientHello, NeedMore, NotTls, read_hello

log = logging.getLogger(__name__)

_ALERT = b"\x15\x03\x01\x00\x02\x02"
_UNRECOGNIZED_NAME = _ALERT + b"\x70"  # RFC 6066 section 3
_DECODE_ERROR = _ALERT + b"\x32"

_UNSUPPORTED = Denial(
    Stage.L7, DenialCode.UNSUPPORTED_L7_PROTOCOL, "Unsupported tunnel protocol for L7-inspected endpoint"
)
_H2C = Denial(
    Stage.L7, DenialCode.UNSUPPORTED_L7_PROTOCOL,
    "HTTP/2 prior-knowledge (h2c) is not supported for L7-inspected endpoints",
)  # fmt: skip
_SNI = Denial(Stage.TLS, DenialCode.SNI_MISMATCH, "the TLS server name is not the CONNECT host")
_BAD_HELLO = Denial(Stage.TLS, DenialCode.UNSUPPORTED_L7_PROTOCOL, "the ClientHello cannot be read")


@dataclass(frozen=True, slots=True)
class Front:
    """What terminating and choosing need. `contexts` is None without a local authority."""

    contexts: ContextCache | None
    fast_lane: bool
    mitm: Callable[[Tunnel], Awaitable[None]]
    mitm_forward: Callable[[Tunnel, RequestHead], Awaitable[bool]]


async def enter(tunnel: Tunnel, front: Front) -> None:
    """Relay a tunnel that was answered with 200 until it ends."""
    authorization = tunnel.connection.authorization
    if authorization.tls is TlsMode.SKIP:
        await _relay_raw(tunnel)
        return
    sniffed = await _first_bytes(tunnel)
    if sniffed is Sniffed.NEED_MORE:
        # Silence where nothing has to be inspected: a protocol in which the server speaks first.
        await _relay_raw(tunnel)
    elif sniffed is Sniffed.TLS and front.contexts is not None:
        await _terminate(tunnel, front, front.contexts)
    elif sniffed is not None:
        _settle(tunnel, Scheme.HTTP)
        await _run_lane(tunnel, front, sniffed)


async def _first_bytes(tunnel: Tunnel) -> Sniffed | None:
    """Look at the first bytes without consuming them. None: the client left, or said too little in time."""
    inspected = tunnel.connection.authorization.inspected
    seconds, name = tunnel.timeouts.tunnel_start, "timeouts.tunnel_start"
    if not inspected:
        seconds, name = tunnel.connection.authorization.endpoints[0].detect_timeout, "detect_timeout"
    client = tunnel.client
    left = _countdown(seconds)
    while (sniffed := sniff(client.buffer, LIMITS.tunnel_head_bytes)) is Sniffed.NEED_MORE:
        try:
            if client.buffer:
                ended = not await client.more(left(), name)
            else:
                # Until it says something, a drain takes the client for idle.
                await tunnel.drain.wait_for_work(client, left(), name)
                ended = not client.buffer
            if ended:
                return Sniffed.NEED_MORE if client.buffer and not inspected else None
        except DeadlineExceeded as error:
            if not inspected:
                return Sniffed.NEED_MORE
            tunnel.tally.limit, tunnel.tally.outcome = error.limit, RelayOutcome.CUT
            return None
    return sniffed


async def _terminate(tunnel: Tunnel, front: Front, contexts: ContextCache) -> None:
    """Check the server name, reach and verify the origin, and only then finish the client's handshake."""
    hello = await _read_hello(tunnel)
    if not isinstance(hello, ClientHello):
        await _refuse_hello(tunnel, _BAD_HELLO, _DECODE_ERROR)
        return
    if hello.sni is not None and not _names(hello.sni, tunnel.origin.host):
        await _refuse_hello(tunnel, _SNI, _UNRECOGNIZED_NAME)
        return
    _settle(tunnel, Scheme.HTTPS)
    http2 = http2_of(tunnel.connection.authorization.endpoints)
    alpn = choose_alpn(hello.alpn, http2)
    # A failure is not told yet: the handshake goes on, and the first request gets it as a 502 that can be read.
    await tunnel.link.prepare((H2, "http/1.1") if alpn == (H2,) else alpn)
    try:
        await tunnel.client.start_tls(
            contexts.server_context(tunnel.origin.host, alpn),
            server_side=True,
            seconds=tunnel.timeouts.tls_handshake,
        )
    except ssl.SSLError as error:
        _handshake_failed(tunnel, error)
        return
    sniffed = await _first_bytes(tunnel)
    if sniffed is Sniffed.NEED_MORE:
        await _relay_raw(tunnel)
    elif sniffed is not None:
        await _run_lane(tunnel, front, sniffed)


async def _read_hello(tunnel: Tunnel) -> ClientHello | NotTls | BadHello:
    left = _countdown(tunnel.timeouts.tls_handshake)
    while isinstance(hello := read_hello(tunnel.client.buffer), NeedMore):
        if not await tunnel.client.more(left(), "timeouts.tls_handshake"):
            raise PeerError(tunnel.client.side, "connection ended during the TLS handshake")
    return hello


def _countdown(seconds: float | None) -> Callable[[], float | None]:
    """What is left of `seconds`, however many reads it takes: bytes that drip in win no time."""
    if seconds is None:
        return lambda: None
    now = asyncio.get_running_loop().time
    end = now() + seconds
    return lambda: max(0.0, end - now())


def _names(sni: str, host: Host) -> bool:
    try:
        return parse_host(sni) == host
    except InvalidAddress:
        return False


async def _run_lane(tunnel: Tunnel, front: Front, sniffed: Sniffed) -> None:
    authorization = tunnel.connection.authorization
    http2 = http2_of(authorization.endpoints)
    lane = choose_lane(sniffed, tunnel.client.alpn, http2, inspected=authorization.inspected, fast_lane=front.fast_lane)
    tunnel.tally.lane = lane.value
    match lane:
        case Lane.HTTP1:
            await http1.run(tunnel)
        case Lane.MITM:
            await front.mitm(tunnel)
        case Lane.OPAQUE:
            await _relay_raw(tunnel)
        case Lane.REFUSED:
            await _refuse(tunnel, _H2C if sniffed is Sniffed.HTTP2 else _UNSUPPORTED)


async def _relay_raw(tunnel: Tunnel) -> None:
    tunnel.tally.lane = opaque.NAME
    under_tls = tunnel.client.tls is not None
    origin = await (tunnel.link.fresh(()) if under_tls else tunnel.link.raw())
    if isinstance(origin, Denial):
        _emit(tunnel, origin)
        tunnel.tally.outcome = RelayOutcome.FAILED
        tunnel.client.abort()
        return
    await opaque.run(tunnel, origin)


def _settle(tunnel: Tunnel, scheme: Scheme) -> None:
    tunnel.origin = replace(tunnel.origin, scheme=scheme)
    tunnel.connection.context = replace(tunnel.connection.context, origin=tunnel.origin)
    tunnel.link.settle(scheme)


async def _refuse(tunnel: Tunnel, denial: Denial) -> None:
    """Refuse inside the tunnel, in the words of HTTP."""
    context = _emit(tunnel, denial)
    evidence = context.evidence
    binary = evidence.executable if isinstance(evidence, ProcessEvidence) else None
    scene = Scene(context.flow, None, "-", tunnel.origin, binary=binary)
    tunnel.tally.outcome = RelayOutcome.DENIED
    await send_refusal(tunnel.client, refusal(denial, scene))


async def _refuse_hello(tunnel: Tunnel, denial: Denial, alert: bytes) -> None:
    _emit(tunnel, denial)
    tunnel.tally.outcome = RelayOutcome.DENIED
    tunnel.client.write(alert)
    tunnel.client.close()


def _emit(tunnel: Tunnel, denial: Denial) -> FlowContext:
    context = tunnel.connection.context
    services = tunnel.services
    services.events.emit(
        ConnectionDecided(context, services.clock.now(), 0.0, denial, tunnel.connection.authorization.inspected)
    )
    return context


def _handshake_failed(tunnel: Tunnel, error: ssl.SSLError) -> None:
    tunnel.tally.outcome = RelayOutcome.FAILED
    if "UNKNOWN_CA" in (error.reason or "") or "CERTIFICATE_UNKNOWN" in (error.reason or ""):
        log.warning("client does not trust the local authority", extra={"hint": "egress env prints what it needs"})
    tunnel.client.abort()
