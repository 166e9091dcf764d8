"""A sink with a bounded queue and a thread of its own that renders and writes, so that neither encoding nor a slow disk
is ever paid by a request."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from egress.events.bus import Numbered
from egress.events.event import ConnectionClosed, ConnectionDecided, Event, ExchangeDecided, Severity, StateChange
from egress.model.clock import Clock
from egress.model.verdict import Allow

_log = logging.getLogger(__name__)

type Render = Callable[[Numbered], bytes]


class Output(Protocol):
    """Where rendered lines go. `write` takes a prefix of whole lines or of a rest and says how long it was."""

    def write(self, data: bytes) -> int: ...

    def settle(self) -> bool:
        """Do what is due, such as synchronising; True when more will be due soon."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """Queue lengths: allowed traffic is dropped from `allowed` on, denials and findings only from `all` on.

    `linger` seconds are waited after an event for more to come; `slice` events are rendered and written at once, so
    that the event loop gets its turn in between. After a failed write the next try comes after `retry` seconds.
    """

    allowed: int = 16_384
    all: int = 65_536
    slice: int = 128
    linger: float = 0.05
    retry: float = 1.0


@dataclass(slots=True)
class Tally:
    """What a sink lost or could not do, since it started."""

    dropped_allowed: int = 0
    dropped_protected: int = 0
    write_errors: int = 0
    unrendered: int = 0


BOUNDS = Bounds()
_SETTLE_SECONDS = 1.0


class QueuedSink:
    """Takes events at once, writes them soon, keeps their order. A failed write is tried again until it succeeds."""

    def __init__(self, name: str, render: Render, output: Output, clock: Clock, bounds: Bounds = BOUNDS) -> None:
        self.name = name
        self.tally = Tally()
        self._render = render
        self._output = output
        self._clock = clock
        self._bounds = bounds
        self._queue: deque[bytes] = deque()
        self._told = (0, 0)
        self._rest = b""
        self._failing = False
        self._awake = False
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"events-{name}", daemon=True)
        self._thread.start()

    def offer(self, item: Numbered) -> None:
        """Queue an event, or drop it: allowed traffic first, denials and findings last.

        Lines are made here and only written by the thread: a thread that computes takes the interpreter lock from the
        event loop for 5 ms at a time, which costs requests more than the few microseconds a line takes.
        """
        queue = self._queue
        waiting = len(queue)
        if waiting >= self._bounds.allowed:
            if expendable(item[1]):
                self.tally.dropped_allowed += 1
                return
            if waiting >= self._bounds.all:
                self._lose()
                return
        try:
            queue.append(self._render(item))
        except Exception as error:
            self._unrendered(error)
            return
        if not self._awake:
            self._awake = True
            self._wake.set()

    def close(self, seconds: float) -> None:
        """Write what is queued, for at most `seconds`; what is left then is counted as dropped."""
        self._closing.set()
        self._wake.set()
        self._thread.join(seconds)
        left = len(self._queue) + self._rest.count(b"\n")
        if left:
            self.tally.dropped_protected += left
            _log.error("events lost at exit", extra={"sink": self.name, "count": left})

    def _lose(self) -> None:
        self.tally.dropped_protected += 1
        if self.tally.dropped_protected == 1:
            _log.error("denials or findings dropped, queue full", extra={"sink": self.name})

    def _run(self) -> None:
        due = False
        while True:
            self._wake.wait(_SETTLE_SECONDS if due else None)
            self._closing.wait(self._bounds.linger)
            # Before the queue is read: an event that comes later finds the flag down and wakes us again.
            self._wake.clear()
            self._awake = False
            self._drain()
            due = self._settle()
            if self._closing.is_set() and (self._failing or not self._queue):
                break
        try:
            self._output.close()
        except OSError as error:
            self._failed(error)

    def _drain(self) -> None:
        while self._rest or self._queue or self._mark_drops():
            if not self._rest:
                self._rest = self._rendered()
            if not self._write() and self._closing.wait(self._bounds.retry):
                return

    def _rendered(self) -> bytes:
        queue = self._queue
        return b"".join([queue.popleft() for _ in range(min(self._bounds.slice, len(queue)))])

    def _unrendered(self, error: Exception) -> None:
        self.tally.unrendered += 1
        if self.tally.unrendered == 1:
            _log.error("event not rendered", extra={"sink": self.name, "error": type(error).__name__})

    def _write(self) -> bool:
        try:
            self._rest = self._rest[self._output.write(self._rest) :]
        except OSError as error:
            self._failed(error)
            return False
        if self._failing:
            self._failing = False
            _log.warning("event sink writes again", extra={"sink": self.name, "errors": self.tally.write_errors})
        return True

    def _failed(self, error: OSError) -> None:
        """Counted always, said once per outage."""
        self.tally.write_errors += 1
        if not self._failing:
            _log.error("event sink cannot write", extra={"sink": self.name, "error": error.strerror or str(error)})
        self._failing = True

    def _settle(self) -> bool:
        try:
            return self._output.settle()
        except OSError as error:
            self._failed(error)
            return True

    def _mark_drops(self) -> bool:
        """After a recovery, leave a mark where events are missing; True when there was something to say."""
        lost = (self.tally.dropped_allowed, self.tally.dropped_protected)
        allowed, protected = lost[0] - self._told[0], lost[1] - self._told[1]
        if not allowed and not protected:
            return False
        self._told = lost
        marker = StateChange(
            time=self._clock.now(),
            word="degraded",
            detail=f"Events dropped by sink {self.name}: {allowed} allowed, {protected} denied or findings",
            severity=Severity.HIGH if protected else Severity.MEDIUM,
            extra=(("sink", self.name), ("dropped_allowed", str(allowed)), ("dropped_protected", str(protected))),
        )
        self._queue.append(self._render((time.monotonic_ns(), marker)))
        return True


def expendable(event: Event) -> bool:
    """Allowed traffic: what may go first when a sink cannot keep up."""
    match event:
        case ExchangeDecided(verdict=Allow()) | ConnectionDecided(verdict=Allow()) | ConnectionClosed():
            return True
        case _:
            return False
