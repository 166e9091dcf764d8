"""Absolute-form: the whole connection scope for each request, then one exchange in clear."""

from egress.accept.door import Door, context_of, tell_refusal
from egress.engine.http1 import lane as http1
from egress.engine.http1.client_side import send_refusal
from egress.engine.select import Lane
from egress.engine.stream import Stream
from egress.engine.tunnel import Tunnel
from egress.http.head import interpret_forward
from egress.model.address import Scheme
from egress.model.ids import new_flow_id
from egress.model.intent import AgentName, EgressIntent, Ingress, SocketPair
from egress.model.message import Malformed, WireHead
from egress.model.verdict import Denial, Stage
from egress.pipeline.connection import Refused, open_connection
from egress.pipeline.exchange import UNREADABLE_PATH


async def handle(client: Stream, wire: WireHead, agent: AgentName, pair: SocketPair, door: Door) -> bool:
    """Serve one absolute-form request; True when the client connection can carry another head."""
    started = door.services.clock.monotonic()
    flow = new_flow_id()
    method = wire.method.decode("ascii", "replace")
    head = interpret_forward(wire)
    if isinstance(head, Malformed):
        context = context_of(flow, pair, agent, Ingress.FORWARD)
        denial = Denial(Stage.L7, head.code, head.reason)
        await send_refusal(client, tell_refusal(door, denial, context, 0.0, method=method, path=UNREADABLE_PATH))
        return False
    opened = await open_connection(EgressIntent(flow, Ingress.FORWARD, agent, head.origin, pair), door.services)
    if isinstance(opened, Refused):
        duration = door.services.clock.monotonic() - started
        reply = tell_refusal(door, opened.denial, opened.context, duration, method=method, path=head.path)
        await send_refusal(client, reply)
        return False
    link = door.upstream.link(opened)
    link.settle(Scheme.HTTP)
    try:
        tunnel = Tunnel(client, opened, head.origin, link, door.services, door.timeouts, door.drain, door.assemblies)
        if door.front.fast_lane:
            tunnel.tally.lane = Lane.HTTP1.value
            return await http1.serve(tunnel, head)
        return await door.front.mitm_forward(tunnel, head)
    finally:
        link.close()
