"""The full-coverage lane: HTTP/2 on either side, and whatever the short path hands over, on mitmproxy's layers."""

from egress.engine import websocket
from egress.engine.linger import linger
from egress.engine.mitm.dispatch import Dispatcher
from egress.engine.mitm.exchange import NAME
from egress.engine.mitm.messages import Ending, Handover
from egress.engine.pump import Pump, PumpLimits
from egress.engine.select import H2
from egress.engine.sniff import PREFACE
from egress.engine.tunnel import Tunnel
from egress.model.message import RequestHead


async def run(tunnel: Tunnel) -> None:
    """Serve every request of a decrypted, or clear, client stream until it ends."""
    client = tunnel.client
    h2 = client.alpn == H2 or client.buffer.startswith(PREFACE[:8])
    await _serve(tunnel, Dispatcher(tunnel, h2=h2))


async def serve_forward(tunnel: Tunnel, head: RequestHead) -> bool:
    """Serve one absolute-form request; True when the client connection can carry another head."""
    tunnel.tally.lane = NAME
    dispatcher = Dispatcher(tunnel, h2=False, first=head)
    await _serve(tunnel, dispatcher)
    return dispatcher.ending.how is Ending.KEEP and dispatcher.handover is None


async def _serve(tunnel: Tunnel, dispatcher: Dispatcher) -> None:
    await dispatcher.run()
    client, ending = tunnel.client, dispatcher.ending
    match ending.how:
        case Ending.KEEP:
            client.put_back(ending.rest)
            if dispatcher.handover is not None:
                await _upgraded(tunnel, dispatcher.handover)
        case Ending.CLOSE:
            client.close()
        case Ending.LINGER:
            client.write(ending.payload)
            await linger(client)
        case Ending.CUT:
            client.cut()
        case Ending.RESET:
            client.reset()


async def _upgraded(tunnel: Tunnel, handover: Handover) -> None:
    origin = handover.wire.stream
    if handover.session is not None:
        await websocket.run(tunnel, handover.exchange, handover.session, origin)
        return
    timeouts = tunnel.timeouts
    limits = PumpLimits(timeouts.websocket_idle, "timeouts.websocket_idle", timeouts.half_closed)
    await tunnel.pump(Pump(tunnel.client, origin, limits))
