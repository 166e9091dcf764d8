"""WebSocket messages against rules: synthetic methods on the path and query of the upgrade request (policy.md 10)."""

from egress.l7.judge import judge_call
from egress.model.message import RequestHead
from egress.model.verdict import Allow, Verdict
from egress.policy.authorization import Authorization
from egress.policy.compiled import Endpoint, Protocol

TEXT = "WEBSOCKET_TEXT"
BINARY = "WEBSOCKET_BINARY"


def judge_message(authorization: Authorization, endpoint: Endpoint, head: RequestHead, method: str) -> Verdict:
    """One client message; `method` is `TEXT` or `BINARY`. A `rest` endpoint that allows the upgrade has no rules for
    messages."""
    if endpoint.protocol is not Protocol.WEBSOCKET:
        return Allow()
    return judge_call(authorization, endpoint, head, method)
