"""One run of the load generator, and what it reports."""

import json
import select
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from benchmarks.lab import Lab

GRACE = 15.0
IDLE_LIMIT = 100.0
UPLOAD_BYTES = 4 * 1024 * 1024  # Squid 5.7 now and then resets an inspected upload of 16 MiB and more

type Mode = Literal["keep", "new", "idle"]


class LoadFailed(Exception):
    """The load generator did not finish, or counted failed requests."""


@dataclass(frozen=True, slots=True)
class Load:
    """What to ask for. `raw` uses the port whose tunnels are not inspected."""

    mode: Mode = "keep"
    connections: int = 1
    path: str = "/small"
    upload: int = 0
    http2: bool = False
    raw: bool = False


@dataclass(frozen=True, slots=True)
class LoadResult:
    seconds: float
    requests: int
    bytes: int
    cpu_seconds: float
    p50_ms: float
    p99_ms: float
    errors: int
    bad_status: int

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds of the subject per request."""
        return self.cpu_seconds * 1e3 / self.requests if self.requests else float("nan")

    @property
    def cpu_per_gb(self) -> float:
        return self.cpu_seconds / (self.bytes / 1e9) if self.bytes else float("nan")

    @property
    def mb_per_s(self) -> float:
        return self.bytes / 1e6 / self.seconds


@dataclass(frozen=True, slots=True)
class Target:
    """Where the load goes and whose CPU is counted. Without a proxy port it goes straight to the origin."""

    proxy_port: int | None
    pids: tuple[int, ...]
    core: int


SMALL_KEEP_1 = Load()
SMALL_KEEP_16 = Load(connections=16)
SMALL_KEEP_64 = Load(connections=64)
NEW_8 = Load(mode="new", connections=8)
DOWNLOAD = Load(path="/bulk")
UPLOAD = Load(path="/up", upload=UPLOAD_BYTES)
RAW = Load(path="/bulk", raw=True)
HTTP2_16 = Load(connections=16, http2=True)
WARM_UP = Load(connections=4)


def run(lab: Lab, target: Target, load: Load, seconds: float) -> LoadResult:
    """One measured window; every failed or non-200 answer is an error of the run."""
    warmup = min(0.3, seconds / 4)
    command = [*_command(lab, target, load), "--seconds", str(seconds), "--warmup", str(warmup)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + GRACE, check=False)
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"{load} did not end") from None
    if not done.stdout:
        raise LoadFailed(f"{load}: {_complaint(done.stderr)}")
    result = LoadResult(**json.loads(done.stdout))
    if result.errors or result.bad_status or not result.bytes:
        counts = f"{result.errors} errors and {result.bad_status} bad answers beside {result.requests} good ones"
        raise LoadFailed(f"{load}: {counts}; {_complaint(done.stderr)}")
    return result


def _complaint(stderr: str) -> str:
    """Its first line: the rest tends to repeat it."""
    return stderr.strip().partition("\n")[0]


@contextmanager
def idle_tunnels(lab: Lab, target: Target, count: int) -> Iterator[None]:
    """Hold `count` inspected tunnels open, each after one request, until the block ends."""
    command = _command(lab, target, Load(mode="idle", connections=count))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            if not child.stdout or not select.select([child.stdout], [], [], IDLE_LIMIT)[0]:
                raise LoadFailed(f"{count} idle tunnels did not open in {IDLE_LIMIT} s")
            held = json.loads(child.stdout.readline() or "{}")
            if held.get("held") != count:
                raise LoadFailed(f"idle tunnels: {held}")
            yield
        finally:
            child.kill()


def _command(lab: Lab, target: Target, load: Load) -> Sequence[str]:
    command = ["taskset", "-c", str(target.core), str(lab.loadgen)]
    command += ["--mode", load.mode, "--connections", str(load.connections), "--path", load.path]
    command += ["--target", lab.raw if load.raw else lab.inspected]
    command += ["--pids", ",".join(map(str, target.pids))]
    if target.proxy_port is not None:
        command += ["--proxy-port", str(target.proxy_port)]
    if load.upload:
        command += ["--upload", str(load.upload)]
    if load.http2:
        command += ["--http2"]
    return command
