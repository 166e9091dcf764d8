"""CONNECT: intent, 200 or refusal, then the tunnel."""

import asyncio
from dataclasses import replace

from egress.accept.door import Door, context_of, tell_refusal
from egress.engine.enter import enter
from egress.engine.http1.client_side import send_refusal
from egress.engine.origin import OriginLink
from egress.engine.stream import DeadlineExceeded, Stream
from egress.engine.tunnel import Tunnel
from egress.events.event import ConnectionClosed, ConnectionDecided, FlowContext
from egress.http.head import check_connect
from egress.http.serialize import ESTABLISHED
from egress.http.target import read_connect_target
from egress.model.destination import TlsMode
from egress.model.errors import PeerError, Side
from egress.model.ids import new_flow_id
from egress.model.intent import AgentName, EgressIntent, Ingress, SocketPair
from egress.model.limits import LIMITS
from egress.model.message import Malformed, WireHead
from egress.model.outcome import RelayOutcome
from egress.model.verdict import Allow, Denial, DenialCode, Stage
from egress.pipeline.connection import OpenedConnection, Refused, decide, open_connection
from egress.pipeline.revalidate import revalidate

_NO_AUTHORITY = Denial(
    Stage.TLS, DenialCode.TLS_TERMINATION_UNAVAILABLE, "the proxy has no local authority to terminate TLS with"
)


async def handle(client: Stream, wire: WireHead, agent: AgentName, pair: SocketPair, door: Door) -> None:
    """Answer a CONNECT and relay its tunnel to the end."""
    started = door.services.clock.monotonic()
    flow = new_flow_id()
    origin = read_connect_target(wire.target)
    fault = origin if isinstance(origin, Malformed) else check_connect(wire)
    if isinstance(origin, Malformed) or fault is not None:
        assert isinstance(fault, Malformed)
        context = context_of(flow, pair, agent, Ingress.CONNECT)
        await _refuse(client, Denial(Stage.ACCEPT, fault.code, fault.reason), context, started, door)
        return
    client.read_ahead(LIMITS.early_bytes)
    opened = await open_connection(EgressIntent(flow, Ingress.CONNECT, agent, origin, pair), door.services)
    if isinstance(opened, Refused):
        await _refuse(client, opened.denial, opened.context, started, door)
        return
    link = door.upstream.link(opened)
    try:
        denial = await _prepare(opened, link, door)
        if denial is not None:
            await _refuse(client, denial, opened.context, started, door)
            return
        client.write(ESTABLISHED)
        client.read_ahead(LIMITS.stream_buffer)
        _tell_allowed(opened, started, door)
        tunnel = Tunnel(client, opened, origin, link, door.services, door.timeouts, door.drain, door.assemblies)
        await _relay(tunnel, door)
    finally:
        link.close()


async def _prepare(opened: OpenedConnection, link: OriginLink, door: Door) -> Denial | None:
    """Everything between the pinned destination and the 200."""
    if door.front.contexts is None and opened.authorization.tls is not TlsMode.SKIP:
        return _NO_AUTHORITY
    return await link.ready() or revalidate(opened)


async def _refuse(client: Stream, denial: Denial, context: FlowContext, started: float, door: Door) -> None:
    duration = door.services.clock.monotonic() - started
    await send_refusal(client, tell_refusal(door, denial, context, duration, method="CONNECT"))


def _tell_allowed(opened: OpenedConnection, started: float, door: Door) -> None:
    clock = door.services.clock
    door.services.events.emit(
        ConnectionDecided(
            opened.context, clock.now(), clock.monotonic() - started, Allow(), opened.authorization.inspected
        )
    )


async def _relay(tunnel: Tunnel, door: Door) -> None:
    """Run the tunnel and tell how it ended, however it ends."""
    started = door.services.clock.monotonic()
    tally = tunnel.tally
    try:
        await _enter(tunnel, door)
    except PeerError as error:
        gone = error.side is Side.DOWNSTREAM
        tally.outcome = RelayOutcome.CLIENT_GONE if gone else RelayOutcome.UPSTREAM_GONE
        raise
    except DeadlineExceeded as error:
        tally.outcome, tally.limit = RelayOutcome.CUT, error.limit
        raise
    except BaseException:
        tally.outcome = RelayOutcome.FAILED
        raise
    finally:
        clock = door.services.clock
        door.services.events.emit(
            ConnectionClosed(
                tunnel.connection.context, clock.now(), clock.monotonic() - started, tally.outcome, tally.counts,
                tally.lane, tally.exchanges, tally.limit,
            )
        )  # fmt: skip


async def _enter(tunnel: Tunnel, door: Door) -> None:
    """Run the tunnel, its owner asked again every so often where `identity.recheck` wants that."""
    if door.recheck is None:
        await enter(tunnel, door.front)
        return
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(_watch_owner(tunnel, door, door.recheck))
        try:
            await enter(tunnel, door.front)
        finally:
            watching.cancel()


async def _watch_owner(tunnel: Tunnel, door: Door, seconds: float) -> None:
    """Cut the tunnel when its socket changed hands in a way that changes what it may do."""
    while True:
        await asyncio.sleep(seconds)
        current = tunnel.connection.authorization
        evidence = await door.services.identity.recheck(current.intent.client)
        renewed = decide(tunnel.connection.lease.generation, current.intent, evidence)
        if isinstance(renewed, Denial) or not renewed.same_terms(replace(current, evidence=evidence)):
            tunnel.tally.outcome, tunnel.tally.limit = RelayOutcome.CUT, "identity.recheck"
            tunnel.client.abort()
            return
