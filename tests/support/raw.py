"""Byte-level clients: what goes out is exactly what the test wrote, what comes back is read strictly.

Blocking sockets with a deadline; a reply that ends early says so instead of looking whole.
"""

import contextlib
import json
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

DEADLINE = 10.0


@dataclass
class Reply:
    """One HTTP reply. `head` is raw, `body` decoded from its framing, `complete` false when the stream ended early."""

    status: int
    version: str
    fields: list[tuple[str, str]]
    head: bytes
    body: bytes = b""
    trailers: list[tuple[str, str]] = field(default_factory=list)
    interim: list["Reply"] = field(default_factory=list)
    complete: bool = True

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.fields if key.lower() == name.lower()]

    def value(self, name: str) -> str | None:
        found = self.values(name)
        return found[0] if found else None

    def json(self) -> dict[str, Any]:
        decoded: dict[str, Any] = json.loads(self.body)
        return decoded

    @property
    def error(self) -> str | None:
        """The `error` word of a refusal envelope, None when this is no refusal."""
        with contextlib.suppress(ValueError):
            document = json.loads(self.body)
            if isinstance(document, dict) and "request_id" in document:
                return str(document.get("error"))
        return None


class EndOfStream(Exception):
    """The other side closed where more was due."""


class Connection:
    """A connected stream, plain or TLS, with a read buffer."""

    def __init__(self, stream: socket.socket) -> None:
        self.socket = stream
        self._ahead = bytearray()
        self.reset = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def finish_sending(self) -> None:
        """Half-close: no more from us, still listening."""
        if isinstance(self.socket, ssl.SSLSocket):
            raise TypeError("TLS has no half-close in the ssl module")
        self.socket.shutdown(socket.SHUT_WR)

    def some(self, limit: int = 65536) -> bytes:
        """Whatever comes next; empty at the end of the stream."""
        if self._ahead:
            data = bytes(self._ahead[:limit])
            del self._ahead[:limit]
            return data
        try:
            return self.socket.recv(limit)
        except (ConnectionResetError, ssl.SSLError):
            self.reset = True
            return b""

    def rest(self) -> bytes:
        """Everything until the stream ends."""
        data = b""
        while more := self.some():
            data += more
        return data

    def until(self, separator: bytes) -> bytes:
        while separator not in self._ahead:
            self._more()
        return self._take(self._ahead.index(separator) + len(separator))

    def exactly(self, count: int) -> bytes:
        while len(self._ahead) < count:
            self._more()
        return self._take(count)

    def _more(self) -> None:
        ahead, self._ahead = self._ahead, bytearray()
        data = self.some()
        self._ahead = ahead
        if not data:
            raise EndOfStream
        self._ahead += data

    def _take(self, count: int) -> bytes:
        data = bytes(self._ahead[:count])
        del self._ahead[:count]
        return data

    def closed_by_peer(self, within: float = DEADLINE) -> bool:
        """True when nothing more comes and the stream ends within the time."""
        before = self.socket.gettimeout()
        self.socket.settimeout(within)
        try:
            return not self._ahead and self.some() == b""
        except TimeoutError:
            return False
        finally:
            with contextlib.suppress(OSError):
                self.socket.settimeout(before)

    def reply(self, method: str = "GET") -> Reply:
        """The next final reply, with the interim ones before it."""
        interim: list[Reply] = []
        while True:
            reply = self.reply_head()
            if reply.status >= 200 or reply.status == 101:
                break
            interim.append(reply)
        reply.interim = interim
        tunnel = method == "CONNECT" and reply.status == 200
        if method != "HEAD" and reply.status not in (101, 204, 304) and not tunnel:
            self._body(reply)
        return reply

    def reply_head(self) -> Reply:
        """One head, interim or final; raises `EndOfStream` when the stream ends before it."""
        raw = self.until(b"\r\n\r\n")
        status_line, *lines = raw[:-4].decode("latin-1").split("\r\n")
        version, code, *_ = status_line.split(" ", 2)
        fields = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        return Reply(int(code), version, fields, raw)

    def _body(self, reply: Reply) -> None:
        try:
            if reply.value("transfer-encoding"):
                self._chunked(reply)
            elif (length := reply.value("content-length")) is not None:
                self._counted(reply, int(length))
            else:
                reply.body = bytes(self._take(len(self._ahead))) + self.rest()
                reply.complete = not self.reset
        except EndOfStream:
            reply.complete = False

    def _counted(self, reply: Reply, length: int) -> None:
        try:
            reply.body = self.exactly(length)
        except EndOfStream:
            reply.body = self._take(len(self._ahead))
            raise

    def _chunked(self, reply: Reply) -> None:
        while size := int(self.until(b"\r\n").split(b";")[0], 16):
            reply.body += self.exactly(size + 2)[:-2]
        while (line := self.until(b"\r\n")) != b"\r\n":
            name, _, value = line[:-2].decode("latin-1").partition(":")
            reply.trailers.append((name, value.strip()))


def dial(port: int, *, deadline: float = DEADLINE, host: str = "127.0.0.1") -> Connection:
    return Connection(socket.create_connection((host, port), timeout=deadline))


class ConnectRefused(Exception):
    """CONNECT was answered with something else than 200."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"{reply.status} {reply.error}")
        self.reply = reply


def connect_head(authority: str, extra: str = "") -> bytes:
    return f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{extra}\r\n".encode("latin-1")


def open_tunnel(port: int, authority: str, *, deadline: float = DEADLINE, extra: str = "") -> Connection:
    """CONNECT and expect the 200; raises `ConnectRefused` with the reply otherwise."""
    connection = dial(port, deadline=deadline)
    connection.send(connect_head(authority, extra))
    reply = connection.reply("CONNECT")
    if reply.status != 200:
        connection.close()
        raise ConnectRefused(reply)
    return connection


def client_context(ca_file: Path | str, alpn: tuple[str, ...] = ("http/1.1",)) -> ssl.SSLContext:
    """A verifying client context. One per CA file is enough; loading it costs milliseconds."""
    context = ssl.create_default_context(cafile=str(ca_file))
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def start_tls(connection: Connection, context: ssl.SSLContext, name: str | None) -> Connection:
    """TLS over an open tunnel; `name` None sends no SNI and checks no name."""
    if name is None:
        nameless = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        nameless.check_hostname = False
        nameless.verify_mode = ssl.CERT_NONE
        nameless.set_alpn_protocols(["http/1.1"])
        return Connection(nameless.wrap_socket(connection.socket))
    return Connection(context.wrap_socket(connection.socket, server_hostname=name))


def eventually(condition: Callable[[], bool], within: float = DEADLINE) -> bool:
    """Poll until the condition holds or the time is up."""
    end = time.monotonic() + within
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
