"""The listening sockets, and one task per accepted connection under one group."""

import asyncio
import socket
from collections.abc import Callable, Coroutine

from egress.engine.stream import Stream
from egress.model.errors import Side

BACKLOG = 4096


class AcceptedStream(Stream):
    """A client stream that announces itself once it is connected."""

    __slots__ = ("_on_open",)

    def __init__(self, loop: asyncio.AbstractEventLoop, on_open: Callable[["AcceptedStream"], None]) -> None:
        super().__init__(loop, Side.DOWNSTREAM)
        self._on_open = on_open

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._on_open(self)


class Listener:
    """Accepts on every given address until `stop`; connections go on after that."""

    def __init__(self, serve: Callable[[Stream], Coroutine[object, object, None]]) -> None:
        self._serve = serve
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup | None = None

    @staticmethod
    def bind(host: str, port: int) -> socket.socket:
        """A bound socket; port 0 picks one. Raises `OSError`."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((host, port))
        except OSError as error:
            sock.close()
            raise OSError(error.errno, f"cannot listen on {host} port {port}: {error.strerror}") from error
        return sock

    async def start(self, sockets: list[socket.socket], group: asyncio.TaskGroup) -> None:
        self._group = group
        loop = asyncio.get_running_loop()
        for sock in sockets:
            server = await loop.create_server(lambda: AcceptedStream(loop, self._opened), sock=sock, backlog=BACKLOG)
            self._servers.append(server)

    def _opened(self, stream: AcceptedStream) -> None:
        assert self._group is not None
        task = self._group.create_task(self._serve(stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        """Accept no more."""
        for server in self._servers:
            server.close()

    async def drained(self, seconds: float | None) -> bool:
        """Wait for the connections to end; False when some are left."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=seconds)
        return not self._tasks

    def abort(self) -> None:
        """End every connection at once."""
        for task in tuple(self._tasks):
            task.cancel()
