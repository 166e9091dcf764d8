"""The connection scope: from an intent to an opened connection, or a denial. Stages in order, nothing else."""

from dataclasses import dataclass, field, replace

from egress.destination.validate import plan, validate
from egress.events.event import FlowContext
from egress.generation.cell import Lease
from egress.generation.generation import Generation
from egress.model.destination import PinnedDestination, TlsMode
from egress.model.intent import EgressIntent
from egress.model.process import Evidence, EvidenceUnavailable, IdentityMode, UnavailableReason
from egress.model.secret import Secret
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage
from egress.pipeline.ports import Services
from egress.policy.authorization import Authorization
from egress.policy.authorize import authorize, caller_of
from egress.policy.compiled import Endpoint

_OFF = EvidenceUnavailable(UnavailableReason.OFF, "identity is off for this agent")


@dataclass(slots=True)
class OpenedConnection:
    """An authorized connection with its pinned destination. `authorization` moves only through `revalidate`."""

    authorization: Authorization
    pinned: PinnedDestination
    lease: Lease
    context: FlowContext
    resolved: dict[Secret, None] = field(default_factory=dict, repr=False)
    """Values that were placed into requests of this connection, and those that go with them: none may come back."""

    @property
    def binaries(self) -> tuple[str, ...]:
        """Executables of the caller and its ancestors, as binary lists are compared with them."""
        return tuple([image for image, _ in caller_of(self.authorization.evidence)])


@dataclass(frozen=True, slots=True)
class Refused:
    """A denial with what was known when it fell."""

    denial: Denial
    context: FlowContext


async def open_connection(intent: EgressIntent, services: Services) -> OpenedConnection | Refused:
    """Identify, authorize, plan, resolve and pin. Dials nothing."""
    lease = services.runtime.lease()
    evidence = await _identify(lease.generation, intent, services)
    if lease.superseded:
        lease.renew()
    context = FlowContext(
        intent.flow, intent.client, intent.agent, intent.ingress, intent.origin, evidence,
        generation=lease.generation.number, policy_digest=lease.generation.digest,
    )  # fmt: skip
    authorization = decide(lease.generation, intent, evidence)
    if isinstance(authorization, Denial):
        return Refused(authorization, context)
    context = replace(context, entry=authorization.entry)
    planned = plan(authorization.addresses, intent.origin, services.destinations)
    if isinstance(planned, Denial):
        return Refused(planned, context)
    context = replace(context, dial_mode=planned.mode)
    answers = await services.names.resolve(planned)
    if isinstance(answers, Denial):
        return Refused(answers, context)
    pinned = validate(planned, answers, services.own_listeners())
    if isinstance(pinned, Denial):
        return Refused(pinned, context)
    return OpenedConnection(authorization, pinned, lease, context)


async def _identify(generation: Generation, intent: EgressIntent, services: Services) -> Evidence:
    terms = generation.agents.get(intent.agent)
    if terms is None or terms.identity is IdentityMode.OFF:
        return _OFF
    return await services.identity.identify(intent.client)


def decide(generation: Generation, intent: EgressIntent, evidence: Evidence) -> Authorization | Denial:
    """The connection-level verdict under one generation."""
    if generation.quarantine is not None:
        return Denial(
            Stage.POLICY, DenialCode.POLICY_DENIED, "all access is suspended until a valid policy is loaded",
            ReasonCode.QUARANTINED, log_reason=generation.quarantine,
        )  # fmt: skip
    terms = generation.agents.get(intent.agent)
    if terms is None or terms.policy is None:
        reason = "network connections not allowed by policy"
        return Denial(Stage.POLICY, DenialCode.POLICY_DENIED, reason, ReasonCode.NO_MATCHING_POLICY)
    authorization = authorize(terms.policy, intent, evidence, generation.number, terms.identity)
    if isinstance(authorization, Denial):
        return authorization
    return _uninspected(authorization, terms.credentialed) or authorization


def _uninspected(authorization: Authorization, credentialed: frozenset[Endpoint]) -> Denial | None:
    """Traffic that nobody reads may not go where credentials belong, unless each endpoint there says so
    (credentials.md 8)."""
    if authorization.inspected and authorization.tls is not TlsMode.SKIP:
        return None
    if all(one.credentials.allow_uninspected or one not in credentialed for one in authorization.endpoints):
        return None
    reason = "credentialed endpoint requires L7 inspection; raw tunnel is not explicitly allowed"
    surface = "tls-skip" if authorization.tls is TlsMode.SKIP else "l4"
    return Denial(Stage.CREDENTIALS, DenialCode.UNINSPECTED_CREDENTIALS, reason, entry=authorization.entry,
                  surface=surface)  # fmt: skip
