"""What the pipeline needs of the outside, as protocols. Adapters satisfy them without importing this module."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from egress.credentials.aws.skew import Skew
from egress.credentials.grant_rules import GrantChoice
from egress.credentials.scope import Place
from egress.destination.validate import DestinationSettings, OwnListeners, Plan
from egress.events.event import Event
from egress.generation.cell import RuntimeCell
from egress.l7.mcp_sessions import SessionTable
from egress.model.address import IpAddress
from egress.model.clock import Clock
from egress.model.intent import SocketPair
from egress.model.process import Evidence
from egress.model.secret import Secret
from egress.model.verdict import Denial


class Identity(Protocol):
    async def identify(self, pair: SocketPair) -> Evidence:
        """Who owns the client's socket. Never raises; has its own deadline."""
        ...

    async def recheck(self, pair: SocketPair) -> Evidence:
        """The same, asked anew."""
        ...


class Names(Protocol):
    async def resolve(self, plan: Plan) -> tuple[IpAddress, ...] | Denial:
        """Every address of the plan's host, looked up once."""
        ...


class Events(Protocol):
    def emit(self, event: Event) -> None:
        """Never blocks, never raises."""
        ...


class Grants(Protocol):
    def match(self, place: Place) -> GrantChoice | None:
        """The grant whose token a request to this place carries."""
        ...

    async def token(self, choice: GrantChoice) -> Secret | Denial:
        """A token, from memory or fetched. Never raises; has its own deadline."""
        ...

    def evict(self, choice: GrantChoice, used: Secret) -> None:
        """The origin calls this token invalid: it is not used again."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """The ports of one process, put together in `egress/app.py`."""

    runtime: RuntimeCell
    identity: Identity
    names: Names
    events: Events
    clock: Clock
    destinations: DestinationSettings
    own_listeners: Callable[[], OwnListeners]
    mcp_sessions: SessionTable
    via: bytes | None
    """Product token of the `Via` field, None when it is off."""
    skew: Skew = field(default_factory=Skew)
    grants: Grants | None = None
    """Token grants; None where no provider has one."""
