"""Which addresses are special, as data, and `classify`. An address that embeds an IPv4 address is never milder than it.

The names under which clouds publish their metadata service are listed here too.
"""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import lru_cache

from egress.model.address import IpAddress, IpNetwork


class Reach(IntEnum):
    """How much it takes to reach an address; larger is stricter.

    `INTERNAL` needs a policy that names the host or lists the address; `BLOCKED` is reached by no policy.
    """

    PUBLIC = 0
    INTERNAL = 1
    BLOCKED = 2


class AddressClass(Enum):
    """What an address is for. The value is the word shown to people."""

    PUBLIC = ("public", Reach.PUBLIC)
    PRIVATE = ("private", Reach.INTERNAL)
    CARRIER_NAT = ("carrier_nat", Reach.INTERNAL)
    PROTOCOL = ("protocol_assignment", Reach.INTERNAL)
    DOCUMENTATION = ("documentation", Reach.INTERNAL)
    BENCHMARKING = ("benchmarking", Reach.INTERNAL)
    BROADCAST = ("broadcast", Reach.INTERNAL)
    UNIQUE_LOCAL = ("unique_local", Reach.INTERNAL)
    SITE_LOCAL = ("site_local", Reach.INTERNAL)
    DISCARD = ("discard", Reach.INTERNAL)
    RESERVED = ("reserved", Reach.INTERNAL)
    LOOPBACK = ("loopback", Reach.BLOCKED)
    LINK_LOCAL = ("link_local", Reach.BLOCKED)
    UNSPECIFIED = ("unspecified", Reach.BLOCKED)
    THIS_NETWORK = ("this_network", Reach.BLOCKED)
    MULTICAST = ("multicast", Reach.BLOCKED)
    METADATA = ("metadata", Reach.BLOCKED)

    def __init__(self, word: str, reach: Reach) -> None:
        self.word = word
        self.reach = reach

    @property
    def blocked(self) -> bool:
        """No policy field reaches it."""
        return self.reach is Reach.BLOCKED

    @property
    def internal(self) -> bool:
        """A wildcard endpoint does not reach it; blocked addresses included."""
        return self.reach is not Reach.PUBLIC


@dataclass(frozen=True, slots=True)
class Range:
    network: IpNetwork
    kind: AddressClass


def _range(text: str, kind: AddressClass) -> Range:
    return Range(ipaddress.ip_network(text), kind)


RANGES: tuple[Range, ...] = (
    # Metadata services first: they lie inside wider ranges, some of them public or private ones.
    _range("169.254.169.254/32", AddressClass.METADATA),
    _range("169.254.170.2/32", AddressClass.METADATA),
    _range("168.63.129.16/32", AddressClass.METADATA),
    _range("100.100.100.200/32", AddressClass.METADATA),
    _range("192.0.0.192/32", AddressClass.METADATA),
    _range("fd00:ec2::254/128", AddressClass.METADATA),
    _range("fd20:ce::254/128", AddressClass.METADATA),
    _range("fd00:42::42/128", AddressClass.METADATA),
    _range("0.0.0.0/32", AddressClass.UNSPECIFIED),
    _range("0.0.0.0/8", AddressClass.THIS_NETWORK),
    _range("10.0.0.0/8", AddressClass.PRIVATE),
    _range("100.64.0.0/10", AddressClass.CARRIER_NAT),
    _range("127.0.0.0/8", AddressClass.LOOPBACK),
    _range("169.254.0.0/16", AddressClass.LINK_LOCAL),
    _range("172.16.0.0/12", AddressClass.PRIVATE),
    _range("192.0.0.0/24", AddressClass.PROTOCOL),
    _range("192.0.2.0/24", AddressClass.DOCUMENTATION),
    _range("192.168.0.0/16", AddressClass.PRIVATE),
    _range("198.18.0.0/15", AddressClass.BENCHMARKING),
    _range("198.51.100.0/24", AddressClass.DOCUMENTATION),
    _range("203.0.113.0/24", AddressClass.DOCUMENTATION),
    _range("224.0.0.0/4", AddressClass.MULTICAST),
    _range("255.255.255.255/32", AddressClass.BROADCAST),
    _range("240.0.0.0/4", AddressClass.RESERVED),
    _range("0.0.0.0/0", AddressClass.PUBLIC),
    _range("::/128", AddressClass.UNSPECIFIED),
    _range("::1/128", AddressClass.LOOPBACK),
    _range("64:ff9b::/96", AddressClass.PUBLIC),
    _range("64:ff9b:1::/48", AddressClass.RESERVED),
    _range("100::/64", AddressClass.DISCARD),
    _range("2001::/32", AddressClass.PUBLIC),
    _range("2001:2::/48", AddressClass.BENCHMARKING),
    _range("2001:10::/28", AddressClass.RESERVED),
    _range("2001:20::/28", AddressClass.RESERVED),
    _range("2001:db8::/32", AddressClass.DOCUMENTATION),
    _range("3fff::/20", AddressClass.DOCUMENTATION),
    _range("2000::/3", AddressClass.PUBLIC),
    _range("fc00::/7", AddressClass.UNIQUE_LOCAL),
    _range("fe80::/10", AddressClass.LINK_LOCAL),
    _range("fec0::/10", AddressClass.SITE_LOCAL),
    _range("ff00::/8", AddressClass.MULTICAST),
    # Outside 2000::/3 nothing is global unicast (RFC 4291 section 2.4).
    _range("::/0", AddressClass.RESERVED),
)
"""The first range of the address's family that contains it gives its class."""

METADATA_NAMES = frozenset({"metadata.google.internal", "metadata", "instance-data"})

_BOUNDS: dict[int, tuple[tuple[int, int, AddressClass], ...]] = {
    version: tuple(
        (int(entry.network.network_address), int(entry.network.broadcast_address), entry.kind)
        for entry in RANGES
        if entry.network.version == version
    )
    for version in (4, 6)
}


def normalize(address: IpAddress) -> IpAddress:
    """The address a dial reaches: IPv4-mapped IPv6 becomes IPv4, a zone is dropped."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return ipaddress.IPv6Address(int(address)) if address.scope_id else address


@lru_cache(maxsize=4096)
def classify(address: IpAddress) -> AddressClass:
    """The class of an address: the strictest of its own and of every IPv4 address it embeds."""
    address = normalize(address)
    kinds = [_own_class(address)]
    if isinstance(address, ipaddress.IPv6Address):
        kinds += [_own_class(embedded) for embedded in embedded_ipv4(address)]
    return max(kinds, key=lambda kind: (kind.reach, kind is AddressClass.METADATA))


def _own_class(address: IpAddress) -> AddressClass:
    value = int(address)
    return next(kind for first, last, kind in _BOUNDS[address.version] if first <= value <= last)


_COMPATIBLE = ipaddress.IPv6Network("::/96")
_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NAT64_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")


def embedded_ipv4(address: IpAddress) -> Iterator[ipaddress.IPv4Address]:
    """Every IPv4 address that a translator or tunnel could take out of an IPv6 address.

    `::` and `::1` are addresses of their own and embed nothing.
    """
    if isinstance(address, ipaddress.IPv4Address):
        return
    value = int(address)
    if address.sixtofour is not None:
        yield address.sixtofour
    elif address.teredo is not None:
        yield from address.teredo
    elif address in _NAT64 or address in _TRANSLATED or (address in _COMPATIBLE and value > 1):
        yield ipaddress.IPv4Address(value & 0xFFFF_FFFF)
    elif address in _NAT64_LOCAL:
        yield from _rfc6052(value)


def _rfc6052(value: int) -> Iterator[ipaddress.IPv4Address]:
    """RFC 6052 section 2.2: a site chooses the prefix length, so each layout inside the /48 is read.

    Readings in 0.0.0.0/8 are the padding of another layout and no destination.
    """
    readings = [value & 0xFFFF_FFFF]
    for prefix in (48, 56, 64):
        after = prefix - 32
        # Bits 64 to 71 are skipped: they are the reserved octet between the halves.
        high = (value >> 64) & ((1 << (32 - after)) - 1)
        low = (value >> (56 - after)) & ((1 << after) - 1)
        readings.append((high << after) | low)
    yield from (ipaddress.IPv4Address(reading) for reading in readings if reading >> 24)
