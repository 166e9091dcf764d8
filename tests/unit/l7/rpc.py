"""Endpoints, heads and bodies for the tests of RPC protocols."""

import json
from collections.abc import Mapping

from egress.model.body import NO_BODY, of_length
from egress.model.message import FieldLine, RequestHead
from egress.policy.authorization import Authorization
from egress.policy.compiled import Endpoint
from tests.unit.policy.samples import entries, evidence, granted, intent

HOST = "mcp.acme.test"


def grant(members: str, *others: str, program: str = "/usr/bin/agent") -> tuple[Authorization, Endpoint]:
    """An authorization for endpoints with these members, and the first of the endpoints."""
    listed = ", ".join(f"{{host: {HOST}, port: 443, {text}}}" for text in (members, *others))
    found = granted(entries(f"e: {{endpoints: [{listed}], binaries: [{{path: /**}}]}}"), HOST, by=evidence(program))
    return found, found.endpoints[0]


def head(method: str = "POST", path: str = "/mcp", *fields: FieldLine, body: bytes = b"") -> RequestHead:
    framing = of_length(len(body)) if body else NO_BODY
    return RequestHead(method, intent(HOST).origin, path, None, fields, framing)


def message(method: str, params: Mapping[str, object] | None = None, /, **members: object) -> bytes:
    body: dict[str, object] = {"jsonrpc": "2.0", "id": 1, "method": method}
    if params is not None:
        body["params"] = params
    return json.dumps(body | members).encode()


def call(tool: str, **arguments: object) -> bytes:
    return message("tools/call", {"name": tool, "arguments": arguments})
