"""Raw relaying between two streams: what is passed on, how it ends, and that nothing keeps it from ending."""

import asyncio
import ssl

import pytest

from egress.engine.pump import Pump, PumpLimits
from egress.engine.stream import Stream
from egress.model.errors import Side
from egress.model.outcome import RelayOutcome
from tests.unit.engine.conftest import Run
from tests.unit.engine.peers import Peer, stream_and_peer, tls_pair

NO_LIMITS = PumpLimits(None, "timeouts.raw_idle", None)


async def ends() -> tuple[Stream, Peer, Stream, Peer]:
    client, workload = await stream_and_peer(Side.DOWNSTREAM)
    origin, server = await stream_and_peer(Side.UPSTREAM)
    return client, workload, origin, server


def test_both_directions_and_a_half_close_are_passed_on(run: Run) -> None:
    async def work() -> None:
        client, workload, origin, server = await ends()
        client.buffer = b"early "
        pump = Pump(client, origin, NO_LIMITS)
        running = asyncio.create_task(pump.run())
        await workload.send(b"request")
        workload.finish()
        assert await server.receive_all() == b"early request"
        await server.send(b"reply after the half-close")
        server.close()
        assert await workload.receive_all() == b"reply after the half-close"
        await running
        assert (pump.outcome, pump.limit, client.lost, origin.lost) == (RelayOutcome.COMPLETE, None, True, True)
        workload.close()

    run(work())


@pytest.mark.parametrize("who", ["client", "origin"])
def test_a_reset_is_passed_on_as_a_reset(run: Run, who: str) -> None:
    async def work() -> None:
        client, workload, origin, server = await ends()
        pump = Pump(client, origin, NO_LIMITS)
        running = asyncio.create_task(pump.run())
        await asyncio.sleep(0)
        gone, left = (workload, server) if who == "client" else (server, workload)
        gone.reset()
        with pytest.raises(ConnectionResetError):
            await left.receive_all()
        await running
        expected = RelayOutcome.CLIENT_GONE if who == "client" else RelayOutcome.UPSTREAM_GONE
        assert pump.outcome is expected
        left.close()

    run(work())


def test_stop_ends_a_relay_that_waits_for_a_reader_who_never_reads(run: Run) -> None:
    async def work() -> None:
        client, workload, origin, server = await ends()
        pump = Pump(client, origin, NO_LIMITS)
        running = asyncio.create_task(pump.run())
        flood = asyncio.create_task(server.send(bytes(32 << 20)))
        while not client.congested:
            await asyncio.sleep(0.001)
        pump.stop("policy_changed")
        async with asyncio.timeout(1):
            await running
        assert (pump.outcome, pump.limit) == (RelayOutcome.CUT, "policy_changed")
        assert (client.lost, origin.lost) == (True, True)
        with pytest.raises(ConnectionError):
            await flood
        workload.close()
        server.close()

    run(work())


def test_silence_in_both_directions_ends_it_and_traffic_in_one_does_not(run: Run) -> None:
    async def work() -> None:
        client, workload, origin, server = await ends()
        pump = Pump(client, origin, PumpLimits(0.04, "timeouts.raw_idle", None))
        running = asyncio.create_task(pump.run())
        for _ in range(6):
            await workload.send(b"x")
            await asyncio.sleep(0.02)
        assert not running.done()
        await running
        assert (pump.outcome, pump.limit) == (RelayOutcome.CUT, "timeouts.raw_idle")
        workload.close()
        server.close()

    run(work())


def test_a_half_closed_relay_ends_after_its_own_silence(run: Run) -> None:
    async def work() -> None:
        client, workload, origin, server = await ends()
        pump = Pump(client, origin, PumpLimits(None, "timeouts.raw_idle", 0.04))
        running = asyncio.create_task(pump.run())
        workload.finish()
        for _ in range(4):
            await server.send(b"x")
            await asyncio.sleep(0.02)
        assert not running.done()
        await running
        assert (pump.outcome, pump.limit) == (RelayOutcome.CUT, "timeouts.half_closed")
        workload.close()
        server.close()

    run(work())


def test_memory_stays_bounded_while_the_reader_is_slow(run: Run) -> None:
    async def work() -> None:
        client, workload, origin, server = await ends()
        running = asyncio.create_task(Pump(client, origin, NO_LIMITS).run())
        total = 16 << 20
        flood = asyncio.create_task(server.send(bytes(total)))
        await asyncio.sleep(0.05)
        assert client._transport is not None
        held = len(origin.buffer) + client._transport.get_write_buffer_size()
        assert 0 < held < 2 << 20
        assert len(await workload.exactly(total)) == total
        await flood
        workload.close()
        server.close()
        await running

    run(work())


def test_tls_that_is_cut_off_is_not_passed_on_as_a_clean_end(
    run: Run, server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    async def work() -> None:
        client, workload = await tls_pair(server_context, client_context)
        origin, server = await tls_pair(server_context, client_context)
        pump = Pump(client, origin, NO_LIMITS)
        running = asyncio.create_task(pump.run())
        await server.send(b"half of it")
        server.finish()
        assert await workload.receive() == b"half of it"
        with pytest.raises(ssl.SSLEOFError):
            await workload.receive()
        await running
        assert pump.outcome is RelayOutcome.UPSTREAM_GONE
        workload.close()
        server.close()

    run(work())


def test_tls_that_ends_cleanly_ends_cleanly_on_the_other_side(
    run: Run, server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    async def work() -> None:
        client, workload = await tls_pair(server_context, client_context)
        origin, server = await tls_pair(server_context, client_context)
        running = asyncio.create_task(Pump(client, origin, NO_LIMITS).run())
        await server.send(b"all of it")
        await server.close_notify()
        assert await workload.receive_all() == b"all of it"
        await workload.close_notify()
        await running
        workload.close()
        server.close()

    run(work())


def test_cancelled_it_leaves_no_connection_open(run: Run) -> None:
    async def work() -> None:
        client, workload, origin, server = await ends()
        running = asyncio.create_task(Pump(client, origin, NO_LIMITS).run())
        await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (client.lost, origin.lost) == (True, True)
        workload.close()
        server.close()

    run(work())
