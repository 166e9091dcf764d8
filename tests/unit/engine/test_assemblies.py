"""The budget of unfinished messages."""

import asyncio

import pytest

from egress.engine.assemblies import Assemblies


async def waiting(assemblies: Assemblies, seconds: float = 5.0) -> "asyncio.Task[bool]":
    task = asyncio.create_task(assemblies.enter(seconds))
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_slots_are_taken_and_given_back() -> None:
    assemblies = Assemblies(running=2, waiting=0)
    assert [await assemblies.enter(1) for _ in range(3)] == [True, True, False]
    assemblies.leave()
    assert await assemblies.enter(1)
    assert not await assemblies.enter(1)


async def test_the_product_runs_32_and_lets_64_wait() -> None:
    assemblies = Assemblies()
    assert all([await assemblies.enter(1) for _ in range(32)])
    tasks = [await waiting(assemblies) for _ in range(64)]
    assert not await assemblies.enter(1)
    for _ in tasks:
        assemblies.leave()
    assert await asyncio.gather(*tasks) == [True] * 64


async def test_first_come_first_served() -> None:
    assemblies = Assemblies(running=1, waiting=2)
    await assemblies.enter(1)
    first, second = await waiting(assemblies), await waiting(assemblies)
    assemblies.leave()
    await asyncio.sleep(0)
    assert (await first, second.done()) == (True, False)
    assemblies.leave()
    assert await second


async def test_waiting_has_an_end() -> None:
    assemblies = Assemblies(running=1, waiting=1)
    await assemblies.enter(1)
    assert not await assemblies.enter(0.01)
    task = await waiting(assemblies)
    assemblies.leave()
    assert await task


@pytest.mark.parametrize("late", [False, True])
async def test_who_gives_up_leaves_nothing_behind(late: bool) -> None:
    """Cancelled while waiting, or in the moment in which the slot was given."""
    assemblies = Assemblies(running=1, waiting=1)
    await assemblies.enter(1)
    task = await waiting(assemblies)
    if late:
        assemblies.leave()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    if not late:
        assemblies.leave()
    assert await assemblies.enter(0.1)
    follower = await waiting(assemblies)
    assemblies.leave()
    assert await follower
