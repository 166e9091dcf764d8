"""What a lane is handed: a client stream, an opened connection, and the means to reach its origin."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from egress.engine.assemblies import Assemblies
from egress.engine.drain import Drain
from egress.engine.origin import OriginLink
from egress.engine.pump import Pump
from egress.engine.stream import Stream
from egress.model.address import Origin
from egress.model.outcome import ByteCounts, RelayOutcome
from egress.pipeline.connection import OpenedConnection
from egress.pipeline.ports import Services
from egress.pipeline.revalidate import revalidate

POLICY_CHANGED_LIMIT = "policy_changed"
"""Told as the limit of a relay that a newer generation ended."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Settings `timeouts.*` in seconds; None is `off`."""

    head: float | None = 15
    body_idle: float | None = 30
    tunnel_start: float | None = 30
    keepalive: float | None = 300
    response_idle: float | None = 300
    response_head: float | None = 600
    websocket_idle: float | None = None
    raw_idle: float | None = None
    half_closed: float | None = 60
    tls_handshake: float | None = 10
    grace: float = 0
    """`reload.grace`: how long a relay that policy no longer allows may go on."""


@dataclass(slots=True)
class Tally:
    """What happened on a tunnel so far; the one mutable record of it."""

    sent: int = 0
    received: int = 0
    exchanges: int = 0
    lane: str | None = None
    outcome: RelayOutcome = RelayOutcome.COMPLETE
    limit: str | None = None

    @property
    def counts(self) -> ByteCounts:
        return ByteCounts(self.sent, self.received)


@dataclass(slots=True)
class Tunnel:
    """`origin` has the scheme that the first bytes showed."""

    client: Stream
    connection: OpenedConnection
    origin: Origin
    link: OriginLink
    services: Services
    timeouts: Timeouts
    drain: Drain
    assemblies: Assemblies
    tally: Tally = field(default_factory=Tally)

    def watch(self, stop: Callable[[str], None]) -> Callable[[], None]:
        """Call `stop` when a newer generation no longer allows this connection; the returned function ends that."""
        grace = self.timeouts.grace
        timers: list[asyncio.TimerHandle] = []

        def cut() -> None:
            if revalidate(self.connection) is not None:
                stop(POLICY_CHANGED_LIMIT)

        def look() -> None:
            if grace and revalidate(self.connection) is not None:
                timers.append(asyncio.get_running_loop().call_later(grace, cut))
            elif not grace:
                cut()

        unwatch = self.connection.lease.watch(look)

        def end() -> None:
            unwatch()
            for timer in timers:
                timer.cancel()

        return end

    async def pump(self, pump: Pump) -> None:
        """Run a raw relay that ends when a newer generation no longer allows it."""
        # What was looked at to choose the lane is still to be relayed.
        before = (self.client.received - len(self.client.buffer), self.client.sent)
        unwatch = self.watch(pump.stop)
        try:
            if revalidate(self.connection) is not None:
                pump.stop(POLICY_CHANGED_LIMIT)
            await pump.run()
        finally:
            unwatch()
            self.tally.sent += self.client.received - before[0]
            self.tally.received += self.client.sent - before[1]
            self.tally.outcome = pump.outcome
            self.tally.limit = pump.limit
