"""An opened connection and an upgraded exchange, made by the stages themselves, without sockets or a proxy."""

from dataclasses import dataclass, field
from ipaddress import ip_address

from egress.destination.validate import DestinationSettings, Plan
from egress.events.event import Event, ExchangeDecided, FlowContext
from egress.generation.cell import RuntimeCell
from egress.generation.generation import AgentTerms, Generation
from egress.http.head import interpret_response
from egress.http.lexer import lex_response
from egress.l7.mcp_sessions import SessionTable
from egress.model.address import IpAddress
from egress.model.clock import SystemClock
from egress.model.destination import DialMode, PinnedDestination
from egress.model.ids import FlowId, GenerationNumber
from egress.model.intent import DEFAULT_AGENT, Ingress, SocketPair
from egress.model.message import RequestHead, ResponseHead, WireHead
from egress.model.process import Evidence, IdentityMode
from egress.model.request import UpstreamRequest
from egress.model.verdict import Denial
from egress.pipeline.connection import OpenedConnection
from egress.pipeline.exchange import Exchange
from egress.pipeline.ports import Services
from egress.pipeline.session import Session
from egress.policy.compiled import CompiledPolicy
from tests.support.websockets import KEY, switching
from tests.unit.policy.samples import SOCKETS, evidence, granted

HOST = "api.acme.test"


class Nobody:
    """An identity and a resolver that are never asked."""

    async def identify(self, pair: SocketPair) -> Evidence:
        raise AssertionError

    async def recheck(self, pair: SocketPair) -> Evidence:
        raise AssertionError

    async def resolve(self, plan: Plan) -> tuple[IpAddress, ...] | Denial:
        raise AssertionError


@dataclass
class Recorder:
    """Every event that was emitted."""

    events: list[Event] = field(default_factory=list)

    def emit(self, event: Event) -> None:
        self.events.append(event)

    @property
    def exchanges(self) -> list[ExchangeDecided]:
        return [event for event in self.events if isinstance(event, ExchangeDecided)]


@dataclass
class Opened:
    connection: OpenedConnection
    services: Services
    recorder: Recorder

    def install(self, policy: CompiledPolicy | None) -> None:
        """Make another policy current; None quarantines."""
        self.services.runtime.install(generation(policy, self.services.runtime.generation.number + 1))


def generation(policy: CompiledPolicy | None, number: int = 1) -> Generation:
    terms = AgentTerms(policy, IdentityMode.REQUIRED)
    quarantine = None if policy is not None else "the document is broken"
    return Generation(GenerationNumber(number), {DEFAULT_AGENT: terms}, "d1", quarantine)


def opened(policy: CompiledPolicy) -> Opened:
    recorder, clock, nobody = Recorder(), SystemClock(), Nobody()
    cell = RuntimeCell(generation(policy))
    authorization = granted(policy, HOST, by=evidence())
    origin = authorization.intent.origin
    context = FlowContext(FlowId("flow"), SOCKETS, DEFAULT_AGENT, Ingress.CONNECT, origin, evidence())
    pinned = PinnedDestination(origin, (ip_address("203.0.113.9"),), DialMode.DECLARED)
    services = Services(
        cell, nobody, nobody, recorder, clock, DestinationSettings(), lambda: frozenset(), SessionTable(clock), None
    )
    return Opened(OpenedConnection(authorization, pinned, cell.lease(), context), services, recorder)


def upgrade_head(target: str = "/ws", *offers: str) -> WireHead:
    lines = [
        (b"Host", HOST.encode()), (b"Connection", b"Upgrade"), (b"Upgrade", b"websocket"),
        (b"Sec-WebSocket-Version", b"13"), (b"Sec-WebSocket-Key", KEY.encode()),
        *((b"Sec-WebSocket-Extensions", offer.encode()) for offer in offers),
    ]  # fmt: skip
    return WireHead(b"GET", target.encode(), b"HTTP/1.1", tuple(lines))


def upgraded(ours: Opened, target: str = "/ws", *, deflate: str | None = None) -> tuple[Exchange, Session]:
    """The exchange after its 101; `deflate` is offered and agreed."""
    exchange = Exchange(ours.connection, ours.services, ours.connection.authorization.intent.origin, "http1", 1)
    head = exchange.begin(upgrade_head(target, *([deflate] if deflate else [])))
    assert isinstance(head, RequestHead), head
    assert isinstance(exchange.send(), UpstreamRequest)
    wire = lex_response(switching(sec_websocket_extensions=deflate or []))
    response = interpret_response(wire, "GET")  # type: ignore[arg-type]
    assert isinstance(response, ResponseHead)
    assert exchange.respond(response) is response
    session = exchange.session()
    assert session is not None
    return exchange, session
