"""Refusals that policy words once for every protocol, and what `enforcement: audit` makes of them."""

from egress.model.verdict import Audited, Denial, DenialCode, ReasonCode, RuleRef, Stage, Verdict
from egress.policy.compiled import Endpoint, Enforcement


def denied(
    entry: str, reason: str, rule: RuleRef | None = None, code: ReasonCode = ReasonCode.METHOD_PATH_DENIED
) -> Denial:
    """Rules said no: `rule` is the deny rule that fired; without one nothing allowed it and `code` says what."""
    code = ReasonCode.DENY_RULE if rule is not None else code
    return Denial(Stage.L7, DenialCode.POLICY_DENIED, reason, code, entry=entry, rule=rule, hard=False)


def soften(endpoint: Endpoint, denial: Denial) -> Verdict:
    """What the endpoint makes of a denial that rules caused: in audit mode the request passes and is told."""
    return Audited(denial) if endpoint.enforcement is Enforcement.AUDIT else denial
