"""Relays a parsed WebSocket in either lane: the client's messages are judged, both directions are bounded.

Ends with the Close of one side passed on to the other, with a Close of our own to both, or, when a side vanishes,
without one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from egress.engine.stream import DeadlineExceeded, Stream
from egress.engine.tunnel import POLICY_CHANGED_LIMIT, Tunnel
from egress.l7.websocket import TEXT
from egress.model.errors import PeerError
from egress.model.limits import KIB
from egress.model.outcome import RelayOutcome
from egress.model.verdict import Audited, Denial, DenialCode, Stage
from egress.pipeline.exchange import Exchange
from egress.pipeline.session import CAPACITY, GOING_AWAY, INTERNAL, POLICY_CHANGE, Refusal, Session, overloaded
from egress.websocket.codec import TOO_BIG, Close, Codec, Event, Piece, Ping, Pong, Text, Violation
from egress.websocket.rules import Side

log = logging.getLogger(__name__)

FORWARD = (120.0, "websocket forward")
ASSEMBLY = "websocket assembly"
CLOSE_SECONDS = 10.0
"""How long a side may take to answer the other side's Close."""
LINGER_SECONDS = 1.0
"""How long we read on after a Close of our own: closed with bytes unread, a connection is reset and the Close lost."""
SLICE = 16 * KIB
"""Bytes read between two turns of the event loop; compressed, they may hold a hundred times as much."""
DRAIN_LIMIT = "drain"
FRAME = "WEBSOCKET"
"""What a frame that breaks the protocol is told as; a whole message has a synthetic method of its own."""


@dataclass(frozen=True, slots=True)
class _Way:
    """One direction. `wait` returns when `source` has more."""

    source: Stream
    codec: Codec
    sink: Stream
    handle: Callable[[Event], None]
    wait: Callable[[], Awaitable[None]]


class _Ended(Exception):
    """Nothing more is read in this direction."""


class WebSocketRelay:
    """One upgraded exchange. `run` returns when both sides are closed."""

    def __init__(self, tunnel: Tunnel, exchange: Exchange, session: Session, origin: Stream) -> None:
        self._tunnel = tunnel
        self._exchange = exchange
        self._session = session
        self._client = tunnel.client
        self._origin = origin
        self._up = Codec(Side.CLIENT, session.deflate)
        self._down = Codec(Side.ORIGIN, session.deflate)
        self._over = asyncio.Event()
        self._reading = 2
        self._told = False
        self._holding = False
        self._assembly_ends = 0.0
        self._closing: asyncio.TimerHandle | None = None
        self.outcome = RelayOutcome.COMPLETE
        self.limit: str | None = None

    async def run(self) -> None:
        stops = (self._tunnel.watch(self._superseded), self._tunnel.drain.watch(self._going_away))
        try:
            if self._tunnel.drain.begun:
                self._going_away()
            elif self._session.stale() is not None:
                self._superseded(POLICY_CHANGED_LIMIT)
            else:
                await self._relay()
            if self._told:
                await self._linger()
        finally:
            for stop in stops:
                stop()
            if self._closing is not None:
                self._closing.cancel()
            self._release()
            self._client.close()
            self._origin.close()

    async def _relay(self) -> None:
        up = _Way(self._client, self._up, self._origin, self._client_event, self._client_wait)
        down = _Way(self._origin, self._down, self._client, self._origin_event, self._origin_wait)
        async with asyncio.TaskGroup() as group:
            ways = [group.create_task(self._guard(way)) for way in (up, down)]
            await self._over.wait()
            for way in ways:
                way.cancel()

    async def _carry(self, way: _Way) -> None:
        """Never more than a slice is read before the receiver has room for what came of it."""
        sink = way.sink
        while True:
            data = way.source.take()
            for start in range(0, len(data), SLICE):
                for event in way.codec.feed(data[start : start + SLICE]):
                    way.handle(event)
                if sink.congested:
                    await sink.drain(*FORWARD)
                elif start + SLICE < len(data):
                    await asyncio.sleep(0)
            await way.wait()

    async def _guard(self, way: _Way) -> None:
        try:
            await self._carry(way)
        except _Ended:
            pass
        except DeadlineExceeded as error:
            code = GOING_AWAY if error.limit == "timeouts.websocket_idle" else INTERNAL
            self._end(1002 if error.limit == ASSEMBLY else code, "request_timeout", RelayOutcome.CUT, error.limit)
        except PeerError as error:
            self._lost(error.side is self._client.side)
        except Exception as error:
            # No traceback: it could show what a message holds.
            log.error("websocket failed", extra={"error": type(error).__name__})  # noqa: TRY400
            self._end(INTERNAL, DenialCode.INTERNAL_ERROR.word, RelayOutcome.FAILED)
        finally:
            self._reading -= 1
            if not self._reading:
                self._over.set()

    # client to origin --------------------------------------------------------------------------------------------

    def _client_event(self, event: Event) -> None:
        origin, codec = self._origin, self._up
        match event:
            case Text(data):
                self._judged(self._session.text(data))
                placed = self._session.placed(data)
                if isinstance(placed, Refusal):
                    self._judged(placed)
                else:
                    origin.write(codec.data(placed))
            case Piece(data, first, last):
                if first:
                    self._judged(self._session.binary())
                origin.write(codec.data(data, last=last))
            case _:
                self._control(event, origin, codec)

    def _judged(self, answer: Refusal | Audited | None) -> None:
        """Tell what is refused or audited; a refusal ends the WebSocket, with the error word alone as its reason."""
        if answer is None:
            return
        if isinstance(answer, Audited):
            self._exchange.tell_message(TEXT, answer)
            return
        self._exchange.tell_message(answer.method, answer.denial)
        if answer.code == POLICY_CHANGE:
            self._superseded(POLICY_CHANGED_LIMIT)
        else:
            self._end(answer.code, answer.denial.code.word, RelayOutcome.DENIED)
        raise _Ended

    async def _client_wait(self) -> None:
        if not self._up.holding:
            self._release()
            await self._client_idle()
            return
        now = asyncio.get_running_loop().time
        assemblies = self._tunnel.assemblies
        if not self._holding:
            self._assembly_ends = now() + assemblies.total
            self._holding = await assemblies.enter(assemblies.total)
            if not self._holding:
                self._judged(Refusal(overloaded(), CAPACITY, TEXT))
        left = max(0.0, self._assembly_ends - now())
        await self._more(self._client, min(assemblies.idle, left), ASSEMBLY)

    def _release(self) -> None:
        if self._holding:
            self._holding = False
            self._tunnel.assemblies.leave()

    async def _client_idle(self) -> None:
        """Wait for the client's next message; silence is counted over both directions."""
        seconds, limit = self._tunnel.timeouts.websocket_idle, "timeouts.websocket_idle"
        while True:
            seen = self._origin.received
            try:
                return await self._more(self._client, seconds, limit)
            except DeadlineExceeded:
                if self._origin.received == seen:
                    raise

    # origin to client --------------------------------------------------------------------------------------------

    def _origin_event(self, event: Event) -> None:
        if isinstance(event, Piece):
            data = event.data
            if isinstance(data, str):
                data = self._session.incoming(data, last=event.last)
            self._client.write(self._down.data(data, last=event.last))
        elif isinstance(event, Close):
            self._control(Close(event.code, self._session.reason(event.reason)), self._client, self._down)
        else:
            self._control(event, self._client, self._down)

    async def _origin_wait(self) -> None:
        await self._more(self._origin, None, "")

    # both ways ---------------------------------------------------------------------------------------------------

    def _control(self, event: Event, sink: Stream, codec: Codec) -> None:
        match event:
            case Ping(payload):
                sink.write(codec.ping(payload))
            case Pong(payload):
                sink.write(codec.pong(payload))
            case Close(code, reason):
                sink.write(codec.close(code, reason))
                if self._up.ended and self._down.ended:
                    self._over.set()
                else:
                    self._closing = asyncio.get_running_loop().call_later(CLOSE_SECONDS, self._over.set)
            case Violation(code, reason):
                self._violated(codec, code, reason)
            case _:
                raise AssertionError("messages have handlers of their own")

    def _violated(self, codec: Codec, code: int, reason: str) -> None:
        if codec is self._down:
            denial = Denial(Stage.UPSTREAM, DenialCode.UPSTREAM_PROTOCOL_ERROR, reason)
        else:
            word = DenialCode.BODY_TOO_LARGE if code == TOO_BIG else DenialCode.MALFORMED_REQUEST
            denial = Denial(Stage.L7, word, reason)
        self._exchange.tell_message(FRAME, denial)
        self._end(code, denial.code.word, RelayOutcome.FAILED)
        raise _Ended

    async def _more(self, stream: Stream, seconds: float | None, limit: str) -> None:
        if stream.buffer or await stream.more(seconds, limit):
            return
        if (self._up if stream is self._client else self._down).ended:
            raise _Ended
        raise PeerError(stream.side, "the connection ended without a Close")

    # ends --------------------------------------------------------------------------------------------------------

    def _superseded(self, limit: str) -> None:
        """A newer generation no longer allows this WebSocket."""
        self._end(POLICY_CHANGE, DenialCode.POLICY_DENIED.word, RelayOutcome.CUT, limit)

    def _going_away(self) -> None:
        """The proxy stops: a WebSocket has no end to wait for."""
        self._end(GOING_AWAY, "", RelayOutcome.CUT, DRAIN_LIMIT)

    def _end(self, code: int, reason: str, outcome: RelayOutcome, limit: str | None = None) -> None:
        """Say the same Close to both sides, as far as they were not told one; only the first end counts."""
        if self._over.is_set():
            return
        self._over.set()
        self._told = True
        self.outcome, self.limit = outcome, limit
        self._client.write(self._down.close(code, reason))
        self._origin.write(self._up.close(code, reason))

    def _lost(self, client: bool) -> None:
        """A side went without a Close: the other one gets all that was sent to it, and no Close either."""
        if not self._over.is_set():
            self._over.set()
            self.outcome = RelayOutcome.CLIENT_GONE if client else RelayOutcome.UPSTREAM_GONE
            self._client.cut()
            self._origin.cut()

    async def _linger(self) -> None:
        async with asyncio.TaskGroup() as group:
            for stream, codec in ((self._client, self._up), (self._origin, self._down)):
                group.create_task(self._await_close(stream, codec))

    async def _await_close(self, stream: Stream, codec: Codec) -> None:
        """Drop what still comes, until the peer's Close."""
        try:
            async with asyncio.timeout(LINGER_SECONDS):
                while not codec.ended and (stream.buffer or await stream.more(None, "")):
                    for start in range(0, len(data := stream.take()), SLICE):
                        for _ in codec.feed(data[start : start + SLICE]):
                            pass
                        await asyncio.sleep(0)
        except (TimeoutError, PeerError):
            pass


async def run(tunnel: Tunnel, exchange: Exchange, session: Session, origin: Stream) -> None:
    """Relay until both sides are closed, and count it."""
    before = (tunnel.client.received, tunnel.client.sent)
    relay = WebSocketRelay(tunnel, exchange, session, origin)
    try:
        await relay.run()
    finally:
        tunnel.tally.sent += tunnel.client.received - before[0]
        tunnel.tally.received += tunnel.client.sent - before[1]
        tunnel.tally.outcome, tunnel.tally.limit = relay.outcome, relay.limit
