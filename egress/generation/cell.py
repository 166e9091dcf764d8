"""The one mutable reference to the current generation and credentials, and the leases that connections hold on it."""

import asyncio
from collections.abc import Callable

from egress.credentials.snapshot import CredentialSnapshot
from egress.generation.generation import Generation

WAKE_SLICE = 200
"""Superseded leases woken per turn of the event loop, so that a reload does not stall traffic."""


class RuntimeCell:
    """Readers take a lease; `install` replaces the generation between two turns of the event loop."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self.credentials: CredentialSnapshot | None = None
        """Values and where they belong, of one revision; None where no credentials are configured."""
        self._watchers: dict[int, Callable[[], None]] = {}
        self._next_watcher = 0

    @property
    def generation(self) -> Generation:
        return self._generation

    def refresh(self, credentials: CredentialSnapshot | None) -> None:
        """Make `credentials` current. Whoever needs one reads it in the turn in which it is written out."""
        self.credentials = credentials

    def lease(self) -> "Lease":
        return Lease(self, self._generation)

    def install(self, generation: Generation) -> None:
        """Make `generation` current and wake every watcher, the oldest first, in slices."""
        self._generation = generation
        callbacks = list(self._watchers.values())
        if callbacks:
            asyncio.get_running_loop().call_soon(self._wake, callbacks)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back after each install; the returned function ends that."""
        self._next_watcher += 1
        key = self._next_watcher
        self._watchers[key] = callback
        return lambda: self._watchers.pop(key, None) and None

    def _wake(self, callbacks: list[Callable[[], None]]) -> None:
        """Each callback is a turn item of its own: one that raises keeps no other from hearing of the change."""
        loop = asyncio.get_running_loop()
        for callback in callbacks[:WAKE_SLICE]:
            loop.call_soon(callback)
        if len(callbacks) > WAKE_SLICE:
            loop.call_soon(self._wake, callbacks[WAKE_SLICE:])


class Lease:
    """A held reference to one generation. Relays that cannot wait for their next request watch it."""

    __slots__ = ("_cell", "generation")

    def __init__(self, cell: RuntimeCell, generation: Generation) -> None:
        self._cell = cell
        self.generation = generation

    @property
    def superseded(self) -> bool:
        return self._cell.generation is not self.generation

    @property
    def current(self) -> Generation:
        """What `renew` would move to."""
        return self._cell.generation

    def renew(self) -> Generation:
        """Move to the current generation and return it."""
        self.generation = self._cell.generation
        return self.generation

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when a newer generation is installed; the returned function ends that."""
        return self._cell.watch(callback)
