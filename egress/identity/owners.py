"""Socket inodes -> every process that holds them. One walk of /proc answers all look-ups that waited when it began.

Every owner counts, so no look-up stops at the first: a socket handed to a second program must not pass as its.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from egress.identity.procfs import Procfs, Unreadable, Vanished


@dataclass(slots=True)
class Walk:
    """What one walk saw: pids per inode in ascending order, and the pids whose descriptors it may not read."""

    holders: dict[int, list[int]] = field(default_factory=dict)
    unreadable: list[int] = field(default_factory=list)


def walk(procfs: Procfs, inodes: set[int], *, own_pid: int) -> Walk:
    """Look at every descriptor of every process.

    The proxy itself is looked at only for inodes that nobody else holds: it has the most descriptors of all, and it
    shares a client's socket with another process no more than the kernel does.
    """
    seen = Walk({inode: [] for inode in inodes})
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    for pid in sorted(procfs.pids()):
        if pid != own_pid:
            _look_at(procfs, pid, wanted, seen)
    missing = {link: inode for link, inode in wanted.items() if not seen.holders[inode]}
    if missing:
        _look_at(procfs, own_pid, missing, seen)
    return seen


def _look_at(procfs: Procfs, pid: int, wanted: dict[str, int], seen: Walk) -> None:
    try:
        for link in procfs.socket_links(pid, wanted):
            seen.holders[wanted[link]].append(pid)
    except Vanished:
        return
    except Unreadable:
        seen.unreadable.append(pid)


MAX_PAUSE = 0.05
"""Seconds between the beginnings of two walks, at most, while more than one look-up waits."""

type _Waiting = tuple[int, Callable[[Walk], object], Future[object]]


class OwnerWalker:
    """One thread that walks. What follows a walk for one look-up runs in it too, so it must not wait for anything."""

    def __init__(self, look: Callable[[set[int]], Walk], share: float = 1.0) -> None:
        """`look` does one walk. After a walk that served many, walks take at most `share` of the time (up to
        `MAX_PAUSE` between two of them), so under load one walk serves all that came meanwhile; a client that opens
        one connection after the other never waits for that."""
        self._look = look
        self._share = share
        self._waiting: list[_Waiting] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def submit[T](self, inode: int, then: Callable[[Walk], T]) -> "Future[T]":
        """`then(walk)` after a walk that begins no earlier than now and looks for `inode`."""
        future: Future[T] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("the walker is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="owner-walker", daemon=True)
                self._thread.start()
            self._waiting.append((inode, then, future))  # type: ignore[arg-type]
            self._changed.notify()
        return future

    def close(self) -> None:
        """Stop after the current walk; whoever still waits is cancelled."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        next_walk = 0.0
        while True:
            wait = next_walk - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                batch, self._waiting = self._waiting, []
                if self._closed:
                    for _, _, future in batch:
                        future.cancel()
                    return
            began = time.monotonic()
            self._answer([item for item in batch if item[2].set_running_or_notify_cancel()])
            if len(batch) > 1:
                next_walk = began + min((time.monotonic() - began) / self._share, MAX_PAUSE)

    def _answer(self, batch: list[_Waiting]) -> None:
        try:
            seen = self._look({inode for inode, _, _ in batch})
        except OSError as error:
            for _, _, future in batch:
                future.set_exception(error)
            return
        for _, then, future in batch:
            try:
                future.set_result(then(seen))
            except Exception as error:
                future.set_exception(error)
