"""Refusals that policy words once for every protocol, and what `enforcement: audit` makes of them."""

from egress.l7.rest import RestCall, RuleSearch
from egress.model.message import RequestHead
from egress.model.verdict import Audited, Denial, DenialCode, ReasonCode, RuleRef, Stage, Verdict
from egress.policy.authorization import Authorization
from egress.policy.compiled import Endpoint, Enforcement


def denied(
    entry: str,
    reason: str,
    rule: RuleRef | None = None,
    code: ReasonCode = ReasonCode.METHOD_PATH_DENIED,
    operation: str | None = None,
) -> Denial:
    """Rules said no: `rule` is the deny rule that fired; without one nothing allowed it and `code` says what."""
    code = ReasonCode.DENY_RULE if rule is not None else code
    return Denial(
        Stage.L7, DenialCode.POLICY_DENIED, reason, code, entry=entry, rule=rule, hard=False, operation=operation
    )


def soften(endpoint: Endpoint, denial: Denial) -> Verdict:
    """What the endpoint makes of a denial: in audit mode the request passes and is told, unless the denial is hard."""
    audit = endpoint.enforcement is Enforcement.AUDIT and not denial.hard
    return Audited(denial) if audit else denial


def http_denial(authorization: Authorization, head: RequestHead) -> Denial | None:
    """Deny rules over method and path bind every protocol of the destination, whatever its bodies ask for."""
    call = RestCall(head.method, head.path, head.query)
    if fault := call.fault():
        return Denial(Stage.L7, fault.code, fault.reason, entry=authorization.entry)
    if rule := RuleSearch(authorization.endpoints, call).denying():
        return denied(authorization.entry, f"{head.method} {head.path} blocked by deny rule", rule.ref)
    return None
