"""The bars `egress` has to clear, in one table, and how far a run got."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from benchmarks.load import LoadResult
from benchmarks.measure import Sample

GATE_SLACK = 1.5  # short windows on a shared machine


@dataclass(frozen=True, slots=True)
class Results:
    """Every sample of a run; a figure is the median over its rounds, nan when no round gave it."""

    samples: Sequence[Sample]

    def window(self, subject: str, window: str, figure: Callable[[LoadResult], float]) -> float:
        found = [s.windows[window] for s in self.samples if s.subject == subject and window in s.windows]
        return median(map(figure, found)) if found else math.nan

    def whole(self, subject: str, figure: Callable[[Sample], float | None]) -> float:
        found = [value for s in self.samples if s.subject == subject and (value := figure(s)) is not None]
        return median(found) if found else math.nan

    def subjects(self) -> list[str]:
        return list(dict.fromkeys(sample.subject for sample in self.samples))

    def failures(self) -> list[str]:
        return [failure for sample in self.samples for failure in sample.failures]

    def added_p50(self, subject: str) -> float:
        return self.window(subject, "keep1", p50) - self.window("direct", "keep1", p50)


def cpu_ms(result: LoadResult) -> float:
    return result.cpu_ms


def cpu_per_gb(result: LoadResult) -> float:
    return result.cpu_per_gb


def rate(result: LoadResult) -> float:
    return result.rate


def mb_per_s(result: LoadResult) -> float:
    return result.mb_per_s


def p50(result: LoadResult) -> float:
    return result.p50_ms


def p99(result: LoadResult) -> float:
    return result.p99_ms


class Sense(StrEnum):
    AT_MOST = "<="
    AT_LEAST = ">="


class Gate(StrEnum):
    """CPU ratios hold on a busy machine; times, rates and sizes do not, and are only shown."""

    GATED = "yes"
    SHOWN = "no"


@dataclass(frozen=True, slots=True)
class Goal:
    name: str
    measure: Callable[[Results], float]
    first: float | None  # the first working version
    final: float
    gate: Gate = Gate.GATED
    sense: Sense = Sense.AT_MOST

    def met(self, value: float, bar: float, slack: float) -> bool:
        if self.sense is Sense.AT_LEAST:
            return value >= bar / slack
        return value <= bar * slack  # nan, not measured, meets nothing


type Figure = Callable[[LoadResult], float]


def _ratio(window: str, figure: Figure, peer: str, ours: str = "egress") -> Callable[[Results], float]:
    def measure(results: Results) -> float:
        return results.window(ours, window, figure) / results.window(peer, window, figure)

    return measure


GOALS = (
    Goal("keep-alive CPU per request / Squid", _ratio("keep16", cpu_ms, "squid"), 1.2, 0.75),
    Goal("keep-alive CPU per request / mitmdump", _ratio("keep16", cpu_ms, "mitmdump"), 1 / 12, 1 / 20),
    Goal("new connection CPU / Squid", _ratio("new", cpu_ms, "squid"), 0.5, 0.3),
    Goal("new connection CPU / mitmdump", _ratio("new", cpu_ms, "mitmdump"), 0.2, 0.12),
    Goal("inspected download CPU per GB / Squid", _ratio("down", cpu_per_gb, "squid"), 0.75, 0.6),
    Goal("inspected upload CPU per GB / Squid", _ratio("up", cpu_per_gb, "squid"), 0.75, 0.6),
    Goal("raw tunnel CPU per GB / Squid", _ratio("raw", cpu_per_gb, "squid"), 1.1, 0.8),
    Goal("mitm lane, HTTP/1 CPU / mitmdump", _ratio("keep16", cpu_ms, "mitmdump", "egress-mitm"), 0.6, 0.45),
    Goal("mitm lane, HTTP/2 CPU / mitmdump", _ratio("h2", cpu_ms, "mitmdump", "egress-mitm"), 0.6, 0.45),
    Goal("added p50 at c=1 / Squid's", lambda r: r.added_p50("egress") / r.added_p50("squid"), 1.2, 0.8, Gate.SHOWN),
    Goal("p99 at c=64 / Squid's", _ratio("keep64", p99, "squid"), None, 1.0, Gate.SHOWN),
    Goal("download MB/s / direct", _ratio("down", mb_per_s, "direct"), 0.45, 0.5, Gate.SHOWN, Sense.AT_LEAST),
    Goal("KB per idle inspected tunnel", lambda r: r.whole("egress", lambda s: s.tunnel_kb), 48, 32, Gate.SHOWN),
    Goal("idle MB", lambda r: r.whole("egress", lambda s: s.idle_kb and s.idle_kb / 1024), 110, 90, Gate.SHOWN),
    Goal("start to first accept, s", lambda r: r.whole("egress", lambda s: s.start_seconds), 0.5, 0.35, Gate.SHOWN),
)


def gate_failures(results: Results) -> list[str]:
    """The gated goals this run misses even with slack; a figure that is not there counts as missed."""
    missed = []
    for goal in GOALS:
        if goal.gate is Gate.SHOWN or goal.first is None:
            continue
        value = goal.measure(results)
        if not goal.met(value, goal.first, GATE_SLACK):
            bar = f"{goal.sense} {goal.first:.3f} with {GATE_SLACK}x slack"
            missed.append(f"{goal.name}: {value:.3f}, the bar is {bar}")
    return missed
