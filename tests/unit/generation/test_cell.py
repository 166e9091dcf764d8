"""The cell: readers never see a mixture, and every watcher hears of a change, in slices."""

import asyncio
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from egress.generation.cell import WAKE_SLICE, RuntimeCell
from egress.generation.generation import AgentTerms, Generation
from egress.model.ids import GenerationNumber
from egress.model.intent import DEFAULT_AGENT
from egress.model.process import IdentityMode

MODES = (IdentityMode.REQUIRED, IdentityMode.OPTIONAL, IdentityMode.OFF)


def generation(number: int) -> Generation:
    """Every part of a generation tells its number, so that a mixture would show."""
    terms = {DEFAULT_AGENT: AgentTerms(None, MODES[number % 3])}
    return Generation(GenerationNumber(number), terms, digest=str(number))


def test_a_lease_keeps_its_generation_until_it_is_renewed() -> None:
    async def work() -> None:
        first, second = generation(1), generation(2)
        cell = RuntimeCell(first)
        lease = cell.lease()
        assert (lease.generation, lease.superseded) == (first, False)
        cell.install(second)
        assert (lease.generation, lease.superseded, lease.current) == (first, True, second)
        assert cell.lease().generation is second
        assert lease.renew() is second
        assert lease.superseded is False

    asyncio.run(work())


def test_an_equal_generation_supersedes_too() -> None:
    cell = RuntimeCell(generation(1))
    lease = cell.lease()

    async def work() -> None:
        cell.install(replace(lease.generation))
        assert lease.superseded

    asyncio.run(work())


@given(st.lists(st.sampled_from(["install", "lease", "renew", "watch", "unwatch", "turn"]), max_size=40))
def test_no_sequence_of_installs_mixes_or_forgets(steps: list[str]) -> None:
    async def work() -> None:
        number = 1
        cell = RuntimeCell(generation(number))
        lease = cell.lease()
        heard: list[int] = []
        unwatch = None
        watching_since = 0
        for step in steps:
            if step == "install":
                number += 1
                cell.install(generation(number))
            elif step == "lease":
                lease = cell.lease()
            elif step == "renew":
                lease.renew()
            elif step == "watch" and unwatch is None:
                watching_since = number
                unwatch = lease.watch(lambda: heard.append(cell.generation.number))
            elif step == "unwatch" and unwatch is not None:
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                unwatch()
                unwatch = None
                heard.clear()
            elif step == "turn":
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            seen = lease.generation
            assert seen.digest == str(seen.number)
            assert seen.agents[DEFAULT_AGENT].identity is MODES[seen.number % 3]
            assert lease.superseded is (seen.number != number)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if unwatch is not None:
            assert len(heard) == number - watching_since
            assert not heard or heard[-1] == number

    asyncio.run(work())


def test_watchers_hear_in_slices_the_oldest_first() -> None:
    async def work() -> None:
        cell = RuntimeCell(generation(1))
        heard: list[int] = []
        for watcher in range(WAKE_SLICE * 2 + 50):
            cell.watch(lambda watcher=watcher: heard.append(watcher))  # type: ignore[misc]
        cell.install(generation(2))
        assert heard == []
        sizes = []
        while len(heard) < WAKE_SLICE * 2 + 50:
            await asyncio.sleep(0)
            sizes.append(len(heard))
        steps = [after - before for before, after in zip([0, *sizes], sizes, strict=False)]
        assert max(steps) == WAKE_SLICE
        assert heard == sorted(heard)

    asyncio.run(work())


def test_a_watcher_that_raises_keeps_no_other_from_hearing() -> None:
    async def work() -> None:
        faults: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))
        cell = RuntimeCell(generation(1))
        heard: list[str] = []

        def broken() -> None:
            raise RuntimeError("broken watcher")

        cell.watch(broken)
        cell.watch(lambda: heard.append("second"))
        cell.install(generation(2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert heard == ["second"]
        assert [str(fault) for fault in faults] == ["broken watcher"]

    asyncio.run(work())
