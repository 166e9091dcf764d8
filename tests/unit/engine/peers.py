"""A `Stream` on one end of a real connection and a plain socket, or a TLS client, on the other."""

import asyncio
import contextlib
import socket
import ssl
import struct

from egress.engine.stream import Stream
from egress.model.errors import Side


class Peer:
    """The far end: non-blocking, driven by the same loop; with `start_tls` it speaks TLS over memory."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._loop = asyncio.get_running_loop()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None

    async def send(self, data: bytes) -> None:
        if self._tls is not None:
            self._tls.write(data)
            data = self._outgoing.read()
        await self.send_raw(data)

    async def send_raw(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.socket, data)

    async def receive(self, limit: int = 1 << 20) -> bytes:
        """What comes next; empty at the end, be it a FIN or a close_notify."""
        if self._tls is None:
            return await self._loop.sock_recv(self.socket, limit)
        while True:
            try:
                return self._tls.read(limit)
            except ssl.SSLWantReadError:
                data = await self._loop.sock_recv(self.socket, limit)
                if not data:
                    raise ssl.SSLEOFError("no close_notify") from None
                self._incoming.write(data)

    async def receive_all(self) -> bytes:
        data = b""
        while more := await self.receive():
            data += more
        return data

    async def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count and (more := await self.receive(count - len(data))):
            data += more
        return data

    def hello(self, context: ssl.SSLContext, name: str | None = "peer.test") -> bytes:
        """Begin TLS as a client: the ClientHello, not sent yet."""
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        return self._outgoing.read()

    async def shake(self) -> None:
        """Finish what `hello` began."""
        assert self._tls is not None
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                data = await self._loop.sock_recv(self.socket, 65536)
                if not data:
                    raise ssl.SSLEOFError("ended in the handshake") from None
                self._incoming.write(data)
            else:
                await self._flush()
                return

    async def _flush(self) -> None:
        await self.send_raw(self._outgoing.read())

    async def close_notify(self) -> None:
        assert self._tls is not None
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        await self._flush()

    def finish(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def connected_sockets() -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    near.setblocking(False)
    far.setblocking(False)
    return near, far


async def stream_and_peer(side: Side = Side.DOWNSTREAM) -> tuple[Stream, Peer]:
    near, far = connected_sockets()
    loop = asyncio.get_running_loop()
    _, stream = await loop.create_connection(lambda: Stream(loop, side), sock=near)
    return stream, Peer(far)


async def tls_pair(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[Stream, Peer]:
    """A stream that terminated TLS, and its client."""
    stream, peer = await stream_and_peer()
    await peer.send_raw(peer.hello(client))
    async with asyncio.TaskGroup() as group:
        group.create_task(peer.shake())
        await stream.start_tls(server, server_side=True, seconds=2)
    return stream, peer
