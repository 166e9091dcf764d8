"""The short path, default for HTTP/1.1: one request after the other on a decrypted client stream."""

import logging

from egress.engine import websocket
from egress.engine.http1.client_side import read_request_head, send_refusal
from egress.engine.http1.relay import After, Relay
from egress.engine.linger import linger
from egress.engine.pump import Pump, PumpLimits
from egress.engine.tunnel import Tunnel
from egress.model.errors import PeerError
from egress.model.limits import LIMITS
from egress.model.message import Malformed, RequestHead, WireHead
from egress.model.outcome import ByteCounts, RelayOutcome
from egress.model.verdict import Denial, DenialCode, Stage
from egress.pipeline.exchange import Exchange
from egress.pipeline.session import Session

NAME = "http1"

INTERNAL = Denial(Stage.L7, DenialCode.INTERNAL_ERROR, "the proxy failed to handle this request")

log = logging.getLogger(__name__)


async def run(tunnel: Tunnel) -> None:
    """Serve the tunnel's requests until one of them ends it."""
    timeouts = tunnel.timeouts
    idle = (timeouts.keepalive, "timeouts.keepalive")
    head = (timeouts.head, "timeouts.head")
    while not tunnel.drain.begun:
        await tunnel.drain.wait_for_work(tunnel.client, *idle)
        wire = await read_request_head(tunnel.client, LIMITS.tunnel_head_bytes, first_byte=idle, rest=head)
        if wire is None or not await serve(tunnel, wire):
            return
    tunnel.client.close()


async def serve(tunnel: Tunnel, wire: WireHead | Malformed | RequestHead) -> bool:
    """One exchange; True when the client connection can carry another. Closes the client otherwise."""
    tally = tunnel.tally
    tally.exchanges += 1
    exchange = Exchange(tunnel.connection, tunnel.services, tunnel.origin, NAME, tally.exchanges)
    status: int | None = None
    counts = ByteCounts()
    outcome = RelayOutcome.FAILED
    told = tunnel.client.sent
    try:
        head = exchange.begin(wire)
        if isinstance(head, Denial):
            outcome = RelayOutcome.DENIED
            status = await _refuse(tunnel, exchange, head)
            return False
        relay = Relay(tunnel.client, tunnel.link, exchange, tunnel.timeouts)
        unwatch = tunnel.watch(relay.stop)
        try:
            after = await relay.run()
        finally:
            unwatch()
        counts = relay.counts
        tally.sent += counts.sent
        tally.received += counts.received
        if isinstance(after, Denial):
            outcome = RelayOutcome.DENIED
            status = await _refuse(tunnel, exchange, after)
            return False
        outcome, status = relay.outcome, relay.status
        if outcome is not RelayOutcome.COMPLETE:
            tally.limit, tally.outcome = relay.limit, outcome
        if after is After.UPGRADE:
            session = exchange.session()
            exchange.finish(outcome, status, counts)
            await _upgraded(tunnel, exchange, relay, session)
            return False
        return await _settle(tunnel, after, relay, http10=head.http10)
    except PeerError:
        outcome = RelayOutcome.CLIENT_GONE
        raise
    except Exception:
        if tunnel.client.sent != told:
            raise
        log.exception("exchange failed")
        outcome = RelayOutcome.DENIED
        status = await _refuse(tunnel, exchange, INTERNAL)
        return False
    finally:
        exchange.finish(outcome, status, counts)


async def _refuse(tunnel: Tunnel, exchange: Exchange, denial: Denial) -> int:
    reply = exchange.refuse(denial)
    await send_refusal(tunnel.client, reply)
    return reply.status


async def _settle(tunnel: Tunnel, after: After, relay: Relay, *, http10: bool) -> bool:
    client = tunnel.client
    if after is After.KEEP:
        # A client that asks and never reads would otherwise fill memory with replies.
        await client.drain(tunnel.timeouts.response_idle, "timeouts.response_idle")
        return True
    if after is After.CUT and http10:
        # A plain FIN would look like the end of a body that runs until close.
        client.reset()
    elif after is After.CUT:
        client.cut()
    elif relay.body_complete:
        client.close()
    else:
        await linger(client)
    return False


async def _upgraded(tunnel: Tunnel, exchange: Exchange, relay: Relay, session: Session | None) -> None:
    """Relay an upgraded connection: its messages judged, or raw where the endpoint asks for that."""
    origin = relay.origin_after_upgrade
    assert origin is not None
    if session is not None:
        await websocket.run(tunnel, exchange, session, origin)
        return
    limits = PumpLimits(tunnel.timeouts.websocket_idle, "timeouts.websocket_idle", tunnel.timeouts.half_closed)
    await tunnel.pump(Pump(tunnel.client, origin, limits))
