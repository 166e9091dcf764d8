"""What inspection found in a request or message, ready to be judged."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class GraphqlOperation:
    """One operation that the server would execute. `type` is query, mutation or subscription; `name` is empty when it
    has none; `fields` are its root fields, real names, sorted, without duplicates. Not `registered`: a persisted query
    that the endpoint's registry does not explain, and the other members are empty."""

    type: str
    name: str
    fields: tuple[str, ...]
    registered: bool = True


@dataclass(frozen=True, slots=True)
class GraphqlOperations:
    """The operations of one request, in batch order. `over_get`: asked for by GET."""

    operations: tuple[GraphqlOperation, ...]
    over_get: bool = False


@dataclass(frozen=True, slots=True)
class RpcCall:
    """One JSON-RPC call or notification. `id` is None for a notification (`notification` tells it from a null id);
    `tool` is `params.name` of a `tools/call`; `arguments` are its arguments as read."""

    method: str
    id: str | int | float | None = None
    notification: bool = False
    tool: str | None = None
    arguments: Any = None


@dataclass(frozen=True, slots=True)
class RpcMessages:
    """One JSON-RPC body: calls in order, and how many response frames it held. `batch`: it was an array."""

    calls: tuple[RpcCall, ...]
    responses: int = 0
    batch: bool = False


@dataclass(frozen=True, slots=True)
class McpStream:
    """GET on an MCP endpoint: the client listens for server messages."""


@dataclass(frozen=True, slots=True)
class McpSessionEnd:
    """DELETE on an MCP endpoint."""


type Operation = GraphqlOperations | RpcMessages | McpStream | McpSessionEnd
