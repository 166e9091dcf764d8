"""What a request means to its endpoint's protocol: which bodies must be held, and how they are read."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from egress.http.coding import decode_body
from egress.http.fields import list_members, without
from egress.l7 import graphql, jsonrpc, mcp
from egress.model.body import of_length
from egress.model.message import Malformed, RequestHead
from egress.model.operation import Operation
from egress.model.verdict import Denial
from egress.policy.compiled import Endpoint, Protocol

type Reader = Callable[[Endpoint, RequestHead, bytes], Operation | Denial]

READERS: Mapping[Protocol, Reader] = {
    Protocol.GRAPHQL: graphql.read_request,
    Protocol.JSON_RPC: jsonrpc.read_request,
    Protocol.MCP: mcp.read_request,
}


def body_ceiling(endpoint: Endpoint) -> int | None:
    """How many bytes of body must be held before a request of this endpoint can be judged; None: none."""
    return endpoint.max_body_bytes if endpoint.protocol in READERS else None


def inspect(endpoint: Endpoint, head: RequestHead, body: bytes) -> Operation | Denial:
    """What the request asks for; a denial when that cannot be told, which audit never softens."""
    return READERS[endpoint.protocol](endpoint, head, body)


def undo_coding(head: RequestHead, body: bytes, ceiling: int) -> tuple[RequestHead, bytes] | Malformed:
    """The request with its content coding undone and its length stated: what is judged is what is sent."""
    codings = [
        member for name, value in head.fields if name.lower() == b"content-encoding" for member in list_members(value)
    ]
    fields = head.fields
    if codings:
        decoded = decode_body(body, codings, ceiling)
        if isinstance(decoded, Malformed):
            return decoded
        body = decoded
        fields = without(fields, frozenset((b"content-encoding",)))
    framing = head.framing if head.framing.empty and not body else of_length(len(body))
    return replace(head, fields=without(fields, frozenset((b"trailer",))), framing=framing, expect_continue=False), body
