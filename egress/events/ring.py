"""The newest events in memory, for whoever looks at the running proxy. Nothing is rendered until somebody looks."""

from collections import deque
from itertools import islice

from egress.events.bus import Numbered


class Ring:
    """Keeps `size` events; the oldest makes room."""

    name = "ring"

    def __init__(self, size: int) -> None:
        self._items: deque[Numbered] = deque(maxlen=size)
        self.offer = self._items.append

    def newest(self, count: int) -> list[Numbered]:
        """The last `count` events, oldest first."""
        found = list(islice(reversed(self._items), count))
        found.reverse()
        return found

    def since(self, number: int) -> list[Numbered]:
        """Every kept event after the one of that number, oldest first."""
        found = []
        for item in reversed(self._items):
            if item[0] <= number:
                break
            found.append(item)
        found.reverse()
        return found

    def close(self, seconds: float) -> None:
        """Nothing to write."""
