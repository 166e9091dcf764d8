"""The walk of /proc in a process of its own.

A walk is hundreds of short system calls. In a thread each of them hands the interpreter lock to the event loop and
waits to get it back, which costs both sides several times what the walk does.
"""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from egress.identity.owners import Walk, walk
from egress.identity.procfs import Procfs

_READY = b"ready\n"
SECONDS = 2.0
"""A walk that takes longer is given up; who waits for it has a deadline of the same length."""


class WalkProcess:
    """Asks the other process, and walks here while there is none. Belongs to the thread that calls it."""

    def __init__(self, procfs: Procfs) -> None:
        self._procfs = procfs
        self._child: subprocess.Popen[bytes] | None = None
        self._ready = False

    def start(self) -> None:
        """Start the process ahead of the first question."""
        if self._child is None:
            command = [sys.executable, "-I", "-m", "egress.identity.walker", str(self._procfs.root), str(os.getpid())]
            self._child = subprocess.Popen(  # noqa: S603 - ourselves
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, cwd="/"
            )

    def __call__(self, inodes: set[int]) -> Walk:
        try:
            self.start()
            return self._ask(inodes) if self._is_ready() else self.here(inodes)
        except (OSError, ValueError, KeyError, TypeError):
            self.close()
            return self.here(inodes)

    def here(self, inodes: set[int]) -> Walk:
        """The same walk in this process."""
        return walk(self._procfs, inodes, own_pid=os.getpid())

    def close(self) -> None:
        child, self._child, self._ready = self._child, None, False
        if child is not None:
            child.kill()
            child.communicate()

    def _is_ready(self) -> bool:
        """Whether the process runs. On a busy machine an interpreter takes seconds to start, which no client has."""
        child = self._child
        assert child is not None
        assert child.stdout is not None
        if not self._ready and select.select([child.stdout], [], [], 0)[0]:
            if child.stdout.readline() != _READY:
                raise ValueError("the walker did not start")
            self._ready = True
        return self._ready

    def _ask(self, inodes: set[int]) -> Walk:
        child = self._child
        assert child is not None
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(sorted(inodes)).encode() + b"\n")
        child.stdin.flush()
        if not select.select([child.stdout], [], [], SECONDS)[0]:
            raise TimeoutError("no answer from the walker")
        answer = json.loads(child.stdout.readline())
        holders = {int(inode): [int(pid) for pid in pids] for inode, pids in answer["holders"].items()}
        if holders.keys() != inodes:
            raise ValueError("the walker answered another question")
        return Walk(holders, [int(pid) for pid in answer["unreadable"]])


def main() -> None:
    """Answer walks, one line each, until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    procfs, own_pid = Procfs(Path(sys.argv[1])), int(sys.argv[2])
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()
    for line in sys.stdin.buffer:
        seen = walk(procfs, set(json.loads(line)), own_pid=own_pid)
        sys.stdout.buffer.write(json.dumps({"holders": seen.holders, "unreadable": seen.unreadable}).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
