"""A stream inside a stream: TLS in TLS over real sockets, pressure, and the ways to end."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trustme

from egress.engine.carried import OriginStream
from egress.engine.stream import End
from egress.model.errors import PeerError
from egress.model.limits import LIMITS

type Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(scope="module")
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Server and client."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert("peer.test").configure_cert(server)
    authority.configure_trust(client)
    return server, client


@asynccontextmanager
async def rider_to(serve: Serve, contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> AsyncIterator[OriginStream]:
    """A stream inside TLS to a server that sees what travels in it."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            await serve(reader, writer)
        except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=contexts[0])
    loop = asyncio.get_running_loop()
    _, carrier = await loop.create_connection(
        lambda: OriginStream(loop), "127.0.0.1", server.sockets[0].getsockname()[1]
    )
    await carrier.start_tls(contexts[1], server_side=False, server_hostname="peer.test", seconds=2)
    rider = carrier.over()
    yield rider
    rider.abort()
    for writer in writers:
        writer.transport.abort()
    server.close()
    await asyncio.sleep(0.001)  # closed sockets are gone when the test is


async def read(stream: OriginStream, size: int) -> bytes:
    while len(stream.buffer) < size:
        assert await stream.more(2.0, "test")
    return stream.take(size)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def test_bytes_travel_both_ways(contexts) -> None:
    async with rider_to(echo, contexts) as rider:
        rider.write(b"hello")
        assert await read(rider, 5) == b"hello"
        assert (rider.tls, rider.sent, rider.received) == (None, 5, 5)


async def test_a_server_that_speaks_first(contexts) -> None:
    async def banner(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 ready")
        await reader.read()

    async with rider_to(banner, contexts) as rider:
        assert await read(rider, 9) == b"220 ready"


async def test_tls_inside_tls(contexts) -> None:
    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Terminate the inner TLS and echo."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        inner = contexts[0].wrap_bio(incoming, outgoing, server_side=True)
        shaken = False
        while data := await reader.read(65536):
            incoming.write(data)
            try:
                if not shaken:
                    inner.do_handshake()
                    shaken = True
                while True:
                    inner.write(inner.read(65536))
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())

    async with rider_to(tunnel, contexts) as rider:
        await rider.start_tls(contexts[1], server_side=False, server_hostname="peer.test", seconds=2)
        payload = bytes(range(256)) * 2000
        rider.write(payload)
        assert await read(rider, len(payload)) == payload


async def test_pressure_of_a_reader_that_stalls_reaches_the_writer(contexts) -> None:
    gate = asyncio.Event()
    count = 0

    async def stall(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        nonlocal count
        await gate.wait()
        while data := await reader.read(1 << 20):
            count += len(data)

    async with rider_to(stall, contexts) as rider:
        written = 0
        while not rider.congested:
            rider.write(bytes(1 << 18))
            written += 1 << 18
            assert written < 64 << 20
            await asyncio.sleep(0)
        gate.set()
        await rider.drain(2.0, "test")
        assert not rider.congested


async def test_pressure_of_ours_reaches_the_peer(contexts) -> None:
    sent, blocks = 0, 400

    async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        for _ in range(blocks):
            writer.write(bytes(1 << 16))
            await writer.drain()
            sent += 1 << 16

    async with rider_to(flood, contexts) as rider:
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.05)
        assert sent < blocks << 16
        assert len(rider.buffer) < LIMITS.stream_buffer * 3
        total = 0
        while await rider.more(2.0, "test"):
            total += len(rider.take())
        assert total == blocks << 16


async def test_a_clean_end_of_the_carrier_is_a_clean_end(contexts) -> None:
    async def farewell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")
        await writer.drain()

    async with rider_to(farewell, contexts) as rider:
        assert await read(rider, 3) == b"bye"
        assert not await rider.more(2.0, "test")
        assert (rider.end, rider.error) == (End.CLEAN, None)


async def test_a_carrier_that_is_cut_off_is_no_clean_end(contexts) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"half")
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.transport.abort()

    async with rider_to(cut, contexts) as rider:
        assert await read(rider, 4) == b"half"
        with pytest.raises(PeerError):
            await rider.more(2.0, "test")
        assert rider.lost


async def test_close_is_told_to_both_sides(contexts) -> None:
    ended = asyncio.Event()

    async def keep(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(5) == b"hello"
        assert await reader.read() == b""
        ended.set()

    async with rider_to(keep, contexts) as rider:
        rider.write(b"hello")
        rider.close()
        async with asyncio.timeout(2):
            await ended.wait()
        assert rider.lost
        rider.write(b"dropped")


async def test_an_abort_ends_the_wait_for_bytes(contexts) -> None:
    async with rider_to(echo, contexts) as rider:
        asyncio.get_running_loop().call_later(0.02, rider.abort)
        assert not await rider.more(2.0, "test")
        assert rider.end is End.RESET
