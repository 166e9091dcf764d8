"""The client's end of an accepted connection: exact TCP 4-tuple -> socket inode, owner uid and cookie.

Asks the kernel by INET_DIAG (one exact query), or reads `net/tcp{,6}` where it does not answer. Established only.
"""

import os
import socket
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from egress.model.address import IpAddress
from egress.model.intent import SocketPair

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLMSG_ERROR = 2
_NLM_F_REQUEST = 1
_ESTABLISHED = 1
_ANY_COOKIE = 0xFFFF_FFFF
# Sockets bound to loopback are found only when asked for through it; unbound ones through any interface.
_LOOPBACK_INDEX = 1

_HEADER = struct.Struct("=IHHII")
_QUERY = struct.Struct("=BBBBI2s2s16s16sIII")
_ANSWER = struct.Struct("=BBBB2s2s16s16sIIIIIIII")
_REPLY_BYTES = 4096


@dataclass(frozen=True, slots=True)
class SocketRow:
    """One socket. `cookie` is never given to another socket until the next boot; 0 where the kernel did not tell."""

    inode: int
    uid: int
    cookie: int


class DiagQuery:
    """INET_DIAG over one netlink socket, which stays in the network namespace it was opened in. For one thread."""

    def __init__(self, namespace: Path | None = None) -> None:
        """Raises `OSError` where the kernel has no such interface or the namespace cannot be entered."""
        self._link = inside(namespace, _open_link)
        self._sequence = 0

    def close(self) -> None:
        self._link.close()

    def find(self, pair: SocketPair) -> SocketRow | None:
        """The established socket whose local end is the client's and whose remote end is the proxy's."""
        self._sequence = self._sequence % 0xFFFF_FFFF + 1
        query = _encode(pair)
        header = _HEADER.pack(_HEADER.size + len(query), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, self._sequence, 0)
        self._link.send(header + query)
        while True:
            reply = self._link.recv(_REPLY_BYTES)
            _, kind, _, sequence, _ = _HEADER.unpack_from(reply)
            if sequence == self._sequence:
                return _decode(kind, reply[_HEADER.size :], pair)


def _open_link() -> socket.socket:
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
    # The reply is queued before send() returns; the bound is for a kernel that breaks this.
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, 200_000))
    return link


def _encode(pair: SocketPair) -> bytes:
    # An AF_INET question finds IPv4-mapped sockets of AF_INET6 as well.
    family = socket.AF_INET if pair.client.version == 4 else socket.AF_INET6
    return _QUERY.pack(
        family,
        socket.IPPROTO_TCP,
        0,
        0,
        1 << _ESTABLISHED,
        pair.client_port.to_bytes(2, "big"),
        pair.proxy_port.to_bytes(2, "big"),
        pair.client.packed,
        pair.proxy.packed,
        _LOOPBACK_INDEX,
        _ANY_COOKIE,
        _ANY_COOKIE,
    )


def _decode(kind: int, payload: bytes, pair: SocketPair) -> SocketRow | None:
    if kind == _NLMSG_ERROR:
        code = -int(struct.unpack_from("=i", payload)[0])
        if code == 2:  # ENOENT: no such socket
            return None
        raise OSError(code, os.strerror(code))
    (_, state, _, _, sport, dport, src, dst, _, cookie_low, cookie_high, *_, uid, inode) = _ANSWER.unpack_from(payload)
    # Without an established socket the kernel offers a listener or one in TIME_WAIT instead.
    ports = (int.from_bytes(sport, "big"), int.from_bytes(dport, "big"))
    addresses = (_same(src, pair.client), _same(dst, pair.proxy))
    if state != _ESTABLISHED or not inode or not all(addresses) or ports != (pair.client_port, pair.proxy_port):
        return None
    return SocketRow(inode, uid, cookie_high << 32 | cookie_low)


_MAPPED = bytes(10) + b"\xff\xff"


def _same(packed: bytes, address: IpAddress) -> bool:
    if isinstance(address, IPv4Address):
        return packed in (address.packed + bytes(12), _MAPPED + address.packed)
    return packed == address.packed


class TextQuery:
    """The same answer from the files `tcp` and `tcp6` of a `net` directory; slower, and without a cookie."""

    def __init__(self, directory: Path, namespace: Path | None = None) -> None:
        self._directory = directory
        self._namespace = namespace

    def close(self) -> None:
        """Nothing is held open."""

    def find(self, pair: SocketPair) -> SocketRow | None:
        """As `DiagQuery.find`. Raises `OSError` or `ValueError` for tables that cannot be read."""
        return inside(self._namespace, lambda: self._find(pair))

    def _find(self, pair: SocketPair) -> SocketRow | None:
        for name, mapped in (("tcp", False), ("tcp6", True)):
            needle = _needle(pair, mapped=mapped)
            if needle is None:
                continue
            path = self._directory / name
            if not path.exists():
                continue  # a kernel without IPv6
            for line in path.read_text("ascii", errors="replace").splitlines():
                if needle in line:
                    fields = line.split()
                    inode = int(fields[9])
                    return SocketRow(inode, int(fields[7]), 0) if inode else None
        return None


def _needle(pair: SocketPair, *, mapped: bool) -> str | None:
    """How the row of an established pair reads; None when this table cannot hold it."""
    if pair.client.version == 6 and not mapped:
        return None
    local = f"{_words(pair.client, mapped=mapped)}:{pair.client_port:04X}"
    remote = f"{_words(pair.proxy, mapped=mapped)}:{pair.proxy_port:04X}"
    return f": {local} {remote} {_ESTABLISHED:02X} "


def _words(address: IpAddress, *, mapped: bool) -> str:
    """32-bit words in host order, as the kernel prints them."""
    packed = _MAPPED + address.packed if mapped and address.version == 4 else address.packed
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    return "".join((word[::-1] if sys.byteorder == "little" else word).hex() for word in words).upper()


def inside[T](namespace: Path | None, call: Callable[[], T]) -> T:
    """Call in a network namespace given by its file; a thread that entered one is not used for anything else."""
    if namespace is None:
        return call()
    results: list[T] = []
    errors: list[OSError | ValueError] = []

    def enter_and_call() -> None:
        try:
            with namespace.open("rb") as file:
                os.setns(file.fileno(), os.CLONE_NEWNET)
            results.append(call())
        except (OSError, ValueError) as error:
            errors.append(error)

    thread = threading.Thread(target=enter_and_call, name="namespace")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


@dataclass(frozen=True, slots=True)
class Namespace:
    """A network namespace: its file (None: ours), and the `net` directory that shows its sockets as text.

    `tables` below `thread-self` shows whatever namespace the reading thread has entered.
    """

    file: Path | None
    tables: Path
    enter_to_read: bool = False


class ClientSockets:
    """Finds clients' sockets from any thread. Asks the kernel, and reads text only where the kernel does not answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open_for: tuple[Namespace, int] | None = None
        self._query: DiagQuery | TextQuery | None = None

    def close(self) -> None:
        with self._lock:
            if self._query is not None:
                self._query.close()
            self._query = self._open_for = None

    def quick(self, namespace: Namespace) -> bool:
        """Whether `find` is a matter of microseconds. Raises `OSError` where the namespace cannot be entered."""
        with self._lock:
            return not isinstance(self._opened(namespace), TextQuery)

    def find(self, pair: SocketPair, namespace: Namespace) -> SocketRow | None:
        """The client's end of an established connection. Raises `OSError` or `ValueError`."""
        with self._lock:
            return self._opened(namespace).find(pair)

    def _opened(self, namespace: Namespace) -> DiagQuery | TextQuery:
        # The number of the namespace: its file keeps its name when what it names is made anew.
        wanted = (namespace, 0 if namespace.file is None else namespace.file.stat().st_ino)
        if self._query is not None and self._open_for == wanted:
            return self._query
        if self._query is not None:
            self._query.close()
        try:
            self._query = DiagQuery(namespace.file)
        except OSError:
            self._query = TextQuery(namespace.tables, namespace.file if namespace.enter_to_read else None)
        self._open_for = wanted
        return self._query
