"""Idle upstream connections, keyed so that nothing crosses an authorization."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakValueDictionary

from egress.model.address import IpAddress, Origin
from egress.model.intent import AgentName

SWEEP_SECONDS = 5.0


class Poolable(Protocol):
    """What the pool needs of a stream."""

    on_gone: Callable[[], None] | None
    on_data: Callable[[], None] | None

    @property
    def reusable(self) -> bool: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PoolKey:
    """Everything that must not be crossed. `terms` are the endpoints, equal by their authored content; the calling
    process is no part of it, or short-lived clients would never meet a warm connection."""

    agent: AgentName
    entry: str
    terms: tuple[object, ...]
    origin: Origin
    addresses: tuple[IpAddress, ...]
    trust: object
    """The TLS profile that verified it, by identity: a reload that takes an authority back leaves nothing warm."""
    route: object
    """Direct, or through which proxies."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Idle connections in all and per key, and how many seconds one may idle.

    More than `per_key` may wait between two sweeps: many clients at once give back and take in turns, and closing
    what the next moment needs would cost a handshake each time.
    """

    total: int = 1024
    per_key: int = 16
    idle_seconds: float = 60.0


class Slot[S: Poolable]:
    """The idle connections of one key, newest last, and the TLS session to resume. Held by its connectors."""

    __slots__ = ("__weakref__", "_pool", "idle", "session")

    def __init__(self, pool: "Pool[S]") -> None:
        self._pool = pool
        self.idle: list[tuple[S, float]] = []
        self.session: ssl.SSLSession | None = None

    def take(self) -> S | None:
        """The warmest connection that is still sound."""
        while self.idle:
            stream, _ = self.idle.pop()
            self._pool.count -= 1
            stream.on_gone = stream.on_data = None
            if stream.reusable:
                return stream
            stream.abort()
        return None

    def give(self, stream: S) -> None:
        """Keep a connection whose last exchange ended cleanly; one too many is closed."""
        pool = self._pool
        if not stream.reusable or pool.count >= pool.limits.total:
            stream.close()
            return
        pool.count += 1
        self.idle.append((stream, pool.now()))
        # An idle origin has nothing to say: data or an end makes the connection useless, and bytes on it suspect.
        stream.on_gone = stream.on_data = lambda: self._discard(stream)
        pool.kept(self)

    def _discard(self, stream: S) -> None:
        for index, (candidate, _) in enumerate(self.idle):
            if candidate is stream:
                del self.idle[index]
                self._pool.count -= 1
                break
        stream.on_gone = stream.on_data = None
        stream.abort()

    def expire(self, before: float, keep: int) -> None:
        """Close connections idle since before that time, and the oldest beyond `keep`."""
        while self.idle and (self.idle[0][1] < before or len(self.idle) > keep):
            stream, _ = self.idle.pop(0)
            self._pool.count -= 1
            stream.on_gone = stream.on_data = None
            stream.close()


class Pool[S: Poolable]:
    """All slots of one process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: PoolLimits) -> None:
        self.limits = limits
        self.count = 0
        self._loop = loop
        self._slots: WeakValueDictionary[PoolKey, Slot[S]] = WeakValueDictionary()
        self._warm: set[Slot[S]] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    def slot(self, key: PoolKey) -> Slot[S]:
        """The slot of a key; the same object as long as anyone holds it or it holds a connection."""
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = Slot(self)
        return slot

    def now(self) -> float:
        return self._loop.time()

    def kept(self, slot: Slot[S]) -> None:
        self._warm.add(slot)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def close(self) -> None:
        """Close every idle connection."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for slot in self._warm:
            slot.expire(float("inf"), 0)
        self._warm.clear()

    def _sweep(self) -> None:
        self._sweeper = None
        before = self.now() - self.limits.idle_seconds
        for slot in tuple(self._warm):
            slot.expire(before, self.limits.per_key)
            if not slot.idle:
                self._warm.discard(slot)
        if self._warm:
            self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)
