"""The hosts-file format: addresses of one name, and the trusted gateway found through it. Reads no files."""

import ipaddress

from egress.destination.ranges import AddressClass, classify, normalize
from egress.model.address import IpAddress

GATEWAY_ENTRY = "host.openshell.internal"


def addresses_of(name: str, hosts_file: str) -> tuple[IpAddress, ...]:
    """The addresses that a hosts file gives a lower-case name, in order, each once; rows it cannot read are skipped."""
    found: dict[IpAddress, None] = {}
    for line in hosts_file.splitlines():
        text, *names = line.partition("#")[0].split() or [""]
        if any(candidate.lower().removesuffix(".") == name for candidate in names):
            try:
                found[normalize(ipaddress.ip_address(text))] = None
            except ValueError:
                continue
    return tuple(found)


def detect_gateway(hosts_file: str) -> IpAddress | None:
    """The trusted host gateway of a rootless container: the first address of its entry, if that is link-local."""
    addresses = addresses_of(GATEWAY_ENTRY, hosts_file)
    # The metadata service is link-local too; classify() knows it apart.
    if addresses and classify(addresses[0]) is AddressClass.LINK_LOCAL:
        return addresses[0]
    return None
