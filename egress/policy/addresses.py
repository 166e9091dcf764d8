"""The `allowed_ips` of an endpoint: read at load, so that a bad list is a located error and no surprise at connect."""

import ipaddress

from egress.documents.findings import Findings
from egress.documents.location import KeyPath
from egress.model.address import IpNetwork
from egress.policy.document import EndpointModel
from egress.policy.hosts import HostPattern

_NEVER_REACHABLE: tuple[tuple[IpNetwork, str], ...] = (
    (ipaddress.ip_network("127.0.0.0/8"), "loopback"),
    (ipaddress.ip_network("169.254.0.0/16"), "link-local"),
    (ipaddress.ip_network("0.0.0.0/32"), "unspecified"),
    (ipaddress.ip_network("::1/128"), "loopback"),
    (ipaddress.ip_network("fe80::/10"), "link-local"),
    (ipaddress.ip_network("::/128"), "unspecified"),
)
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_BROAD = {4: 16, 6: 48}


def read_network(text: str) -> IpNetwork:
    """A block or a single address; host bits are dropped, IPv4-mapped blocks become IPv4. Raises `ValueError`."""
    network = ipaddress.ip_network(text.strip(), strict=False)
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED):
        base = int(network.network_address) & 0xFFFFFFFF
        return ipaddress.IPv4Network((base, network.prefixlen - 96))
    return network


def check_allowed_ips(findings: Findings, path: KeyPath, model: EndpointModel, pattern: HostPattern | None) -> None:
    """Report every entry that can't be used and every one that is probably not meant."""
    if model.wrote("allowed_ips") and not model.allowed_ips:
        findings.error(path, "must not be empty", "leave the key out to allow public addresses")
    networks = []
    for position, text in enumerate(model.allowed_ips):
        try:
            network = read_network(text)
        except ValueError:
            hint = "write `10.20.0.0/16` or `10.20.0.7`"
            findings.error((*path, position), "not an address or block", hint)
            continue
        networks.append(network)
        _check_network(findings, (*path, position), network)
    complete = bool(networks) and len(networks) == len(model.allowed_ips)
    public = complete and all(network.is_global for network in networks)
    if public and pattern is not None and not pattern.wildcard:
        says = "lists only public blocks for a host that is written out"
        findings.warning(path, says, "the host alone is enough; a list makes every other address unreachable")


def _check_network(findings: Findings, path: KeyPath, network: IpNetwork) -> None:
    for blocked, kind in _NEVER_REACHABLE:
        if network.version == blocked.version and network.overlaps(blocked):
            findings.error(path, f"includes {kind} addresses, which are never reachable", "write narrower blocks")
            return
    if network.version == 6 and network.overlaps(_MAPPED):
        findings.error(path, "includes IPv4 addresses in IPv6 spelling", "write the IPv4 block")
    elif network.prefixlen < _BROAD[network.version]:
        findings.warning(path, f"a block wider than /{_BROAD[network.version]} reaches very many addresses")
