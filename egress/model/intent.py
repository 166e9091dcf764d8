"""What is asked, before any decision."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from egress.model.address import IpAddress, Origin, Port
from egress.model.ids import FlowId

AgentName = NewType("AgentName", str)

DEFAULT_AGENT = AgentName("default")


class Ingress(StrEnum):
    """How a request reached the proxy."""

    CONNECT = "connect"
    FORWARD = "forward"


@dataclass(frozen=True, slots=True)
class SocketPair:
    """The accepted TCP 4-tuple, client first. IPv4-mapped IPv6 addresses are unmapped."""

    client: IpAddress
    client_port: Port
    proxy: IpAddress
    proxy_port: Port


@dataclass(frozen=True, slots=True)
class EgressIntent:
    """One request to leave: who is connected to us, how, and where to."""

    flow: FlowId
    ingress: Ingress
    agent: AgentName
    origin: Origin
    client: SocketPair
