"""The scalar types of the settings file: durations, sizes, addresses, paths. Each reads one spelling and says in
one line what it wanted when it finds another."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from egress.model.address import Host, InvalidAddress, IpAddress, parse_authority, parse_host

_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h|d)\Z", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MAX_SECONDS = 366 * 86400
_MAX_MOMENT = 30
_SIZE = re.compile(r"([0-9]{1,15})(B|KiB|MiB|GiB)?\Z", re.ASCII)
_BYTES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}\Z", re.ASCII)
_PORT = re.compile(r"[0-9]{1,5}\Z", re.ASCII)
_MODE = re.compile(r"0[0-7]{3}\Z", re.ASCII)
_HIDDEN_TEXT = re.compile(r"[\x00-\x1f\x7f]")
_MAX_PATH = 4096
AUTO = "auto"
OFF = "off"


@dataclass(frozen=True, slots=True)
class Wording:
    """How the reference calls a type."""

    text: str


@dataclass(frozen=True, slots=True)
class SocketAddress:
    """Where we listen, or whom we ask: a literal address and a port. Port 0 picks a free one."""

    host: Host
    port: int

    def __str__(self) -> str:
        return f"{self.host.bracketed}:{self.port}"

    @property
    def loopback(self) -> bool:
        address = self.host.address
        return address is not None and address.is_loopback


def read_duration(value: object) -> float:
    """Seconds, from `200ms`, `5s`, `15m`, `24h`, `7d` or a bare number of seconds."""
    seconds = _bare_number(value)
    if seconds is None and isinstance(value, str) and (match := _DURATION.match(value)):
        seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds is None:
        raise ValueError("must be a duration\nwrite `200ms`, `5s`, `15m`, `24h`, or a number of seconds")
    if not 0 <= seconds <= _MAX_SECONDS:
        raise ValueError("must be between 0 and 366 days")
    return seconds


def read_wait(value: object) -> float:
    """A duration that something is given to finish in; none at all would refuse everything."""
    seconds = read_duration(value)
    if seconds == 0:
        raise ValueError("must be more than 0")
    return seconds


def read_moment(value: object) -> float:
    """A duration so short that nobody is surprised by what still happens within it."""
    seconds = read_duration(value)
    if seconds > _MAX_MOMENT:
        raise ValueError(f"must be at most {_MAX_MOMENT}s")
    return seconds


def read_uid(value: object) -> int:
    """A user id. -1 stands for nobody in system calls and is refused."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32 - 1:
        return value
    raise ValueError("must be a user id")


def read_size(value: object) -> int:
    """Bytes, from a bare number or `64KiB`, `16MiB`, `1GiB`."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and (match := _SIZE.match(value)):
        return int(match[1]) * _BYTES[match[2] or "B"]
    raise ValueError("must be a size\nwrite a number of bytes, or `64KiB`, `16MiB`, `1GiB`")


def read_address(value: object) -> SocketAddress:
    """`127.0.0.1:3128` or `[::1]:3128`."""
    if isinstance(value, SocketAddress):
        return value
    text = _text(value)
    name, _, port = text.rpartition(":")
    # A listener must not depend on what a resolver says; this one name means the same everywhere.
    name = "127.0.0.1" if name == "localhost" else name
    if not _PORT.match(port) or int(port) > 65535:
        raise ValueError("the port is missing or not a number from 0 to 65535\nwrite `127.0.0.1:3128`")
    try:
        host = parse_authority(name).host
    except InvalidAddress as error:
        raise ValueError(f"{error}\nwrite `127.0.0.1:3128` or `[::1]:3128`") from None
    if not host.literal:
        raise ValueError("must be an IP address and a port, not a name\nwrite `127.0.0.1:3128`")
    return SocketAddress(host, int(port))


def read_resolver(value: object) -> SocketAddress:
    """A name server: an address, with a port when it is not 53."""
    try:
        host = parse_host(_text(value))
    except InvalidAddress:
        return read_address(value)
    return SocketAddress(host, 53) if host.literal else read_address(value)


def read_literal(value: object) -> IpAddress:
    """One IP address."""
    try:
        address = parse_host(_text(value)).address
    except InvalidAddress:
        address = None
    if address is None:
        raise ValueError("must be one IP address")
    return address


def read_gateway(value: object) -> IpAddress | str:
    """One IP address, `auto` or `off`."""
    return value if isinstance(value, str) and value in (AUTO, OFF) else read_literal(value)


def read_network(value: object) -> IPv4Network | IPv6Network:
    """`10.0.0.0/24`, or one address."""
    try:
        return ip_network(_text(value))
    except ValueError:
        raise ValueError("must be an address block without host bits\nwrite `10.0.0.0/24`") from None


def read_host(value: object) -> Host:
    """A DNS name."""
    if isinstance(value, Host):
        return value
    try:
        host = parse_host(_text(value))
    except InvalidAddress as error:
        raise ValueError(str(error)) from None
    if host.literal:
        raise ValueError("must be a name, not an address")
    return host


def read_path(value: object) -> Path:
    """A path as written; the loader makes it absolute."""
    if isinstance(value, Path):
        return value
    text = _text(value)
    if not text or len(text) > _MAX_PATH or _HIDDEN_TEXT.search(text):
        raise ValueError("must be a path")
    return Path(text)


def read_path_or_word(value: object) -> Path | str:
    """A path, `auto` or `off`."""
    return value if isinstance(value, str) and value in (AUTO, OFF) else read_path(value)


def read_pid_or_path(value: object) -> int | Path:
    """A process id, or a path."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value <= 0:
            raise ValueError("must be a process id or a path")
        return value
    return read_path(value)


def read_token(value: object) -> str:
    """A token as HTTP defines it (RFC 9110 section 5.6.2)."""
    text = _text(value)
    if not _TOKEN.match(text):
        raise ValueError("must be one word of letters, digits and `-._`")
    return text


def read_mode(value: object) -> int:
    """Permission bits, quoted: YAML reads a bare 0600 as six hundred."""
    if isinstance(value, str) and _MODE.match(value):
        return int(value, 8)
    raise ValueError('must be four octal digits in quotes\nwrite "0600"')


def read_count(value: object) -> int:
    """A whole number above zero."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ValueError("must be a whole number above 0")


def one_or_many[T](read: Callable[[object], T]) -> Callable[[object], tuple[T, ...]]:
    """A single value stands for a list of one."""

    def read_all(value: object) -> tuple[T, ...]:
        if isinstance(value, list) and not value:
            raise ValueError("must not be empty")
        return tuple(read(item) for item in (value if isinstance(value, list) else [value]))

    return read_all


def or_word[T](word: str, read: Callable[[object], T]) -> Callable[[object], T | None]:
    """`word` stands for None."""

    def read_or_word(value: object) -> T | None:
        return None if value == word else read(value)

    return read_or_word


def _many(value: object) -> tuple[Any, ...]:
    if isinstance(value, tuple):
        return value
    if isinstance(value, list):
        return tuple(value)
    raise ValueError("must be a list")


def _some(value: object) -> tuple[Any, ...]:
    """An empty list of matchers would read as "anybody"."""
    items = _many(value)
    if not items:
        raise ValueError("must not be empty\nleave the key out instead")
    return items


def _bare_number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text\nput quotes around it")  # noqa: TRY004 -- pydantic reports ValueError only
    return value


type Some[T] = Annotated[tuple[T, ...], BeforeValidator(_some)]
type Many[T] = Annotated[tuple[T, ...], BeforeValidator(_many)]

Duration = Annotated[float, BeforeValidator(read_duration), Wording("duration")]
Wait = Annotated[float, BeforeValidator(read_wait), Wording("duration")]
Moment = Annotated[float, BeforeValidator(read_moment), Wording("duration")]
WaitOrOff = Annotated[float | None, BeforeValidator(or_word(OFF, read_wait)), Wording("duration or `off`")]
Size = Annotated[int, BeforeValidator(read_size), Wording("size")]
Uid = Annotated[int, BeforeValidator(read_uid), Wording("uid")]
Count = Annotated[int, BeforeValidator(read_count), Wording("int")]
CountOrAuto = Annotated[int | None, BeforeValidator(or_word(AUTO, read_count)), Wording("int or `auto`")]
FilePath = Annotated[Path, BeforeValidator(read_path), Wording("path")]
Approved = Annotated[
    Path | Literal["auto", "off"], BeforeValidator(read_path_or_word), Wording("`auto`, path or `off`")
]
FilePaths = Annotated[tuple[Path, ...], BeforeValidator(one_or_many(read_path)), Wording("path or list of paths")]
Address = Annotated[SocketAddress, BeforeValidator(read_address), Wording("address")]
Addresses = Annotated[
    tuple[SocketAddress, ...], BeforeValidator(one_or_many(read_address)), Wording("address or list of addresses")
]
Resolver = Annotated[SocketAddress, BeforeValidator(read_resolver), Wording("address")]
Literal4Or6 = Annotated[IpAddress, BeforeValidator(read_literal), Wording("IP address")]
Network = Annotated[IPv4Network | IPv6Network, BeforeValidator(read_network), Wording("address block")]
DnsName = Annotated[Host, BeforeValidator(read_host), Wording("name")]
PidOrPath = Annotated[int | Path, BeforeValidator(read_pid_or_path), Wording("pid or path")]
HostGateway = Annotated[
    IpAddress | Literal["auto", "off"], BeforeValidator(read_gateway), Wording("`auto`, IP address or `off`")
]
Word = Annotated[str, BeforeValidator(read_token), Wording("word")]
TokenOrOff = Annotated[str | None, BeforeValidator(or_word(OFF, read_token)), Wording("word or `off`")]
Mode = Annotated[int, BeforeValidator(read_mode), Wording("octal text")]
