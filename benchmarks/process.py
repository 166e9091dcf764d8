"""One process tree under test: started on its core, watched through /proc, ended without leftovers."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_LIMIT = 20.0
STOP_LIMIT = 5.0
POLL = 0.002
# Installed programs start from cached bytecode; some containers forbid to write it.
HINDRANCES = {"PYTHONDONTWRITEBYTECODE"}


class SubjectFailed(Exception):
    """A subject did not start or did not answer; the message carries the end of its log."""


@dataclass(frozen=True, slots=True)
class Running:
    child: subprocess.Popen[bytes]
    log: Path
    started_in: float  # seconds from exec to the first accepted connection

    @property
    def pid(self) -> int:
        return self.child.pid

    def tree(self) -> tuple[int, ...]:
        return tuple(_descendants(self.pid))

    def deaths(self) -> list[str]:
        """Why it is not running any more, when it is not: its exit code and the end of its log."""
        code = self.child.poll()
        return [] if code is None else [f"ended by itself, code {code}: {log_end(self.log)}"]

    def memory_kb(self) -> float:
        """Proportional set size of the whole tree; nan where the kernel hides it from us."""
        return sum((_pss_kb(pid) for pid in self.tree()), 0.0)


@contextmanager
def running(command: Sequence[str], port: int, core: int, log: Path) -> Iterator[Running]:
    """Run `command` pinned to one core until the block ends; it is ready once `port` accepts."""
    began = time.monotonic()
    with log.open("wb") as out:
        child = subprocess.Popen(
            ["taskset", "-c", str(core), *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if name not in HINDRANCES},
        )
    try:
        _wait_until_accepting(child, port, began + START_LIMIT, log)
        yield Running(child, log, time.monotonic() - began)
    finally:
        _stop(child)


def _wait_until_accepting(child: subprocess.Popen[bytes], port: int, deadline: float, log: Path) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if child.poll() is not None or time.monotonic() > deadline:
                raise SubjectFailed(f"did not start: {log_end(log)}") from None
            time.sleep(POLL)
        else:
            return


def log_end(log: Path) -> str:
    return log.read_text(errors="replace")[-1500:].strip() or "(it said nothing)"


def _stop(child: subprocess.Popen[bytes]) -> None:
    """SIGTERM to its session, then SIGKILL: helpers that outlive their parent belong to the session too."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, signum)
        except ProcessLookupError:
            break
        try:
            child.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            continue
    child.wait(STOP_LIMIT)


def _descendants(pid: int) -> Iterator[int]:
    yield pid
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return
    for task in tasks:
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        for child in children:
            yield from _descendants(int(child))


def _pss_kb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except FileNotFoundError:
        return 0.0
    except OSError:
        return float("nan")
    return sum(float(line.split()[1]) for line in lines if line.startswith("Pss:"))
