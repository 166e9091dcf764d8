"""A superseded lease: re-authorize with the evidence at hand, keep or end (decision 5)."""

from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage
from egress.pipeline.connection import OpenedConnection, decide

POLICY_CHANGED = Denial(
    Stage.POLICY, DenialCode.POLICY_DENIED, "not permitted because policy changed", ReasonCode.POLICY_CHANGED
)


def revalidate(connection: OpenedConnection) -> Denial | None:
    """Renew the lease when the new generation gives the same terms; a denial ends the relay.

    A denied connection keeps its old lease, so that whoever asks again is denied again.
    """
    lease = connection.lease
    if not lease.superseded:
        return None
    current = connection.authorization
    renewed = decide(lease.current, current.intent, current.evidence)
    if isinstance(renewed, Denial) or not renewed.same_terms(current):
        return POLICY_CHANGED
    lease.renew()
    connection.authorization = renewed
    return None
