"""Queueing against outputs that are slow, broken and recovering; the thread is real."""

import errno
import logging
import threading
import time

import pytest

from egress.events.event import StateChange
from egress.events.queued import Bounds, QueuedSink, Tally, expendable
from egress.model.clock import SystemClock
from egress.model.verdict import Audited
from tests.unit.events import samples

FAST = Bounds(allowed=4, all=8, slice=2, linger=0.0, retry=0.001)
ALLOWED = samples.exchange()
DENIED = samples.exchange(samples.denial())


class Gate:
    """An output that lets nothing through before `open`, and fails or shortens writes on request."""

    def __init__(self, *, shut: bool = False) -> None:
        self.open = threading.Event()
        self.blocked = threading.Event()
        self.written = bytearray()
        self.failures: list[OSError] = []
        self.longest = 1 << 30
        self.writes = 0
        self.settled = 0
        self.closed = False
        if not shut:
            self.open.set()

    def write(self, data: bytes) -> int:
        self.blocked.set()
        self.open.wait(5)
        if self.failures:
            raise self.failures.pop()
        self.writes += 1
        part = data[: self.longest]
        self.written += part
        return len(part)

    def settle(self) -> bool:
        self.settled += 1
        return False

    def close(self) -> None:
        self.closed = True

    @property
    def lines(self) -> list[str]:
        return self.written.decode().split("\n")[:-1]


def render(item) -> bytes:
    number, event = item
    if isinstance(event, StateChange) and event.word == "degraded":
        return f"MARK {event.detail} {event.severity}\n".encode()
    return f"{number}\n".encode()


def sink(output, bounds: Bounds = FAST) -> QueuedSink:
    return QueuedSink("test", render, output, SystemClock(), bounds)


def test_writes_in_order_and_closes():
    output = Gate()
    made = sink(output, Bounds(linger=0.0))
    for number in range(1000):
        made.offer((number, ALLOWED))
    made.close(5)
    assert output.lines == [str(number) for number in range(1000)]
    assert output.closed
    assert made.tally == Tally()


def test_lines_are_written_together():
    output = Gate()
    made = sink(output, Bounds(linger=0.02, slice=64))
    for number in range(128):
        made.offer((number, ALLOWED))
    made.close(5)
    assert output.writes <= 4
    assert len(output.lines) == 128


def test_writes_without_being_closed():
    output = Gate()
    made = sink(output)
    for number in range(3):
        made.offer((number, ALLOWED))
        for _ in range(2000):
            if len(output.lines) == number + 1:
                break
            time.sleep(0.001)
    assert output.lines == ["0", "1", "2"]
    made.close(5)


def stuck() -> tuple[QueuedSink, Gate]:
    """A sink whose thread hangs in a write of the two events it took, so that the queue is empty and fills."""
    output = Gate(shut=True)
    made = sink(output, Bounds(allowed=4, all=8, slice=2, linger=0.02, retry=0.001))
    made.offer((1, ALLOWED))
    made.offer((2, ALLOWED))
    assert output.blocked.wait(5)
    return made, output


def test_allowed_events_are_dropped_first_and_denials_never_below_their_bound():
    made, output = stuck()
    for number in range(3, 9):
        made.offer((number, ALLOWED))
    for number in range(9, 13):
        made.offer((number, DENIED))
    assert made.tally == Tally(dropped_allowed=2)
    output.open.set()
    made.close(5)
    assert output.lines == [
        *map(str, (1, 2, 3, 4, 5, 6, 9, 10, 11, 12)),
        "MARK Events dropped by sink test: 2 allowed, 0 denied or findings medium",
    ]


def test_an_overflow_of_denials_is_loud(caplog):
    made, output = stuck()
    with caplog.at_level(logging.ERROR):
        for number in range(3, 14):
            made.offer((number, DENIED))
    assert made.tally == Tally(dropped_protected=3)
    assert [record.getMessage() for record in caplog.records] == ["denials or findings dropped, queue full"]
    output.open.set()
    made.close(5)
    assert output.lines[-1] == "MARK Events dropped by sink test: 0 allowed, 3 denied or findings high"
    assert output.lines[:-1] == [str(number) for number in range(1, 11)]


@pytest.mark.parametrize(
    ("event", "may_go"),
    [
        (samples.exchange(), True),
        (samples.connection(), True),
        (samples.closed(), True),
        (samples.exchange(samples.denial()), False),
        (samples.connection(samples.denial()), False),
        (samples.exchange(Audited(samples.denial())), False),
        (samples.finding(), False),
        (samples.state(), False),
        (samples.lifecycle(), False),
    ],
)
def test_what_may_be_dropped(event, may_go):
    assert expendable(event) is may_go


def test_offering_never_waits():
    made, output = stuck()
    start = time.perf_counter()
    for number in range(10_000):
        made.offer((number, ALLOWED))
    assert time.perf_counter() - start < 0.5
    output.open.set()
    made.close(5)


def test_a_full_disk_loses_nothing_and_is_told_once(caplog):
    output = Gate()
    output.failures = [OSError(errno.ENOSPC, "No space left on device") for _ in range(5)]
    made = sink(output)
    with caplog.at_level(logging.WARNING):
        for number in range(4):
            made.offer((number, DENIED))
        for _ in range(2000):
            if len(output.lines) == 4:
                break
            time.sleep(0.001)
        made.close(5)
    assert output.lines == ["0", "1", "2", "3"]
    assert made.tally == Tally(write_errors=5)
    assert [record.getMessage() for record in caplog.records] == ["event sink cannot write", "event sink writes again"]


def test_short_writes_are_continued():
    output = Gate()
    output.longest = 1
    made = sink(output)
    for number in (100, 200, 300):
        made.offer((number, ALLOWED))
    made.close(5)
    assert output.lines == ["100", "200", "300"]


def test_closing_gives_up_on_an_output_that_fails(caplog):
    output = Gate()
    output.failures = [OSError(errno.EIO, "I/O error") for _ in range(1000)]
    made = sink(output)
    made.offer((1, DENIED))
    made.offer((2, DENIED))
    with caplog.at_level(logging.ERROR):
        made.close(5)
    assert made.tally.dropped_protected == 2
    assert "events lost at exit" in caplog.text


def test_closing_gives_up_on_an_output_that_hangs():
    made, output = stuck()
    start = time.perf_counter()
    made.close(0.02)
    assert time.perf_counter() - start < 1
    assert made.tally.dropped_protected == 2
    output.open.set()


def test_one_event_that_cannot_be_rendered_is_counted_and_skipped(caplog):
    def picky(item) -> bytes:
        if item[0] == 2:
            raise ValueError("secret-in-message")
        return render(item)

    output = Gate()
    made = QueuedSink("test", picky, output, SystemClock(), FAST)
    for number in (1, 2, 3):
        made.offer((number, ALLOWED))
    made.close(5)
    assert output.lines == ["1", "3"]
    assert made.tally == Tally(unrendered=1)
    assert "secret" not in caplog.text
