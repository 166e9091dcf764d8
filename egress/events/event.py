"""Domain events: what happened, as the stages returned it. Sinks map them; nobody formats here.

One `ConnectionDecided` when a connection is decided and a `ConnectionClosed` when it ends; one `ExchangeDecided`
when a request ends (an upgrade: at its 101). Events hold no secrets, queries, field values or bodies.
"""

from dataclasses import dataclass
from enum import StrEnum

from egress.model.address import IpAddress, Origin
from egress.model.destination import DialMode
from egress.model.ids import ExchangeId, FlowId, GenerationNumber
from egress.model.intent import AgentName, Ingress, SocketPair
from egress.model.outcome import ByteCounts, RelayOutcome
from egress.model.process import Evidence
from egress.model.verdict import Verdict


@dataclass(frozen=True, slots=True, eq=False)
class FlowContext:
    """What every event of one decided connection shares; made once, compared by identity so that sinks can cache
    what they derive from it. `origin` and later members are None where the decision came before they were known.

    `policy_digest` is lower-case hex; `address` is the pinned address when it was dialled.
    """

    flow: FlowId
    client: SocketPair
    agent: AgentName | None
    ingress: Ingress | None
    origin: Origin | None
    evidence: Evidence | None
    entry: str | None = None
    generation: GenerationNumber | None = None
    policy_digest: str = ""
    dial_mode: DialMode | None = None
    address: IpAddress | None = None
    proxies: str | None = None
    """Names of the corporate proxies on the way out, None when there are none."""
    connect_seconds: float | None = None
    """How long the dial took; None where a warm connection stood for it."""
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class ConnectionDecided:
    """A CONNECT, or the connection part of an absolute-form request, was allowed or denied.

    `time` is seconds since the epoch, `duration` seconds from the first byte to the decision. `inspected` tells
    `CONNECT_L7` from `CONNECT`. A denied absolute-form request emits no `ExchangeDecided` beside this.
    """

    context: FlowContext
    time: float
    duration: float
    verdict: Verdict
    inspected: bool
    method: str = "CONNECT"
    path: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """A client connection ended after at least one allowed decision."""

    context: FlowContext
    time: float
    duration: float
    outcome: RelayOutcome
    counts: ByteCounts
    lane: str | None
    exchanges: int
    limit: str | None = None
    """Name of the setting whose deadline cut it, if one did."""


@dataclass(frozen=True, slots=True)
class ExchangeDecided:
    """One HTTP request ended: judged, and relayed or refused.

    `path` is canonical, redacted, without query; `status` what the client was sent, None when nothing was.
    `protocol` is the endpoint's (`rest`, …), `l4` where no rules were asked.
    """

    context: FlowContext
    exchange: ExchangeId
    time: float
    duration: float
    method: str
    path: str
    verdict: Verdict
    protocol: str
    status: int | None
    outcome: RelayOutcome
    counts: ByteCounts
    lane: str


class Severity(StrEnum):
    INFO = "info"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something a security team should see. `type` is one of events.md A6, `evidence` holds safe scalars."""

    time: float
    type: str
    title: str
    severity: Severity
    context: FlowContext | None = None
    blocked: bool = True
    evidence: tuple[tuple[str, str], ...] = ()
    exchange: ExchangeId | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """Something was done to allowed traffic that its own event does not tell: a signature made anew, values placed into
    a message. `message` is one safe sentence, `facts` are safe scalars."""

    time: float
    message: str
    context: FlowContext
    exchange: ExchangeId | None = None
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class StateChange:
    """Configuration moved: `word` is one of events.md A7; `detail` one safe sentence."""

    time: float
    word: str
    detail: str
    severity: Severity = Severity.INFO
    generation: GenerationNumber | None = None
    policy_digest: str = ""
    extra: tuple[tuple[str, str], ...] = ()


class LifecycleStep(StrEnum):
    START = "start"
    LISTEN = "listen"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The proxy started, listens, or stops. `address` is `host:port` for LISTEN."""

    time: float
    step: LifecycleStep
    ok: bool = True
    address: str = ""


type Event = ConnectionDecided | ConnectionClosed | ExchangeDecided | Finding | Notice | StateChange | Lifecycle
