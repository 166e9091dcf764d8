"""JSON-RPC 2.0 bodies: messages read strictly, then judged call by call (policy.md 12.1, 12.2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from egress.http.fields import list_members
from egress.l7.calls import TOOL_CALL, judge_calls
from egress.l7.denials import http_denial, soften
from egress.l7.strict_json import lookalike, read_json, spellings
from egress.model.limits import LIMITS
from egress.model.message import Malformed, RequestHead
from egress.model.operation import RpcCall, RpcMessages
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage, Verdict
from egress.policy.authorization import Authorization
from egress.policy.compiled import Endpoint

_MEMBERS = spellings("jsonrpc", "id", "method", "params", "result", "error")
_FORMS = (b"multipart/", b"application/x-www-form-urlencoded")


@dataclass(frozen=True, slots=True)
class Frames:
    """One body whose messages are JSON-RPC: its calls as read, and how many response frames it held."""

    calls: tuple[Mapping[str, Any], ...]
    responses: int
    batch: bool


def read_request(endpoint: Endpoint, head: RequestHead, body: bytes) -> RpcMessages | Denial:
    """The calls of a request. One that listens for server messages holds none, and no rule allows that."""
    if head.upgrade is not None:
        return no_upgrade(endpoint)
    if listens(head, body):
        return RpcMessages(())
    frames = read_frames(head, body)
    if isinstance(frames, Malformed):
        return rejected(endpoint, frames)
    if frames.responses:
        reason = "JSON-RPC response frames are not permitted from client to server"
        return Denial(Stage.L7, DenialCode.POLICY_DENIED, reason, ReasonCode.RESPONSE_FRAME, entry=endpoint.entry)
    return RpcMessages(tuple(map(_call, frames.calls)), 0, frames.batch)


def judge_messages(
    authorization: Authorization, endpoint: Endpoint, head: RequestHead, messages: RpcMessages
) -> Verdict:
    """HTTP deny rules of the destination first, then each call."""
    if denial := http_denial(authorization, head):
        return soften(endpoint, denial)
    return judge_calls(authorization, endpoint, head, messages)


def rejected(endpoint: Endpoint, fault: Malformed) -> Denial:
    """The refusal of a request that could not be classified; audit never softens it."""
    code = fault.code if fault.code is DenialCode.UNSUPPORTED_ENCODING else DenialCode.INVALID_JSONRPC_REQUEST
    return Denial(Stage.L7, code, f"JSON-RPC request rejected: {fault.reason}", entry=endpoint.entry)


def no_upgrade(endpoint: Endpoint) -> Denial:
    """After a 101 nothing would be read any more."""
    reason = f"`protocol: {endpoint.protocol}` endpoints take no upgrade"
    return Denial(Stage.L7, DenialCode.UPGRADE_REFUSED, reason, entry=endpoint.entry)


def listens(head: RequestHead, body: bytes) -> bool:
    """Does the request open a stream of server messages? Only an explicit media type counts."""
    if head.method != "GET" or body:
        return False
    members = [item for name, value in head.fields if name.lower() == b"accept" for item in list_members(value)]
    return any(_accepts_events(member) for member in members)


def read_frames(head: RequestHead, body: bytes) -> Frames | Malformed:
    """Every message of a body, each of them well-formed by itself."""
    if fault := _media_fault(head):
        return fault
    value = read_json(body)
    if isinstance(value, Malformed):
        return value
    batch = isinstance(value, list)
    messages = value if isinstance(value, list) else [value]
    if not messages:
        return Malformed("empty batch")
    if len(messages) > LIMITS.rpc_batch_messages:
        return Malformed(f"batch of more than {LIMITS.rpc_batch_messages} messages")
    for message in messages:
        if fault := _message_fault(message):
            return fault
    calls = tuple(message for message in messages if isinstance(message, dict) and "method" in message)
    return Frames(calls, len(messages) - len(calls), batch)


def _message_fault(message: object) -> Malformed | None:
    if not isinstance(message, dict):
        return Malformed("message is not an object")
    if lookalike(message, _MEMBERS):
        return Malformed("member spelled in other letter case")
    if message.get("jsonrpc") != "2.0":
        return Malformed('`jsonrpc` is not "2.0"')
    answers = ("result" in message) + ("error" in message)
    if "method" not in message:
        return _response_fault(message, answers)
    if answers:
        return Malformed("message is both call and response")
    if not isinstance(message["method"], str):
        return Malformed("`method` is not a string")
    return None if _is_id(message.get("id")) else Malformed("`id` is neither string nor number")


def _response_fault(message: Mapping[str, object], answers: int) -> Malformed | None:
    if answers == 0:
        return Malformed("message is neither call nor response")
    if answers > 1:
        return Malformed("response has both `result` and `error`")
    if "id" not in message or not _is_id(message["id"]):
        return Malformed("response without a valid `id`")
    if "error" in message and not isinstance(message["error"], dict):
        return Malformed("`error` is not an object")
    return None


def _is_id(value: object) -> bool:
    return value is None or (isinstance(value, str | int | float) and not isinstance(value, bool))


def _call(message: Mapping[str, Any]) -> RpcCall:
    """Tools are named here too: deny rules of an MCP endpoint around this one speak of them."""
    method, params = message["method"], message.get("params")
    tool = arguments = None
    if method == TOOL_CALL and isinstance(params, dict):
        name = params.get("name")
        tool = name if isinstance(name, str) else None
        arguments = params.get("arguments")
    return RpcCall(method, message.get("id"), "id" not in message, tool, arguments)


def _accepts_events(member: bytes) -> bool:
    media_type, *parameters = member.replace(b" ", b"").replace(b"\t", b"").split(b";")
    refused = any(parameter.startswith(b"q=0") and not parameter[3:].strip(b".0") for parameter in parameters)
    return media_type == b"text/event-stream" and not refused


def _media_fault(head: RequestHead) -> Malformed | None:
    """A server that reads forms would read a form where we read JSON."""
    values = [value.lower() for name, value in head.fields if name.lower() == b"content-type"]
    if not values:
        return None
    if len(values) > 1:
        return Malformed("more than one content type")
    media_type, *parameters = values[0].split(b";")
    if media_type.strip().startswith(_FORMS):
        return Malformed("a form is no JSON")
    for parameter in parameters:
        name, _, value = parameter.strip().partition(b"=")
        if name == b"charset" and value.strip(b'"') not in (b"utf-8", b"utf8", b"us-ascii"):
            return Malformed("charset is not UTF-8", DenialCode.UNSUPPORTED_ENCODING)
    return None
