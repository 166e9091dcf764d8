"""One round of one subject: start it, put every load on it, read its memory, stop it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks import load, process
from benchmarks.lab import Lab, free_ports
from benchmarks.load import Load, LoadResult, Target
from benchmarks.process import Running
from benchmarks.subjects import Subject

IDLE_TUNNELS = 1000
SETTLE = 0.5


@dataclass(frozen=True, slots=True)
class Plan:
    """Which windows to measure, for how long, and whether memory is measured too."""

    windows: Mapping[str, Load]
    seconds: float
    idle_tunnels: int


FULL = Plan(
    windows={
        "keep1": load.SMALL_KEEP_1,
        "keep16": load.SMALL_KEEP_16,
        "keep64": load.SMALL_KEEP_64,
        "new": load.NEW_8,
        "down": load.DOWNLOAD,
        "up": load.UPLOAD,
        "raw": load.RAW,
        "h2": load.HTTP2_16,
    },
    seconds=2.5,
    idle_tunnels=IDLE_TUNNELS,
)

GATE = Plan(
    windows={
        "keep16": load.SMALL_KEEP_16,
        "new": load.NEW_8,
        "down": load.DOWNLOAD,
        "up": load.UPLOAD,
        "raw": load.RAW,
        "h2": load.HTTP2_16,
    },
    seconds=1.0,
    idle_tunnels=0,
)


@dataclass(frozen=True, slots=True)
class Sample:
    """What one round of one subject gave. A figure that could not be measured is absent, with a line in `failures`."""

    subject: str
    windows: Mapping[str, LoadResult]
    start_seconds: float | None = None
    idle_kb: float | None = None
    tunnel_kb: float | None = None
    failures: Sequence[str] = ()


def sample(lab: Lab, subject: Subject, origin: Running, plan: Plan) -> Sample:
    if subject.prepare is None:
        direct = _Visit(lab, subject, plan, Target(None, origin.tree(), lab.cores.subject))
        return Sample(subject.name, direct.windows(), failures=direct.failures)
    (port,) = free_ports(1)
    log = lab.scratch / f"{subject.name}.out"
    try:
        with process.running(subject.prepare(lab, port), port, lab.cores.subject, log) as proxy:
            return _through(proxy, _Visit(lab, subject, plan, Target(port, proxy.tree(), lab.cores.client)))
    except process.SubjectFailed as failed:
        return Sample(subject.name, {}, failures=[f"{subject.name}: {failed}"])


def _through(proxy: Running, visit: "_Visit") -> Sample:
    time.sleep(SETTLE)
    idle_kb = proxy.memory_kb()
    visit.warm_up()
    tunnel_kb = None
    if visit.plan.idle_tunnels:
        tunnel_kb = visit.per_tunnel_kb(proxy)
        visit.warm_up()  # some take seconds to bury a thousand tunnels
    visit.target = Target(visit.target.proxy_port, proxy.tree(), visit.target.core)  # helpers started meanwhile
    windows = visit.windows()
    failures = [*visit.failures, *(f"{visit.subject.name}: {death}" for death in proxy.deaths())]
    return Sample(visit.subject.name, windows, proxy.started_in, idle_kb, tunnel_kb, failures)


@dataclass(slots=True)
class _Visit:
    """The loads of one plan on one running subject, with what went wrong."""

    lab: Lab
    subject: Subject
    plan: Plan
    target: Target
    failures: list[str] = field(default_factory=list)

    def windows(self) -> Mapping[str, LoadResult]:
        wanted = {name: one for name, one in self.plan.windows.items() if self._applies(one)}
        measured = {name: self._measure(one) for name, one in wanted.items()}
        return {name: result for name, result in measured.items() if result}

    def _applies(self, wanted: Load) -> bool:
        if wanted.http2 and not self.subject.speaks_http2:
            return False
        return not (wanted.raw and self.target.proxy_port is None)

    def _measure(self, wanted: Load) -> LoadResult | None:
        try:
            return load.run(self.lab, self.target, wanted, self.plan.seconds)
        except load.LoadFailed as failed:
            self.failures.append(f"{self.subject.name}: {failed}")
            return None

    def warm_up(self) -> None:
        self._measure(load.WARM_UP)

    def per_tunnel_kb(self, proxy: Running) -> float | None:
        """Growth of a warm process, so that what the first connection loads is not put on the tunnels."""
        time.sleep(SETTLE)
        before = proxy.memory_kb()
        try:
            with load.idle_tunnels(self.lab, self.target, self.plan.idle_tunnels):
                time.sleep(SETTLE)
                return (proxy.memory_kb() - before) / self.plan.idle_tunnels
        except load.LoadFailed as failed:
            self.failures.append(f"{self.subject.name}: {failed}")
            return None
