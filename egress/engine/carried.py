"""Streams towards origins, one of which can travel inside another: TLS inside the TLS of a corporate proxy."""

import asyncio
from collections.abc import Callable
from typing import Any

from egress.engine.stream import End, Stream
from egress.model.errors import Side


class OriginStream(Stream):
    """A connection towards an origin. `route` is the way it took, `absolute` the field lines for a proxy that takes
    requests in absolute-form, made anew for each request; None: the origin itself is at the other end. `dial_seconds`
    and `dial_attempts` say what it took to open it."""

    __slots__ = ("_carrier", "absolute", "dial_attempts", "dial_seconds", "route")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop, Side.UPSTREAM)
        self.route: object = None
        self.dial_seconds = 0.0
        self.dial_attempts = 1
        self.absolute: Callable[[], bytes] | None = None
        self._carrier: Carrier | None = None

    def over(self) -> "OriginStream":
        """A stream in clear whose bytes travel inside this one. From then on only that one may be used."""
        rider = OriginStream(self._loop)
        self._carrier = Carrier(self, rider)
        rider.connection_made(self._carrier)
        return rider

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._carrier is not None:
            self._carrier.rider.pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._carrier is not None:
            self._carrier.rider.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._carrier is not None:
            self._carrier.lost(exc)

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport


def proxy_lines(stream: Stream) -> bytes | None:
    """Field lines for the next request in absolute-form; None where requests go out in origin-form."""
    absolute = stream.absolute if isinstance(stream, OriginStream) else None
    return absolute() if absolute is not None else None


class Carrier(asyncio.Transport):
    """The transport of a rider: what it writes goes into the carrying stream, what that one reads comes back."""

    def __init__(self, stream: OriginStream, rider: Stream) -> None:
        super().__init__()
        self.rider = rider
        self._stream = stream
        self._paused = False
        self._ended = False
        self._loop = asyncio.get_running_loop()
        stream.on_data = stream.on_gone = self._deliver
        # Not from within `over()`: its caller has not got the rider yet.
        self.resume_reading()

    def _deliver(self) -> None:
        """Pass on what has arrived, then how it ended, in this order however late the rider reads."""
        stream = self._stream
        if stream.buffer and not self._paused:
            self.rider.data_received(stream.take())
        if stream.buffer or stream.end is End.OPEN or self._ended:
            return
        if stream.end is End.CLEAN:
            self._ended = True
            self.rider.eof_received()
        elif stream.end is End.RAGGED:
            # Cut off without a farewell: in clear this must not look like a clean end.
            self.lost(ConnectionResetError())
            stream.abort()

    def lost(self, error: Exception | None) -> None:
        """The carrying stream is gone; told once."""
        stream = self._stream
        if stream.on_data is None:
            return
        stream.on_data = stream.on_gone = None
        self._ended = True
        if stream.buffer:
            self.rider.data_received(stream.take())
        self.rider.connection_lost(error)

    # asyncio.Transport: called by the rider --------------------------------------------------------------------

    def write(self, data: Any) -> None:
        self._stream.write(data)

    def write_eof(self) -> None:
        self._stream.write_eof()

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self._stream.lost

    def close(self) -> None:
        self._stream.close()

    def abort(self) -> None:
        self._stream.abort()

    def pause_reading(self) -> None:
        """What comes stays with the carrying stream, which stops reading when that is too much."""
        self._paused = True

    def resume_reading(self) -> None:
        """Deliver in a turn of its own, as transports do: whoever resumes is about to wait for what comes."""
        self._paused = False
        if self._stream.buffer or self._stream.end is not End.OPEN:
            self._loop.call_soon(self._deliver)

    def get_write_buffer_size(self) -> int:
        return self._stream.transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The carrying stream has them."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._stream.transport.get_extra_info(name, default)
