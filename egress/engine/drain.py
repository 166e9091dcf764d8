"""Stopping without cutting work: connections that wait for their next request close, the others finish it."""

from collections.abc import Callable

from egress.engine.stream import Stream


class Drain:
    """One per process. `begun` is read before each new request."""

    def __init__(self) -> None:
        self.begun = False
        self._idle: set[Stream] = set()
        self._watchers: set[Callable[[], None]] = set()

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when it begins; the returned function ends that. For connections that carry many requests."""
        self._watchers.add(callback)
        return lambda: self._watchers.discard(callback)

    async def wait_for_work(self, client: Stream, seconds: float | None, limit: str) -> None:
        """Wait for the first byte of the next request, or the end; raises as `Stream.more` does."""
        if client.buffer:
            return
        self._idle.add(client)
        try:
            await client.more(seconds, limit)
        finally:
            self._idle.discard(client)

    def begin(self) -> None:
        """Close what is idle; what works sees `begun` when it is done."""
        self.begun = True
        for client in tuple(self._idle):
            client.close()
        for callback in tuple(self._watchers):
            callback()
