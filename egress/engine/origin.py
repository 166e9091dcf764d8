"""The way to one pinned origin: warm connections first, then a dial, TLS included. No other way out exists."""

import asyncio
import ssl
from dataclasses import replace

from egress.engine.carried import OriginStream, proxy_lines
from egress.engine.stream import DeadlineExceeded, Stream
from egress.model.address import Scheme
from egress.model.destination import PinnedDestination
from egress.model.errors import PeerError
from egress.model.message import ResponseHead
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage
from egress.pipeline.connection import OpenedConnection
from egress.tls.profile import FAILURE_TEXT, TlsProfile, failure_reason
from egress.upstream.chain import ChainDialer
from egress.upstream.plan import Hops, Route, Routes
from egress.upstream.pool import Pool, PoolKey, Slot

H1_ALPN = ("http/1.1",)


class Upstream:
    """Dialer, pool and TLS trust of one process."""

    def __init__(
        self,
        dialer: ChainDialer[OriginStream],
        pool: Pool[OriginStream],
        profile: TlsProfile,
        handshake_seconds: float | None,
    ) -> None:
        self.dialer = dialer
        self.pool = pool
        self.profile = profile
        self.handshake_seconds = handshake_seconds

    def link(self, connection: OpenedConnection) -> "OriginLink":
        link = OriginLink(self, connection)
        if link.proxies is not None:
            connection.context = replace(connection.context, proxies=link.proxies)
        return link


def proxy_refusal(stream: Stream, response: ResponseHead) -> Denial | None:
    """A 407 of a corporate proxy to a request in absolute-form is ours to read, not the client's."""
    if response.status != 407 or proxy_lines(stream) is None:
        return None
    return Denial(
        Stage.UPSTREAM, DenialCode.UPSTREAM_UNREACHABLE, "the upstream proxy rejected our credential (407)",
        ReasonCode.PROXY_AUTH_REJECTED,
    )  # fmt: skip


class OriginLink:
    """Connections to the pinned destination of one opened connection.

    A CONNECT dials before it is answered; that connection is parked here until the first bytes show its scheme.
    """

    __slots__ = (
        "_connection", "_parked", "_prepared", "_route", "_routes", "_slot", "_slot_routes", "_upstream", "pinned",
    )  # fmt: skip

    def __init__(self, upstream: Upstream, connection: OpenedConnection) -> None:
        self._upstream = upstream
        self._connection = connection
        self._slot: Slot[OriginStream] | None = None
        self._parked: OriginStream | None = None
        self._prepared: tuple[tuple[str, ...], OriginStream] | None = None
        self._slot_routes: Routes | None = None
        """The routes that `_slot` was found under, None before the scheme is known."""
        self._routes: Routes | None = None
        self._route: Route | None = None
        self.pinned: PinnedDestination = connection.pinned

    @property
    def proxies(self) -> str | None:
        """What the way is called in events."""
        way = self._way()
        return str(way) if isinstance(way, Hops) else None

    async def ready(self) -> Denial | None:
        """Make sure that the origin can be reached: a warm connection of either scheme stands for a dial."""
        for scheme in (Scheme.HTTPS, Scheme.HTTP):
            if self._slot_for(scheme).idle:
                return None
        stream = await self._dial()
        if isinstance(stream, Denial):
            return stream
        self._parked = stream
        self._tell_dial(stream)
        return None

    def _tell_dial(self, stream: OriginStream) -> None:
        """Events of this connection say how its origin was reached (UP-6)."""
        peer = stream.peer_address if self.proxies is None else None
        self._connection.context = replace(
            self._connection.context, connect_seconds=stream.dial_seconds, attempts=stream.dial_attempts, address=peer
        )

    def settle(self, scheme: Scheme) -> None:
        """The scheme is known now; from here on connections are shared with equal tunnels."""
        self.pinned = replace(self.pinned, origin=replace(self.pinned.origin, scheme=scheme))
        self._find_slot()

    def _find_slot(self) -> None:
        self._slot = self._slot_for(self.pinned.origin.scheme)
        self._slot_routes = self._routes

    def _current_slot(self) -> Slot[OriginStream] | None:
        """What waits for this tunnel on the way that is in force: a reload may have led it elsewhere."""
        if self._slot is not None and self._slot_routes is not self._upstream.dialer.routes:
            self._find_slot()
        return self._slot

    def _usable(self, stream: OriginStream) -> bool:
        """True while it lives and the way it took is in force."""
        return not stream.lost and stream.route == self._way()

    def _way(self) -> Route:
        dialer = self._upstream.dialer
        if self._route is None or self._routes is not dialer.routes:
            self._routes = dialer.routes
            self._route = dialer.route(self.pinned, self._connection.authorization.intent.ingress)
        return self._route

    async def _dial(self) -> OriginStream | Denial:
        return await self._upstream.dialer.dial(self.pinned, self._connection.authorization.intent.ingress)

    def warm(self) -> OriginStream | None:
        """An idle connection that carries HTTP/1.1. It may be dying: the origin's FIN can be on its way."""
        slot = self._current_slot()
        return slot.take() if slot is not None else None

    async def prepare(self, alpn: tuple[str, ...]) -> None:
        """Verify the origin ahead of the first request. A connection for HTTP/1.1 waits in the pool, where an idle
        tunnel does not hold it; any other waits here. A failure is forgotten: the first request meets it again."""
        slot = self._current_slot()
        if alpn == H1_ALPN and slot is not None and slot.idle:
            return
        stream = await self.fresh(alpn)
        if isinstance(stream, Denial):
            return
        if alpn == H1_ALPN:
            self.release(stream)
        else:
            self._prepared = (alpn, stream)

    async def fresh(self, alpn: tuple[str, ...]) -> OriginStream | Denial:
        """A connection that no exchange has used; TLS is up and verified when the scheme asks for it."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            if prepared[0] == alpn and self._usable(prepared[1]):
                return prepared[1]
            prepared[1].abort()
        stream = await self.raw()
        if isinstance(stream, Denial) or self.pinned.origin.scheme is not Scheme.HTTPS:
            return stream
        return await self._start_tls(stream, alpn)

    async def raw(self) -> OriginStream | Denial:
        """A TCP connection, TLS left to whoever speaks through it."""
        parked, self._parked = self._parked, None
        if parked is not None:
            if self._usable(parked):
                return parked
            parked.abort()
        return await self._dial()

    def release(self, stream: Stream) -> None:
        """Give back a connection whose exchange ended cleanly on both sides."""
        slot = self._current_slot()
        if slot is None or not isinstance(stream, OriginStream) or not self._usable(stream):
            stream.close()
            return
        if slot.session is None:
            slot.session = self._resumable(stream.tls)
        slot.give(stream)

    def _resumable(self, tls: ssl.SSLObject | None) -> ssl.SSLSession | None:
        """The session for the next connection. Sessions belong to the context they were made in: one that was offered
        HTTP/2 as well is of no use to those that are not."""
        if tls is None or tls.context is not self._upstream.profile.upstream_context(H1_ALPN):
            return None
        session = tls.session
        return session if session is not None and session.has_ticket else None

    def close(self) -> None:
        """Drop what was dialled and never used."""
        for stream in (self._parked, self._prepared[1] if self._prepared is not None else None):
            if stream is not None:
                stream.abort()
        self._parked = self._prepared = None

    async def _start_tls(self, stream: OriginStream, alpn: tuple[str, ...]) -> OriginStream | Denial:
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

    def _slot_for(self, scheme: Scheme) -> Slot[OriginStream]:
        authorization = self._connection.authorization
        key = PoolKey(
            authorization.intent.agent, authorization.entry, authorization.endpoints,
            replace(self.pinned.origin, scheme=scheme), self.pinned.addresses, self._upstream.profile,
            self._way(),
        )  # fmt: skip
        return self._upstream.pool.slot(key)
