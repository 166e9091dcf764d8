"""WebSocket messages against rules: synthetic methods on the path and query of the upgrade request (policy.md 10)."""

from dataclasses import replace

from egress.l7 import graphql_ws
from egress.l7.denials import denied
from egress.l7.graphql_rules import judge_operations
from egress.l7.judge import judge_call
from egress.model.message import RequestHead
from egress.model.operation import GraphqlOperations
from egress.model.verdict import Allow, Denial, Verdict
from egress.policy.authorization import Authorization
from egress.policy.compiled import Endpoint, Protocol

TEXT = "WEBSOCKET_TEXT"
BINARY = "WEBSOCKET_BINARY"

NO_OPERATIONS = GraphqlOperations(())
"""What a control message asks for; only deny rules over messages concern it."""


def judge_message(authorization: Authorization, endpoint: Endpoint, head: RequestHead, method: str) -> Verdict:
    """One client message; `method` is `TEXT` or `BINARY`. A `rest` endpoint that allows the upgrade has no rules for
    messages."""
    if endpoint.protocol is not Protocol.WEBSOCKET:
        return Allow()
    return judge_call(authorization, endpoint, head, method)


def judge_text(authorization: Authorization, endpoint: Endpoint, head: RequestHead, text: str) -> Verdict:
    """One whole text message; its operation is read where GraphQL rules ask for that."""
    if not endpoint.graphql.over_websocket:
        return judge_message(authorization, endpoint, head, TEXT)
    operations = graphql_ws.read_message(endpoint, text)
    if isinstance(operations, Denial):
        return operations
    return judge_operations(authorization, endpoint, head, operations or NO_OPERATIONS)


def judge_binary(authorization: Authorization, endpoint: Endpoint, head: RequestHead) -> Verdict:
    """One binary message, which is not read. Several servers take JSON from binary frames: GraphQL rules forbid it."""
    if endpoint.graphql.over_websocket:
        return replace(denied(authorization.entry, "binary messages cannot be inspected as GraphQL"), hard=True)
    return judge_message(authorization, endpoint, head, BINARY)
