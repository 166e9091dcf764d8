"""Bodies over streams: payload in by one framing, out by another, and never a byte of what follows."""

import asyncio

import pytest

from egress.engine.http1.body import BodyReader, BodyWriter
from egress.engine.stream import DeadlineExceeded, Stream
from egress.model.body import CHUNKED, NO_BODY, UNTIL_CLOSE, Framing, of_length
from egress.model.errors import PeerError, Side
from egress.model.message import Malformed
from tests.unit.engine.peers import Peer, stream_and_peer


async def read_all(reader: BodyReader) -> bytes:
    body = b""
    while piece := await reader.next(1, "test"):
        assert isinstance(piece, bytes)
        body += piece
    return body


async def pair() -> tuple[Stream, Peer]:
    return await stream_and_peer(Side.UPSTREAM)


@pytest.mark.parametrize("framing", [NO_BODY, of_length(0)])
async def test_no_body_is_complete_at_once(framing: Framing) -> None:
    stream, peer = await pair()
    stream.put_back(b"next")
    reader = BodyReader(stream, framing)
    assert reader.complete
    assert (reader.buffered(), await reader.next(0, "test"), stream.buffer) == (b"", b"", b"next")
    stream.abort()
    peer.close()


@pytest.mark.parametrize(
    ("framing", "wire", "body"),
    [
        (of_length(5), b"hello", b"hello"),
        (CHUNKED, b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", b"hello"),
        (CHUNKED, b"0\r\nX: 1\r\n\r\n", b""),
    ],
)
async def test_what_follows_stays_in_the_stream(framing: Framing, wire: bytes, body: bytes) -> None:
    for cut in range(len(wire) + 1):
        stream, peer = await pair()
        reader = BodyReader(stream, framing)
        await peer.send(wire[:cut])
        reading = asyncio.create_task(read_all(reader))
        await asyncio.sleep(0)
        await peer.send(wire[cut:] + b"GET /next")
        assert await reading == body
        if not stream.buffer:
            await stream.more(1, "test")
        assert (reader.complete, reader.size, stream.buffer) == (True, len(body), b"GET /next")
        stream.abort()
        peer.close()


async def test_trailers_are_told_at_the_end() -> None:
    stream, peer = await pair()
    reader = BodyReader(stream, CHUNKED)
    await peer.send(b"1\r\nx\r\n0\r\nX-Sum: 1\r\nHost: evil\r\n\r\n")
    assert await read_all(reader) == b"x"
    assert reader.trailers == ((b"X-Sum", b"1"),)
    stream.abort()
    peer.close()


async def test_a_body_until_close_ends_with_a_clean_close() -> None:
    stream, peer = await pair()
    reader = BodyReader(stream, UNTIL_CLOSE)
    await peer.send(b"all of it")
    peer.finish()
    assert await read_all(reader) == b"all of it"
    assert reader.complete
    stream.abort()
    peer.close()


@pytest.mark.parametrize(
    ("framing", "wire"),
    [(of_length(10), b"half"), (CHUNKED, b"4\r\nhalf\r\n"), (CHUNKED, b"8\r\nhalf"), (CHUNKED, b"0\r\n")],
)
async def test_a_body_that_stops_early_is_a_peer_error(framing: Framing, wire: bytes) -> None:
    stream, peer = await pair()
    reader = BodyReader(stream, framing)
    await peer.send(wire)
    peer.finish()
    with pytest.raises(PeerError, match="cut short"):
        await read_all(reader)
    assert not reader.complete
    stream.abort()
    peer.close()


async def test_a_reset_never_ends_a_body_until_close() -> None:
    stream, peer = await pair()
    reader = BodyReader(stream, UNTIL_CLOSE)
    await peer.send(b"half")
    await stream.more(1, "test")
    peer.reset()
    await asyncio.sleep(0.01)
    with pytest.raises(PeerError):
        await read_all(reader)
    assert not reader.complete


async def test_a_malformed_chunk_is_a_value() -> None:
    stream, peer = await pair()
    reader = BodyReader(stream, CHUNKED)
    await peer.send(b"zz\r\n")
    assert isinstance(await reader.next(1, "test"), Malformed)
    stream.abort()
    peer.close()


async def test_silence_raises_the_name_of_its_deadline() -> None:
    stream, peer = await pair()
    reader = BodyReader(stream, of_length(5))
    with pytest.raises(DeadlineExceeded) as caught:
        await reader.next(0.01, "timeouts.body_idle")
    assert caught.value.limit == "timeouts.body_idle"
    stream.abort()
    peer.close()


async def test_buffered_waits_for_nothing() -> None:
    stream, peer = await pair()
    reader = BodyReader(stream, of_length(5))
    assert reader.buffered() == b""
    await peer.send(b"he")
    await stream.more(1, "test")
    assert (reader.buffered(), reader.buffered(), reader.size) == (b"he", b"", 2)
    stream.abort()
    peer.close()


def test_writing_by_the_framing_that_was_told() -> None:
    assert BodyWriter(CHUNKED).encode(b"hello") == b"5\r\nhello\r\n"
    assert BodyWriter(CHUNKED).encode(b"") == b""
    assert BodyWriter(CHUNKED).end(((b"X", b"1"),)) == b"0\r\nX: 1\r\n\r\n"
    for framing in (of_length(5), UNTIL_CLOSE, NO_BODY):
        assert BodyWriter(framing).encode(b"hello") == b"hello"
        assert BodyWriter(framing).end(((b"X", b"1"),)) == b""
