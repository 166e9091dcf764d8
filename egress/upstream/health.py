"""Which corporate proxies are up, from dials and checks. It sorts the alternatives and never takes one away."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from egress.upstream.plan import Chain, HealthTerms, Hop


@dataclass(slots=True)
class _Record:
    failures: int = 0
    down_since: float | None = None


class Health:
    """`tell` hears of each change: the hop, and whether it is up now."""

    def __init__(self, now: Callable[[], float], tell: Callable[[Hop, bool], None]) -> None:
        self._now = now
        self._tell = tell
        self._terms = HealthTerms()
        self._records: dict[Hop, _Record] = {}

    def install(self, hops: Iterable[Hop], terms: HealthTerms) -> None:
        """Keep what is known of proxies that stay."""
        self._terms = terms
        self._records = {hop: self._records.get(hop, _Record()) for hop in hops}

    def up(self, hop: Hop) -> bool:
        """Without checks, a proxy that was down is given another try after one interval."""
        record = self._records.get(hop)
        if record is None or record.down_since is None:
            return True
        return not self._terms.enabled and self._now() - record.down_since >= self._terms.interval

    def order(self, chains: tuple[Chain, ...]) -> tuple[Chain, ...]:
        """Chains without a dead proxy first. The others stay: what is known may be out of date."""
        return chains if len(chains) == 1 else tuple(sorted(chains, key=lambda chain: not all(map(self.up, chain))))

    def succeeded(self, hop: Hop) -> None:
        record = self._records.get(hop)
        if record is None:
            return
        was_down, record.failures, record.down_since = record.down_since is not None, 0, None
        if was_down:
            self._tell(hop, True)

    def failed(self, hop: Hop) -> None:
        record = self._records.get(hop)
        if record is None:
            return
        record.failures += 1
        if record.failures < self._terms.fail_after:
            return
        was_up, record.down_since = record.down_since is None, self._now()
        if was_up:
            self._tell(hop, False)
