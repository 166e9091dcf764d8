"""Where bytes may go: the terms policy sets, and what came of them."""

from dataclasses import dataclass
from enum import StrEnum

from egress.model.address import IpAddress, IpNetwork, Origin


class TlsMode(StrEnum):
    """`auto`: TLS is recognised and terminated; `skip`: bytes are relayed unread."""

    AUTO = "auto"
    SKIP = "skip"


class DialMode(StrEnum):
    """Which row of identity-and-destinations.md section 7 governs the addresses of a destination."""

    ALIAS = "alias"
    TRUSTED_GATEWAY = "trusted_gateway"
    ALLOWED_LIST = "allowed_list"
    LITERAL = "literal"
    DECLARED = "declared_host"
    PUBLIC_ONLY = "public_only"


@dataclass(frozen=True, slots=True)
class AddressRule:
    """What the matched endpoints say about addresses.

    `allowed` is None without `allowed_ips`. `declared` is true when some matching endpoint names the host
    literally and is not advisor-proposed.
    """

    allowed: tuple[IpNetwork, ...] | None = None
    declared: bool = False
    control_plane_port: bool = False


@dataclass(frozen=True, slots=True)
class PinnedDestination:
    """The only addresses that may be dialled for this origin; never empty."""

    origin: Origin
    addresses: tuple[IpAddress, ...]
    mode: DialMode
