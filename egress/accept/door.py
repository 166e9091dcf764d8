"""What the accept side needs, and who is at the door."""

from collections.abc import Callable
from dataclasses import dataclass

from egress.accept.admission import Admission
from egress.engine.assemblies import Assemblies
from egress.engine.drain import Drain
from egress.engine.enter import Front
from egress.engine.origin import Upstream
from egress.engine.tunnel import Timeouts
from egress.events.event import ConnectionDecided, FlowContext
from egress.http.replies import Reply, Scene, refusal
from egress.identity.agents import AgentTable, AuthFailures, ProxyCredential, parse_basic
from egress.identity.resolver import ProcessIdentity
from egress.model.address import IpAddress
from egress.model.ids import FlowId
from egress.model.intent import AgentName, Ingress, SocketPair
from egress.model.message import WireHead
from egress.model.process import ProcessEvidence
from egress.model.verdict import Denial, DenialCode, Stage
from egress.pipeline.ports import Services

_UNREADABLE = ProxyCredential(b"", b"")
_TOO_MANY_FAILURES = Denial(
    Stage.ACCEPT, DenialCode.RATE_LIMITED, "too many wrong proxy credentials from this address; try again in a minute"
)


@dataclass(frozen=True, slots=True)
class Door:
    """The parts of one process, put together in `egress/app.py`. A reload makes another for new connections."""

    services: Services
    upstream: Upstream
    front: Front
    timeouts: Timeouts
    admission: Admission
    drain: Drain
    assemblies: Assemblies
    callers: "Callers"
    recheck: float | None
    """Seconds between two looks at the owner of an open tunnel, None for one look only."""


class Callers:
    """Which agent a client connection belongs to (decision 24)."""

    def __init__(
        self, table: AgentTable, identity: ProcessIdentity, local: Callable[[IpAddress], bool], failures: AuthFailures
    ) -> None:
        """`local` tells addresses whose sockets may stand in the queried namespace."""
        self._table = table
        self._identity = identity
        self._local = local
        self._failures = failures

    async def who(self, pair: SocketPair, wire: WireHead) -> AgentName | Denial:
        """Settle the agent by address, socket owner and proxy credential."""
        table = self._table
        if self._failures.blocked_for(pair.client) is not None:
            return _TOO_MANY_FAILURES
        uid = await self._identity.socket_uid(pair) if table.needs_uid else None
        credential = None
        if table.needs_credential:
            values = [value for name, value in wire.lines if name.lower() == b"proxy-authorization"]
            if values:
                # What cannot be read is a wrong credential, not none: it must not fall through to another agent.
                credential = (parse_basic(values[0]) if len(values) == 1 else None) or _UNREADABLE
        agent = table.match(pair.client, uid, credential, local=self._local(pair.client))
        if isinstance(agent, Denial) and credential is not None:
            self._failures.failed(pair.client)
        return agent


def context_of(flow: FlowId, pair: SocketPair, agent: AgentName | None, ingress: Ingress | None) -> FlowContext:
    """The context of a decision that fell before anything else was known."""
    return FlowContext(flow, pair, agent, ingress, None, None)


def tell_refusal(
    door: Door, denial: Denial, context: FlowContext, duration: float, *, method: str, path: str | None = None
) -> Reply:
    """Emit the denied connection and make its reply."""
    services = door.services
    services.events.emit(
        ConnectionDecided(context, services.clock.now(), duration, denial, inspected=False, method=method, path=path)
    )
    evidence = context.evidence
    scene = Scene(
        request_id=context.flow,
        ingress=context.ingress or Ingress.CONNECT,
        method=method,
        origin=context.origin,
        path=path or "",
        binary=evidence.executable if isinstance(evidence, ProcessEvidence) else None,
    )
    return refusal(denial, scene)
