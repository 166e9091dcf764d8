"""The budget of unfinished WebSocket messages: they are held in memory until their last frame."""

import asyncio

RUNNING, WAITING = 32, 64


class Assemblies:
    """Text messages that are being put together, over all WebSockets of the process."""

    def __init__(self, running: int = RUNNING, waiting: int = WAITING) -> None:
        self._slots = asyncio.Semaphore(running)
        self._room = waiting

    async def enter(self) -> bool:
        """Take a slot, waiting for one if need be; False when too many wait already."""
        if self._slots.locked():
            if self._room <= 0:
                return False
            self._room -= 1
            try:
                await self._slots.acquire()
            finally:
                self._room += 1
        else:
            await self._slots.acquire()
        return True

    def leave(self) -> None:
        self._slots.release()
