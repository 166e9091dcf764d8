"""The way to a destination: direct, or through which corporate proxies. A pure function of the rules, the destination
and its checked addresses."""

import ssl
from dataclasses import dataclass, field
from enum import StrEnum

from egress.model.address import Host, IpAddress, Port
from egress.model.destination import PinnedDestination
from egress.model.intent import Ingress
from egress.model.verdict import Denial, DenialCode, Stage
from egress.upstream.bypass import Item, matched
from egress.upstream.credential import CredentialFile

MAX_HOPS = 3
_LOCALHOST = "localhost"

PLAIN_DENIED = Denial(
    Stage.UPSTREAM, DenialCode.POLICY_DENIED, "requests without TLS are not let out (upstream_proxy.plain_http)"
)


class HopKind(StrEnum):
    HTTP = "http"
    HTTPS = "https"
    SOCKS5 = "socks5"


class Target(StrEnum):
    """What the last proxy is asked for: an address that we checked, or the name, which it resolves again."""

    IP = "ip"
    HOSTNAME = "hostname"


class PlainHttp(StrEnum):
    """How requests leave that came in absolute-form."""

    DIRECT = "direct"
    ABSOLUTE_FORM = "absolute-form"
    CONNECT = "connect"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Place:
    """Host and port that a hop is asked to reach."""

    host: Host
    port: Port

    def __str__(self) -> str:
        return f"{self.host.bracketed}:{self.port}"


@dataclass(frozen=True, slots=True)
class Hop:
    """One corporate proxy. `trust` is a digest over its certificate files, so that hops differ when those do."""

    name: str
    kind: HopKind
    place: Place
    server_name: str = ""
    trust: str = ""
    credential: CredentialFile | None = None
    context: ssl.SSLContext | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.name} ({self.kind} {self.place})"


type Chain = tuple[Hop, ...]


@dataclass(frozen=True, slots=True)
class Direct:
    """No proxy. `addresses` narrows the pinned ones down, None leaves them all."""

    addresses: tuple[IpAddress, ...] | None = None


ALL_DIRECT = Direct()


@dataclass(frozen=True, slots=True)
class Hops:
    """Through one of `chains`, the first that works. `absolute`: a plain request is told to the last proxy in
    absolute-form, where that speaks HTTP."""

    chains: tuple[Chain, ...]
    addresses: tuple[IpAddress, ...]
    target: Target = Target.IP
    absolute: bool = False

    def __str__(self) -> str:
        """Names alone, as `corp > bastion or other`."""
        return " or ".join(" > ".join(hop.name for hop in chain) for chain in self.chains)


type Route = Direct | Hops | Denial


@dataclass(frozen=True, slots=True)
class Rule:
    """Destinations and their way; no chains: direct."""

    items: tuple[Item, ...]
    chains: tuple[Chain, ...]
    target: Target = Target.IP


@dataclass(frozen=True, slots=True)
class HealthTerms:
    """`probe` is the place that a CONNECT check asks for; None only opens the connection."""

    interval: float = 15.0
    fail_after: int = 3
    enabled: bool = True
    probe: Place | None = None
    verify_at_start: bool = False


@dataclass(frozen=True, slots=True)
class Routes:
    """Everything the operator said about ways out. Without rules there is no proxy and everything is direct; with
    rules the last one matches whatever is left, and nothing falls through to direct."""

    no_proxy: tuple[Item, ...] = ()
    rules: tuple[Rule, ...] = ()
    plain_http: PlainHttp = PlainHttp.DIRECT
    seconds: float = 30.0
    health: HealthTerms = HealthTerms()
    hops: tuple[Hop, ...] = ()

    def first_hops(self) -> tuple[Hop, ...]:
        """The proxies that we reach ourselves; no other may be connected to from here."""
        chains = (chain for rule in self.rules for chain in rule.chains)
        return tuple(dict.fromkeys(chain[0] for chain in chains))


NO_ROUTES = Routes()


def plan(routes: Routes, destination: PinnedDestination, ingress: Ingress) -> Route:
    """The way to a destination."""
    plain = routes.plain_http if ingress is Ingress.FORWARD else PlainHttp.CONNECT
    if plain is PlainHttp.DENY:
        return PLAIN_DENIED
    if not routes.rules or plain is PlainHttp.DIRECT or _is_this_host(destination):
        return ALL_DIRECT
    bypassed = matched(routes.no_proxy, destination)
    if bypassed:
        return _direct(bypassed, destination)
    for rule in routes.rules:
        addresses = matched(rule.items, destination)
        if addresses:
            if not rule.chains:
                return _direct(addresses, destination)
            return Hops(rule.chains, addresses, rule.target, plain is PlainHttp.ABSOLUTE_FORM)
    raise AssertionError("the last rule matches everything")


def _direct(addresses: tuple[IpAddress, ...], destination: PinnedDestination) -> Direct:
    return ALL_DIRECT if addresses == destination.addresses else Direct(addresses)


def _is_this_host(destination: PinnedDestination) -> bool:
    """Loopback by literal, or `localhost` when that is what it resolved to: the hosts file that says so may be the
    workload's, and must not send another address past the proxy."""
    host = destination.origin.host
    if host.address is not None:
        return host.address.is_loopback
    return host.name == _LOCALHOST and all(address.is_loopback for address in destination.addresses)
