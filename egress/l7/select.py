"""Which endpoint of an authorization owns a request, by path alone."""

from egress.model.message import RequestHead
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage
from egress.policy.authorization import Authorization
from egress.policy.compiled import Endpoint


def select(authorization: Authorization, head: RequestHead) -> Endpoint | Denial:
    """The inspected endpoint with the highest rank whose path matches; among equals the last.

    An authorization without inspected endpoints gives its first. With inspected endpoints, a request that none of
    them covers is denied, and audit does not soften that: nobody said how to read it.
    """
    best: Endpoint | None = None
    inspected = False
    for endpoint in authorization.endpoints:
        if endpoint.inspected:
            inspected = True
            if (best is None or endpoint.rank >= best.rank) and endpoint.covers_path(head.path):
                best = endpoint
    if best is not None:
        return best
    if not inspected:
        return authorization.endpoints[0]
    reason = f"{head.method} {head.origin}{head.path} did not match an L7 endpoint path"
    return Denial(Stage.L7, DenialCode.POLICY_DENIED, reason, ReasonCode.NO_ENDPOINT_PATH, entry=authorization.entry)
