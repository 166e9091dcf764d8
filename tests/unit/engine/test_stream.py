"""Streams over real connections, in clear and under TLS, on both event loops."""

import asyncio
import socket
import ssl

import pytest

from egress.engine.stream import DeadlineExceeded, End, Stream
from egress.model.errors import PeerError, Side
from egress.model.limits import LIMITS
from tests.support.authorities import OriginAuthority
from tests.unit.engine.conftest import Run
from tests.unit.engine.peers import Peer, connected_sockets, stream_and_peer, tls_pair

MEGABYTE = 1 << 20


async def read_until(stream: Stream, count: int) -> bytes:
    while len(stream.buffer) < count and await stream.more(2, "test"):
        pass
    return stream.take()


def test_bytes_are_looked_at_taken_and_put_back(run: Run) -> None:
    async def work() -> None:
        stream, peer = await stream_and_peer()
        await peer.send(b"one two")
        assert await stream.more(2, "test")
        assert stream.buffer == b"one two"
        assert stream.take(4) == b"one "
        stream.put_back(b"1 ")
        assert stream.take() == b"1 two"
        assert (stream.buffer, stream.received) == (b"", 7)
        stream.write(b"back")
        assert await peer.receive() == b"back"
        stream.close()
        assert await peer.receive() == b""
        peer.close()

    run(work())


def test_silence_raises_the_name_of_its_deadline(run: Run) -> None:
    async def work() -> None:
        stream, peer = await stream_and_peer()
        with pytest.raises(DeadlineExceeded) as caught:
            await stream.more(0.01, "timeouts.first")
        assert caught.value.limit == "timeouts.first"
        assert (stream.error, stream.lost) == (None, False)
        stream.abort()
        peer.close()

    run(work())


def test_a_later_deadline_reuses_the_timer_and_an_earlier_one_moves_it(run: Run) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        stream, peer = await stream_and_peer()

        async def wait(seconds: float | None) -> float:
            began = loop.time()
            with pytest.raises(DeadlineExceeded):
                await stream.more(seconds, "test")
            return loop.time() - began

        await peer.send(b"x")
        await stream.more(5, "long")
        timer = stream._timer
        stream.take()
        assert await wait(0.02) < 1
        await peer.send(b"x")
        await stream.more(0.02, "short")
        first = stream._timer
        await peer.send(b"x")
        await stream.more(5, "long")
        assert (timer is not first, stream._timer is first) == (True, True)
        stream.take()
        # The old timer fires in the middle of this wait and must only re-arm itself.
        assert await wait(0.06) >= 0.055
        stream.abort()
        peer.close()

    run(work())


def test_without_seconds_an_old_timer_ends_no_wait(run: Run) -> None:
    async def work() -> None:
        stream, peer = await stream_and_peer()
        await peer.send(b"x")
        await stream.more(0.01, "short")
        stream.take()
        waiting = asyncio.create_task(stream.more(None, "off"))
        await asyncio.sleep(0.03)
        assert not waiting.done()
        await peer.send(b"y")
        assert await waiting is True
        stream.abort()
        peer.close()

    run(work())


def test_a_clean_end_in_clear_leaves_the_other_direction_open(run: Run) -> None:
    async def work() -> None:
        stream, peer = await stream_and_peer()
        gone: list[str] = []
        stream.on_gone = lambda: gone.append("gone")
        await peer.send(b"last")
        peer.finish()
        assert await read_until(stream, 100) == b"last"
        assert await stream.more(1, "test") is False
        assert (stream.end, gone, stream.lost) == (End.CLEAN, [], False)
        stream.write(b"still here")
        stream.write_eof()
        assert await peer.receive_all() == b"still here"
        stream.close()
        peer.close()

    run(work())


def test_an_end_on_an_idle_stream_is_told_to_whoever_watches_for_data(run: Run) -> None:
    async def work() -> None:
        stream, peer = await stream_and_peer(Side.UPSTREAM)
        told: list[bool] = []
        stream.on_data = lambda: told.append(stream.reusable)
        peer.finish()
        await asyncio.sleep(0.01)
        assert told == [False]
        stream.abort()
        peer.close()

    run(work())


def test_a_reset_is_a_peer_error_with_its_side(run: Run) -> None:
    async def work() -> None:
        stream, peer = await stream_and_peer(Side.UPSTREAM)
        gone: list[str] = []
        stream.on_gone = lambda: gone.append("gone")
        peer.reset()
        with pytest.raises(PeerError) as caught:
            await stream.more(1, "test")
        assert caught.value.side is Side.UPSTREAM
        assert (stream.lost, stream.reusable, gone) == (True, False, ["gone"])
        stream.write(b"dropped")
        assert stream.sent == 0

    run(work())


def test_bytes_before_a_reset_are_still_read(run: Run) -> None:
    async def work() -> None:
        stream, peer = await stream_and_peer()
        await peer.send(b"data")
        await stream.more(1, "test")
        peer.reset()
        await asyncio.sleep(0.01)
        assert stream.take() == b"data"
        with pytest.raises(PeerError):
            await stream.more(1, "test")

    run(work())


def test_bytes_before_a_reset_are_read_even_if_a_write_finds_out_first(run: Run) -> None:
    """A refused upload: the origin has answered and closed, with bytes of ours unread."""

    async def work() -> None:
        near, far = connected_sockets()
        loop = asyncio.get_running_loop()
        _, stream = await loop.create_connection(lambda: Stream(loop, Side.UPSTREAM), sock=near)
        stream.write(b"x" * 1000)
        await asyncio.sleep(0.01)
        far.send(b"refused")
        far.close()  # with bytes unread: a reset
        for _ in range(20):
            stream.write(b"x" * 1000)  # the loop has had no turn to read in
        assert await read_until(stream, 7) == b"refused"
        with pytest.raises(PeerError):
            await stream.more(1, "test")

    run(work())


def test_interrupt_fails_waits_for_bytes_and_for_room_and_later_ones(run: Run) -> None:
    async def work() -> None:
        stream, peer = await stream_and_peer()
        while not stream.congested:
            stream.write(bytes(MEGABYTE))
        reading = asyncio.create_task(stream.more(None, "off"))
        draining = asyncio.create_task(stream.drain(None, "off"))
        await asyncio.sleep(0)
        stream.interrupt(PeerError(Side.DOWNSTREAM, "policy changed"))
        for task in (reading, draining):
            with pytest.raises(PeerError, match="policy changed"):
                await task
        with pytest.raises(PeerError, match="policy changed"):
            await stream.drain(None, "off")
        assert stream.reusable is False
        stream.abort()
        peer.close()

    run(work())


def test_a_slow_reader_is_met_with_a_bounded_queue(run: Run) -> None:
    async def work() -> None:
        stream, peer = await stream_and_peer()
        sent = 0

        async def produce() -> None:
            nonlocal sent
            for _ in range(256):
                stream.write(bytes(65536))
                sent += 65536
                await stream.drain(2, "test")

        producing = asyncio.create_task(produce())
        await asyncio.sleep(0.03)
        stalled = sent
        await asyncio.sleep(0.03)
        assert sent == stalled < 256 * 65536
        assert stream._transport is not None
        assert stream._transport.get_write_buffer_size() <= LIMITS.stream_buffer + 65536
        assert len(await peer.exactly(256 * 65536)) == 256 * 65536
        await producing
        stream.abort()
        peer.close()

    run(work())


def test_a_drain_that_takes_too_long_raises(run: Run) -> None:
    async def work() -> None:
        stream, peer = await stream_and_peer()
        while not stream.congested:
            stream.write(bytes(MEGABYTE))
        with pytest.raises(DeadlineExceeded) as caught:
            await stream.drain(0.01, "timeouts.response_idle")
        assert caught.value.limit == "timeouts.response_idle"
        stream.abort()
        peer.close()

    run(work())


def test_reading_pauses_while_nobody_takes_and_goes_on_after(run: Run) -> None:
    async def work() -> None:
        stream, peer = await stream_and_peer()
        total = 8 * MEGABYTE
        sending = asyncio.create_task(peer.send(bytes(total)))
        await asyncio.sleep(0.05)
        held = len(stream.buffer)
        assert LIMITS.stream_buffer <= held <= 3 * LIMITS.stream_buffer
        assert not sending.done()
        taken = 0
        while taken < total:
            if not stream.buffer:
                await stream.more(2, "test")
            taken += len(stream.take())
        await sending
        assert stream.received == total
        stream.abort()
        peer.close()

    run(work())


def test_reading_ahead_can_be_bounded_tighter_for_a_while(run: Run) -> None:
    async def work() -> None:
        stream, peer = await stream_and_peer()
        stream.read_ahead(1000)
        sending = asyncio.create_task(peer.send(bytes(8 * MEGABYTE)))
        await asyncio.sleep(0.05)
        held = len(stream.buffer)
        await asyncio.sleep(0.02)
        assert 1000 <= len(stream.buffer) == held <= LIMITS.stream_buffer
        stream.read_ahead(2 * MEGABYTE)
        await asyncio.sleep(0.05)
        assert len(stream.buffer) >= 2 * MEGABYTE
        sending.cancel()
        stream.abort()
        peer.close()

    run(work())


def test_close_flushes_but_not_for_ever(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("egress.engine.stream.LIMITS", type(LIMITS)(close_flush_seconds=0.05))

    async def work() -> None:
        stream, peer = await stream_and_peer()
        while not stream.congested:
            stream.write(bytes(MEGABYTE))
        stream.close()
        await asyncio.sleep(0.01)
        assert stream._lost is False
        await asyncio.sleep(0.1)
        assert stream._lost is True
        peer.close()

    run(work())


def test_reset_is_no_clean_end(run: Run) -> None:
    async def work() -> None:
        stream, peer = await stream_and_peer()
        stream.write(b"half a body")
        stream.reset()
        with pytest.raises(ConnectionResetError):
            await peer.receive_all()
        peer.close()

    run(work())


def test_socket_pair_is_the_four_tuple_remote_end_first(run: Run) -> None:
    async def work() -> None:
        stream, peer = await stream_and_peer()
        pair = stream.socket_pair()
        assert (str(pair.client), pair.client_port) == peer.socket.getsockname()
        assert (str(pair.proxy), pair.proxy_port) == peer.socket.getpeername()
        stream.abort()
        peer.close()

    run(work())


def test_a_mapped_address_is_told_as_the_ipv4_it_is(run: Run) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
            client = socket.create_connection(("127.0.0.1", listener.getsockname()[1]))
            accepted, _ = listener.accept()
        accepted.setblocking(False)
        _, stream = await loop.create_connection(lambda: Stream(loop, Side.DOWNSTREAM), sock=accepted)
        assert str(stream.socket_pair().client) == "127.0.0.1"
        stream.abort()
        client.close()

    run(work())


# TLS ---------------------------------------------------------------------------------------------------------------


def test_tls_takes_over_bytes_that_came_before_it_was_started(
    run: Run, server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    async def work() -> None:
        stream, peer = await stream_and_peer()
        hello = peer.hello(client_context)
        await peer.send_raw(hello[:10])
        await stream.more(1, "test")
        assert stream.buffer == hello[:10]
        await peer.send_raw(hello[10:])
        async with asyncio.TaskGroup() as group:
            group.create_task(peer.shake())
            await stream.start_tls(server_context, server_side=True, seconds=2)
        assert stream.buffer == b""
        await peer.send(b"GET ")
        assert await read_until(stream, 4) == b"GET "
        stream.write(b"200")
        assert await peer.receive() == b"200"
        stream.abort()
        peer.close()

    run(work())


def test_megabytes_pass_under_tls_whole_and_in_order(
    run: Run, server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    body = bytes(range(256)) * (4 * MEGABYTE // 256)

    async def work() -> None:
        stream, peer = await tls_pair(server_context, client_context)
        stream.write(body)
        assert await peer.exactly(len(body)) == body
        sending = asyncio.create_task(peer.send(body))
        got: list[bytes] = []
        while sum(map(len, got)) < len(body):
            if not stream.buffer:
                await stream.more(2, "test")
            got.append(stream.take())
        await sending
        assert b"".join(got) == body
        stream.abort()
        peer.close()

    run(work())


def test_close_notify_is_a_clean_end_and_a_bare_fin_is_not(
    run: Run, server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    async def end_of(finish: bool) -> End:
        stream, peer = await tls_pair(server_context, client_context)
        await peer.send(b"tail")
        if finish:
            await peer.close_notify()
        peer.finish()
        assert await read_until(stream, 100) == b"tail"
        assert await stream.more(1, "test") is False
        stream.abort()
        peer.close()
        return stream.end

    async def work() -> None:
        assert await end_of(finish=True) is End.CLEAN
        assert await end_of(finish=False) is End.RAGGED

    run(work())


def test_close_says_close_notify_and_cut_does_not(
    run: Run, server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    async def work() -> None:
        stream, peer = await tls_pair(server_context, client_context)
        stream.write(b"all")
        stream.close()
        assert await peer.receive_all() == b"all"
        peer.close()
        stream, peer = await tls_pair(server_context, client_context)
        stream.write(b"half")
        stream.cut()
        assert await peer.receive() == b"half"
        with pytest.raises(ssl.SSLEOFError):
            await peer.receive()
        peer.close()

    run(work())


def test_bytes_that_are_no_tls_end_the_handshake(run: Run, server_context: ssl.SSLContext) -> None:
    async def work() -> None:
        stream, peer = await stream_and_peer()
        await peer.send(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(ssl.SSLError):
            await stream.start_tls(server_context, server_side=True, seconds=2)
        stream.abort()
        peer.close()

    run(work())


def test_a_client_that_distrusts_us_is_an_ssl_error(run: Run, server_context: ssl.SSLContext) -> None:
    async def work() -> None:
        stream, peer = await stream_and_peer()
        await peer.send_raw(peer.hello(ssl.create_default_context()))

        async def distrust(peer: Peer) -> None:
            with pytest.raises(ssl.SSLCertVerificationError):
                await peer.shake()
            await peer._flush()

        async with asyncio.TaskGroup() as group:
            group.create_task(distrust(peer))
            with pytest.raises(ssl.SSLError, match=r"(?i)unknown.ca"):
                await stream.start_tls(server_context, server_side=True, seconds=2)
        stream.abort()
        peer.close()

    run(work())


def test_a_handshake_has_one_deadline_however_slowly_it_drips(
    run: Run, server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    async def work() -> None:
        stream, peer = await stream_and_peer()
        hello = peer.hello(client_context)

        async def drip() -> None:
            for position in range(20):
                await peer.send_raw(hello[position : position + 1])
                await asyncio.sleep(0.01)

        dripping = asyncio.create_task(drip())
        with pytest.raises(DeadlineExceeded) as caught:
            await stream.start_tls(server_context, server_side=True, seconds=0.05)
        assert caught.value.limit == "timeouts.tls_handshake"
        dripping.cancel()
        stream.abort()
        peer.close()

    run(work())


def test_an_end_during_the_handshake_is_a_peer_error(run: Run, server_context: ssl.SSLContext) -> None:
    async def work() -> None:
        stream, peer = await stream_and_peer()
        peer.finish()
        with pytest.raises(PeerError):
            await stream.start_tls(server_context, server_side=True, seconds=2)
        stream.abort()
        peer.close()

    run(work())


def test_a_broken_record_is_no_clean_end(
    run: Run, server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    async def work() -> None:
        stream, peer = await tls_pair(server_context, client_context)
        await peer.send_raw(b"\x17\x03\x03\x00\x20" + bytes(32))
        with pytest.raises(PeerError):
            await stream.more(1, "test")
        assert stream.reusable is False
        stream.abort()
        peer.close()

    run(work())


def test_two_streams_speak_tls_to_each_other_and_agree_on_alpn(run: Run, authority: OriginAuthority) -> None:
    async def work() -> None:
        server = authority.server_context("peer.test", alpn=("http/1.1",))
        client = ssl.create_default_context(cafile=str(authority.ca_file))
        client.set_alpn_protocols(["h2", "http/1.1"])
        loop = asyncio.get_running_loop()
        near, far = connected_sockets()
        _, up = await loop.create_connection(lambda: Stream(loop, Side.UPSTREAM), sock=near)
        _, down = await loop.create_connection(lambda: Stream(loop, Side.DOWNSTREAM), sock=far)
        async with asyncio.TaskGroup() as group:
            group.create_task(down.start_tls(server, server_side=True, seconds=2))
            group.create_task(up.start_tls(client, server_side=False, server_hostname="peer.test", seconds=2))
        assert (up.alpn, down.alpn) == ("http/1.1", "http/1.1")
        up.write(b"ping")
        assert await read_until(down, 4) == b"ping"
        up.abort()
        down.abort()

    run(work())
