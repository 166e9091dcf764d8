"""Runs mitmproxy's layers for one tunnel: socket callbacks become events, commands are carried out in place.

It stands where mitmproxy's connection handler does, without a task and a lock per event. Bytes are written once per
turn, so that a head leaves with the first of its body.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from mitmproxy.proxy.commands import Log, SendData
from mitmproxy.proxy.events import ConnectionClosed, DataReceived, Start

from egress.engine.mitm.exchange import where
from egress.engine.mitm.http1_client import Http1Client
from egress.engine.mitm.http1_server import Http1Server
from egress.engine.mitm.http2_client import Http2Client
from egress.engine.mitm.http2_server import Http2Server
from egress.engine.mitm.http_layer import LaneLayer
from egress.engine.mitm.messages import (
    AcquireOrigin,
    Drained,
    DropOrigin,
    EndClient,
    Ending,
    Expired,
    Gone,
    Handover,
    Idle,
    LaneContext,
    OriginReady,
    OriginRefused,
    OriginSettled,
    ReleaseOrigin,
    Resume,
    Site,
    Stop,
    StopClient,
    Superseded,
    Wire,
)
from egress.engine.mitm.origins import NEEDS_H2, Demand, Origins
from egress.engine.stream import DeadlineExceeded, End, Stream
from egress.engine.tunnel import Tunnel
from egress.model.errors import PeerError
from egress.model.message import RequestHead
from egress.model.outcome import RelayOutcome
from egress.model.verdict import Denial

log = logging.getLogger(__name__)

_SLACK = 0.002
"""Timers of the event loop may fire this much early."""


def _ignore(_when: float) -> None:
    """No deadline matters after the end."""


class Dispatcher:
    """Use once per tunnel: `await run()`, then look at `ending`."""

    def __init__(self, tunnel: Tunnel, *, h2: bool, first: RequestHead | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._tunnel = tunnel
        self._client = Wire(tunnel.client)
        self._site = Site(tunnel, self._client, h2, self._loop.time, self._arm)
        self._context = LaneContext(self._client)
        self._layer = LaneLayer(self._context, self._site)
        self._first = first
        self._origins = Origins(Demand(h2, tunnel.link.pinned.origin.scheme))
        self._queue: deque[Any] = deque()
        self._busy = False
        self._out: dict[Wire, list[bytes]] = {}
        self._resumed: list[Wire] = []
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()
        self._done = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self.ending = EndClient(Ending.RESET)
        self.handover: Handover | None = None

    async def run(self) -> None:
        """Serve the client until its connection or its one exchange ends."""
        watches = [self._tunnel.drain.watch(self._stop), self._tunnel.watch(self._superseded)]
        try:
            async with self._group:
                self._listen(self._client, self._client_gone)
                layer = (
                    Http2Server(self._context, self._site)
                    if self._site.h2
                    else Http1Server(self._context, self._site, self._first)
                )
                self._client.layer = layer
                self._layer.connections[self._client] = layer
                self.dispatch(Start())
                if self._tunnel.drain.begun:
                    self._stop()
                self._pump(self._client)
                await self._done
                for task in self._tasks:
                    task.cancel()
        finally:
            for unwatch in watches:
                unwatch()
            self._close()

    # events and commands ---------------------------------------------------------------------------------------

    def dispatch(self, event: Any) -> None:
        """Hand an event to the layers and carry out what they ask; events that come up meanwhile wait their turn."""
        self._queue.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._queue and not self._done.done():
                event = self._queue.popleft()
                for command in event() if callable(event) else self._layer.handle_event(event):
                    self._COMMANDS[type(command)](self, command)
            self._flush()
        except Exception as error:  # a broken layer must not take the process along, nor forward another byte
            log.error("mitm lane failed", extra=where(error))  # noqa: TRY400, no content in logs
            self._end(EndClient(Ending.RESET))
        finally:
            self._busy = False
        while self._resumed:
            self._pump(self._resumed.pop())

    def _send(self, command: SendData) -> None:
        wire: Any = command.connection
        self._out.setdefault(wire, []).append(command.data)

    def _flush(self) -> None:
        while self._out:
            wire, pieces = self._out.popitem()
            wire.stream.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
            if wire.stream.congested and not wire.draining:
                wire.draining = True
                self._spawn(self._drained(wire))

    def _flush_one(self, wire: Wire) -> None:
        pieces = self._out.pop(wire, None)
        if pieces:
            wire.stream.write(b"".join(pieces))

    def _resume(self, command: Resume) -> None:
        self._resumed.append(command.wire)

    def _stop(self, _command: StopClient | None = None) -> None:
        self.dispatch(Stop(self._client))  # type: ignore[arg-type]

    def _superseded(self, limit: str) -> None:
        """Exchanges in flight had their grace; an idle HTTP/1 client hears of it with its next request."""
        for stream_id in tuple(self._layer.streams):
            self.dispatch(Superseded(stream_id, limit))
        if self._site.h2:
            self._stop()

    def _hand_over(self, command: Handover) -> None:
        self._flush()
        self._detach(command.wire)
        self.handover = command
        command.wire.stream.put_back(command.rest)
        self._end(EndClient(Ending.KEEP, rest=self._client.layer.rest))

    def _end(self, command: EndClient) -> None:
        self.ending = command
        if command.limit is not None:
            self._tunnel.tally.limit = command.limit
            self._tunnel.tally.outcome = RelayOutcome.CUT
        if not self._done.done():
            self._done.set_result(None)

    def _log(self, _command: Log) -> None:
        """mitmproxy's words may hold content."""

    # sockets ---------------------------------------------------------------------------------------------------

    def _listen(self, wire: Wire, gone: Callable[[], None] | None = None) -> None:
        wire.stream.on_data = partial(self._pump, wire)
        wire.stream.on_gone = gone or wire.stream.on_data

    def _pump(self, wire: Wire) -> None:
        """Hand on what has arrived, as far as the layer wants it; the rest stays in the stream and stops the peer."""
        stream = wire.stream
        while stream.buffer and not wire.closed and not wire.layer.paused and not self._done.done():
            self.dispatch(DataReceived(wire, stream.take()))  # type: ignore[arg-type]
            if self._busy:
                return
        if stream.end is not End.OPEN and not stream.buffer and not wire.closed and not self._done.done():
            wire.closed = True
            self.dispatch(ConnectionClosed(wire))  # type: ignore[arg-type]

    def _client_gone(self) -> None:
        self._pump(self._client)
        if not self._done.done():
            self.dispatch(Gone(self._client))  # type: ignore[arg-type]

    async def _drained(self, wire: Wire) -> None:
        """Wait for a slow receiver; one that takes nothing for too long is cut off."""
        limit = "timeouts.response_idle"
        try:
            await wire.stream.drain(self._tunnel.timeouts.response_idle, limit)
        except DeadlineExceeded:
            if wire is self._client:
                self._tunnel.tally.limit, self._tunnel.tally.outcome = limit, RelayOutcome.CUT
            wire.stream.abort()
        except PeerError:
            pass  # gone meanwhile; its end is told by itself
        wire.draining = False
        if not self._done.done():
            self.dispatch(Drained(wire))  # type: ignore[arg-type]
            self._pump(wire)

    def _spawn(self, work: Any) -> None:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # connections to the origin ---------------------------------------------------------------------------------

    def _acquire(self, command: AcquireOrigin) -> None:
        if command.prepare is not None:
            self._spawn(self._prepare(command, command.prepare))
            return
        if self._origins.h1 and not command.fresh and not command.needs_h2:
            warm = self._tunnel.link.warm()
            if warm is not None:
                self._attach(warm, command)
                return
        self._origins.waiting.append(command)
        self._settle()

    async def _prepare(self, command: AcquireOrigin, prepare: Callable[[], Awaitable[Denial | None]]) -> None:
        denial = await prepare()
        if denial is not None:
            self.dispatch(OriginRefused(command.stream_id, denial))
        else:
            self._acquire(replace(command, prepare=None))

    def _settle(self, _command: OriginSettled | None = None) -> None:
        """Give waiting streams what there is, and dial for the others."""
        origins = self._origins
        for demand in origins.refused():
            self.dispatch(OriginRefused(demand.stream_id, NEEDS_H2))
        for demand, wire in origins.placed():
            self._place(demand, wire)
        for _ in range(origins.dials_wanted()):
            origins.dialling()
            self._spawn(self._dial(origins.alpn))

    def _place(self, demand: AcquireOrigin, wire: Wire) -> None:
        self.dispatch(OriginReady(demand.stream_id, wire))

    async def _dial(self, alpn: tuple[str, ...]) -> None:
        stream = await self._tunnel.link.fresh(alpn)
        origins = self._origins
        origins.dialled(stream)
        if isinstance(stream, Denial):
            self._refuse_waiting(stream)
        elif origins.is_h2(stream):
            self._attach_h2(stream)
        else:
            for demand in origins.refused():
                self.dispatch(OriginRefused(demand.stream_id, NEEDS_H2))
            if origins.waiting:
                self._attach(stream, origins.waiting.popleft())
            else:
                self._tunnel.link.release(stream)
        self._settle()

    def _refuse_waiting(self, denial: Denial) -> None:
        """A failed dial refuses the stream it was for, or all that wait where one connection serves them all."""
        origins = self._origins
        if origins.wires and not origins.h1:
            return
        count = 1 if origins.h1 else len(origins.waiting)
        for _ in range(min(count, len(origins.waiting))):
            self.dispatch(OriginRefused(origins.waiting.popleft().stream_id, denial))

    def _attach(self, stream: Stream, demand: AcquireOrigin) -> None:
        wire = Wire(stream)
        self._listen(wire)
        self.dispatch(lambda: self._layer.attach(wire, Http1Client(self._context, wire)))
        self.dispatch(OriginReady(demand.stream_id, wire))
        if stream.buffer or stream.end is not End.OPEN:
            self._loop.call_soon(self._pump, wire)

    def _attach_h2(self, stream: Stream) -> None:
        wire = Wire(stream, multiplexed=True)
        self._listen(wire)
        self.dispatch(lambda: self._layer.attach(wire, Http2Client(self._context, wire)))
        self._origins.wires.append(wire)
        self._loop.call_soon(self._pump, wire)

    def _release(self, command: ReleaseOrigin) -> None:
        self._flush_one(command.wire)
        self._detach(command.wire)
        self._tunnel.link.release(command.wire.stream)

    def _drop(self, command: DropOrigin) -> None:
        wire = command.wire
        self._flush_one(wire)
        self._detach(wire)
        if command.abort:
            wire.stream.abort()
        else:
            wire.stream.close()

    def _detach(self, wire: Wire) -> None:
        wire.closed = True
        wire.stream.on_data = wire.stream.on_gone = None
        self._layer.connections.pop(wire, None)
        if wire in self._origins.wires:
            self._origins.wires.remove(wire)
        # A layer knows its wire; without this their buffers would wait for the garbage collector.
        wire.layer = None

    def _close(self) -> None:
        """Leave nothing behind, however the tunnel ended."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._done.done():
            self._done.cancel()
        for stream in tuple(self._layer.streams.values()):
            stream.abort(RelayOutcome.FAILED)
        self._layer.streams.clear()
        self._flush_one(self._client)
        for wire in tuple(self._layer.connections):
            if wire is not self._client:
                self._drop(DropOrigin(wire, abort=not wire.multiplexed))
        self._detach(self._client)
        self._context.layers.clear()
        self._site.arm = _ignore
        self._queue.clear()
        self._out.clear()

    # deadlines -------------------------------------------------------------------------------------------------

    def _arm(self, when: float) -> None:
        if when < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = when
            self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        """Tell what is overdue; then wait for the next deadline, most of which have moved on meanwhile."""
        self._timer, self._timer_at = None, math.inf
        if self._done.done():
            return
        now = self._loop.time() + _SLACK
        layer = self._client.layer
        for stream in tuple(self._layer.streams.values()):
            if stream.due <= now:
                self.dispatch(Expired(stream.stream_id))
        if layer.deadline is not None and layer.deadline <= now:
            self.dispatch(Idle(self._client))  # type: ignore[arg-type]
        dues = [stream.due for stream in self._layer.streams.values()]
        dues.append(math.inf if layer.deadline is None else layer.deadline)
        if (nearest := min(dues)) < math.inf:
            self._arm(nearest)

    _COMMANDS: ClassVar[Any] = {
        SendData: _send,
        AcquireOrigin: _acquire,
        ReleaseOrigin: _release,
        DropOrigin: _drop,
        OriginSettled: _settle,
        Resume: _resume,
        StopClient: _stop,
        Handover: _hand_over,
        EndClient: _end,
        Log: _log,
    }
