"""The address of a corporate proxy, as operators write it. Strict: what is left over in a URL is a misunderstanding."""

import re
from dataclasses import dataclass

from egress.model.address import InvalidAddress, Port, parse_host
from egress.upstream.credential import Fault
from egress.upstream.plan import HopKind, Place, Target

_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>.*))?\Z", re.DOTALL)
_END = re.compile(r"[/?#]")
_BLANK = re.compile(r"[\x00-\x20\x7f]")
_PARTS = {"/": "path", "?": "query", "#": "fragment"}


@dataclass(frozen=True, slots=True)
class ProxyAddress:
    """`target` is set where the scheme itself says what the proxy is asked for."""

    kind: HopKind
    place: Place
    target: Target | None = None


_SCHEMES = {
    "http": (HopKind.HTTP, None),
    "https": (HopKind.HTTPS, None),
    "socks5": (HopKind.SOCKS5, None),
    "socks5h": (HopKind.SOCKS5, Target.HOSTNAME),
}


def read_proxy_address(text: str) -> ProxyAddress | Fault:
    """Read `scheme://host:port`. A fault repeats nothing of the text: it may hold a password."""
    text = text.strip()
    if not text:
        return Fault("empty_value", "is empty; leave the key out")
    scheme, separator, rest = text.partition("://")
    if not separator:
        return Fault("url_no_scheme", "has no scheme; write `http://HOST:PORT`")
    end = _END.search(rest)
    authority, tail = (rest[: end.start()], rest[end.start() :]) if end else (rest, "")
    _, at, location = authority.rpartition("@")
    split = _AUTHORITY.match(location)
    if split is None or not authority or _BLANK.search(text) or not _is_port(split["port"]):
        return Fault("url_unparsable", "is no URL")
    kind = _SCHEMES.get(scheme.lower())
    if kind is None:
        return Fault("url_bad_scheme", f"must begin with one of {', '.join(f'`{name}://`' for name in _SCHEMES)}")
    if at:
        return Fault("url_credentials", "holds credentials; put them into a file and name it in `auth`")
    fault = _component_fault(split["host"], tail, split["port"])
    return fault or _address(split["host"], int(split["port"]), *kind)


def _is_port(text: str | None) -> bool:
    return not text or (text.isascii() and text.isdigit() and int(text[:6]) <= 65535)


def _component_fault(host: str, tail: str, port: str | None) -> Fault | None:
    if not host:
        return Fault("url_no_host", "has no host")
    if tail not in ("", "/"):
        # A lone slash before `?` or `#` is no path worth naming.
        part = _PARTS[tail[1] if tail[0] == "/" and tail[1] in "?#" else tail[0]]
        return Fault("url_component", f"has a {part}; write only scheme, host and port")
    if not port:
        return Fault("url_no_port", "has no port; write it out, also 80 or 443")
    return Fault("url_zero_port", "has port 0") if int(port) == 0 else None


def _address(host: str, port: int, kind: HopKind, target: Target | None) -> ProxyAddress | Fault:
    try:
        return ProxyAddress(kind, Place(parse_host(host), Port(port)), target)
    except InvalidAddress:
        return Fault("url_unparsable", "has a host that is neither a name nor an address")
