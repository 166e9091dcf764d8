"""One decision without a network: the stages of the data path, run on a request that somebody thought up.

Nothing is dialled, remembered or counted. What the stages need from outside is given, or assumed and said so.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from ipaddress import IPv4Address

from egress.destination.ranges import classify
from egress.destination.validate import DestinationSettings, OwnListeners, Plan
from egress.events.event import Event
from egress.generation.cell import RuntimeCell
from egress.generation.generation import AgentTerms, Generation
from egress.http.head import interpret_forward
from egress.http.replies import Scene, refusal
from egress.l7.mcp_sessions import SessionTable
from egress.model.address import IpAddress, Origin, Port
from egress.model.clock import SystemClock
from egress.model.destination import TlsMode
from egress.model.ids import new_flow_id
from egress.model.intent import AgentName, EgressIntent, Ingress, SocketPair
from egress.model.message import Malformed, RequestHead, WireHead
from egress.model.process import Evidence, EvidenceUnavailable, IdentityMode, ProcessEvidence, UnavailableReason
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage
from egress.pipeline.answer import Answer, Decision, Step
from egress.pipeline.connection import OpenedConnection, Refused, open_connection
from egress.pipeline.exchange import UNREADABLE_PATH, Exchange
from egress.pipeline.explain_exchange import Content, answer_exchange
from egress.pipeline.ports import Names, Services
from egress.policy.explain import Miss, nearest_miss

_LOOPBACK = IPv4Address("127.0.0.1")
_PUBLIC = IPv4Address("8.8.8.8")
_NOBODY = EvidenceUnavailable(UnavailableReason.OFF, "no program was named")


class Payload(StrEnum):
    """What follows a CONNECT: nothing yet, or bytes that are no HTTP."""

    NOTHING = "nothing"
    RAW = "raw"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked for and by whom. `origin` has the scheme that will be spoken. `evidence` is None when the program
    is left open. A `Malformed` request is one that the lexer refused. `content` follows the head."""

    agent: AgentName
    ingress: Ingress
    origin: Origin
    request: WireHead | Malformed | Payload
    evidence: Evidence | None = None
    content: Content = field(default_factory=Content)


@dataclass(frozen=True, slots=True)
class World:
    """What answers are given by. Without `names` no name is looked up: addresses that policy permits are assumed."""

    generation: Generation
    destinations: DestinationSettings
    own_listeners: OwnListeners = frozenset()
    names: Names | None = None


async def explain(question: Question, world: World) -> Answer:
    """Run the question through every stage up to the verdict."""
    services = _services(question, world)
    head = _forwarded(question)
    if isinstance(head, Malformed):
        return _unreadable(question, head)
    pair = SocketPair(_LOOPBACK, Port(1), _LOOPBACK, Port(1))
    intent = EgressIntent(new_flow_id(), question.ingress, question.agent, question.origin, pair)
    opened = await open_connection(intent, services)
    if isinstance(opened, Refused):
        return _refused(question, world, intent, opened, head)
    steps = tuple(_admitted(question, world, opened))
    if question.request is Payload.NOTHING:
        return Answer(Decision.ALLOW, steps)
    exchange = Exchange(opened, services, question.origin, "explain", 1)
    if question.request is Payload.RAW:
        return _raw(exchange, opened, steps)
    if opened.authorization.tls is TlsMode.SKIP and question.ingress is Ingress.CONNECT:
        return Answer(Decision.ALLOW, (*steps, Step(Stage.L7, Decision.ALLOW, "`tls: skip`: requests are not read")))
    answer = answer_exchange(exchange, head or question.request, question.content, opened)
    return replace(answer, trace=(*steps, *answer.trace))


class _Given:
    """Evidence that was handed in."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    async def identify(self, pair: SocketPair) -> Evidence:
        del pair
        return self._evidence

    async def recheck(self, pair: SocketPair) -> Evidence:
        return await self.identify(pair)


class _Hoped:
    """Names that lead wherever their plan permits: the question is policy, not today's DNS."""

    async def resolve(self, plan: Plan) -> tuple[IpAddress, ...] | Denial:
        if plan.known is not None:
            return plan.known
        if plan.gateway is not None and plan.mode.value == "trusted_gateway":
            return (plan.gateway,)
        for network in plan.allowed:
            first = network.network_address
            return (first if not classify(first).blocked or network.num_addresses == 1 else first + 1,)
        return (_PUBLIC,)


class _Nowhere:
    """Events of thought experiments are told to nobody."""

    def emit(self, event: Event) -> None:
        del event


def _services(question: Question, world: World) -> Services:
    generation = world.generation
    if question.evidence is None:
        generation = replace(generation, agents={name: _open(terms) for name, terms in generation.agents.items()})
    return Services(
        runtime=RuntimeCell(generation),
        identity=_Given(question.evidence or _NOBODY),
        names=world.names or _Hoped(),
        events=_Nowhere(),
        clock=SystemClock(),
        destinations=world.destinations,
        own_listeners=lambda: world.own_listeners,
        mcp_sessions=SessionTable(SystemClock()),
        via=None,
    )


def _open(terms: AgentTerms) -> AgentTerms:
    """With the program left open, what every program may do is still decided."""
    return replace(terms, identity=IdentityMode.OPTIONAL) if terms.identity is IdentityMode.REQUIRED else terms


def _forwarded(question: Question) -> RequestHead | Malformed | None:
    """The meaning of an absolute-form request, which the connection scope needs; None inside a tunnel."""
    request = question.request
    if question.ingress is Ingress.CONNECT or isinstance(request, Payload):
        return None
    return interpret_forward(request) if isinstance(request, WireHead) else request


def _unreadable(question: Question, fault: Malformed) -> Answer:
    """A request on the proxy port that cannot be read."""
    denial = Denial(Stage.L7, fault.code, fault.reason)
    scene = Scene(request_id=new_flow_id(), ingress=Ingress.FORWARD, origin=question.origin, path=UNREADABLE_PATH)
    step = Step(Stage.L7, Decision.DENY, fault.reason)
    return Answer(Decision.DENY, (step,), denial, reply=refusal(denial, scene))


def _refused(
    question: Question, world: World, intent: EgressIntent, refused: Refused, head: RequestHead | None
) -> Answer:
    denial = refused.denial
    evidence = refused.context.evidence or _NOBODY
    steps = [] if denial.stage is Stage.IDENTITY else [_identified(question, evidence)]
    if denial.stage is Stage.DESTINATION:
        steps.append(Step(Stage.POLICY, Decision.ALLOW, f"entry {refused.context.entry}"))
    if question.evidence is None and denial.reason_code is ReasonCode.BINARY_NOT_ALLOWED:
        steps.append(Step(denial.stage, Decision.UNDECIDABLE, "it depends on the program that asks; name one"))
        return Answer(Decision.UNDECIDABLE, tuple(steps), misses=_connection_misses(world, intent, evidence))
    steps.append(Step(denial.stage, Decision.DENY, denial.log_reason or denial.reason))
    scene = Scene(
        request_id=intent.flow,
        ingress=intent.ingress,
        method=head.method if head else "CONNECT",
        origin=intent.origin,
        path=head.path if head else "",
        binary=evidence.executable if isinstance(evidence, ProcessEvidence) else None,
    )
    misses = _connection_misses(world, intent, evidence) if denial.stage is Stage.POLICY else ()
    return Answer(Decision.DENY, tuple(steps), denial, denial.rule, refusal(denial, scene), misses)


def _connection_misses(world: World, intent: EgressIntent, evidence: Evidence) -> tuple[Miss, ...]:
    terms = world.generation.agents.get(intent.agent)
    return nearest_miss(terms.policy, intent, evidence) if terms is not None and terms.policy is not None else ()


def _admitted(question: Question, world: World, opened: OpenedConnection) -> Iterator[Step]:
    yield _identified(question, opened.authorization.evidence)
    authorization = opened.authorization
    names = ", ".join(f"{endpoint.entry}/endpoints[{endpoint.index}]" for endpoint in authorization.endpoints)
    yield Step(Stage.POLICY, Decision.ALLOW, f"entry {authorization.entry}: {names}")
    mode, addresses = opened.pinned.mode, ", ".join(map(str, opened.pinned.addresses))
    looked_up = world.names is not None or question.origin.host.literal or mode.value == "alias"
    found = addresses if looked_up else "addresses are checked when the name is looked up"
    yield Step(Stage.DESTINATION, Decision.ALLOW, f"{mode.value.replace('_', ' ')}: {found}")


def _identified(question: Question, evidence: Evidence) -> Step:
    if isinstance(evidence, ProcessEvidence):
        above = "".join(f" below {process.executable}" for process in evidence.ancestors)
        return Step(Stage.IDENTITY, Decision.ALLOW, f"{evidence.executable}{above}")
    detail = evidence.detail if question.evidence else "no program was named: what holds for every program"
    return Step(Stage.IDENTITY, Decision.ALLOW, detail)


def _raw(exchange: Exchange, opened: OpenedConnection, steps: tuple[Step, ...]) -> Answer:
    if not opened.authorization.inspected:
        return Answer(Decision.ALLOW, (*steps, Step(Stage.L7, Decision.ALLOW, "not inspected: relayed unread")))
    reason = "bytes that are no HTTP, where requests are inspected"
    denial = Denial(Stage.L7, DenialCode.UNSUPPORTED_L7_PROTOCOL, reason, entry=opened.authorization.entry)
    return Answer(Decision.DENY, (*steps, Step(Stage.L7, Decision.DENY, reason)), denial, reply=exchange.refuse(denial))
