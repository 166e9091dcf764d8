"""GraphQL over WebSocket: the messages of `graphql-transport-ws` and of the older `graphql-ws` (policy.md 10)."""

from egress.l7.graphql import read_payload, rejected
from egress.l7.strict_json import lookalike, read_json, spellings
from egress.model.message import Malformed
from egress.model.operation import GraphqlOperations
from egress.model.verdict import Denial, DenialCode
from egress.policy.compiled import Endpoint

OPERATIONS = frozenset(("subscribe", "start"))
CONTROL = frozenset(("connection_init", "connection_terminate", "ping", "pong", "complete", "stop"))

_KEYS = spellings("type", "id", "payload")


def read_message(endpoint: Endpoint, text: str) -> GraphqlOperations | Denial | None:
    """The operation that one client text message starts; None for a control message, which asks for nothing."""
    read = _read(endpoint, text)
    return rejected(read, endpoint) if isinstance(read, Malformed) else read


def _read(endpoint: Endpoint, text: str) -> GraphqlOperations | Malformed | None:
    message = read_json(text.encode("utf-8", "surrogatepass"))
    if isinstance(message, Malformed):
        return _fault(message.reason)
    if not isinstance(message, dict):
        return _fault("message is not a JSON object")
    if lookalike(message, _KEYS):
        return _fault("key in unusual letter case")
    kind = message.get("type")
    if not isinstance(kind, str):
        return _fault("message has no type")
    if kind in CONTROL:
        return None
    if kind not in OPERATIONS:
        return _fault("unknown message type")
    name, payload = message.get("id"), message.get("payload")
    if not isinstance(name, str) or not name:
        return _fault("message has no id")
    if not isinstance(payload, dict):
        return _fault("message has no payload")
    operation = read_payload(endpoint, payload)
    return operation if isinstance(operation, Malformed) else GraphqlOperations((operation,))


def _fault(reason: str) -> Malformed:
    return Malformed(reason, DenialCode.INVALID_GRAPHQL_REQUEST)
