"""MCP over Streamable HTTP: the method profile, tools and their arguments over JSON-RPC (policy.md 12.3).

Revisions from 2025-03-26 with batches, streams and sessions to 2026-07-28 with mirrored header fields.
"""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any

from egress.l7.calls import TOOL_CALL, CallRules, judge_calls
from egress.l7.denials import http_denial, soften
from egress.l7.jsonrpc import listens, no_upgrade, read_frames, rejected
from egress.l7.strict_json import lookalike, spellings
from egress.model.message import Malformed, RequestHead
from egress.model.operation import McpSessionEnd, McpStream, Operation, RpcCall, RpcMessages
from egress.model.verdict import Allow, Denial, DenialCode, ReasonCode, Stage, Verdict
from egress.policy.authorization import Authorization
from egress.policy.compiled import Endpoint

SESSION_FIELD = b"mcp-session-id"
REFUSED_CALL = -32003
"""Error code of a refused call, from the range that the protocol leaves to implementations."""

_METHOD_FIELD, _NAME_FIELD, _VERSION_FIELD = b"mcp-method", b"mcp-name", b"mcp-protocol-version"
_FIELDS = frozenset((SESSION_FIELD, _METHOD_FIELD, _NAME_FIELD, _VERSION_FIELD))
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_STRICT_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z", re.ASCII)
_ENCODED = re.compile(rb"=\?base64\?(.*)\?=\Z", re.DOTALL)
_LEVELS = frozenset(("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"))
_TOOL_PARAMS = spellings("name", "arguments")
_MAX_ID = 2**63
_INITIALIZE = RpcCall("initialize")

type _Params = Mapping[str, Any]


def read_request(
    endpoint: Endpoint, head: RequestHead, body: bytes
) -> RpcMessages | McpStream | McpSessionEnd | Denial:
    """What the request asks for; denials given here are never softened."""
    if head.upgrade is not None:
        return no_upgrade(endpoint)
    fields = _special_fields(head)
    if isinstance(fields, Malformed):
        return rejected(endpoint, fields)
    found: RpcMessages | McpStream | McpSessionEnd | Malformed
    match head.method:
        case "POST":
            found = _read_messages(endpoint, head, fields, body)
        case "GET" if listens(head, body):
            found = McpStream()
        case "GET":
            found = Malformed("GET is for `Accept: text/event-stream`, without a body")
        case "DELETE" if SESSION_FIELD in fields and not body:
            found = McpSessionEnd()
        case "DELETE":
            found = Malformed("DELETE is for a session named by `Mcp-Session-Id`, without a body")
        case _:
            reason = "the MCP transport has no such method: POST, GET and DELETE"
            return Denial(Stage.L7, DenialCode.UNSUPPORTED_METHOD, reason, entry=endpoint.entry)
    return rejected(endpoint, found) if isinstance(found, Malformed) else found


def judge_messages(
    authorization: Authorization,
    endpoint: Endpoint,
    head: RequestHead,
    operation: RpcMessages | McpStream | McpSessionEnd,
) -> Verdict:
    """Calls by the rules. Answers to the server and the stream it talks on pass: rules bind what a client starts."""
    if denial := http_denial(authorization, head):
        return soften(endpoint, denial)
    match operation:
        case RpcMessages():
            return judge_calls(authorization, endpoint, head, operation)
        case McpStream():
            return Allow()
        case McpSessionEnd():
            return _judge_session_end(authorization, endpoint, head)


def refusal_as_result(
    endpoint: Endpoint, denial: Denial, operation: Operation | None, envelope: Mapping[str, object]
) -> bytes | None:
    """The JSON-RPC error, to be sent with status 200, that tells the agent behind an SDK why its call was refused
    (decision 25). None where the HTTP refusal stands."""
    if endpoint.mcp.deny_style == "http" or denial.stage is Stage.UPSTREAM:
        return None
    match operation:
        case RpcMessages(calls=(RpcCall(notification=False, id=call_id),), responses=0, batch=False):
            error = {"code": REFUSED_CALL, "message": denial.reason, "data": dict(envelope)}
            reply = {"jsonrpc": "2.0", "id": call_id, "error": error}
            return json.dumps(reply, ensure_ascii=False).encode()
        case _:
            return None


def session_of(head: RequestHead) -> bytes | None:
    """The session that a request names; `read_request` refuses those that name two."""
    return next((value for name, value in head.fields if name.lower() == SESSION_FIELD), None)


def is_tool_name(name: str) -> bool:
    """The grammar of strict tool names: nothing that another reader could trim, fold or decode into another name."""
    return _STRICT_NAME.match(name) is not None


def _judge_session_end(authorization: Authorization, endpoint: Endpoint, head: RequestHead) -> Allow | Denial:
    """Who may open sessions may end them (of others: `mcp_sessions`)."""
    rules = CallRules(authorization, endpoint, head.path)
    rule = rules.denying(_INITIALIZE)
    allow = rules.allowing(_INITIALIZE)
    if rule is None and allow is not None:
        return allow
    reason = f"{head.method} {head.path} not permitted by policy: `initialize` is not allowed"
    code = ReasonCode.DENY_RULE if rule is not None else ReasonCode.OPERATION_DENIED
    reference = rule.ref if rule is not None else None
    return Denial(Stage.L7, DenialCode.POLICY_DENIED, reason, code, entry=authorization.entry, rule=reference)


def _special_fields(head: RequestHead) -> Mapping[bytes, bytes] | Malformed:
    """The fields that say again what a body says or whose session it is; each at most once."""
    found: dict[bytes, bytes] = {}
    for name, value in head.fields:
        folded = name.lower()
        if folded in _FIELDS:
            if folded in found:
                return Malformed(f"more than one `{folded.decode()}` field")
            found[folded] = value
    return found


def _read_messages(
    endpoint: Endpoint, head: RequestHead, fields: Mapping[bytes, bytes], body: bytes
) -> RpcMessages | Malformed:
    frames = read_frames(head, body)
    if isinstance(frames, Malformed):
        return frames
    calls = []
    for message in frames.calls:
        call = _read_call(endpoint, message)
        if isinstance(call, Malformed):
            return call
        calls.append(call)
    messages = RpcMessages(tuple(calls), frames.responses, frames.batch)
    if fields and (fault := _mirror_fault(fields, messages, frames.calls)):
        return fault
    return messages


def _read_call(endpoint: Endpoint, message: Mapping[str, Any]) -> RpcCall | Malformed:
    method: str = message["method"]
    params = message.get("params")
    if params is None:
        params = {}
    if not isinstance(params, dict):
        return Malformed("`params` is not an object")
    if not _is_request_id(message):
        return Malformed("`id` is neither string nor integer")
    if method != TOOL_CALL and method.strip().casefold() == TOOL_CALL:
        return Malformed("method is `tools/call` in another spelling")
    check = _CHECKS.get(method)
    if check is not None and (missing := check(params)):
        return Malformed(f"`{method}` needs {missing}")
    notification = "id" not in message
    if method != TOOL_CALL:
        return RpcCall(method, message.get("id"), notification)
    name: str = params["name"]
    if endpoint.mcp.strict_tool_names and not is_tool_name(name):
        return Malformed("tool name is not 1 to 128 letters, digits, `_`, `.` and `-`")
    return RpcCall(method, message.get("id"), notification, name, params.get("arguments"))


def _is_request_id(message: Mapping[str, Any]) -> bool:
    if "id" not in message:
        return True
    value = message["id"]
    if isinstance(value, int) and not isinstance(value, bool):
        return -_MAX_ID <= value < _MAX_ID
    return isinstance(value, str)


def _mirror_fault(
    fields: Mapping[bytes, bytes], messages: RpcMessages, frames: tuple[Mapping[str, Any], ...]
) -> Malformed | None:
    """Gateways behind us may route by the fields that mirror the body (revision 2026-07-28): a pair that disagrees
    would have one call judged and another one run."""
    mirrored = [name for name in (_METHOD_FIELD, _NAME_FIELD) if name in fields]
    if messages.batch or not messages.calls:
        return Malformed(f"`{mirrored[0].decode()}` speaks of one call") if mirrored else None
    message = frames[0]
    method, params = message["method"], message.get("params") or {}
    if _METHOD_FIELD in fields and fields[_METHOD_FIELD] != method.encode():
        return Malformed("`mcp-method` is not the method of the body")
    if method in _NAMED and _NAME_FIELD in fields and _decoded(fields[_NAME_FIELD]) != params[_NAMED[method]].encode():
        return Malformed("`mcp-name` is not the name in the body")
    meta = params.get("_meta")
    version = meta.get(_VERSION_KEY) if isinstance(meta, dict) else None
    if version is not None and _VERSION_FIELD in fields and fields[_VERSION_FIELD] != str(version).encode():
        return Malformed("`mcp-protocol-version` is not the version of the body")
    return None


def _decoded(value: bytes) -> bytes | None:
    """The text of a mirrored name, which is in Base64 where it is no field value by itself."""
    encoded = _ENCODED.match(value)
    if encoded is None:
        return value
    try:
        return b64decode(encoded[1], validate=True)
    except ValueError:
        return None


def _needs_text(*names: str) -> Callable[[_Params], str | None]:
    def check(params: _Params) -> str | None:
        return next((f"a string `{name}`" for name in names if not _is_text(params.get(name))), None)

    return check


def _needs_objects(*names: str) -> Callable[[_Params], str | None]:
    def check(params: _Params) -> str | None:
        return next((f"an object `{name}`" for name in names if not isinstance(params.get(name), dict)), None)

    return check


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _initialize(params: _Params) -> str | None:
    return _needs_text("protocolVersion")(params) or _needs_objects("capabilities", "clientInfo")(params)


def _tool_call(params: _Params) -> str | None:
    if lookalike(params, _TOOL_PARAMS):
        return "members in their own letter case"
    if not _is_text(params.get("name")):
        return "a string `name`"
    return None if isinstance(params.get("arguments"), dict | None) else "an object `arguments`"


def _prompt(params: _Params) -> str | None:
    if not _is_text(params.get("name")):
        return "a string `name`"
    arguments = params.get("arguments")
    if arguments is None:
        return None
    texts = isinstance(arguments, dict) and all(isinstance(value, str) for value in arguments.values())
    return None if texts else "`arguments` of strings"


def _level(params: _Params) -> str | None:
    level = params.get("level")
    return None if isinstance(level, str) and level in _LEVELS else "a syslog `level`"


def _progress(params: _Params) -> str | None:
    token, progress = params.get("progressToken"), params.get("progress")
    if isinstance(token, bool) or not isinstance(token, str | int):
        return "a `progressToken`"
    return "a number `progress`" if isinstance(progress, bool) or not isinstance(progress, int | float) else None


_CHECKS: Mapping[str, Callable[[_Params], str | None]] = {
    "initialize": _initialize,
    TOOL_CALL: _tool_call,
    "resources/read": _needs_text("uri"),
    "resources/subscribe": _needs_text("uri"),
    "resources/unsubscribe": _needs_text("uri"),
    "prompts/get": _prompt,
    "completion/complete": _needs_objects("ref", "argument"),
    "logging/setLevel": _level,
    "tasks/get": _needs_text("taskId"),
    "tasks/result": _needs_text("taskId"),
    "tasks/cancel": _needs_text("taskId"),
    "tasks/update": _needs_text("taskId"),
    "notifications/progress": _progress,
}
"""What the parameters of known methods must hold; other methods are addressable by name and judged alike."""

_NAMED: Mapping[str, str] = {TOOL_CALL: "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that `Mcp-Name` mirrors."""
