"""Where the time of one subject goes: py-spy over a steady load, summed by function."""

import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from benchmarks import load, process
from benchmarks.lab import Lab, free_ports
from benchmarks.load import Load, Target
from benchmarks.subjects import Subject

SECONDS = 8
RATE = 200
SHOWN = 25
EVERYWHERE = 0.75  # the frames of the event loop itself, in nearly every stack, say nothing

# Where a thread of ours rests; py-spy takes some that wait on a lock for busy.
RESTING = {
    "Condition.wait (threading.py)",
    "_worker (concurrent/futures/thread.py)",
    "WorkerThread.run (anyio/_backends/_asyncio.py)",
}

LOADS: Mapping[str, Load] = {
    "keep": load.SMALL_KEEP_16,
    "new": load.NEW_8,
    "down": load.DOWNLOAD,
    "up": load.UPLOAD,
    "raw": load.RAW,
    "h2": load.HTTP2_16,
}


def profile(lab: Lab, subject: Subject, which: str) -> str:
    """The functions of `subject` with the most own and the most inclusive time under one of `LOADS`."""
    if subject.prepare is None:
        raise process.SubjectFailed("nothing to profile")
    (port,) = free_ports(1)
    stacks = lab.scratch / "stacks"
    with process.running(subject.prepare(lab, port), port, lab.cores.subject, lab.scratch / "profiled.out") as proxy:
        target = Target(port, proxy.tree(), lab.cores.client)
        with _recording(lab, proxy.pid, stacks):
            told = _told(lab, target, LOADS[which])
    return f"{subject.name}, {which}: {told}\n{summarize(stacks.read_text())}"


def _told(lab: Lab, target: Target, wanted: Load) -> str:
    try:
        result = load.run(lab, target, wanted, SECONDS + 2)
    except load.LoadFailed as failed:
        return str(failed)  # the stacks are worth reading all the same
    return f"{result.rate:.0f}/s, {result.cpu_ms:.4f} CPU ms each (sampling included)"


class _recording:
    """py-spy beside the load, on the client's core so that it does not take the subject's."""

    def __init__(self, lab: Lab, pid: int, stacks: Path) -> None:
        found = shutil.which("py-spy")
        spy = [found] if found else ["uvx", "py-spy"]
        options = ["--pid", str(pid), "--rate", str(RATE), "--duration", str(SECONDS)]
        self._command = ["taskset", "-c", str(lab.cores.client), *spy, "record", *options]
        self._command += ["--format", "raw", "--output", str(stacks)]
        self._log = lab.scratch / "py-spy.out"

    def __enter__(self) -> None:
        with self._log.open("wb") as out:
            self._child = subprocess.Popen(self._command, stdout=out, stderr=subprocess.STDOUT)
        time.sleep(1)

    def __exit__(self, *_: object) -> None:
        try:
            failed = self._child.wait(SECONDS + 20) != 0
        except subprocess.TimeoutExpired:
            self._child.kill()
            failed = True
        if failed:
            raise process.SubjectFailed(f"py-spy: {process.log_end(self._log)}")


def summarize(collapsed: str) -> str:
    """Collapsed stacks summed by innermost function and by any function on the way. C counts to its Python caller."""
    own: Counter[str] = Counter()
    inclusive: Counter[str] = Counter()
    for line in collapsed.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [re.sub(r":\d+\)$", ")", frame) for frame in stack.split(";")]
        if frames[-1] in RESTING:
            continue
        own[frames[-1]] += int(count)
        inclusive.update(dict.fromkeys(frames, int(count)))
    total = own.total() or 1
    telling = Counter({frame: count for frame, count in inclusive.items() if count < EVERYWHERE * total})
    return "\n".join([_listing("own time", own, total), _listing("inclusive", telling, total)])


def _listing(title: str, counts: Counter[str], total: int) -> str:
    lines = [f"{100 * samples / total:5.1f}%  {frame}" for frame, samples in counts.most_common(SHOWN)]
    return "\n".join([f"-- {title} --", *lines])
