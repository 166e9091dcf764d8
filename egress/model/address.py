"""Names and addresses in one canonical spelling.

Built only through the parsers of this module: a `Host` that exists is lower case, without a trailing dot, a
compressed IP literal or a legal DNS name.
"""

import ipaddress
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NewType

type IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
type IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

Port = NewType("Port", int)

MAX_HOST_LENGTH = 253
MAX_LABEL_LENGTH = 63

_NAME = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\Z")
_PORT = re.compile(r"[0-9]{1,5}\Z", re.ASCII)
_NUMERIC = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+))*\Z")


class Scheme(StrEnum):
    HTTP = "http"
    HTTPS = "https"
    TCP = "tcp"


class InvalidAddress(ValueError):
    """The text names no host or authority; the message says why and repeats nothing of the text."""


@dataclass(frozen=True, slots=True)
class Host:
    """A DNS name in lower-case A-label form, or a canonical IP literal (`literal`), without brackets."""

    name: str
    literal: bool

    @property
    def bracketed(self) -> str:
        """The spelling used in an authority: IPv6 literals in brackets."""
        return f"[{self.name}]" if self.literal and ":" in self.name else self.name

    @property
    def address(self) -> IpAddress | None:
        """The address of a literal, else None."""
        return ipaddress.ip_address(self.name) if self.literal else None


@dataclass(frozen=True, slots=True)
class Authority:
    """Host and port as written by a peer; `port` is None when it was left out."""

    host: Host
    port: Port | None


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port, canonical."""

    scheme: Scheme
    host: Host
    port: Port

    def __str__(self) -> str:
        return f"{self.host.bracketed}:{self.port}"


DEFAULT_PORTS = {Scheme.HTTP: Port(80), Scheme.HTTPS: Port(443)}


@lru_cache(maxsize=4096)
def parse_host(text: str) -> Host:
    """Read a host name or IP literal (IPv6 with or without brackets); one trailing dot is dropped.

    Raises `InvalidAddress` for anything that is neither, numeric spellings that are no canonical literal
    included (`127.1`, `0x7f000001`): resolvers disagree on what they mean.
    """
    if text.startswith("["):
        if not text.endswith("]"):
            raise InvalidAddress("unclosed bracket in host")
        return _literal(text[1:-1], version=6)
    if ":" in text:
        return _literal(text, version=6)
    name = text.lower().removesuffix(".")
    if not name:
        raise InvalidAddress("empty host")
    if len(name) > MAX_HOST_LENGTH:
        raise InvalidAddress(f"host is longer than {MAX_HOST_LENGTH} bytes")
    if not _NAME.match(name):
        raise InvalidAddress("host is not a DNS name")
    if _NUMERIC.match(name):
        return _literal(name, version=4)
    return Host(name, literal=False)


def _literal(text: str, *, version: int) -> Host:
    if "%" in text:
        raise InvalidAddress("zone identifiers are not accepted")
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise InvalidAddress("host looks numeric but is no canonical IP literal") from None
    if address.version != version:
        raise InvalidAddress("brackets are for IPv6 literals")
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return Host(str(mapped or address), literal=True)


def parse_port(text: str) -> Port:
    """Read a decimal port in 1 to 65535, digits only."""
    if not _PORT.match(text) or not 0 < int(text) < 65536:
        raise InvalidAddress("port is not a number from 1 to 65535")
    return Port(int(text))


@lru_cache(maxsize=4096)
def parse_authority(text: str) -> Authority:
    """Read `host`, `host:port` or `[v6]:port` (RFC 3986 section 3.2 without userinfo)."""
    if "@" in text:
        raise InvalidAddress("userinfo is not accepted")
    if text.startswith("["):
        literal, closed, rest = text.partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise InvalidAddress("unclosed bracket in host")
        port = parse_port(rest[1:]) if rest else None
        return Authority(parse_host(literal + "]"), port)
    name, colon, port_text = text.partition(":")
    if ":" in port_text:
        raise InvalidAddress("IPv6 literals need brackets")
    return Authority(parse_host(name), parse_port(port_text) if colon else None)
