"""What the pipeline needs of the outside, as protocols. Adapters satisfy them without importing this module."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from egress.credentials.aws.skew import Skew
from egress.credentials.scope import Place
from egress.destination.validate import DestinationSettings, OwnListeners, Plan
from egress.events.event import Event
from egress.generation.cell import RuntimeCell
from egress.l7.mcp_sessions import SessionTable
from egress.model.address import IpAddress
from egress.model.clock import Clock
from egress.model.intent import SocketPair
from egress.model.message import RequestHead, ResponseHead
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


class Grant(Protocol):
    """One token grant as it applies to a request."""

    def place(self, head: RequestHead, token: Secret) -> RequestHead:
        """The head with the token where the grant puts it, and nowhere else in that field."""
        ...


class Grants(Protocol):
    def match(self, place: Place) -> Grant | None:
        """The grant whose token a request to this place carries."""
        ...

    async def token(self, grant: Any) -> Secret | Denial:
        """A token, from memory or fetched. Never raises; has its own deadline."""
        ...

    def answered(self, grant: Any, response: ResponseHead) -> None:
        """What the origin says of a token: one that it calls invalid is not used again."""
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
