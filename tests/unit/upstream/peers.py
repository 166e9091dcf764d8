"""Two ends of a byte stream without a socket: what a handshake writes, and what a scripted proxy says."""

from collections.abc import Iterable


class ScriptedStream:
    """Gives its pieces one at a time, then ends."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = list(pieces)
        self.buffer = b""
        self.written = b""

    async def more(self, seconds: float | None, limit: str) -> bool:
        if not self._pieces:
            return False
        self.buffer += self._pieces.pop(0)
        return True

    def take(self, size: int | None = None) -> bytes:
        size = len(self.buffer) if size is None else size
        taken, self.buffer = self.buffer[:size], self.buffer[size:]
        return taken

    def write(self, data: bytes) -> None:
        self.written += data

    @property
    def left(self) -> bytes:
        """What the handshake did not consume, whenever it would arrive."""
        return self.buffer + b"".join(self._pieces)


def bytewise(data: bytes) -> list[bytes]:
    return [data[index : index + 1] for index in range(len(data))]
