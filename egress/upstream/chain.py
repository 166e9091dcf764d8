"""The one way out: direct, or hop by hop through corporate proxies under one deadline, never one for the other."""

import asyncio
import ipaddress
import socket
import ssl
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, Self

from egress.model.address import Host, IpAddress
from egress.model.destination import PinnedDestination
from egress.model.errors import DependencyError, PeerError
from egress.model.intent import Ingress
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage
from egress.upstream import connect_client, socks
from egress.upstream.authorize import Authorizer
from egress.upstream.dial import NO_DESCRIPTORS, Dialer
from egress.upstream.failure import Failure, Meaning, denial_of, malformed
from egress.upstream.health import Health
from egress.upstream.plan import NO_ROUTES, Chain, Direct, Hop, HopKind, Hops, Place, Route, Routes, Target, plan
from egress.upstream.pool import Poolable

MAX_REPLANS = 3
"""Dials that may begin anew because the routes changed meanwhile."""

_ROUTES_CHANGED = Denial(
    Stage.UPSTREAM, DenialCode.UPSTREAM_UNREACHABLE, "the way out changed while it was taken", ReasonCode.NO_ROUTE
)

_OURSELVES = Failure(ReasonCode.PROXY_CONNECT_FAILED, Meaning.UNREACHED, "is this proxy itself")
_OVERLOADED = Failure(ReasonCode.DESCRIPTORS, Meaning.REJECTED, "cannot be dialled: no free descriptor")


class HopStream(Poolable, connect_client.Duplex, Protocol):
    """What a chain needs of a stream."""

    received: int
    sent: int
    route: object
    """The way it was dialled; the pool must not cross it."""
    dial_seconds: float
    dial_attempts: int
    absolute: Callable[[], bytes] | None
    """Field lines for a proxy that takes requests in absolute-form; None: it leads to the destination."""

    async def start_tls(
        self, context: ssl.SSLContext, *, server_side: bool, server_hostname: str | None = None
    ) -> None: ...

    def over(self) -> Self:
        """A stream in clear whose bytes travel inside this one, so that TLS can run inside TLS."""
        ...


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of one chain, for health, events and people. `failure` is None when it led to the destination."""

    chain: Chain
    asked: Place
    hop: Hop
    seconds: float
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Dialled:
    """One dial for metrics: `via` the names of the proxies or `direct`, `outcome` `ok` or a reason code."""

    via: str
    outcome: str
    seconds: float


@dataclass(slots=True)
class _Journey[S: HopStream]:
    """How far an attempt came: which hop it is at, and whether that was reached."""

    hop: Hop
    reached: bool = False
    stream: S | None = None

    @property
    def open(self) -> S:
        assert self.stream is not None  # the first hop was reached
        return self.stream

    def start(self, first: Hop) -> None:
        self.hop, self.reached, self.stream = first, False, None

    def abort(self) -> None:
        if self.stream is not None:
            self.stream.abort()


@dataclass(slots=True)
class _Budget:
    """What is still to be tried, each with a fair share of what is left of the time."""

    ends: float
    attempts: list[tuple[Chain, Place]]
    tried: int = 0
    last: tuple[Failure, Hop] | None = None

    def next(self, now: float) -> tuple[Chain, Place, float] | None:
        if not self.attempts or now >= self.ends:
            return None
        share = (self.ends - now) / len(self.attempts)
        self.tried += 1
        return (*self.attempts.pop(0), share)

    def failed(self, chain: Chain, failure: Failure, hop: Hop) -> None:
        """Drop what cannot help after this failure, or must not be tried."""
        self.last = (failure, hop)
        if failure.meaning is Meaning.REJECTED:
            self.attempts.clear()
        elif failure.meaning.final:
            self.attempts = [item for item in self.attempts if item[0] is chain]
        elif failure.meaning is Meaning.UNREACHED:
            self.attempts = [item for item in self.attempts if item[0] is not chain]


class ChainDialer[S: HopStream]:
    """Opens connections along the routes in force. `routes` may be replaced at any time."""

    def __init__(
        self,
        dialer: Dialer[S],
        health: Health,
        loop: asyncio.AbstractEventLoop,
        tell: Callable[[Attempt], None] = lambda _attempt: None,
        own: Callable[[], Container[tuple[IpAddress, int]]] = tuple,
        dialled: Callable[[Dialled], None] = lambda _dialled: None,
    ) -> None:
        """`tell` hears of every attempt through proxies, `dialled` of every dial. `own` are our listeners: a proxy
        whose name leads to one of them would be ourselves, and each connection would ask for the next."""
        self.routes = NO_ROUTES
        self.health = health
        self._dialer = dialer
        self._tell = tell
        self._dialled = dialled
        self._own = own
        self._loop = loop
        self._authorizer = Authorizer(loop.time)

    def install(self, routes: Routes, dialer: Dialer[S]) -> None:
        """Take new routes. Equal ones keep their identity, by which connections know that theirs still holds."""
        self._dialer = dialer
        self.health.install(routes.hops, routes.health)
        self._authorizer.keep(routes.hops)
        if routes != self.routes:
            self.routes = routes

    def route(self, pinned: PinnedDestination, ingress: Ingress) -> Route:
        return plan(self.routes, pinned, ingress)

    async def dial(self, pinned: PinnedDestination, ingress: Ingress) -> S | Denial:
        """A connection to the destination, or to a proxy that takes its requests in absolute-form."""
        for _ in range(MAX_REPLANS):
            routes = self.routes
            route = plan(routes, pinned, ingress)
            stream = await self._timed(route, pinned)
            if routes is self.routes or self.route(pinned, ingress) == route:
                return stream
            if not isinstance(stream, Denial):
                stream.abort()
        return _ROUTES_CHANGED

    async def watch(self) -> None:
        """Check the proxies that we reach ourselves, until cancelled."""
        while True:
            await asyncio.sleep(self.routes.health.interval)
            if self.routes.health.enabled and self.routes.hops:
                await self.check()

    async def verify(self) -> None:
        """Raises `DependencyError` unless every proxy that we reach ourselves is well."""
        for hop, failure in (await self.check()).items():
            if failure is not None:
                raise DependencyError(f"upstream proxy {hop.name}", failure.told_operators)

    async def check(self) -> dict[Hop, Failure | None]:
        """Look at each of them now, all at once."""
        hops = self.routes.first_hops()
        async with asyncio.TaskGroup() as group:
            checks = [group.create_task(self._check(hop)) for hop in hops]
        return {hop: check.result() for hop, check in zip(hops, checks, strict=True)}

    async def _check(self, hop: Hop) -> Failure | None:
        """Open a connection, TLS included, and ask for the probe's place where there is one."""
        probe = self.routes.health.probe
        outcome = await self._attempt((hop,), probe or hop.place, self.routes.seconds, absolute=probe is None)
        if isinstance(outcome, tuple):
            return outcome[0]
        outcome.abort()
        return None

    async def _timed(self, route: Route, pinned: PinnedDestination) -> S | Denial:
        """Follow the route, and tell how it went."""
        started = time.monotonic()  # the loop's own clock moves in milliseconds
        stream = await self._follow(route, pinned)
        seconds = time.monotonic() - started
        outcome = "ok"
        if isinstance(stream, Denial):
            outcome = stream.reason_code.value if stream.reason_code is not None else stream.code.word
        else:
            stream.dial_seconds = seconds
        self._dialled(Dialled(str(route) if isinstance(route, Hops) else "direct", outcome, seconds))
        return stream

    async def _follow(self, route: Route, pinned: PinnedDestination) -> S | Denial:
        match route:
            case Denial():
                return route
            case Direct(addresses):
                narrowed = pinned if addresses is None else replace(pinned, addresses=addresses)
                stream = await self._dialer.dial(narrowed)
            case Hops():
                stream = await self._through(route, pinned)
                # Only what the destination says counts from here on.
                if not isinstance(stream, Denial):
                    stream.received, stream.sent = len(stream.buffer), 0
        if not isinstance(stream, Denial):
            stream.route = route
        return stream

    async def _through(self, route: Hops, pinned: PinnedDestination) -> S | Denial:
        chains = self.health.order(route.chains)
        attempts = [(chain, place) for chain in chains for place in _places(route, pinned, chain)]
        budget = _Budget(self._loop.time() + self.routes.seconds, attempts)
        while (step := budget.next(self._loop.time())) is not None:
            chain, place, share = step
            outcome = await self._attempt(chain, place, share, absolute=_is_absolute(route, chain))
            if not isinstance(outcome, tuple):
                outcome.dial_attempts = budget.tried
                return outcome
            budget.failed(chain, *outcome)
        assert budget.last is not None  # the first attempt always fits
        return denial_of(*budget.last, budget.tried)

    async def _attempt(self, chain: Chain, place: Place, seconds: float, *, absolute: bool) -> S | tuple[Failure, Hop]:
        started = self._loop.time()
        answered: set[Hop] = set()
        journey: _Journey[S] = _Journey(chain[0])
        try:
            async with asyncio.timeout(seconds):
                outcome = await self._walk(journey, chain, place, absolute=absolute)
                # A proxy may close the connection that carried its challenge: the answer starts anew, once per hop.
                while isinstance(outcome, Failure) and self._may_answer(journey.hop, outcome, answered):
                    journey.start(chain[0])
                    outcome = await self._walk(journey, chain, place, absolute=absolute)
        except TimeoutError:
            outcome = _silence(journey)
        failure = outcome if isinstance(outcome, Failure) else None
        self._judge(chain, journey.hop, failure)
        self._tell(Attempt(chain, place, journey.hop, self._loop.time() - started, failure))
        return (outcome, journey.hop) if isinstance(outcome, Failure) else outcome

    def _may_answer(self, hop: Hop, failure: Failure, answered: set[Hop]) -> bool:
        if hop in answered or not self._authorizer.learn(hop, failure.challenges):
            return False
        answered.add(hop)
        return True

    def _judge(self, chain: Chain, hop: Hop, failure: Failure | None) -> None:
        if failure is None:
            for passed in chain:
                self.health.succeeded(passed)
        elif failure.meaning.unwell:
            self.health.failed(hop)

    async def _walk(self, journey: _Journey[S], chain: Chain, place: Place, *, absolute: bool) -> S | Failure:
        """Reach each hop through those before it, and the place through the last."""
        onward = [hop.place for hop in chain[1:]]
        try:
            failure = await self._reach_first(journey)
            for hop, asked in zip(chain, (*onward, place), strict=True):
                journey.hop = hop
                failure = failure or await self._secure(journey)
                if failure is not None:
                    break
                if absolute and hop is chain[-1]:
                    journey.open.absolute = partial(self._authorizer.line, hop)
                else:
                    failure = await self._ask(journey, asked)
        except BaseException:
            journey.abort()
            raise
        if failure is not None:
            journey.abort()
            return failure
        return journey.open

    async def _reach_first(self, journey: _Journey[S]) -> Failure | None:
        place = journey.hop.place
        try:
            addresses = await self._addresses(place)
            if any((address, place.port) in self._own() for address in addresses):
                return _OURSELVES
            journey.stream = await self._dialer.race(addresses, place.port)
        except TimeoutError:
            return _silence(journey)
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                return _OVERLOADED
            return Failure(ReasonCode.PROXY_CONNECT_FAILED, Meaning.UNREACHED, "cannot be reached")
        return None

    async def _addresses(self, place: Place) -> tuple[IpAddress, ...]:
        """The operator named this host: it may be private, and nobody checks where it leads."""
        if place.host.address is not None:
            return (place.host.address,)
        found = await self._loop.getaddrinfo(place.host.name, place.port, type=socket.SOCK_STREAM)
        return tuple(dict.fromkeys(ipaddress.ip_address(item[4][0]) for item in found))

    async def _secure(self, journey: _Journey[S]) -> Failure | None:
        """TLS with the hop, where it has that; from then on the journey goes on inside it."""
        hop, stream = journey.hop, journey.open
        journey.reached = False
        if hop.context is not None:
            try:
                await stream.start_tls(hop.context, server_side=False, server_hostname=hop.server_name)
            except ssl.SSLCertVerificationError as error:
                return _tls_failed("shows a certificate that is not trusted", error.verify_message)
            except (ssl.SSLError, PeerError):
                return _tls_failed("failed the TLS handshake")
            journey.stream = stream.over()
        journey.reached = True
        return None

    async def _ask(self, journey: _Journey[S], place: Place) -> Failure | None:
        """Have the hop connect us onward."""
        hop = journey.hop
        try:
            if hop.kind is HopKind.SOCKS5:
                secret = self._authorizer.secret(hop)
                return secret if isinstance(secret, Failure) else await socks.open_tunnel(journey.open, place, secret)
            value = self._authorizer.value(hop, "CONNECT", str(place))
            if isinstance(value, Failure):
                return value
            return await connect_client.open_tunnel(journey.open, place, value)
        except PeerError:
            return malformed("closed the connection without a complete reply")


def _is_absolute(route: Hops, chain: Chain) -> bool:
    return route.absolute and chain[-1].kind is not HopKind.SOCKS5


def _places(route: Hops, pinned: PinnedDestination, chain: Chain) -> list[Place]:
    """What the last hop is asked for, in order. A proxy that takes an absolute-form request puts its authority in
    place of `Host` (RFC 9112 section 3.2.2), so that only the name can stand there."""
    origin = pinned.origin
    if route.target is Target.HOSTNAME or _is_absolute(route, chain):
        return [Place(origin.host, origin.port)]
    return [Place(Host(str(address), literal=True), origin.port) for address in route.addresses]


def _silence[S: HopStream](journey: _Journey[S]) -> Failure:
    meaning = Meaning.SILENT if journey.reached else Meaning.UNREACHED
    return Failure(ReasonCode.PROXY_TIMEOUT, meaning, "did not answer in time")


def _tls_failed(text: str, detail: str = "") -> Failure:
    return Failure(ReasonCode.PROXY_TLS_FAILED, Meaning.UNREACHED, text, detail=detail)
