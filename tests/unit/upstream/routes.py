"""Short words for hops, destinations and sections."""

from ipaddress import ip_address
from pathlib import Path
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import Any

from egress.config.settings import Settings
from egress.documents.diagnostic import Diagnostic
from egress.documents.location import Location, path_text
from egress.model.address import Origin, Port, Scheme, parse_host
from egress.model.destination import DialMode, PinnedDestination
from egress.upstream.plan import Hop, HopKind, Place, Routes
from egress.upstream.settings import Surroundings, Trust, read_routes

_CONTEXT = SSLContext(PROTOCOL_TLS_CLIENT)


def place(host: str, port: int) -> Place:
    return Place(parse_host(host), Port(port))


def hop(name: str, kind: HopKind = HopKind.HTTP, **more: Any) -> Hop:
    return Hop(name, kind, place(f"{name}.test", 3128), **more)


def pinned(host: str, *addresses: str, port: int = 443, mode: DialMode = DialMode.DECLARED) -> PinnedDestination:
    origin = Origin(Scheme.HTTPS, parse_host(host), Port(port))
    return PinnedDestination(origin, tuple(map(ip_address, addresses or (host,))), mode)


def trust(ca_file: Path | None, client_cert: Path | None) -> Trust | str:
    return Trust(_CONTEXT, f"{ca_file} {client_cert}")


def read(section: dict[str, Any], **settings: Any) -> tuple[Routes, list[Diagnostic]]:
    """A section read as it would be from a file."""
    whole = Settings.model_validate({"version": 1, "upstream_proxy": section, **settings})
    found: list[Diagnostic] = []
    around = Surroundings(lambda path: Location(path_text(path)), trust, whole.listen.proxy)
    return read_routes(whole.upstream_proxy, around, found), found


def codes(section: dict[str, Any], **settings: Any) -> list[str]:
    """`code` of every problem with the key it is about, in order."""
    _, found = read(section, **settings)
    return [
        f"{item.location} {item.message.rpartition('(')[2].rstrip(')')}".removeprefix("upstream_proxy.")
        for item in found
    ]


def routes(section: dict[str, Any]) -> Routes:
    made, found = read(section)
    assert found == [], found
    return made
