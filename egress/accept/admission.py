"""Connection budgets: global and per caller address."""

from collections import Counter
from dataclasses import dataclass

from egress.model.address import IpAddress
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    connections: int
    per_caller: int


class Admission:
    """Counts open client connections."""

    def __init__(self, limits: AdmissionLimits) -> None:
        self.limits = limits
        self._callers: Counter[IpAddress] = Counter()
        self.open = 0
        self._ended = 0

    def enter(self, caller: IpAddress) -> Denial | None:
        """Count one connection in; a denial counts nothing."""
        if self.open >= self.limits.connections:
            return _overloaded(ReasonCode.CONNECTIONS)
        if self._callers[caller] >= self.limits.per_caller:
            return _overloaded(ReasonCode.CALLER_CONNECTIONS)
        self.open += 1
        self._callers[caller] += 1
        return None

    def leave(self, caller: IpAddress) -> None:
        self.open -= 1
        self._ended += 1
        self._callers[caller] -= 1
        if not self._callers[caller]:
            del self._callers[caller]

    def ended(self) -> int:
        """Connections that ended since this was asked last."""
        ended, self._ended = self._ended, 0
        return ended


def _overloaded(reason: ReasonCode) -> Denial:
    return Denial(Stage.ACCEPT, DenialCode.OVERLOADED, "too many connections", reason)
