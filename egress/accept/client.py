"""One client connection on the proxy port: who is it, then CONNECT or absolute-form, head after head."""

import logging
from collections.abc import Awaitable, Callable

from egress.accept import connect, forward
from egress.accept.door import Door, context_of, tell_refusal
from egress.engine.http1.client_side import read_request_head, send_refusal
from egress.engine.stream import DeadlineExceeded, Stream
from egress.http.replies import Scene, refusal
from egress.model.errors import EgressError
from egress.model.ids import new_flow_id
from egress.model.intent import AgentName, Ingress, SocketPair
from egress.model.limits import LIMITS
from egress.model.message import Malformed, WireHead
from egress.model.verdict import Denial, DenialCode, Stage

log = logging.getLogger(__name__)

_INTERNAL = Denial(Stage.ACCEPT, DenialCode.INTERNAL_ERROR, "the proxy failed to handle this connection")


async def serve_client(client: Stream, doorway: Callable[[], Door]) -> None:
    """Serve until the client or we are done. Never raises: what is unexpected ends this connection alone.

    `doorway` gives the door in force, so that a connection kept alive follows a reload with its next request.
    """
    door = doorway()
    try:
        pair = client.socket_pair()
    except (OSError, ValueError):
        client.abort()
        return
    denial = door.admission.enter(pair.client)
    if denial is not None:
        await _guarded(client, _refuse(client, denial, pair, None, None, door))
        return
    try:
        await _guarded(client, _serve(client, pair, doorway))
    finally:
        door.admission.leave(pair.client)
        client.close()


async def _guarded(client: Stream, work: Awaitable[None]) -> None:
    try:
        await work
    except DeadlineExceeded:
        client.close()
    except EgressError as error:
        log.debug("client connection ended", extra={"reason": str(error)})
        client.abort()
    except Exception:
        log.exception("client connection failed")
        if client.sent:
            client.abort()
        else:
            # Nothing was said yet: the client learns that it was us.
            client.write(refusal(_INTERNAL, Scene(new_flow_id(), Ingress.CONNECT)).http1())


async def _serve(client: Stream, pair: SocketPair, doorway: Callable[[], Door]) -> None:
    agent: AgentName | None = None
    while not (door := doorway()).drain.begun:
        head_time = (door.timeouts.head, "timeouts.head")
        # A caller who is still unknown may not idle.
        first_byte = head_time if agent is None else (door.timeouts.keepalive, "timeouts.keepalive")
        await door.drain.wait_for_work(client, *first_byte)
        door = doorway()
        wire = await read_request_head(client, LIMITS.proxy_head_bytes, first_byte=first_byte, rest=head_time)
        if wire is None:
            return
        if isinstance(wire, Malformed):
            await _refuse(client, Denial(Stage.ACCEPT, wire.code, wire.reason), pair, agent, None, door)
            return
        caller = await door.callers.who(pair, wire)
        ingress = Ingress.CONNECT if wire.method == b"CONNECT" else Ingress.FORWARD
        if isinstance(caller, Denial):
            if not await _refuse_caller(client, caller, pair, wire, ingress, door):
                return
            continue
        if agent is not None and caller != agent:
            return
        agent = caller
        if ingress is Ingress.CONNECT:
            await connect.handle(client, wire, agent, pair, door)
            return
        if not await forward.handle(client, wire, agent, pair, door):
            return
        # A client that asks and never reads would otherwise fill memory with replies.
        await client.drain(door.timeouts.response_idle, "timeouts.response_idle")


async def _refuse(
    client: Stream, denial: Denial, pair: SocketPair, agent: AgentName | None, ingress: Ingress | None, door: Door
) -> None:
    context = context_of(new_flow_id(), pair, agent, ingress)
    await send_refusal(client, tell_refusal(door, denial, context, 0.0, method="-"))


async def _refuse_caller(
    client: Stream, denial: Denial, pair: SocketPair, wire: WireHead, ingress: Ingress, door: Door
) -> bool:
    """Refuse an unknown caller; a 407 keeps a connection whose head had no body, since clients answer it there."""
    context = context_of(new_flow_id(), pair, None, ingress)
    reply = tell_refusal(door, denial, context, 0.0, method=wire.method.decode("ascii", "replace"))
    bodies = (b"content-length", b"transfer-encoding")
    if denial.code is DenialCode.PROXY_AUTH_REQUIRED and not any(name.lower() in bodies for name, _ in wire.lines):
        client.write(reply.http1(keep=True))
        await client.drain(door.timeouts.head, "timeouts.head")
        return True
    await send_refusal(client, reply)
    return False
