"""What is read from MCP requests, and how refusals are told. The breadth is in tests/policies/mcp.yaml."""

import json

import pytest

from egress.http.replies import Scene, envelope
from egress.l7.mcp import judge_messages, read_request, refusal_as_result, session_of
from egress.model.message import FieldLine
from egress.model.operation import GraphqlOperations, McpSessionEnd, McpStream, Operation, RpcCall, RpcMessages
from egress.model.verdict import Allow, Audited, Denial, DenialCode, ReasonCode, Stage
from tests.unit.l7.rpc import call, grant, head, message

RULES = "rules: [{allow: {method: initialize}}, {allow: {method: tools/call, tool: 'read*'}}]"
AUTHORIZATION, ENDPOINT = grant(f"protocol: mcp, {RULES}")
SESSION = (b"Mcp-Session-Id", b"s")
EVENTS = (b"accept", b"text/event-stream")


def rejected(reason: str) -> Denial:
    text = f"JSON-RPC request rejected: {reason}"
    return Denial(Stage.L7, DenialCode.INVALID_JSONRPC_REQUEST, text, entry="e")


def read(body: bytes, *fields: FieldLine, method: str = "POST") -> object:
    return read_request(ENDPOINT, head(method, "/mcp", *fields, body=body), body)


def test_calls_with_their_tools() -> None:
    expected = RpcCall("tools/call", 1, False, "read", {"path": "/x"})
    assert read(call("read", path="/x")) == RpcMessages((expected,))
    notification = json.dumps({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "read"}}).encode()
    assert read(notification) == RpcMessages((RpcCall("tools/call", None, True, "read"),))
    assert read(message("prompts/get", {"name": "read"})) == RpcMessages((RpcCall("prompts/get", 1),))


def test_batches_and_responses() -> None:
    answer = b'{"jsonrpc":"2.0","id":9,"result":{}}'
    assert read(answer) == RpcMessages((), 1)
    assert read(b"[%b,%b]" % (message("ping"), answer)) == RpcMessages((RpcCall("ping", 1),), 1, True)


def test_streams_and_session_ends() -> None:
    assert read(b"", EVENTS, method="GET") == McpStream()
    assert read(b"", SESSION, method="DELETE") == McpSessionEnd()


@pytest.mark.parametrize(
    ("body", "fields", "method", "reason"),
    [
        (b"", (), "GET", "GET is for `Accept: text/event-stream`, without a body"),
        (b"{}", (EVENTS,), "GET", "GET is for `Accept: text/event-stream`, without a body"),
        (b"", (), "DELETE", "DELETE is for a session named by `Mcp-Session-Id`, without a body"),
        (b"{}", (SESSION,), "DELETE", "DELETE is for a session named by `Mcp-Session-Id`, without a body"),
        (b"", (SESSION, (b"MCP-SESSION-ID", b"t")), "DELETE", "more than one `mcp-session-id` field"),
        (message("ping"), (SESSION, SESSION), "POST", "more than one `mcp-session-id` field"),
        (message("ping"), ((b"Mcp-Method", b"ping"),) * 2, "POST", "more than one `mcp-method` field"),
        (message("ping", {"_meta": 1}, params=[]), (), "POST", "`params` is not an object"),
        (message("ping", id=2**63), (), "POST", "`id` is neither string nor integer"),
        (message("TOOLS/call", {"name": "x"}), (), "POST", "method is `tools/call` in another spelling"),
        (call("a b"), (), "POST", "tool name is not 1 to 128 letters, digits, `_`, `.` and `-`"),
        (message("tools/call", {}), (), "POST", "`tools/call` needs a string `name`"),
        (message("tools/call", {"name": "a", "Name": "b"}), (), "POST",
         "`tools/call` needs members in their own letter case"),
        (message("tools/call", {"name": "a", "arguments": 1}), (), "POST", "`tools/call` needs an object `arguments`"),
        (message("initialize", {}), (), "POST", "`initialize` needs a string `protocolVersion`"),
        (message("initialize", {"protocolVersion": "x"}), (), "POST", "`initialize` needs an object `capabilities`"),
        (message("prompts/get", {"name": "p", "arguments": {"a": 1}}), (), "POST",
         "`prompts/get` needs `arguments` of strings"),
        (message("logging/setLevel"), (), "POST", "`logging/setLevel` needs a syslog `level`"),
        (message("notifications/progress"), (), "POST", "`notifications/progress` needs a `progressToken`"),
        (message("ping"), ((b"mcp-method", b"tools/call"),), "POST", "`mcp-method` is not the method of the body"),
        (call("read"), ((b"mcp-name", b"write"),), "POST", "`mcp-name` is not the name in the body"),
        (call("read"), ((b"mcp-name", b"=?base64?!!?="),), "POST", "`mcp-name` is not the name in the body"),
        (b"[%b]" % message("ping"), ((b"mcp-method", b"ping"),), "POST", "`mcp-method` speaks of one call"),
        (b'{"jsonrpc":"2.0","id":1,"result":1}', ((b"mcp-name", b"x"),), "POST", "`mcp-name` speaks of one call"),
    ],
)  # fmt: skip
def test_why_nothing_is_read(body: bytes, fields: tuple[FieldLine, ...], method: str, reason: str) -> None:
    assert read(body, *fields, method=method) == rejected(reason)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "HEAD", "OPTIONS", "get", "QUERY"])
def test_methods_outside_the_transport(method: str) -> None:
    found = read(b"", SESSION, EVENTS, method=method)
    assert isinstance(found, Denial)
    assert (found.code, found.code.status, found.hard) == (DenialCode.UNSUPPORTED_METHOD, 405, True)


def test_mirrored_fields_that_agree() -> None:
    fields = ((b"Mcp-Method", b"tools/call"), (b"Mcp-Name", b"=?base64?cmVhZA==?="))
    assert read(call("read"), *fields) == RpcMessages((RpcCall("tools/call", 1, False, "read", {}),))


def judged(operation: RpcMessages | McpStream | McpSessionEnd, members: str = f"protocol: mcp, {RULES}") -> object:
    authorization, endpoint = grant(members)
    method = {McpStream: "GET", McpSessionEnd: "DELETE"}.get(type(operation), "POST")
    return judge_messages(authorization, endpoint, head(method), operation)


def test_tools_are_named_in_denials_and_arguments_are_not() -> None:
    verdict = judged(RpcMessages((RpcCall("tools/call", 1, False, "drop", {"password": "hunter2"}),)))
    assert verdict == Denial(
        Stage.L7, DenialCode.POLICY_DENIED, "POST /mcp not permitted by policy", ReasonCode.TOOL_DENIED, entry="e",
        hard=False, operation="tools/call drop",
    )  # fmt: skip


def test_answers_and_streams_need_no_rule() -> None:
    assert judged(RpcMessages((), 2)) == Allow()
    assert judged(McpStream()) == Allow()


def test_session_ends() -> None:
    assert judged(McpSessionEnd()) == Allow(ENDPOINT.rules[0].ref)
    refused = judged(McpSessionEnd(), "protocol: mcp, enforcement: audit, rules: [{allow: {method: ping}}]")
    assert isinstance(refused, Denial)
    assert (refused.reason_code, refused.hard) == (ReasonCode.OPERATION_DENIED, True)


def test_audit_passes_what_rules_refuse() -> None:
    found = judged(RpcMessages((RpcCall("ping", 1),)), f"protocol: mcp, enforcement: audit, {RULES}")
    assert isinstance(found, Audited)


DENIAL = Denial(Stage.L7, DenialCode.POLICY_DENIED, "POST /mcp not permitted by policy", hard=False)
ENVELOPE = {"error": "policy_denied", "detail": "…"}
ONE = RpcMessages((RpcCall("tools/call", 'a"b', False, "drop"),))


def test_a_refused_call_is_answered_as_a_call() -> None:
    found = refusal_as_result(ENDPOINT, DENIAL, ONE, ENVELOPE)
    assert found is not None
    assert json.loads(found) == {
        "jsonrpc": "2.0",
        "id": 'a"b',
        "error": {"code": -32003, "message": "POST /mcp not permitted by policy", "data": ENVELOPE},
    }


def test_the_envelope_names_the_operation() -> None:
    verdict = judged(ONE)
    assert isinstance(verdict, Denial)
    scene = Scene("r", None, "POST", AUTHORIZATION.intent.origin, "/mcp", protocol="mcp")
    found = envelope(verdict, scene)
    assert (found["operation"], found["reason_code"]) == ("tools/call drop", "tool_denied")
    assert found["rule_missing"] == {
        "type": "mcp_allow", "layer": "l7", "method": "POST", "path": "/mcp", "host": "mcp.acme.test", "port": 443,
    }  # fmt: skip


@pytest.mark.parametrize("call_id", [0, -(2**63), 2**63 - 1, "", "é"])
def test_ids_come_back_as_they_were(call_id: str | int) -> None:
    found = refusal_as_result(ENDPOINT, DENIAL, RpcMessages((RpcCall("ping", call_id),)), {})
    assert found is not None
    assert json.loads(found)["id"] == call_id


@pytest.mark.parametrize(
    "operation",
    [
        None,
        McpStream(),
        McpSessionEnd(),
        GraphqlOperations(()),
        RpcMessages((), 1),
        RpcMessages((RpcCall("ping", 1),), 0, True),
        RpcMessages((RpcCall("ping", 1), RpcCall("ping", 2)), 0, True),
        RpcMessages((RpcCall("ping", None, True),)),
    ],
)
def test_where_the_http_refusal_stands(operation: Operation | None) -> None:
    assert refusal_as_result(ENDPOINT, DENIAL, operation, ENVELOPE) is None


def test_http_refusals_by_choice_and_for_faults_upstream() -> None:
    _, endpoint = grant(f"protocol: mcp, mcp: {{deny_style: http}}, {RULES}")
    assert refusal_as_result(endpoint, DENIAL, ONE, ENVELOPE) is None
    fault = Denial(Stage.UPSTREAM, DenialCode.UPSTREAM_UNREACHABLE, "connection refused")
    assert refusal_as_result(ENDPOINT, fault, ONE, ENVELOPE) is None


def test_sessions_are_found_in_any_case() -> None:
    assert session_of(head("POST", "/", (b"MCP-Session-ID", b"x"))) == b"x"
    assert session_of(head()) is None
