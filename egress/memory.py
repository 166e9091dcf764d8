"""What the process holds for its crowds goes back to the system when they have left."""

import asyncio
import ctypes
import gc
from collections.abc import Callable

LOOK_SECONDS = 5.0
CROWD = 64
"""Connections that must have ended since the last time; fewer leave nothing that is worth a pass over the heap."""


def settle() -> None:
    """Start-up objects live for ever: keep the collector from walking them, and from running too often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


async def give_back(left: Callable[[], int]) -> None:
    """For ever: trim the heap after a crowd. `left` tells how many connections ended since it was asked last.

    Freed buffers lie between small objects that stay, so that glibc would keep their pages; a pass over them takes a
    few milliseconds.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return  # not glibc
    gone = 0
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        ended = left()
        gone += ended
        if gone >= CROWD and ended < CROWD:
            trim(0)
            gone = 0
