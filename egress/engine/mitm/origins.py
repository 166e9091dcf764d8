"""Connections of one tunnel to its origin: who waits for one, which can take a stream, and when to dial.

Nothing here opens a socket to anywhere but the tunnel's `OriginLink`.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from egress.engine.mitm.messages import AcquireOrigin, Wire
from egress.engine.origin import H1_ALPN
from egress.engine.select import H2
from egress.engine.stream import Stream
from egress.model.address import Scheme
from egress.model.verdict import Denial, DenialCode, Stage

MAX_H2_CONNECTIONS = 8
"""HTTP/2 connections that one tunnel keeps to its origin; streams beyond them wait."""

NEEDS_H2 = Denial(
    Stage.UPSTREAM, DenialCode.UPSTREAM_PROTOCOL_ERROR, "gRPC needs HTTP/2 and the origin speaks HTTP/1.1 only"
)


@dataclass(slots=True)
class Demand:
    """What waits, and what is known about the origin. `speaks_h1` once an HTTP/2 client's origin chose HTTP/1.1."""

    h2_client: bool
    scheme: Scheme
    speaks_h1: bool = False
    dialling: int = 0
    exhausted: bool = False


class Origins:
    """Decides; the dispatcher dials and attaches."""

    def __init__(self, demand: Demand) -> None:
        self._demand = demand
        self.waiting: deque[AcquireOrigin] = deque()
        self.wires: list[Wire] = []

    @property
    def h1(self) -> bool:
        """True when each exchange takes an HTTP/1 connection of its own."""
        return self._demand.speaks_h1 or not self._demand.h2_client

    @property
    def alpn(self) -> tuple[str, ...]:
        """What the next connection offers. In clear nothing can be offered: the origin is spoken to as the client
        spoke, with prior knowledge of HTTP/2."""
        return H1_ALPN if self.h1 else (H2, *H1_ALPN)

    def is_h2(self, stream: Stream) -> bool:
        if self.h1:
            return False
        return stream.alpn == H2 or self._demand.scheme is Scheme.HTTP

    def placed(self) -> Iterator[tuple[AcquireOrigin, Wire]]:
        """Streams that an HTTP/2 connection has room for, in order of arrival."""
        for wire in self.wires:
            while self.waiting and wire.layer.room:
                wire.layer.promised += 1
                yield self.waiting.popleft(), wire

    def refused(self) -> Iterator[AcquireOrigin]:
        """Streams that an origin without HTTP/2 cannot serve."""
        if not self.h1 or not self._demand.h2_client:
            return
        for demand in tuple(self.waiting):
            if demand.needs_h2:
                self.waiting.remove(demand)
                yield demand

    def dials_wanted(self) -> int:
        """How many connections to open now."""
        demand = self._demand
        if self.h1:
            return max(0, len(self.waiting) - demand.dialling)
        if not self.waiting or demand.dialling or len(self.wires) >= MAX_H2_CONNECTIONS:
            return 0
        if demand.exhausted and self.wires:
            return 0  # another one was tried in vain; those that wait get a turn on what there is
        # A connection whose SETTINGS are due may yet take those that wait.
        return 1 if all(wire.layer.settled for wire in self.wires) else 0

    def dialled(self, stream: Stream | Denial) -> None:
        self._demand.dialling -= 1
        if isinstance(stream, Denial):
            self._demand.exhausted = bool(self.wires)
        elif not self.h1 and not self.is_h2(stream):
            self._demand.speaks_h1 = True

    def dialling(self) -> None:
        self._demand.dialling += 1
