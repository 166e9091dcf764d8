"""The budget of unfinished WebSocket messages: they are held in memory until their last frame."""

import asyncio

RUNNING, WAITING = 32, 64
IDLE_SECONDS, TOTAL_SECONDS = 30.0, 120.0


class Assemblies:
    """Text messages that are being put together, over all WebSockets of the process. `idle` and `total` are the seconds
    that one may be silent and may take, its wait for a slot included."""

    def __init__(
        self,
        running: int = RUNNING,
        waiting: int = WAITING,
        idle: float = IDLE_SECONDS,
        total: float = TOTAL_SECONDS,
    ) -> None:
        self._slots = asyncio.Semaphore(running)
        self._room = waiting
        self.idle = idle
        self.total = total

    async def enter(self, seconds: float) -> bool:
        """Take a slot, waiting up to `seconds` for one; False when there is none in time or too many wait already."""
        if not self._slots.locked():
            await self._slots.acquire()
            return True
        if self._room <= 0:
            return False
        self._room -= 1
        try:
            async with asyncio.timeout(seconds):
                await self._slots.acquire()
        except TimeoutError:
            return False
        finally:
            self._room += 1
        return True

    def leave(self) -> None:
        self._slots.release()
