"""Idle connections: nothing crosses a key, bounds hold, and what died is never given out."""

import asyncio
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from egress.upstream.pool import Pool, PoolKey, PoolLimits, Slot


class Idle:
    """A connection as the pool sees it."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.on_gone: Callable[[], None] | None = None
        self.on_data: Callable[[], None] | None = None
        self.reusable = True
        self.ended = ""

    def abort(self) -> None:
        self.ended = "aborted"

    def close(self) -> None:
        self.ended = "closed"


class Clock:
    """An event loop's clock, moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> Any:
        self.timers.append((self.now + delay, callback))
        return type("Timer", (), {"cancel": lambda _: self.timers.clear()})()

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.timers and min(self.timers)[0] <= end:
            self.timers.sort(key=lambda timer: timer[0])
            self.now, callback = self.timers.pop(0)
            callback()
        self.now = end


@pytest.fixture
def clock() -> Clock:
    return Clock()


def pool(clock: Clock, limits: PoolLimits | None = None) -> Pool[Idle]:
    return Pool(clock, limits or PoolLimits())  # type: ignore[arg-type]


def key(**change: object) -> PoolKey:
    """A key whose members are all distinct objects, some of them changed."""
    members: dict[str, object] = {field.name: f"{field.name}-1" for field in fields(PoolKey)}
    return PoolKey(**(members | change))  # type: ignore[arg-type]


def test_equal_keys_share_a_slot_and_each_member_separates(clock: Clock) -> None:
    connections = pool(clock)
    slot = connections.slot(key())
    assert connections.slot(key()) is slot
    slot.give(Idle())
    for field in fields(PoolKey):
        other = connections.slot(key(**{field.name: "other"}))
        assert other is not slot, field.name
        assert other.take() is None
    assert {field.name for field in fields(PoolKey)} >= {"agent", "entry", "terms", "origin", "addresses", "trust"}


def test_the_warmest_comes_first(clock: Clock) -> None:
    slot = pool(clock).slot(key())
    cold, warm = Idle("cold"), Idle("warm")
    slot.give(cold)
    slot.give(warm)
    assert [slot.take(), slot.take(), slot.take()] == [warm, cold, None]
    assert (warm.on_gone, warm.on_data) == (None, None)


def test_what_is_not_reusable_is_neither_kept_nor_given_out(clock: Clock) -> None:
    connections = pool(clock)
    slot = connections.slot(key())
    dead = Idle()
    dead.reusable = False
    slot.give(dead)
    assert (dead.ended, slot.idle, connections.count) == ("closed", [], 0)
    dying, sound = Idle("dying"), Idle("sound")
    slot.give(sound)
    slot.give(dying)
    dying.reusable = False
    assert slot.take() is sound
    assert (dying.ended, connections.count) == ("aborted", 0)


@pytest.mark.parametrize("sign", ["on_gone", "on_data"])
def test_an_idle_connection_that_stirs_is_dropped_at_once(clock: Clock, sign: str) -> None:
    connections = pool(clock)
    slot = connections.slot(key())
    first, second = Idle(), Idle()
    slot.give(first)
    slot.give(second)
    stirred = getattr(first, sign)
    stirred()
    assert (first.ended, first.on_gone, first.on_data, connections.count) == ("aborted", None, None, 1)
    assert [slot.take(), slot.take()] == [second, None]


def test_all_slots_together_are_bounded(clock: Clock) -> None:
    connections = pool(clock, PoolLimits(total=3))
    for number in range(3):
        connections.slot(key(entry=str(number))).give(Idle())
    late = Idle()
    slot = connections.slot(key(entry="late"))
    slot.give(late)
    assert (late.ended, connections.count, slot.take()) == ("closed", 3, None)


def test_the_oldest_beyond_the_bound_of_a_key_go_with_the_next_sweep(clock: Clock) -> None:
    connections = pool(clock, PoolLimits(per_key=2))
    slot = connections.slot(key())
    idle = [Idle(str(number)) for number in range(4)]
    for stream in idle:
        slot.give(stream)
    clock.advance(6)
    assert [stream.ended for stream in idle] == ["closed", "closed", "", ""]
    assert connections.count == 2


def test_a_connection_expires_and_the_sweeper_rests(clock: Clock) -> None:
    connections = pool(clock, PoolLimits(idle_seconds=60))
    slot = connections.slot(key())
    old, young = Idle(), Idle()
    slot.give(old)
    clock.advance(30)
    slot.give(young)
    clock.advance(36)
    assert (old.ended, young.ended) == ("closed", "")
    clock.advance(40)
    assert (young.ended, connections.count, clock.timers) == ("closed", 0, [])


def test_a_slot_with_nothing_in_it_is_forgotten(clock: Clock) -> None:
    connections = pool(clock)
    for number in range(50):
        connections.slot(key(entry=str(number)))
    assert len(connections._slots) <= 1
    slot: Slot[Idle] | None = connections.slot(key())
    assert slot is not None
    slot.give(Idle())
    slot = None
    assert connections.slot(key()).take() is not None


def test_new_limits_hold_with_the_next_use(clock: Clock) -> None:
    connections = pool(clock)
    slot = connections.slot(key())
    slot.give(Idle())
    connections.limits = PoolLimits(total=1)
    late = Idle()
    slot.give(late)
    assert late.ended == "closed"


def test_close_ends_everything(clock: Clock) -> None:
    connections = pool(clock)
    idle = [Idle(), Idle()]
    for number, stream in enumerate(idle):
        connections.slot(key(entry=str(number))).give(stream)
    connections.close()
    assert [stream.ended for stream in idle] == ["closed", "closed"]
    assert (connections.count, clock.timers) == (0, [])


def test_it_runs_on_a_real_loop() -> None:
    async def work() -> None:
        connections: Pool[Idle] = Pool(asyncio.get_running_loop(), PoolLimits(idle_seconds=0))
        slot = connections.slot(key())
        slot.give(Idle())
        assert connections._sweeper is not None
        connections.close()

    asyncio.run(work())
