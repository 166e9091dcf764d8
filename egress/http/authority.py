"""CONNECT, SNI, `Host` and `:authority` must name one host and port, or the request is refused.

An edge that picks the origin by `Host` would otherwise serve a host that policy never saw (domain fronting).
"""

from functools import lru_cache

from egress.model.address import DEFAULT_PORTS, Authority, InvalidAddress, Origin, parse_authority
from egress.model.message import Malformed
from egress.model.verdict import DenialCode

MISMATCH = Malformed(
    "HTTP request authority does not match the authorized tunnel endpoint", DenialCode.REQUEST_AUTHORITY_MISMATCH
)


def read_host_field(value: bytes) -> Authority | Malformed:
    """Read a `Host` field or `:authority`; userinfo and anything that is no authority are refused."""
    try:
        return parse_authority(value.decode("ascii"))
    except UnicodeDecodeError:
        return Malformed("Host is not ASCII")
    except InvalidAddress as error:
        return Malformed(f"Host: {error}")


def agrees(authority: Authority, origin: Origin) -> bool:
    """True when a written authority names `origin`; a missing port is the scheme's default."""
    port = authority.port if authority.port is not None else DEFAULT_PORTS[origin.scheme]
    return authority.host == origin.host and port == origin.port


@lru_cache(maxsize=4096)
def host_field(origin: Origin) -> bytes:
    """The `Host` value for an origin: the default port is left out, IPv6 is bracketed."""
    if DEFAULT_PORTS.get(origin.scheme) == origin.port:
        return origin.host.bracketed.encode()
    return f"{origin.host.bracketed}:{origin.port}".encode()
