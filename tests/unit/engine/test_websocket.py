"""The relay of a parsed WebSocket between real sockets: what is passed on, who is told what, and how it ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest

from egress.engine import websocket
from egress.engine.assemblies import Assemblies
from egress.engine.drain import Drain
from egress.engine.stream import Stream
from egress.engine.tunnel import Timeouts, Tunnel
from egress.model.errors import Side
from egress.model.outcome import RelayOutcome
from egress.model.verdict import Audited, Denial, DenialCode
from tests.support.opened import HOST, Opened, opened, upgraded
from tests.support.websockets import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    RSV1,
    TEXT,
    Deflater,
    Frame,
    closing,
    frame,
    header,
    masking,
    parse,
)
from tests.unit.engine.peers import Peer, stream_and_peer
from tests.unit.policy.samples import entries

FULL = "protocol: websocket, access: full"
DEFLATE = "permessage-deflate"


@dataclass
class Scene:
    """A running relay with its two far ends."""

    client: Peer
    origin: Peer
    tunnel: Tunnel
    link: Stream
    ours: Opened
    task: "asyncio.Task[None]"

    async def ended(self) -> None:
        async with asyncio.timeout(2):
            await self.task

    async def both_told(self) -> list[tuple[int | None, str]]:
        """Close code and reason that each side got last."""
        frames = [parse(await peer.receive_all())[-1] for peer in (self.client, self.origin)]
        assert [one.opcode for one in frames] == [CLOSE, CLOSE]
        return [(one.code, one.reason) for one in frames]

    @property
    def outcome(self) -> tuple[RelayOutcome, str | None]:
        return self.tunnel.tally.outcome, self.tunnel.tally.limit

    @property
    def told(self) -> list[tuple[str, DenialCode | None, RelayOutcome]]:
        """Events of messages: method, code of the denial, outcome."""
        found = []
        for event in self.ours.recorder.exchanges:
            verdict = event.verdict.denial if isinstance(event.verdict, Audited) else event.verdict
            found.append((event.method, verdict.code if isinstance(verdict, Denial) else None, event.outcome))
        return found


@contextlib.asynccontextmanager
async def scene(
    terms: str = FULL,
    *,
    deflate: str | None = None,
    assemblies: Assemblies | None = None,
    timeouts: Timeouts | None = None,
    before: Callable[[Tunnel, Opened], None] = lambda tunnel, ours: None,
) -> AsyncIterator[Scene]:
    ours = opened(entries(f"api: {{endpoints: [{{host: {HOST}, port: 443, {terms}}}], binaries: [{{path: '/**'}}]}}"))
    exchange, session = upgraded(ours, deflate=deflate)
    client, client_end = await stream_and_peer(Side.DOWNSTREAM)
    origin, origin_end = await stream_and_peer(Side.UPSTREAM)
    tunnel = Tunnel(
        client, ours.connection, ours.connection.authorization.intent.origin, cast(Any, None), ours.services,
        timeouts or Timeouts(), Drain(), assemblies or Assemblies(),
    )  # fmt: skip
    before(tunnel, ours)
    task = asyncio.create_task(websocket.run(tunnel, exchange, session, origin))
    try:
        yield Scene(client_end, origin_end, tunnel, origin, ours, task)
    finally:
        for stream in (client, origin):
            stream.abort()
        client_end.close()
        origin_end.close()
        async with asyncio.timeout(2):
            await asyncio.gather(task, return_exceptions=True)


async def receive(peer: Peer, size: int) -> list[Frame]:
    return parse(await peer.exactly(size))


class TestPassing:
    async def test_text_both_ways(self) -> None:
        async with scene() as at:
            await at.client.send(frame(TEXT, b"question"))
            assert await receive(at.origin, 14) == [Frame(TEXT, b"question", masked=True)]
            await at.origin.send(frame(TEXT, b"answer", masked=False))
            assert await receive(at.client, 8) == [Frame(TEXT, b"answer")]

    async def test_control_frames_both_ways(self) -> None:
        async with scene() as at:
            await at.client.send(frame(PING, b"1") + frame(PONG, b"2"))
            assert await receive(at.origin, 14) == [Frame(PING, b"1", masked=True), Frame(PONG, b"2", masked=True)]
            await at.origin.send(frame(PING, b"3", masked=False) + frame(PONG, b"4", masked=False))
            assert await receive(at.client, 6) == [Frame(PING, b"3"), Frame(PONG, b"4")]

    async def test_a_ping_overtakes_a_text_that_is_held(self) -> None:
        async with scene() as at:
            await at.client.send(frame(TEXT, b"a", fin=False) + frame(PING))
            assert await receive(at.origin, 6) == [Frame(PING, b"", masked=True)]
            await at.client.send(frame(CONTINUATION, b"b"))
            assert await receive(at.origin, 8) == [Frame(TEXT, b"ab", masked=True)]

    async def test_a_large_binary_goes_on_before_it_is_complete(self) -> None:
        async with scene() as at:
            await at.client.send(header(BINARY, 100_000) + masking(b"x" * 20_000, b"\x00\x00\x00\x00"))
            begun = await at.origin.exactly(1)
            assert begun == bytes((BINARY,)), "first fragment, not the last"

    async def test_compressed_both_ways(self) -> None:
        async with scene(deflate=DEFLATE) as at:
            squeezed = Deflater().message(b"hello")
            await at.client.send(frame(TEXT, squeezed, rsv=RSV1))
            (sent,) = await receive(at.origin, 6 + len(squeezed))
            assert (sent.rsv, sent.payload) == (RSV1, squeezed)
            await at.origin.send(frame(TEXT, squeezed, rsv=RSV1, masked=False))
            (sent,) = await receive(at.client, 2 + len(squeezed))
            assert (sent.rsv, sent.payload) == (RSV1, squeezed)

    async def test_bytes_are_counted(self) -> None:
        async with scene() as at:
            await at.client.send(frame(TEXT, b"question"))
            await at.origin.exactly(14)
            await at.origin.send(closing(1000, masked=False))
            await at.client.exactly(4)
            await at.client.send(closing(1000))
            await at.ended()
            assert (at.tunnel.tally.sent, at.tunnel.tally.received) == (14 + 8, 4)


class TestCloses:
    @pytest.mark.parametrize("code", [None, 1000, 1001, 1014, 3000, 4999])
    async def test_the_client_closes(self, code: int | None) -> None:
        async with scene() as at:
            await at.client.send(closing(code))
            size = 6 if code is None else 8
            (sent,) = await receive(at.origin, size)
            assert (sent.opcode, sent.code, sent.masked) == (CLOSE, code, True)
            await at.origin.send(closing(code, masked=False))
            await at.ended()
            (answered,) = parse(await at.client.receive_all())
            assert (answered.opcode, answered.code) == (CLOSE, code)
            assert at.outcome == (RelayOutcome.COMPLETE, None)
            assert at.told == []

    async def test_the_origin_closes(self) -> None:
        async with scene() as at:
            await at.origin.send(closing(1001, "bye", masked=False))
            (sent,) = await receive(at.client, 7)
            assert (sent.code, sent.reason) == (1001, "bye")
            await at.client.send(closing(1001))
            await at.ended()
            (answered,) = parse(await at.origin.receive_all())
            assert answered.code == 1001
            assert at.outcome == (RelayOutcome.COMPLETE, None)

    async def test_what_the_origin_says_before_its_close_still_arrives(self) -> None:
        async with scene() as at:
            await at.client.send(closing(1000))
            await at.origin.exactly(8)
            await at.origin.send(frame(TEXT, b"last", masked=False) + closing(1000, masked=False))
            assert [one.opcode for one in parse(await at.client.receive_all())] == [TEXT, CLOSE]

    async def test_a_client_that_leaves_after_its_close(self) -> None:
        async with scene() as at:
            await at.client.send(closing(1000))
            at.client.finish()
            await at.origin.exactly(8)
            await at.origin.send(closing(1000, masked=False))
            at.origin.finish()
            await at.ended()
            assert at.outcome == (RelayOutcome.COMPLETE, None)

    async def test_a_side_that_never_answers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(websocket, "CLOSE_SECONDS", 0.02)
        async with scene() as at:
            await at.client.send(closing(1000))
            await at.ended()
            assert await at.client.receive_all() == b""
            assert at.outcome == (RelayOutcome.COMPLETE, None)

    async def test_data_after_a_close_is_dropped(self) -> None:
        async with scene() as at:
            await at.client.send(closing(1000) + frame(TEXT, b"late"))
            await at.origin.exactly(8)
            await at.origin.send(closing(1000, masked=False) + frame(TEXT, b"late", masked=False))
            await at.ended()
            assert await at.origin.receive_all() == b""
            assert [one.opcode for one in parse(await at.client.receive_all())] == [CLOSE]


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers of these tests do not answer a Close of ours."""
    monkeypatch.setattr(websocket, "LINGER_SECONDS", 0.02)


@pytest.mark.usefixtures("brief")
class TestRefusals:
    async def test_text(self) -> None:
        async with scene("protocol: websocket, access: read-only") as at:
            await at.client.send(frame(TEXT, b"sesame"))
            assert await at.both_told() == [(1008, "policy_denied")] * 2
            await at.ended()
            assert at.outcome == (RelayOutcome.DENIED, None)
            assert at.told == [("WEBSOCKET_TEXT", DenialCode.POLICY_DENIED, RelayOutcome.DENIED)]
            assert "sesame" not in repr(at.ours.recorder.events)

    async def test_binary(self) -> None:
        async with scene("protocol: websocket, access: read-write") as at:
            await at.client.send(frame(BINARY, b"sesame"))
            assert await at.both_told() == [(1003, "policy_denied")] * 2
            await at.ended()
            assert at.told == [("WEBSOCKET_BINARY", DenialCode.POLICY_DENIED, RelayOutcome.DENIED)]

    async def test_nothing_of_a_refused_message_goes_on(self) -> None:
        async with scene("protocol: websocket, access: read-only") as at:
            await at.client.send(frame(PING, b"p") + frame(TEXT, b"sesame") + frame(PING, b"q"))
            assert [one.opcode for one in parse(await at.origin.receive_all())] == [PING, CLOSE]

    async def test_what_the_origin_says_after_our_close_is_dropped(self) -> None:
        async with scene("protocol: websocket, access: read-only") as at:
            await at.client.send(frame(TEXT, b"x"))
            await at.origin.exactly(8 + len("policy_denied"))
            await at.origin.send(frame(TEXT, b"late", masked=False))
            assert [one.opcode for one in parse(await at.client.receive_all())] == [CLOSE]

    async def test_audited_text_passes_and_is_told_each_time(self) -> None:
        async with scene("protocol: websocket, enforcement: audit, access: read-only") as at:
            await at.client.send(frame(TEXT, b"x") * 2)
            assert len(await receive(at.origin, 14)) == 2
            assert at.told == [("WEBSOCKET_TEXT", DenialCode.POLICY_DENIED, RelayOutcome.COMPLETE)] * 2

    @pytest.mark.parametrize(
        ("data", "code", "word"),
        [
            (frame(TEXT, b"x", masked=False), 1002, DenialCode.MALFORMED_REQUEST),
            (frame(TEXT, b"\xff"), 1007, DenialCode.MALFORMED_REQUEST),
            (header(TEXT, (4 << 20) + 1), 1009, DenialCode.BODY_TOO_LARGE),
            (header(BINARY, (16 << 20) + 1), 1002, DenialCode.MALFORMED_REQUEST),
        ],
        ids=["no mask", "not text", "large text", "large binary"],
    )
    async def test_a_fault_of_the_client(self, data: bytes, code: int, word: DenialCode) -> None:
        async with scene() as at:
            await at.client.send(data)
            assert await at.both_told() == [(code, word.word)] * 2
            await at.ended()
            assert at.outcome == (RelayOutcome.FAILED, None)
            assert at.told == [("WEBSOCKET", word, RelayOutcome.DENIED)]

    @pytest.mark.parametrize(
        ("data", "code"), [(frame(TEXT, b"x"), 1002), (frame(TEXT, b"\xff", masked=False), 1007)],
        ids=["masked", "not text"],
    )  # fmt: skip
    async def test_a_fault_of_the_origin(self, data: bytes, code: int) -> None:
        async with scene() as at:
            await at.origin.send(data)
            assert await at.both_told() == [(code, "upstream_protocol_error")] * 2
            await at.ended()
            assert at.told == [("WEBSOCKET", DenialCode.UPSTREAM_PROTOCOL_ERROR, RelayOutcome.DENIED)]

    async def test_our_own_fault(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        async with scene() as at:
            monkeypatch.setattr(at.ours.connection, "authorization", "sesame")
            await at.client.send(frame(TEXT, b"sesame"))
            assert await at.both_told() == [(1011, "internal_error")] * 2
            await at.ended()
            assert at.outcome == (RelayOutcome.FAILED, None)
            assert "sesame" not in caplog.text

    async def test_the_close_is_read_before_the_connection_ends(self) -> None:
        """A client that keeps sending must not lose our Close to a reset."""
        async with scene("protocol: websocket, access: read-only") as at:
            await at.client.send(frame(TEXT, b"x") + frame(BINARY, b"x" * 50_000))
            assert parse(await at.client.receive_all())[-1].code == 1008


@pytest.mark.usefixtures("brief")
class TestLosses:
    async def test_the_client_vanishes(self) -> None:
        async with scene() as at:
            at.client.reset()
            await at.ended()
            assert await at.origin.receive_all() == b"", "no Close: nobody said one"
            assert at.outcome == (RelayOutcome.CLIENT_GONE, None)

    async def test_the_origin_vanishes(self) -> None:
        async with scene() as at:
            await at.origin.send(frame(TEXT, b"last", masked=False))
            await at.client.exactly(6)
            at.origin.reset()
            await at.ended()
            assert await at.client.receive_all() == b""
            assert at.outcome == (RelayOutcome.UPSTREAM_GONE, None)

    async def test_the_origin_ends_without_a_close(self) -> None:
        """What it said before arrives."""
        async with scene() as at:
            await at.origin.send(frame(TEXT, b"last", masked=False))
            at.origin.finish()
            assert parse(await at.client.receive_all()) == [Frame(TEXT, b"last")]
            await at.ended()
            assert at.outcome == (RelayOutcome.UPSTREAM_GONE, None)

    async def test_the_client_ends_in_the_middle_of_a_message(self) -> None:
        async with scene() as at:
            await at.client.send(frame(TEXT, b"half", fin=False))
            at.client.finish()
            await at.ended()
            assert await at.origin.receive_all() == b""
            assert at.outcome == (RelayOutcome.CLIENT_GONE, None)


@pytest.mark.usefixtures("brief")
class TestDeadlines:
    async def test_idle(self) -> None:
        async with scene(timeouts=Timeouts(websocket_idle=0.03)) as at:
            assert await at.both_told() == [(1001, "request_timeout")] * 2
            await at.ended()
            assert at.outcome == (RelayOutcome.CUT, "timeouts.websocket_idle")

    async def test_an_origin_that_speaks_is_not_idle(self) -> None:
        async with scene(timeouts=Timeouts(websocket_idle=0.25)) as at:
            for _ in range(7):
                await asyncio.sleep(0.05)
                await at.origin.send(frame(TEXT, b"tick", masked=False))
            assert not at.task.done()
            assert await at.both_told() == [(1001, "request_timeout")] * 2

    async def test_a_quiet_one_stays_without_the_setting(self) -> None:
        """Nothing of HTTP's idle times holds after the upgrade (O-21)."""
        async with scene(timeouts=Timeouts(keepalive=0.01, response_idle=0.01, raw_idle=0.01)) as at:
            await asyncio.sleep(0.04)
            await at.client.send(frame(TEXT, b"still"))
            assert await receive(at.origin, 11) == [Frame(TEXT, b"still", masked=True)]

    async def test_assembly_idle(self) -> None:
        async with scene(assemblies=Assemblies(idle=0.02)) as at:
            await at.client.send(frame(TEXT, b"half", fin=False))
            assert await at.both_told() == [(1002, "request_timeout")] * 2
            await at.ended()
            assert at.outcome == (RelayOutcome.CUT, "websocket assembly")

    async def test_assembly_total(self) -> None:
        """Bytes that drip in win no time."""
        async with scene(assemblies=Assemblies(idle=0.5, total=0.04)) as at:
            await at.client.send(frame(TEXT, b"a", fin=False))
            dripping = asyncio.create_task(drip(at.client))
            assert await at.both_told() == [(1002, "request_timeout")] * 2
            dripping.cancel()
            await at.ended()
            assert at.outcome == (RelayOutcome.CUT, "websocket assembly")

    async def test_each_message_has_a_total_of_its_own(self) -> None:
        async with scene(assemblies=Assemblies(idle=0.5, total=0.25)) as at:
            for _ in range(3):
                await at.client.send(frame(TEXT, b"a", fin=False))
                await asyncio.sleep(0.1)
                await at.client.send(frame(CONTINUATION, b"b"))
                assert await receive(at.origin, 8) == [Frame(TEXT, b"ab", masked=True)]

    async def test_a_binary_message_may_take_its_time(self) -> None:
        """It is passed on as it comes, so that it holds no memory."""
        async with scene(assemblies=Assemblies(idle=0.01, total=0.01)) as at:
            await at.client.send(frame(BINARY, b"a", fin=False))
            await asyncio.sleep(0.03)
            await at.client.send(frame(CONTINUATION, b"b"))
            assert await receive(at.origin, 8) == [Frame(BINARY, b"ab", masked=True)]

    async def test_a_receiver_that_takes_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(websocket, "FORWARD", (0.03, "websocket forward"))
        async with scene() as at:
            pushing = asyncio.create_task(push(at.origin, masked=False))
            await at.ended()
            pushing.cancel()
            assert at.outcome == (RelayOutcome.CUT, "websocket forward")


async def drip(peer: Peer) -> None:
    while True:
        await peer.send(frame(CONTINUATION, b"a", fin=False))
        await asyncio.sleep(0.005)


async def push(peer: Peer, *, masked: bool) -> None:
    message = frame(BINARY, b"x" * 65536, masked=masked)
    with contextlib.suppress(OSError):
        while True:
            await peer.send(message)


@pytest.mark.usefixtures("brief")
class TestCapacity:
    async def test_too_many_unfinished_messages(self) -> None:
        async with scene(assemblies=Assemblies(running=0, waiting=0)) as at:
            await at.client.send(frame(TEXT, b"half", fin=False))
            assert await at.both_told() == [(1013, "overloaded")] * 2
            await at.ended()
            assert at.told == [("WEBSOCKET_TEXT", DenialCode.OVERLOADED, RelayOutcome.DENIED)]

    async def test_no_slot_in_time(self) -> None:
        async with scene(assemblies=Assemblies(running=0, waiting=1, total=0.02)) as at:
            await at.client.send(frame(TEXT, b"half", fin=False))
            assert await at.both_told() == [(1013, "overloaded")] * 2

    async def test_whole_messages_need_no_slot(self) -> None:
        async with scene(assemblies=Assemblies(running=0, waiting=0)) as at:
            await at.client.send(frame(TEXT, b"a", fin=False) + frame(CONTINUATION, b"b"))
            assert await receive(at.origin, 8) == [Frame(TEXT, b"ab", masked=True)]

    @pytest.mark.parametrize("end", ["message", "reset", "close"])
    async def test_a_slot_is_given_back(self, end: str) -> None:
        assemblies = Assemblies(running=1, waiting=0)
        async with scene(assemblies=assemblies) as at:
            await at.client.send(frame(TEXT, b"half", fin=False))
            async with asyncio.timeout(1):
                while not assemblies._slots.locked():
                    await asyncio.sleep(0)
            if end == "message":
                await at.client.send(frame(CONTINUATION))
                await at.origin.exactly(10)
            elif end == "reset":
                at.client.reset()
                await at.ended()
            else:
                await at.client.send(closing(1000))
                await at.origin.send(closing(1000, masked=False))
                await at.ended()
            await asyncio.sleep(0)
            assert await assemblies.enter(0.1)


@pytest.mark.usefixtures("brief")
class TestChanges:
    async def test_a_policy_that_allows_less(self) -> None:
        async with scene() as at:
            await asyncio.sleep(0)
            at.ours.install(entries(f"api: {{endpoints: [{{host: {HOST}, port: 443}}], binaries: [{{path: '/**'}}]}}"))
            assert await at.both_told() == [(1012, "policy_denied")] * 2
            await at.ended()
            assert at.outcome == (RelayOutcome.CUT, "policy_changed")

    async def test_a_policy_with_equal_terms(self) -> None:
        async with scene() as at:
            await asyncio.sleep(0)
            same = f"api: {{endpoints: [{{host: {HOST}, port: 443, {FULL}}}], binaries: [{{path: '/**'}}]}}"
            at.ours.install(entries(f"{same}\nzoo: {{endpoints: [{{host: b.test, port: 1}}]}}"))
            await asyncio.sleep(0.01)
            await at.client.send(frame(TEXT, b"still"))
            assert await receive(at.origin, 11) == [Frame(TEXT, b"still", masked=True)]

    async def test_a_change_before_the_relay_begins(self) -> None:
        async with scene(before=lambda _, ours: ours.install(None)) as at:
            assert await at.both_told() == [(1012, "policy_denied")] * 2
            await at.ended()
            assert at.outcome == (RelayOutcome.CUT, "policy_changed")

    async def test_a_message_within_the_grace_is_judged_by_the_new_policy(self) -> None:
        async with scene(timeouts=Timeouts(grace=5)) as at:
            await asyncio.sleep(0)
            at.ours.install(None)
            await at.client.send(frame(TEXT, b"x"))
            assert await at.both_told() == [(1012, "policy_denied")] * 2
            await at.ended()
            assert at.outcome == (RelayOutcome.CUT, "policy_changed")
            assert at.told == [("WEBSOCKET_TEXT", DenialCode.POLICY_DENIED, RelayOutcome.DENIED)]

    async def test_the_proxy_stops(self) -> None:
        async with scene() as at:
            await at.client.send(frame(PING))
            await at.origin.exactly(6)
            at.tunnel.drain.begin()
            assert await at.both_told() == [(1001, "")] * 2
            await at.ended()
            assert at.outcome == (RelayOutcome.CUT, "drain")

    async def test_the_proxy_stopped_before(self) -> None:
        async with scene(before=lambda tunnel, _: tunnel.drain.begin()) as at:
            assert await at.both_told() == [(1001, "")] * 2

    async def test_peers_that_answer_are_not_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(websocket, "LINGER_SECONDS", 30)
        async with scene() as at:
            await at.client.send(frame(PING))
            await at.origin.exactly(6)
            at.tunnel.drain.begin()
            await at.client.send(closing(1001))
            await at.origin.send(closing(1001, masked=False))
            await at.ended()


@pytest.mark.parametrize("slow", ["client", "origin"])
async def test_a_slow_receiver_holds_its_sender(slow: str) -> None:
    """What is queued stays bounded, and so does what is read ahead."""
    async with scene() as at:
        sender = at.origin if slow == "client" else at.client
        pushing = asyncio.create_task(push(sender, masked=slow == "origin"))
        counted, seen, still = at.tunnel.client, 0, 0
        async with asyncio.timeout(4):
            while seen < 1 << 20 or still < 5:
                await asyncio.sleep(0.01)
                moved = counted.sent + counted.received
                still, seen = (still + 1 if moved == seen else 0), moved
        pushing.cancel()
        transport = (counted if slow == "client" else at.link)._transport
        assert transport is not None
        assert transport.get_write_buffer_size() < 1 << 20
        assert len(counted.buffer) < 1 << 20
