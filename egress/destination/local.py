"""The addresses of this host, from the kernel. Asked at most every few seconds.

Tells who is a local client, and which addresses reach a listener that is bound to a wildcard.
"""

import ipaddress
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator

from egress.destination.ranges import normalize
from egress.model.address import IpAddress

REFRESH_SECONDS = 5.0

_NLMSG_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_NLMSG_ERROR, _NLMSG_DONE, _RTM_NEWADDR, _RTM_GETADDR = 2, 3, 20, 22
_REQUEST_DUMP = 0x301
_IFADDRMSG_BYTES = 8
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_LOOPBACK: frozenset[IpAddress] = frozenset({ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")})


class LocalAddresses:
    """This host's addresses, loopback included; remembered for `REFRESH_SECONDS`."""

    def __init__(self) -> None:
        self._addresses = _LOOPBACK
        self._expires = 0.0

    def __contains__(self, address: IpAddress) -> bool:
        return address.is_loopback or normalize(address) in self.current()

    def current(self) -> frozenset[IpAddress]:
        """All addresses now. Without a kernel that tells, the loopback addresses alone."""
        now = time.monotonic()
        if now >= self._expires:
            self._addresses = _LOOPBACK | _ask_kernel()
            self._expires = now + REFRESH_SECONDS
        return self._addresses


def expand_wildcards(
    listeners: Iterable[tuple[IpAddress, int]], addresses: frozenset[IpAddress]
) -> frozenset[tuple[IpAddress, int]]:
    """Every (address, port) that reaches one of `listeners`; a wildcard listens on all of `addresses`.

    A wildcard of one family covers both: dual-stack sockets do, and refusing one pair too many harms nobody.
    """
    pairs: set[tuple[IpAddress, int]] = set()
    for address, port in listeners:
        pairs.add((normalize(address), port))
        if address.is_unspecified:
            pairs.update((local, port) for local in addresses)
    return frozenset(pairs)


def _ask_kernel() -> frozenset[IpAddress]:
    if not hasattr(socket, "AF_NETLINK"):
        return frozenset()
    try:
        return frozenset(_dump_addresses())
    except OSError:
        return frozenset()


def _dump_addresses() -> Iterator[IpAddress]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as link:
        link.settimeout(0.5)
        body = struct.pack("=BBBBI", socket.AF_UNSPEC, 0, 0, 0, 0)
        link.send(_NLMSG_HEADER.pack(_NLMSG_HEADER.size + len(body), _RTM_GETADDR, _REQUEST_DUMP, 1, 0) + body)
        while True:
            for kind, payload in _messages(link.recv(1 << 16)):
                if kind == _NLMSG_DONE:
                    return
                if kind == _NLMSG_ERROR:
                    code = struct.unpack_from("=i", payload)[0]
                    raise OSError(-code, os.strerror(-code))
                if kind == _RTM_NEWADDR:
                    yield from _addresses_of(payload)


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset + _NLMSG_HEADER.size <= len(data):
        length, kind, *_ = _NLMSG_HEADER.unpack_from(data, offset)
        if length < _NLMSG_HEADER.size:
            raise OSError("malformed netlink message")
        yield kind, data[offset + _NLMSG_HEADER.size : offset + length]
        offset += (length + 3) & ~3


def _addresses_of(payload: bytes) -> Iterator[IpAddress]:
    """IFA_LOCAL is ours on point-to-point links, where IFA_ADDRESS is the peer's."""
    found: dict[int, IpAddress] = {}
    offset = _IFADDRMSG_BYTES
    while offset + _ATTRIBUTE.size <= len(payload):
        length, kind = _ATTRIBUTE.unpack_from(payload, offset)
        if length < _ATTRIBUTE.size:
            return
        if kind in (_IFA_ADDRESS, _IFA_LOCAL):
            found[kind] = ipaddress.ip_address(payload[offset + _ATTRIBUTE.size : offset + length])
        offset += (length + 3) & ~3
    address = found.get(_IFA_LOCAL) or found.get(_IFA_ADDRESS)
    if address is not None:
        yield address
