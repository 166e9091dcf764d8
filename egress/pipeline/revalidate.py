"""A superseded lease: re-authorize with the evidence at hand, keep or end (decision 5)."""

from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage
from egress.pipeline.connection import OpenedConnection, decide

POLICY_CHANGED = Denial(
    Stage.POLICY, DenialCode.POLICY_DENIED, "not permitted because policy changed", ReasonCode.POLICY_CHANGED
)


def revalidate(connection: OpenedConnection) -> Denial | None:
    """Renew the lease when the new generation gives the same terms; a denial ends the relay."""
    if not connection.lease.superseded:
        return None
    generation = connection.lease.renew()
    current = connection.authorization
    renewed = decide(generation, current.intent, current.evidence)
    if isinstance(renewed, Denial) or not renewed.same_terms(current):
        return POLICY_CHANGED
    connection.authorization = renewed
    return None
