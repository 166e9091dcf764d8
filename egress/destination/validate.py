"""From what policy says about addresses to the addresses that may be dialled, or a denial. Pure: no look-ups here.

First `plan` (which row governs), then a look-up by the resolver, then `validate` on everything it answered.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address

from egress.destination.ranges import METADATA_NAMES, AddressClass, classify, normalize
from egress.model.address import IpAddress, IpNetwork, Origin
from egress.model.destination import AddressRule, DialMode, PinnedDestination
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage

CONTROL_PLANE_PORTS = frozenset({2379, 2380, 6443, 10250, 10255})
"""etcd, the Kubernetes API, kubelet."""

GATEWAY_NAMES = frozenset({"host.openshell.internal", "host.containers.internal", "host.docker.internal"})

type OwnListeners = frozenset[tuple[IpAddress, int]]
"""Every (address, port) this process listens on; wildcard addresses are expanded by `local.expand_wildcards`."""


@dataclass(frozen=True, slots=True)
class DestinationSettings:
    """The operator's word on destinations: settings `destinations.*` and `errors.verbose`.

    `host_gateway` is the detected or configured address of the trusted host gateway, None when there is none.
    """

    aliases: Mapping[str, IpAddress] = field(default_factory=dict)
    host_gateway: IpAddress | None = None
    trust_declared_hosts: bool = True
    verbose: bool = False


KINDS = {
    DialMode.ALIAS: "alias check failed",
    DialMode.TRUSTED_GATEWAY: "trusted-gateway check failed",
    DialMode.ALLOWED_LIST: "allowed_ips check failed",
    DialMode.LITERAL: "allowed_ips check failed",
    DialMode.DECLARED: "declared endpoint check failed",
    DialMode.PUBLIC_ONLY: "internal address",
}
"""What a refused client is told."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How the addresses of one origin will be judged.

    `known` holds the addresses when no look-up is needed (literals, aliases), `allowed` the list of ALLOWED_LIST,
    `gateway` the one address of TRUSTED_GATEWAY. `declared`: a policy endpoint names the host literally. `ours`: a call
    of the proxy itself, in which the workload has no say.
    """

    origin: Origin
    mode: DialMode
    declared: bool
    known: tuple[IpAddress, ...] | None = None
    allowed: tuple[IpNetwork, ...] = ()
    gateway: IpAddress | None = None
    verbose: bool = False
    ours: bool = False


def plan(rule: AddressRule, origin: Origin, settings: DestinationSettings) -> Plan | Denial:
    """Choose the row of the destination table that governs an authorized origin."""
    chosen = _choose(rule, origin, settings)
    if origin.port in CONTROL_PLANE_PORTS and not rule.control_plane_port:
        reason = f"port {origin.port} is a blocked control-plane port, connection rejected"
        return _denied(chosen, ReasonCode.CONTROL_PLANE_PORT, reason)
    if origin.host.name in METADATA_NAMES:
        reason = f"{origin.host.name} is a cloud metadata name, connection rejected"
        return _denied(chosen, ReasonCode.SSRF_METADATA, reason)
    return chosen


def _choose(rule: AddressRule, origin: Origin, settings: DestinationSettings) -> Plan:
    host = origin.host

    def make(mode: DialMode, known: tuple[IpAddress, ...] | None = None) -> Plan:
        return Plan(
            origin, mode, rule.declared, known, rule.allowed or (), settings.host_gateway, verbose=settings.verbose
        )

    # A wildcard endpoint must not reach what the operator vouched for under one name.
    vouched = settings.aliases.get(host.name) if rule.declared else None
    literal = host.address
    if vouched is not None:
        return make(DialMode.ALIAS, (normalize(vouched),))
    if settings.host_gateway is not None and host.name in GATEWAY_NAMES:
        return make(DialMode.TRUSTED_GATEWAY)
    if rule.allowed is not None:
        return make(DialMode.ALLOWED_LIST, None if literal is None else (literal,))
    if literal is not None:
        return make(_literal_mode(literal, rule), (literal,))
    if rule.declared and settings.trust_declared_hosts:
        return make(DialMode.DECLARED)
    return make(DialMode.PUBLIC_ONLY)


def _literal_mode(literal: IpAddress, rule: AddressRule) -> DialMode:
    if classify(literal).blocked:
        return DialMode.DECLARED if rule.declared else DialMode.PUBLIC_ONLY
    return DialMode.LITERAL if rule.declared else DialMode.PUBLIC_ONLY


def validate(plan: Plan, answers: tuple[IpAddress, ...], own: OwnListeners) -> PinnedDestination | Denial:
    """Pin all answers, or refuse all of them: one bad address condemns the whole destination."""
    # A different answer for the same name would be a second look-up, whatever its source.
    addresses = tuple(dict.fromkeys(map(normalize, answers if plan.known is None else plan.known)))
    if not addresses:
        return Denial(
            Stage.DESTINATION,
            DenialCode.DNS_FAILED,
            "name resolution failed",
            ReasonCode.DNS_NO_ANSWER,
            log_reason=f"DNS resolution returned no addresses for {plan.origin.host.name}",
        )
    for address in addresses:
        refusal = _refusal(plan, address, own)
        if refusal is not None:
            code, reason = refusal
            return _denied(plan, code, f"{reason}, connection rejected", address)
    return PinnedDestination(plan.origin, addresses, plan.mode)


type _Refusal = tuple[ReasonCode, str]


def _refusal(plan: Plan, address: IpAddress, own: OwnListeners) -> _Refusal | None:
    if _is_own(address, plan.origin.port, own):
        return ReasonCode.OWN_LISTENER, f"{plan.origin} is a listener of this proxy"
    kind = classify(address)
    match plan.mode:
        case DialMode.TRUSTED_GATEWAY:
            return _gateway_refusal(plan, address, kind)
        case DialMode.ALIAS:
            permitted = kind in (AddressClass.LOOPBACK, AddressClass.LINK_LOCAL)
            return None if permitted else _blocked_refusal(plan, address, kind)
        case DialMode.PUBLIC_ONLY:
            return _internal_refusal(plan, address, kind)
        case DialMode.ALLOWED_LIST:
            return _blocked_refusal(plan, address, kind) or _unlisted_refusal(plan, address)
        case DialMode.LITERAL | DialMode.DECLARED:
            return _blocked_refusal(plan, address, kind)


def _is_own(address: IpAddress, port: int, own: OwnListeners) -> bool:
    if (address, port) in own:
        return True
    # All of 127.0.0.0/8 reaches a wildcard listener, and an alias may name any of it.
    wildcards = ((IPv4Address(0), port), (IPv6Address(0), port))
    return address.is_loopback and not own.isdisjoint(wildcards)


def _blocked_refusal(plan: Plan, address: IpAddress, kind: AddressClass) -> _Refusal | None:
    if not kind.blocked:
        return None
    code = ReasonCode.SSRF_METADATA if kind is AddressClass.METADATA else ReasonCode.SSRF_ALWAYS_BLOCKED
    return code, f"{plan.origin.host.name} resolves to always-blocked address {address}"


def _internal_refusal(plan: Plan, address: IpAddress, kind: AddressClass) -> _Refusal | None:
    if not kind.internal:
        return None
    blocked = _blocked_refusal(plan, address, kind)
    code = blocked[0] if blocked else ReasonCode.SSRF_PRIVATE
    return code, f"{plan.origin.host.name} resolves to internal address {address}"


def _unlisted_refusal(plan: Plan, address: IpAddress) -> _Refusal | None:
    if any(address in network for network in plan.allowed):
        return None
    return ReasonCode.NOT_IN_ALLOWED_IPS, f"{plan.origin.host.name} resolves to {address} which is not in allowed_ips"


def _gateway_refusal(plan: Plan, address: IpAddress, kind: AddressClass) -> _Refusal | None:
    name = plan.origin.host.name
    if kind is AddressClass.METADATA:
        return ReasonCode.SSRF_METADATA, f"{name} resolves to cloud metadata address {address}"
    if address != plan.gateway:
        mismatch = f"{name} resolves to {address} which does not match trusted host gateway {plan.gateway}"
        return ReasonCode.ALIAS_MISMATCH, mismatch
    if kind is not AddressClass.LINK_LOCAL:
        return ReasonCode.ALIAS_MISMATCH, f"{name} resolves to non-link-local address {address}"
    return None


def _denied(plan: Plan, code: ReasonCode, reason: str, address: IpAddress | None = None) -> Denial:
    kind = KINDS[plan.mode]
    told = f"{kind} ({address})" if plan.verbose and address is not None else kind
    return Denial(Stage.DESTINATION, DenialCode.SSRF_DENIED, told, code, log_reason=reason)
