"""NO_PROXY items and rule matchers: one grammar for both, aware of ports and of resolved addresses. Pure."""

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from egress.model.address import Host, InvalidAddress, IpAddress, IpNetwork, parse_host
from egress.model.destination import DialMode, PinnedDestination

HIGHEST_PORT = 65535

_PORTS = re.compile(r"(.*):([0-9]{1,5})(?:-([0-9]{1,5}))?\Z", re.ASCII | re.DOTALL)
_PORT_LIKE = re.compile(r".*:[0-9-]*\Z", re.ASCII | re.DOTALL)
_DOMAIN = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\Z")


class Kind(Enum):
    ANY = "any"
    SINGLE_LABEL = "single_label"
    GATEWAY = "gateway"
    DOMAIN = "domain"
    NETWORK = "network"


_WORDS = {"*": Kind.ANY, "<local>": Kind.SINGLE_LABEL, "host-gateway": Kind.GATEWAY}


@dataclass(frozen=True, slots=True)
class Item:
    """One destination pattern. `domain` is set for DOMAIN, `network` for NETWORK; ports are an inclusive range."""

    kind: Kind
    domain: str = ""
    network: IpNetwork | None = None
    first_port: int = 0
    last_port: int = HIGHEST_PORT


class DeadItem(ValueError):
    """The item can never match anything; the message says why and, on a second line, what to write instead."""


def split_list(text: str) -> Iterator[tuple[int, str]]:
    """Items of a comma-separated list with their position, counted from 1; empty ones are skipped."""
    for position, piece in enumerate(text.split(","), start=1):
        if item := piece.strip():
            yield position, item


def read_item(text: str) -> Item:
    """Read one item. Raises `DeadItem`.

    An address block or address first, so that a bare IPv6 literal is never taken for host and port.
    """
    whole = _portless(text)
    if whole is not None:
        return whole
    split = _PORTS.match(text)
    if split is None:
        if _PORT_LIKE.match(text):
            raise DeadItem("the port is no number or range\nwrite `host:8443` or `host:8000-8999`")
        return _domain(text, 0, HIGHEST_PORT)
    name, first, last = split.groups()
    ports = int(first), int(last or first)
    if not 0 <= ports[0] <= ports[1] <= HIGHEST_PORT:
        raise DeadItem("no port is in that range\nwrite ports from 0 to 65535, the lower first")
    network = _network(name)
    if network is not None:
        return Item(Kind.NETWORK, "", network, *ports)
    return _domain(name, *ports)


def _portless(text: str) -> Item | None:
    word = _WORDS.get(text.lower())
    if word is not None:
        return Item(word)
    network = _network(text)
    return Item(Kind.NETWORK, network=network) if network is not None else None


def _network(text: str) -> IpNetwork | None:
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        return _unmapped(ipaddress.ip_network(bare, strict=False))
    except ValueError:
        return None


def _unmapped(network: IpNetwork) -> IpNetwork:
    """`::ffff:10.0.0.0/104` is 10.0.0.0/8: destinations never carry the mapped form."""
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen >= 96:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return ipaddress.IPv4Network((mapped, network.prefixlen - 96))
    return network


def _domain(text: str, first: int, last: int) -> Item:
    word = _WORDS.get(text.lower())
    if word in (Kind.SINGLE_LABEL, Kind.GATEWAY):
        return Item(word, "", None, first, last)
    name = text.removeprefix("*.") if text.startswith("*.") else text.removeprefix(".")
    name = _a_labels(name.removesuffix("."))
    if "*" in name:
        raise DeadItem("`*` stands alone or as `*.` in front\nwrite `*` or `*.corp.example`")
    if not _DOMAIN.match(name) or len(name) > 253:
        raise DeadItem("is no name, address or address block")
    try:
        host = parse_host(name)
    except InvalidAddress as problem:
        raise DeadItem(str(problem)) from None
    return Item(Kind.DOMAIN, host.name, None, first, last)


def _a_labels(name: str) -> str:
    if name.isascii():
        return name.lower()
    try:
        return name.encode("idna").decode("ascii").lower()
    except UnicodeError:
        return ""


def matched(items: tuple[Item, ...], destination: PinnedDestination) -> tuple[IpAddress, ...]:
    """The addresses of the destination that the list covers; none when it does not match.

    An item that speaks of the host covers all of them and decides at once. An address item against a name covers
    the resolved addresses inside it, and those of several items add up.
    """
    host, port = destination.origin.host, destination.origin.port
    covered: dict[IpAddress, None] = {}
    for item in items:
        if not item.first_port <= port <= item.last_port:
            continue
        if item.network is None:
            if _names(item, host, destination.mode):
                return destination.addresses
        elif host.literal:
            if host.address in item.network:
                return destination.addresses
        else:
            covered |= dict.fromkeys(address for address in destination.addresses if address in item.network)
    return tuple(covered)


def _names(item: Item, host: Host, mode: DialMode) -> bool:
    match item.kind:
        case Kind.ANY:
            return True
        case Kind.SINGLE_LABEL:
            return not host.literal and "." not in host.name
        case Kind.GATEWAY:
            return mode is DialMode.TRUSTED_GATEWAY
        case _:
            return not host.literal and (host.name == item.domain or host.name.endswith(f".{item.domain}"))
