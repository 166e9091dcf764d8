"""Raw bytes both ways between two streams, half-closes passed on, idle times bounded."""

import asyncio
from dataclasses import dataclass

from egress.engine.stream import DeadlineExceeded, End, Stream
from egress.model.errors import PeerError, Side
from egress.model.outcome import RelayOutcome


@dataclass(frozen=True, slots=True)
class PumpLimits:
    """Seconds of silence in both directions together, and in the open direction of a half-closed tunnel."""

    idle: float | None
    idle_name: str
    half_closed: float | None


class Pump:
    """Relays until both directions ended or one failed. `outcome` and `limit` say how."""

    def __init__(self, client: Stream, origin: Stream, limits: PumpLimits) -> None:
        self._client = client
        self._origin = origin
        self._limits = limits
        self.outcome = RelayOutcome.COMPLETE
        self.limit: str | None = None
        self._cut_off = False
        """TLS ended without its close_notify: what came is delivered, the end is passed on as the cut it is."""

    async def run(self) -> None:
        try:
            await self._relay()
        except BaseException:
            self._client.abort()
            self._origin.abort()
            raise
        for stream in (self._client, self._origin):
            if self.outcome is RelayOutcome.COMPLETE:
                stream.close()
            elif self.outcome is RelayOutcome.CUT:
                stream.abort()
            elif self._cut_off:
                stream.cut()
            else:
                stream.reset()

    async def _relay(self) -> None:
        async with asyncio.TaskGroup() as group:
            up = group.create_task(self._one_way(self._client, self._origin))
            down = group.create_task(self._one_way(self._origin, self._client))
            _, pending = await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
            while pending and self.outcome is RelayOutcome.COMPLETE:
                seen = self._progress()
                _, pending = await asyncio.wait(pending, timeout=self._limits.half_closed)
                if pending and self._progress() == seen:
                    self.stop("timeouts.half_closed")

    def stop(self, limit: str | None = None) -> None:
        """End both directions at once."""
        self.outcome = RelayOutcome.CUT
        self.limit = limit
        failure = PeerError(self._client.side, "relay was ended")
        self._client.interrupt(failure)
        self._origin.interrupt(failure)

    async def _one_way(self, source: Stream, sink: Stream) -> None:
        try:
            while await self._more(source):
                sink.write(source.take())
                if sink.congested:
                    await sink.drain(self._limits.idle, self._limits.idle_name)
                if sink.lost:
                    break
        except DeadlineExceeded as error:
            self.stop(error.limit)
            return
        except PeerError as error:
            self._failed(self._client if error.side is Side.DOWNSTREAM else self._origin)
            return
        if source.end is End.RAGGED:
            self._cut_off = True
            self._failed(source)
        elif source.end is End.RESET or sink.lost:
            self._failed(source if source.end is End.RESET else sink)
        else:
            sink.write_eof()

    async def _more(self, source: Stream) -> bool:
        if source.buffer:
            return True
        while True:
            seen = self._progress()
            try:
                return await source.more(self._limits.idle, self._limits.idle_name)
            except DeadlineExceeded:
                if self._progress() == seen:
                    raise

    def _progress(self) -> int:
        return self._client.received + self._origin.received

    def _failed(self, stream: Stream) -> None:
        if self.outcome is RelayOutcome.COMPLETE:
            gone = stream is self._client
            self.outcome = RelayOutcome.CLIENT_GONE if gone else RelayOutcome.UPSTREAM_GONE
        failure = PeerError(stream.side, "connection reset")
        self._client.interrupt(failure)
        self._origin.interrupt(failure)
