"""Denials that a security team should see on their own: (denial) -> `Finding`. Findings that are no denial, or know
more than it, are emitted by who makes them."""

from egress.events.event import ConnectionDecided, Event, ExchangeDecided, Finding, FlowContext, Severity
from egress.model.verdict import Denial, DenialCode, Stage

type _Kind = tuple[str, str, Severity]

_UNINSPECTABLE = "openshell.credentials.traffic_uninspectable"
_UNINSPECTABLE_TITLE = "Credentials in traffic that may not carry them unread"

BY_CODE: dict[DenialCode, _Kind] = {
    DenialCode.REQUEST_AUTHORITY_MISMATCH: (
        "openshell.http.request_authority_mismatch",
        "Request authority does not match the authorized tunnel endpoint",
        Severity.HIGH,
    ),
    DenialCode.CREDENTIAL_ENDPOINT_MISMATCH: (
        "openshell.provider_credential.endpoint_mismatch",
        "A credential was used where it does not belong",
        Severity.HIGH,
    ),
    DenialCode.CREDENTIAL_BODY_DENIED: (_UNINSPECTABLE, _UNINSPECTABLE_TITLE, Severity.HIGH),
    DenialCode.UNINSPECTED_CREDENTIALS: (_UNINSPECTABLE, _UNINSPECTABLE_TITLE, Severity.HIGH),
    DenialCode.SNI_MISMATCH: (
        "egress.tls.sni_mismatch",
        "TLS server name does not match the authorized tunnel endpoint",
        Severity.HIGH,
    ),
}


def finding_of(event: Event) -> Finding | None:
    """The finding beside a denied connection or exchange, if its code calls for one."""
    if type(event) is not ExchangeDecided and type(event) is not ConnectionDecided:
        return None
    denial = event.verdict
    if type(denial) is not Denial:
        return None
    kind = BY_CODE.get(denial.code)
    if kind is None:
        return None
    return Finding(
        time=event.time,
        type=kind[0],
        title=kind[1],
        severity=kind[2],
        context=event.context,
        evidence=_evidence(event.context, denial),
        exchange=event.exchange if type(event) is ExchangeDecided else None,
    )


def _evidence(context: FlowContext, denial: Denial) -> tuple[tuple[str, str], ...]:
    evidence = [("error", denial.code.word)]
    if denial.stage is Stage.CREDENTIALS:
        if context.entry is not None:
            evidence.append(("policy", context.entry))
        if context.origin is not None:
            evidence.append(("host", context.origin.host.name))
        if denial.surface is not None:
            evidence.append(("surface", denial.surface))
        evidence.append(("disposition", "denied"))
    return tuple(evidence)
