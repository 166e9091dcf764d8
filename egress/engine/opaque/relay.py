"""The lane that reads nothing: raw bytes both ways."""

from egress.engine.pump import Pump, PumpLimits
from egress.engine.stream import Stream
from egress.engine.tunnel import Tunnel

NAME = "opaque"


async def run(tunnel: Tunnel, origin: Stream) -> None:
    """Relay until both directions ended, one failed, or policy changed."""
    timeouts = tunnel.timeouts
    await tunnel.pump(
        Pump(tunnel.client, origin, PumpLimits(timeouts.raw_idle, "timeouts.raw_idle", timeouts.half_closed))
    )
