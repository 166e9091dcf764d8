"""Request heads read within their bounds, and refusals that the client can read."""

import asyncio

import pytest

from egress.engine.http1.client_side import read_request_head, send_refusal
from egress.engine.linger import linger
from egress.engine.stream import DeadlineExceeded, Stream
from egress.http.replies import Reply
from egress.model.limits import LIMITS
from egress.model.message import Malformed, WireHead
from egress.model.verdict import DenialCode
from tests.unit.engine.peers import Peer, stream_and_peer

HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def read(
    client: Stream, *, limit: int = 8192, first: float | None = 1.0, rest: float | None = 1.0
) -> WireHead | Malformed | None:
    return await read_request_head(client, limit, first_byte=(first, "first"), rest=(rest, "rest"))


def done(client: Stream, peer: Peer) -> None:
    client.abort()
    peer.close()


async def test_heads_come_one_after_the_other_from_one_buffer() -> None:
    client, peer = await stream_and_peer()
    await peer.send(HEAD + HEAD.replace(b"/", b"/2", 1) + b"GET")
    for target in (b"/", b"/2"):
        wire = await read(client)
        assert isinstance(wire, WireHead)
        assert wire.target == target
    assert client.buffer == b"GET"
    done(client, peer)


async def test_a_head_that_drips_in() -> None:
    client, peer = await stream_and_peer()
    reading = asyncio.create_task(read(client))
    for byte in HEAD:
        await peer.send(bytes([byte]))
        await asyncio.sleep(0)
    assert isinstance(await reading, WireHead)
    done(client, peer)


async def test_a_client_that_says_nothing_and_leaves_has_no_request() -> None:
    client, peer = await stream_and_peer()
    peer.finish()
    assert await read(client) is None
    done(client, peer)


async def test_a_client_that_leaves_in_its_head() -> None:
    client, peer = await stream_and_peer()
    await peer.send(HEAD[:-2])
    peer.finish()
    assert await read(client) == Malformed("the head ended early")
    done(client, peer)


async def test_a_client_that_never_begins() -> None:
    client, peer = await stream_and_peer()
    with pytest.raises(DeadlineExceeded) as caught:
        await read(client, first=0.01)
    assert caught.value.limit == "first"
    done(client, peer)


async def test_dripping_wins_no_time() -> None:
    client, peer = await stream_and_peer()

    async def drip() -> None:
        for byte in HEAD:
            await peer.send(bytes([byte]))
            await asyncio.sleep(0.01)

    dripping = asyncio.create_task(drip())
    wire = await read(client, rest=0.05)
    assert isinstance(wire, Malformed)
    assert wire.code is DenialCode.REQUEST_TIMEOUT
    dripping.cancel()
    done(client, peer)


async def test_a_head_without_end() -> None:
    client, peer = await stream_and_peer()
    await peer.send(b"GET / HTTP/1.1\r\nA: " + b"x" * 100)
    wire = await read(client, limit=64)
    assert isinstance(wire, Malformed)
    assert wire.code is DenialCode.HEAD_TOO_LARGE
    done(client, peer)


async def test_a_refusal_is_read_by_a_client_that_still_sends() -> None:
    client, peer = await stream_and_peer()
    reply = Reply(403, (), b"{}")
    refusing = asyncio.create_task(send_refusal(client, reply))
    for _ in range(10):
        await peer.send(bytes(10_000))
        await asyncio.sleep(0)
    peer.finish()
    assert await peer.receive_all() == reply.http1()
    await refusing
    assert client.lost
    peer.close()


async def test_lingering_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("egress.engine.linger.LIMITS", type(LIMITS)(refusal_drain_seconds=0.02))
    client, peer = await stream_and_peer()
    async with asyncio.timeout(1):
        await linger(client)
    assert client.lost
    peer.close()


async def test_lingering_takes_no_more_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("egress.engine.linger.LIMITS", type(LIMITS)(refusal_drain_bytes=1000))
    client, peer = await stream_and_peer()
    await peer.send(bytes(5000))
    lingering = asyncio.create_task(linger(client))
    await asyncio.sleep(0.02)
    await peer.send(bytes(7000))
    await asyncio.sleep(0.02)
    assert len(client.buffer) == 7000  # not read off: the client is left time to look at its reply
    peer.reset()
    async with asyncio.timeout(0.5):
        await lingering
    assert client.lost
    peer.close()
    peer.close()
