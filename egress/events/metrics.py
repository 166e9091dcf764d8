"""Counts of events, and their Prometheus text. Plain dictionaries while events pass; prometheus_client is imported by
the first `render`."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from egress.events.bus import Numbered
from egress.events.event import ConnectionClosed, ConnectionDecided, ExchangeDecided, Finding, StateChange
from egress.events.queued import Tally
from egress.model.verdict import Allow, Audited, Verdict

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
MAX_SERIES = 1024
"""Label sets per counter; beyond, new ones are counted under `other`. Finding types may come from plugins."""

STATUS: dict[int | None, str] = {status: f"{status // 100}xx" for status in range(100, 600)}
ALLOWED = ("allowed", "")

type Labels = tuple[str, ...]


@dataclass(slots=True)
class _Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0


@dataclass(slots=True)
class _Lane:
    """What exchanges of one lane add up to."""

    durations: _Histogram = field(default_factory=_Histogram)
    sent: int = 0
    received: int = 0


@dataclass(slots=True)
class _Counter:
    name: str
    help: str
    labels: Labels
    values: dict[Labels, int] = field(default_factory=dict)

    def add(self, key: Labels, amount: int = 1) -> None:
        values = self.values
        if key in values:
            values[key] += amount
        elif len(values) < MAX_SERIES:
            values[key] = amount
        else:
            other = ("other",) * len(key)
            values[other] = values.get(other, 0) + amount


@dataclass(frozen=True, slots=True)
class _Gauge:
    name: str
    help: str
    read: Callable[[], float]


class Metrics:
    """A sink that only counts. `tallies` are the other sinks' losses by sink name."""

    name = "metrics"

    def __init__(self, version: str, tallies: Mapping[str, Tally]) -> None:
        self._version = version
        self._tallies = tallies
        self._connections = _Counter("egress_connections", "Decided connections.", ("verdict", "code"))
        self._exchanges = _Counter(
            "egress_exchanges", "Ended HTTP exchanges.", ("verdict", "code", "protocol", "lane", "status")
        )
        self._closed = _Counter("egress_connections_closed", "Closed connections.", ("outcome", "lane"))
        self._connection_bytes = _Counter(
            "egress_connection_bytes", "Payload bytes of closed connections.", ("direction",)
        )
        self._findings = _Counter("egress_findings", "Findings.", ("type", "severity"))
        self._changes = _Counter("egress_state_changes", "Configuration state changes.", ("state",))
        self._decisions = _Histogram()
        self._lanes: dict[str, _Lane] = {}
        self._generation = 0
        self._origin = ("", "")
        self._gauges: list[_Gauge] = []
        self._dials = _Counter("egress_upstream_dials", "Connections opened towards origins.", ("via", "outcome"))
        self._dial_seconds: dict[tuple[str, str], _Histogram] = {}
        self._proxies: Callable[[], Mapping[str, bool]] = dict
        self._registry: CollectorRegistry | None = None

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Show what `read` says whenever metrics are rendered."""
        self._gauges.append(_Gauge(name, text, read))

    def dialled(self, via: str, outcome: str, seconds: float) -> None:
        """A dial ended: through which proxies, or `direct`; how; after how long."""
        key = (via, outcome)
        self._dials.add(key)
        histogram = self._dial_seconds.setdefault(key, _Histogram())
        histogram.counts[bisect_left(BUCKETS, seconds)] += 1
        histogram.total += seconds

    def proxies(self, read: Callable[[], Mapping[str, bool]]) -> None:
        """Show which corporate proxies are up whenever metrics are rendered."""
        self._proxies = read

    def offer(self, item: Numbered) -> None:
        event = item[1]
        if type(event) is ExchangeDecided:
            self._exchange(event)
            return
        match event:
            case ConnectionDecided():
                self._connections.add(_verdict(event.verdict))
                self._decisions.counts[bisect_left(BUCKETS, event.duration)] += 1
                self._decisions.total += event.duration
            case ConnectionClosed():
                self._closed.add((event.outcome.value, event.lane or ""))
                self._connection_bytes.add(("sent",), event.counts.sent)
                self._connection_bytes.add(("received",), event.counts.received)
            case Finding():
                self._findings.add((event.type, event.severity.value))
            case StateChange():
                self._changes.add((event.word,))
                if event.generation is not None:
                    self._generation = event.generation
                # A rejected candidate names the generation that stays, and no digest.
                if event.policy_digest:
                    self._origin = (event.policy_digest, dict(event.extra).get("source", ""))
            case _:
                return

    def _exchange(self, event: ExchangeDecided) -> None:
        verdict, code = ALLOWED if type(event.verdict) is Allow else _verdict(event.verdict)
        self._exchanges.add((verdict, code, event.protocol, event.lane, STATUS.get(event.status, "")))
        lane = self._lanes.get(event.lane)
        if lane is None:
            lane = self._lanes[event.lane] = _Lane()
        counts, duration = event.counts, event.duration
        lane.sent += counts.sent
        lane.received += counts.received
        durations = lane.durations
        durations.counts[bisect_left(BUCKETS, duration)] += 1
        durations.total += duration

    def close(self, seconds: float) -> None:
        """Nothing to write."""

    def render(self) -> bytes:
        """The text exposition format."""
        from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest  # noqa: PLC0415 - 30 ms

        if self._registry is None:
            self._registry = CollectorRegistry()
            self._registry.register(self)
            ProcessCollector(registry=self._registry)
        return generate_latest(self._registry)

    def describe(self) -> Iterator["Metric"]:
        """No samples yet: Prometheus would otherwise collect once to learn names."""
        return iter(())

    def collect(self) -> Iterator["Metric"]:
        """Families as prometheus_client wants them."""
        from prometheus_client.core import (  # noqa: PLC0415
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        for counter in (*self._counters(), self._bytes(), self._dropped(), self._errors()):
            family = CounterMetricFamily(counter.name, counter.help, labels=counter.labels)
            for key, amount in list(counter.values.items()):
                family.add_metric(key, amount)
            yield family
        decisions = HistogramMetricFamily("egress_connection_decision_seconds", "First byte to decision.")
        decisions.add_metric((), _cumulative(self._decisions), self._decisions.total)
        yield decisions
        durations = HistogramMetricFamily("egress_exchange_duration_seconds", "Whole exchanges.", labels=("lane",))
        for name, lane in self._lanes.items():
            durations.add_metric((name,), _cumulative(lane.durations), lane.durations.total)
        yield durations
        dials = HistogramMetricFamily(
            "egress_upstream_dial_seconds", "Dials towards origins.", labels=("via", "outcome")
        )
        for key, histogram in self._dial_seconds.items():
            dials.add_metric(key, _cumulative(histogram), histogram.total)
        yield dials
        proxies = GaugeMetricFamily("egress_upstream_proxy_up", "Corporate proxies that answer.", labels=("proxy",))
        for name, up in self._proxies().items():
            proxies.add_metric((name,), float(up))
        yield proxies
        for gauge in self._gauges:
            yield GaugeMetricFamily(gauge.name, gauge.help, value=gauge.read())
        yield GaugeMetricFamily("egress_generation", "Installed generation.", value=self._generation)
        build = GaugeMetricFamily("egress_build_info", "This build.", labels=("version",))
        build.add_metric((self._version,), 1)
        yield build
        info = GaugeMetricFamily("egress_generation_info", "Installed policy.", labels=("digest", "source"))
        info.add_metric(self._origin, 1)
        yield info

    def _counters(self) -> tuple[_Counter, ...]:
        return (
            self._connections,
            self._exchanges,
            self._closed,
            self._connection_bytes,
            self._findings,
            self._changes,
            self._dials,
        )

    def _bytes(self) -> _Counter:
        counter = _Counter("egress_exchange_bytes", "Payload bytes of ended exchanges.", ("direction", "lane"))
        for name, lane in self._lanes.items():
            counter.values["sent", name] = lane.sent
            counter.values["received", name] = lane.received
        return counter

    def _dropped(self) -> _Counter:
        counter = _Counter("egress_events_dropped", "Events a sink never wrote.", ("sink", "class"))
        for sink, tally in self._tallies.items():
            counter.values[sink, "allowed"] = tally.dropped_allowed
            counter.values[sink, "protected"] = tally.dropped_protected
            counter.values[sink, "unrendered"] = tally.unrendered
        return counter

    def _errors(self) -> _Counter:
        counter = _Counter("egress_event_write_errors", "Failed writes of a sink.", ("sink",))
        for sink, tally in self._tallies.items():
            counter.values[(sink,)] = tally.write_errors
        return counter


def _verdict(verdict: Verdict) -> tuple[str, str]:
    match verdict:
        case Allow():
            return ALLOWED
        case Audited(denial):
            return "audited", denial.code.word
        case _:
            return "denied", verdict.code.word


def _cumulative(histogram: _Histogram) -> list[tuple[str, float]]:
    buckets: list[tuple[str, float]] = []
    running = 0
    for bound, count in zip((*map(str, BUCKETS), "+Inf"), histogram.counts, strict=True):
        running += count
        buckets.append((bound, running))
    return buckets
