"""Relays a parsed WebSocket in either lane: the client's messages are judged, both directions are bounded."""

import asyncio
from collections.abc import Callable, Coroutine

from egress.engine.stream import DeadlineExceeded, Stream
from egress.engine.tunnel import Tunnel
from egress.model.errors import PeerError
from egress.model.outcome import RelayOutcome
from egress.pipeline.exchange import Exchange
from egress.pipeline.session import CAPACITY, POLICY_CHANGE, Refusal, Session, overloaded
from egress.websocket.codec import Close, Codec, Event, Piece, Ping, Pong, Side, Text, Violation

ASSEMBLY_IDLE_SECONDS = 30.0
ASSEMBLY_TOTAL_SECONDS = 120.0
FORWARD_SECONDS = 120.0
LINGER_SECONDS = 1.0


class _Ended(Exception):
    """The relay is over; both sides have been told."""


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
        self._idle = (tunnel.timeouts.websocket_idle, "timeouts.websocket_idle")
        self._holding = False
        self._closing: tuple[int, str] | None = None
        self._client_closed = False
        self.outcome = RelayOutcome.COMPLETE
        self.limit: str | None = None

    async def run(self) -> None:
        unwatch = self._tunnel.watch(self._superseded)
        try:
            if self._session.stale() is not None:
                self._close(POLICY_CHANGE, "policy_denied")
                return
            async with asyncio.TaskGroup() as group:
                up = group.create_task(self._guard(self._from_client))
                down = group.create_task(self._guard(self._from_origin))
                await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait((up, down), timeout=LINGER_SECONDS)
                up.cancel()
                down.cancel()
        finally:
            unwatch()
            self._client.close()
            self._origin.close()

    def _superseded(self, limit: str) -> None:
        """A newer generation no longer allows this WebSocket."""
        if self._closing is None:
            self._close(POLICY_CHANGE, "policy_denied")
            self.outcome, self.limit = RelayOutcome.CUT, limit
            ended = PeerError(self._client.side, "policy changed")
            self._client.interrupt(ended)
            self._origin.interrupt(ended)

    async def _guard(self, direction: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            await direction()
        except _Ended:
            return
        except DeadlineExceeded as error:
            self.outcome, self.limit = RelayOutcome.CUT, error.limit
            self._close(1001 if error.limit == self._idle[1] else 1002, "request_timeout")
        except PeerError as error:
            if self._closing is None:
                gone = error.side is self._client.side
                self.outcome = RelayOutcome.CLIENT_GONE if gone else RelayOutcome.UPSTREAM_GONE
                self._client.abort()
                self._origin.abort()

    def _close(self, code: int, reason: str) -> None:
        """Say the same close to both sides; only the first one counts."""
        if self._closing is None:
            self._closing = (code, reason)
            self._client.write(self._down.close(code, reason))
            self._origin.write(self._up.close(code, reason))

    # client to origin --------------------------------------------------------------------------------------------

    async def _from_client(self) -> None:
        started = 0.0
        loop = asyncio.get_running_loop()
        try:
            while True:
                for event in self._up.feed(self._client.take()):
                    self._client_event(event)
                if self._origin.congested:
                    await self._origin.drain(FORWARD_SECONDS, "websocket forward")
                if not self._up.assembling:
                    self._release()
                    await self._more(self._client, *self._idle)
                    started = 0.0
                    continue
                started = started or loop.time()
                await self._hold()
                left = started + ASSEMBLY_TOTAL_SECONDS - loop.time()
                await self._more(self._client, max(0.0, min(ASSEMBLY_IDLE_SECONDS, left)), "websocket assembly")
        finally:
            self._release()

    async def _more(self, stream: Stream, seconds: float | None, limit: str) -> None:
        if not stream.buffer and not await stream.more(seconds, limit):
            raise PeerError(stream.side, "the connection ended without a close frame")

    async def _hold(self) -> None:
        if self._holding:
            return
        if not await self._tunnel.assemblies.enter():
            self._refuse(Refusal(overloaded(), CAPACITY, "WEBSOCKET_TEXT"))
        self._holding = True

    def _release(self) -> None:
        if self._holding:
            self._holding = False
            self._tunnel.assemblies.leave()

    def _client_event(self, event: Event) -> None:
        origin, codec = self._origin, self._up
        match event:
            case Text(data):
                self._refuse(self._session.text(data))
                origin.write(codec.data(data))
            case Piece(data, first, last):
                if first:
                    self._refuse(self._session.binary())
                origin.write(codec.data(data, last=last))
            case Ping(payload):
                origin.write(codec.ping(payload))
            case Pong(payload):
                origin.write(codec.pong(payload))
            case Close(code, reason):
                origin.write(codec.close(code, reason))
                self._client_closed = True
                raise _Ended
            case Violation(code, _):
                self._violated(code)

    # origin to client --------------------------------------------------------------------------------------------

    async def _from_origin(self) -> None:
        client, codec = self._client, self._down
        while True:
            for event in codec.feed(self._origin.take()):
                match event:
                    case Piece(data, _, last):
                        client.write(codec.data(data, last=last))
                    case Ping(payload):
                        client.write(codec.ping(payload))
                    case Pong(payload):
                        client.write(codec.pong(payload))
                    case Close(code, reason):
                        client.write(codec.close(code, reason))
                        raise _Ended
                    case Violation(code, _):
                        self._violated(code)
                    case Text():
                        raise AssertionError("an origin's text comes in pieces")
            if client.congested:
                await client.drain(FORWARD_SECONDS, "websocket forward")
            await self._more(self._origin, None, "")

    def _refuse(self, refusal: Refusal | None) -> None:
        """End the WebSocket on a refusal; the close reason is the error word alone."""
        if refusal is None:
            return
        self._exchange.message_denied(refusal.method, refusal.denial)
        self.outcome = RelayOutcome.DENIED
        self._close(refusal.code, refusal.denial.code.word)
        raise _Ended

    def _violated(self, code: int) -> None:
        self.outcome = RelayOutcome.FAILED
        self._close(code, "malformed_request")
        raise _Ended


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
