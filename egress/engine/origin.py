"""The way to one pinned origin: warm connections first, then a dial, TLS included. No other way out exists."""

import asyncio
import ssl
from dataclasses import replace

from egress.engine.stream import DeadlineExceeded, Stream
from egress.model.address import Scheme
from egress.model.destination import PinnedDestination
from egress.model.errors import PeerError, Side
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage
from egress.pipeline.connection import OpenedConnection
from egress.tls.profile import FAILURE_TEXT, TlsProfile, failure_reason
from egress.upstream.dial import Dialer
from egress.upstream.pool import Pool, PoolKey, Slot

H1_ALPN = ("http/1.1",)


class Upstream:
    """Dialer, pool and TLS trust of one process."""

    def __init__(
        self, dialer: Dialer[Stream], pool: Pool[Stream], profile: TlsProfile, handshake_seconds: float | None
    ) -> None:
        self.dialer = dialer
        self.pool = pool
        self.profile = profile
        self.handshake_seconds = handshake_seconds

    def link(self, connection: OpenedConnection) -> "OriginLink":
        return OriginLink(self, connection)


def make_upstream_stream(loop: asyncio.AbstractEventLoop) -> Stream:
    return Stream(loop, Side.UPSTREAM)


class OriginLink:
    """Connections to the pinned destination of one opened connection.

    A CONNECT dials before it is answered; that connection is parked here until the first bytes show its scheme.
    """

    __slots__ = ("_connection", "_parked", "_prepared", "_slot", "_upstream", "pinned")

    def __init__(self, upstream: Upstream, connection: OpenedConnection) -> None:
        self._upstream = upstream
        self._connection = connection
        self._slot: Slot[Stream] | None = None
        self._parked: Stream | None = None
        self._prepared: tuple[tuple[str, ...], Stream] | None = None
        self.pinned: PinnedDestination = connection.pinned

    async def ready(self) -> Denial | None:
        """Make sure that the origin can be reached: a warm connection of either scheme stands for a dial."""
        for scheme in (Scheme.HTTPS, Scheme.HTTP):
            if self._slot_for(scheme).idle:
                return None
        stream = await self._upstream.dialer.dial(self.pinned)
        if isinstance(stream, Denial):
            return stream
        self._parked = stream
        return None

    def settle(self, scheme: Scheme) -> None:
        """The scheme is known now; from here on connections are shared with equal tunnels."""
        self.pinned = replace(self.pinned, origin=replace(self.pinned.origin, scheme=scheme))
        self._slot = self._slot_for(scheme)

    def warm(self) -> Stream | None:
        """An idle connection that carries HTTP/1.1. It may be dying: the origin's FIN can be on its way."""
        return self._slot.take() if self._slot is not None else None

    async def prepare(self, alpn: tuple[str, ...]) -> None:
        """Verify the origin ahead of the first request. A connection for HTTP/1.1 waits in the pool, where an idle
        tunnel does not hold it; any other waits here. A failure is forgotten: the first request meets it again."""
        if alpn == H1_ALPN and self._slot is not None and self._slot.idle:
            return
        stream = await self.fresh(alpn)
        if isinstance(stream, Denial):
            return
        if alpn == H1_ALPN:
            self.release(stream)
        else:
            self._prepared = (alpn, stream)

    async def fresh(self, alpn: tuple[str, ...]) -> Stream | Denial:
        """A connection that no exchange has used; TLS is up and verified when the scheme asks for it."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared[0] == alpn and not prepared[1].lost:
            return prepared[1]
        stream = await self.raw()
        if isinstance(stream, Denial) or self.pinned.origin.scheme is not Scheme.HTTPS:
            return stream
        return await self._start_tls(stream, alpn)

    async def raw(self) -> Stream | Denial:
        """A TCP connection, TLS left to whoever speaks through it."""
        if self._parked is not None and not self._parked.lost:
            stream, self._parked = self._parked, None
            return stream
        self._parked = None
        return await self._upstream.dialer.dial(self.pinned)

    def release(self, stream: Stream) -> None:
        """Give back a connection whose exchange ended cleanly on both sides."""
        if self._slot is None:
            stream.close()
            return
        tls = stream.tls
        if tls is not None and self._slot.session is None and tls.session is not None and tls.session.has_ticket:
            self._slot.session = tls.session
        self._slot.give(stream)

    def close(self) -> None:
        """Drop what was dialled and never used."""
        for stream in (self._parked, self._prepared[1] if self._prepared is not None else None):
            if stream is not None:
                stream.abort()
        self._parked = self._prepared = None

    async def _start_tls(self, stream: Stream, alpn: tuple[str, ...]) -> Stream | Denial:
        session = self._slot.session if self._slot is not None and alpn == H1_ALPN else None
        try:
            await stream.start_tls(
                self._upstream.profile.upstream_context(alpn),
                server_side=False,
                server_hostname=self.pinned.origin.host.name,
                session=session,
                seconds=self._upstream.handshake_seconds,
            )
        except ssl.SSLError as error:
            stream.abort()
            self._forget_session()
            reason = failure_reason(error)
            return Denial(Stage.TLS, DenialCode.UPSTREAM_TLS_FAILED, FAILURE_TEXT[reason], reason)
        except DeadlineExceeded:
            stream.abort()
            return Denial(
                Stage.TLS, DenialCode.UPSTREAM_TIMEOUT, "the TLS handshake with the origin timed out",
                ReasonCode.HANDSHAKE_FAILED,
            )  # fmt: skip
        except PeerError:
            stream.abort()
            self._forget_session()
            reason = ReasonCode.HANDSHAKE_FAILED
            return Denial(Stage.TLS, DenialCode.UPSTREAM_TLS_FAILED, FAILURE_TEXT[reason], reason)
        except asyncio.CancelledError:
            stream.abort()
            raise
        return stream

    def _forget_session(self) -> None:
        if self._slot is not None:
            self._slot.session = None

    def _slot_for(self, scheme: Scheme) -> Slot[Stream]:
        authorization = self._connection.authorization
        key = PoolKey(
            authorization.intent.agent, authorization.entry, authorization.endpoints,
            replace(self.pinned.origin, scheme=scheme), self.pinned.addresses, self._upstream.profile,
        )  # fmt: skip
        return self._upstream.pool.slot(key)
