"""One byte stream, in clear or under TLS that is terminated here over `ssl.MemoryBIO`.

It can be looked at before it is consumed, bounded in what it buffers and how long it waits, and says how it ended.
It knows nothing of what the bytes mean.
"""

import asyncio
import contextlib
import ipaddress
import os
import socket
import ssl
import struct
from collections.abc import Callable
from enum import Enum
from typing import cast

from egress.model.address import IpAddress, Port
from egress.model.errors import EgressError, PeerError, Side
from egress.model.intent import SocketPair
from egress.model.limits import LIMITS

_READ_SIZE = 256 * 1024
_LINGER_ZERO = struct.pack("ii", 1, 0)
_scratch = bytearray(_READ_SIZE)
_view = memoryview(_scratch)
# One scratch buffer for the process is safe: decryption runs to completion on the event loop before anyone reads.


class DeadlineExceeded(EgressError):
    """A wait took longer than the setting `limit` allows."""

    def __init__(self, limit: str) -> None:
        super().__init__(limit)
        self.limit = limit


class End(Enum):
    """How the reading side ended. `RAGGED` is TLS cut off without its close_notify."""

    OPEN = "open"
    CLEAN = "clean"
    RAGGED = "ragged"
    RESET = "reset"


class Stream(asyncio.Protocol):
    """A connection to one peer; `side` says whose fault its errors are.

    Reading is pull: `await more()` until `buffer` holds enough, then `take()`. Reading from the socket pauses while
    `buffer` is full. Writing is push: `write()`, and `await drain()` when `congested`.
    """

    __slots__ = (
        "_deadline",
        "_drain_waiter",
        "_incoming",
        "_limit_name",
        "_loop",
        "_lost",
        "_outgoing",
        "_paused",
        "_read_limit",
        "_timer",
        "_timer_at",
        "_tls",
        "_transport",
        "_waiter",
        "_wrote_eof",
        "buffer",
        "congested",
        "end",
        "error",
        "handshaking",
        "on_data",
        "on_gone",
        "received",
        "sent",
        "side",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, side: Side) -> None:
        self._loop = loop
        self.side = side
        self.buffer = b""
        self.end = End.OPEN
        self.error: Exception | None = None
        self.congested = False
        self.handshaking = False
        self.received = 0
        self.sent = 0
        self.on_gone: Callable[[], None] | None = None
        self.on_data: Callable[[], None] | None = None
        self._transport: asyncio.Transport | None = None
        self._tls: ssl.SSLObject | None = None
        self._incoming: ssl.MemoryBIO | None = None
        self._outgoing: ssl.MemoryBIO | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._drain_waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._deadline: float | None = None
        self._limit_name = ""
        self._paused = False
        self._lost = False
        self._wrote_eof = False
        self._read_limit = LIMITS.stream_buffer

    # asyncio.Protocol: called by the event loop ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=LIMITS.stream_buffer, low=LIMITS.stream_buffer // 4)

    def data_received(self, data: bytes) -> None:
        if self._tls is None:
            self._append(data)
        else:
            assert self._incoming is not None
            self._incoming.write(data)
            self._advance_tls()

    def eof_received(self) -> bool:
        if self._incoming is not None:
            self._incoming.write_eof()
            if self.end is End.OPEN:
                self._finish(End.RAGGED)
        else:
            self._finish(End.CLEAN)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and self.end is End.OPEN and self.error is None:
            self._salvage()
        if exc is not None and self.error is None:
            self.error = PeerError(self.side, "connection reset")
        self.congested = False
        if self._drain_waiter is not None and not self._drain_waiter.done():
            self._drain_waiter.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._lost = True
        self._finish(End.RESET)

    def pause_writing(self) -> None:
        self.congested = True

    def resume_writing(self) -> None:
        self.congested = False
        if self._drain_waiter is not None and not self._drain_waiter.done():
            self._drain_waiter.set_result(None)

    def _salvage(self) -> None:
        """Read what the peer sent before it reset the connection: an origin that refuses an upload answers and
        closes, and the loop hears of the failed write first (RFC 9112 section 9.6)."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        descriptor = sock.fileno() if sock is not None else -1
        if descriptor < 0:
            return
        with contextlib.suppress(OSError):
            while len(self.buffer) < self._read_limit and (data := os.read(descriptor, _READ_SIZE)):
                self.data_received(data)

    # reading ---------------------------------------------------------------------------------------------------

    async def more(self, seconds: float | None, limit: str) -> bool:
        """Wait for bytes beyond those in `buffer`; False when the peer sends no more.

        Raises `DeadlineExceeded(limit)` after `seconds` of silence (None waits for ever), `PeerError` on a reset.
        """
        if self.error is not None:
            raise self.error
        if self.end is not End.OPEN:
            return False
        self._resume_reading()
        await self._wait(seconds, limit)
        return self.end is End.OPEN or bool(self.buffer)

    def take(self, size: int | None = None) -> bytes:
        """Consume `size` bytes of `buffer`, or all of it."""
        if size is None or size >= len(self.buffer):
            taken, self.buffer = self.buffer, b""
        else:
            taken, self.buffer = self.buffer[:size], self.buffer[size:]
        if self._paused and len(self.buffer) < self._read_limit:
            self._resume_reading()
        return taken

    def read_ahead(self, limit: int) -> None:
        """Stop reading from the socket once `buffer` holds `limit` bytes."""
        self._read_limit = limit
        if self._paused and len(self.buffer) < limit:
            self._resume_reading()

    def put_back(self, data: bytes) -> None:
        """Return bytes that were taken; they are read again first."""
        self.buffer = data + self.buffer

    def interrupt(self, error: Exception) -> None:
        """Fail the waits in progress, for bytes and for room, and every later one."""
        self._fail(error)
        if self._drain_waiter is not None and not self._drain_waiter.done():
            self._drain_waiter.set_result(None)

    # writing ---------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Queue bytes; dropped once the connection is lost, which the next read reports."""
        transport = self._transport
        if transport is None or self._lost or transport.is_closing():
            return
        self.sent += len(data)
        if self._tls is None:
            transport.write(data)
            return
        assert self._outgoing is not None
        try:
            self._tls.write(data)
        except ssl.SSLError:
            self._fail(PeerError(self.side, "TLS write failed"))
            return
        transport.write(self._outgoing.read())

    async def drain(self, seconds: float | None, limit: str) -> None:
        """Wait until the peer has taken enough of what was written. Raises as `more` does."""
        if not self.congested:
            return
        if self.error is not None:
            raise self.error
        self._drain_waiter = waiter = self._loop.create_future()
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            raise DeadlineExceeded(limit) from None
        finally:
            self._drain_waiter = None
        if self.error is not None:
            raise self.error

    def write_eof(self) -> None:
        """End our direction: close_notify under TLS, FIN in clear."""
        if self._wrote_eof or self._transport is None or self._transport.is_closing():
            return
        self._wrote_eof = True
        if self._tls is None:
            self._transport.write_eof()
        else:
            self._send_close_notify()

    def close(self) -> None:
        """Flush what was written, then close."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._tls is not None and not self._wrote_eof:
            self._send_close_notify()
        self._flush_and_close(self._transport)

    def cut(self) -> None:
        """Flush, then end in a way that no peer takes for a clean end of TLS."""
        if self._transport is not None and not self._transport.is_closing():
            self._flush_and_close(self._transport)

    def abort(self) -> None:
        """Close at once, dropping what was not sent."""
        if self._transport is not None:
            self._transport.abort()

    def reset(self) -> None:
        """Abort so that a peer in clear cannot take it for a clean end: RST instead of FIN."""
        if self._transport is not None and not self._lost:
            sock = self._transport.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
            self._transport.abort()

    @property
    def lost(self) -> bool:
        """True when nothing more can be written."""
        return self._lost or self._transport is None or self._transport.is_closing()

    @property
    def reusable(self) -> bool:
        """True when nothing has happened to the connection that the next exchange on it would meet."""
        return not self.buffer and self.error is None and self.end is End.OPEN and not self.lost

    @property
    def peer_address(self) -> IpAddress | None:
        """Who is at the other end of the connection itself."""
        name = self._transport.get_extra_info("peername") if self._transport is not None else None
        return _ip(name[0]) if name else None

    def socket_pair(self) -> SocketPair:
        """The TCP 4-tuple, remote end first. Raises `OSError` when the peer is gone already."""
        names = None
        if self._transport is not None:
            names = self._transport.get_extra_info("peername"), self._transport.get_extra_info("sockname")
        if names is None or not names[0] or not names[1]:
            raise OSError("socket has no peer")
        return SocketPair(_ip(names[0][0]), Port(names[0][1]), _ip(names[1][0]), Port(names[1][1]))

    # TLS -------------------------------------------------------------------------------------------------------

    async def start_tls(
        self,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        server_hostname: str | None = None,
        session: ssl.SSLSession | None = None,
        seconds: float | None = None,
    ) -> None:
        """Run the handshake over what is buffered and what comes; afterwards `buffer` holds plaintext.

        Raises `ssl.SSLError` (verification included), `PeerError`, `DeadlineExceeded("timeouts.tls_handshake")`.
        """
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        early, self.buffer = self.buffer, b""
        self.handshaking = True
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname, session=session
        )
        if early:
            self._incoming.write(early)
        self._resume_reading()
        self._advance_tls()
        while self.handshaking:
            if self.error is not None:
                raise self.error
            if self.end is not End.OPEN:
                raise PeerError(self.side, "connection ended during the TLS handshake")
            await self._wait(seconds, "timeouts.tls_handshake")

    @property
    def tls(self) -> ssl.SSLObject | None:
        return self._tls

    @property
    def alpn(self) -> str | None:
        return self._tls.selected_alpn_protocol() if self._tls is not None else None

    def _advance_tls(self) -> None:
        """Handshake or decrypt with what has arrived."""
        if self.handshaking:
            self._advance_handshake()
            if self.handshaking:
                return
        self._decrypt()

    def _advance_handshake(self) -> None:
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush_tls()
            return
        except ssl.SSLError as error:
            self._flush_tls()
            self._fail(error)
            return
        except (ValueError, OSError):
            self._fail(PeerError(self.side, "TLS handshake failed"))
            return
        self.handshaking = False
        self._flush_tls()
        self._wake()

    def _decrypt(self) -> None:
        tls, incoming = self._tls, self._incoming
        assert tls is not None
        assert incoming is not None
        filled = 0
        ended = False
        try:
            while incoming.pending or tls.pending():
                count = tls.read(_READ_SIZE - filled, _view[filled:] if filled else _scratch)
                if not count:
                    ended = True
                    break
                filled += count  # type: ignore[operator]
                if filled == _READ_SIZE:
                    self._append(bytes(_scratch))
                    filled = 0
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self.error = self.error or PeerError(self.side, "TLS record could not be read")
            ended = True
        if filled:
            self._append(bytes(_view[:filled]))
        if self._outgoing is not None and self._outgoing.pending:
            self._flush_tls()
        if ended:
            self._finish(End.CLEAN)

    def _flush_tls(self) -> None:
        assert self._outgoing is not None
        if self._outgoing.pending and self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())

    def _send_close_notify(self) -> None:
        assert self._tls is not None
        self._wrote_eof = True
        with contextlib.suppress(ssl.SSLError, ValueError):
            self._tls.unwrap()
        self._flush_tls()

    # waiting ---------------------------------------------------------------------------------------------------

    def _flush_and_close(self, transport: asyncio.Transport) -> None:
        """Close once everything is sent. A peer that does not read would otherwise hold the descriptor for ever."""
        if transport.get_write_buffer_size():
            self._loop.call_later(LIMITS.close_flush_seconds, transport.abort)
        transport.close()

    def _append(self, data: bytes) -> None:
        self.received += len(data)
        self.buffer = self.buffer + data if self.buffer else data
        if len(self.buffer) >= self._read_limit and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        if self._waiter is not None:
            self._wake()
        elif self.on_data is not None:
            self.on_data()

    def _resume_reading(self) -> None:
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def _finish(self, end: End) -> None:
        if self.end is End.OPEN:
            self.end = end
        self._wake()
        # A FIN in clear may be a half-close, after which the peer still reads; anything else means it is gone.
        if self._lost or end is not End.CLEAN or self._tls is not None:
            if self.on_gone is not None:
                callback, self.on_gone = self.on_gone, None
                callback()
        elif self.on_data is not None:
            self.on_data()

    def _fail(self, error: Exception) -> None:
        if self.error is None:
            self.error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self, seconds: float | None, limit: str) -> None:
        """Suspend until woken. The timer is kept across waits and moved only when it would fire too late."""
        self._waiter = waiter = self._loop.create_future()
        self._limit_name = limit
        self._deadline = None
        if seconds is not None:
            self._deadline = deadline = self._loop.time() + seconds
            if self._timer is None or self._timer_at > deadline:
                self._set_timer(deadline)
        try:
            await waiter
        finally:
            self._waiter = None
        if self.error is not None and not self.buffer:
            raise self.error

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._waiter is None or self._deadline is None:
            return
        if self._loop.time() + 0.001 < self._deadline:
            self._set_timer(self._deadline)
        elif not self._waiter.done():
            self._waiter.set_exception(DeadlineExceeded(self._limit_name))


def _ip(text: str) -> IpAddress:
    address = ipaddress.ip_address(text.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address
