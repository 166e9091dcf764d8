"""Stopping: idle clients close at once, working ones are left alone."""

import asyncio

import pytest

from egress.engine.drain import Drain
from egress.engine.stream import DeadlineExceeded
from tests.unit.engine.conftest import Run
from tests.unit.engine.peers import stream_and_peer


def test_an_idle_client_is_closed_and_a_working_one_is_not(run: Run) -> None:
    async def work() -> None:
        drain = Drain()
        idle, idle_peer = await stream_and_peer()
        working, working_peer = await stream_and_peer()
        waiting = asyncio.create_task(drain.wait_for_work(idle, None, "timeouts.keepalive"))
        await working_peer.send(b"GET")
        await drain.wait_for_work(working, None, "timeouts.keepalive")
        assert (working.buffer, drain.begun) == (b"GET", False)
        drain.begin()
        await waiting
        assert (drain.begun, idle.lost, working.lost) == (True, True, False)
        assert await idle_peer.receive() == b""
        working.abort()
        idle_peer.close()
        working_peer.close()

    run(work())


def test_bytes_at_hand_are_work(run: Run) -> None:
    async def work() -> None:
        drain = Drain()
        client, peer = await stream_and_peer()
        client.put_back(b"GET")
        await drain.wait_for_work(client, 0, "timeouts.keepalive")
        client.abort()
        peer.close()

    run(work())


def test_idling_too_long_ends_as_any_wait(run: Run) -> None:
    async def work() -> None:
        drain = Drain()
        client, peer = await stream_and_peer()
        with pytest.raises(DeadlineExceeded):
            await drain.wait_for_work(client, 0.01, "timeouts.keepalive")
        drain.begin()
        assert client.lost is False
        client.abort()
        peer.close()

    run(work())


def test_watchers_hear_of_it_unless_they_ended() -> None:
    drain = Drain()
    heard: list[str] = []
    unwatch = drain.watch(lambda: heard.append("ended"))
    drain.watch(lambda: heard.append("told"))
    unwatch()
    drain.begin()
    assert heard == ["told"]
