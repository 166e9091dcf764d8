"""One request against an authorization: deny wins, audit softens what may be softened."""

from typing import NamedTuple

from egress.l7 import jsonrpc, mcp
from egress.l7.denials import denied, soften
from egress.l7.graphql_rules import judge_operations
from egress.l7.rest import RestCall, RuleSearch
from egress.model.message import PathOddity, RequestHead
from egress.model.operation import GraphqlOperations, McpSessionEnd, McpStream, Operation, RpcMessages
from egress.model.verdict import Allow, Denial, DenialCode, ReasonCode, Stage, Verdict
from egress.policy.authorization import Authorization
from egress.policy.compiled import VERDICT_LIMIT, Endpoint, Protocol

_REMEMBERED_TARGET = 512
"""Longer targets are judged anew, so that what is remembered stays small whatever a workload asks for."""


def judge(
    authorization: Authorization, endpoint: Endpoint, head: RequestHead, operation: Operation | None = None
) -> Verdict:
    """The verdict on a request that `endpoint` owns (`egress.l7.select`); `operation` is what its body holds, for the
    protocols whose bodies are read."""
    if head.oddities and (denial := _odd_path(authorization, endpoint, head)):
        return denial
    if not endpoint.inspected:
        return Allow()
    match endpoint.protocol:
        case Protocol.REST:
            return _judge_rest(authorization, endpoint, head)
        case Protocol.WEBSOCKET:
            return judge_handshake(authorization, endpoint, head)
        case Protocol.GRAPHQL if isinstance(operation, GraphqlOperations):
            return judge_operations(authorization, endpoint, head, operation)
        case Protocol.JSON_RPC if isinstance(operation, RpcMessages):
            return jsonrpc.judge_messages(authorization, endpoint, head, operation)
        case Protocol.MCP if isinstance(operation, RpcMessages | McpStream | McpSessionEnd):
            return mcp.judge_messages(authorization, endpoint, head, operation)
        case _:
            return _not_enforced(authorization, endpoint)


def _judge_rest(authorization: Authorization, endpoint: Endpoint, head: RequestHead) -> Verdict:
    if head.upgrade is not None and not endpoint.allow_upgrade:
        reason = "upgrade needs `allow_upgrade: true` or `protocol: websocket` on the endpoint"
        return Denial(Stage.L7, DenialCode.UPGRADE_REFUSED, reason, entry=authorization.entry)
    return judge_call(authorization, endpoint, head, head.method)


def judge_handshake(authorization: Authorization, endpoint: Endpoint, head: RequestHead) -> Verdict:
    """The request that opens a WebSocket on a `websocket` endpoint; anything else there is refused."""
    if head.upgrade != "websocket":
        reason = "websocket endpoint requires a valid WebSocket upgrade request"
        code = ReasonCode.METHOD_PATH_DENIED
        return Denial(Stage.L7, DenialCode.POLICY_DENIED, reason, code, entry=authorization.entry)
    return judge_call(authorization, endpoint, head, head.method)


def judge_call(authorization: Authorization, endpoint: Endpoint, head: RequestHead, method: str) -> Verdict:
    """`method` on the path and query of `head` against the HTTP rules; remembered, since nothing else decides it."""
    question = _Question(authorization.entry, authorization.endpoints, endpoint, method, head.path, head.query)
    known = endpoint.matchers.verdicts
    verdict = known.get(question)
    if verdict is None:
        verdict = _answer(question)
        if len(head.path) + len(head.query or "") <= _REMEMBERED_TARGET:
            if len(known) >= VERDICT_LIMIT:
                known.clear()
            known[question] = verdict
    return verdict


class _Question(NamedTuple):
    """All that a verdict depends on, within one policy."""

    entry: str
    endpoints: tuple[Endpoint, ...]
    endpoint: Endpoint
    method: str
    path: str
    query: str | None


def _answer(question: _Question) -> Verdict:
    entry, endpoints, endpoint, method, path, query = question
    call = RestCall(method, path, query)
    if fault := call.fault():
        return Denial(Stage.L7, fault.code, fault.reason, entry=entry)
    search = RuleSearch(endpoints, call)
    if rule := search.denying():
        return soften(endpoint, denied(entry, f"{method} {path} blocked by deny rule", rule.ref))
    if rule := search.allowing(endpoint.protocol):
        return Allow(rule.ref)
    return soften(endpoint, denied(entry, f"{method} {path} not permitted by policy"))


def _not_enforced(authorization: Authorization, endpoint: Endpoint) -> Denial:
    """Protocols whose bodies are not read yet: nothing of them passes."""
    reason = f"`protocol: {endpoint.protocol}` cannot be inspected by this version"
    return Denial(Stage.L7, DenialCode.UNSUPPORTED_L7_PROTOCOL, reason, entry=authorization.entry)


def _odd_path(authorization: Authorization, endpoint: Endpoint, head: RequestHead) -> Denial | None:
    """Spellings of a path that a server may read as another one, unless the endpoint accepts them."""
    odd = head.oddities
    if PathOddity.ENCODED_SLASH in odd and not endpoint.allow_encoded_slash:
        reason = "encoded slash in the path; `allow_encoded_slash: true` on the endpoint permits it"
    elif PathOddity.DOUBLE_ESCAPE in odd and not endpoint.allow_double_escape:
        reason = "double escape in the path; `allow_double_escape: true` on the endpoint permits it"
    elif PathOddity.BACKSLASH in odd and not endpoint.allow_backslash:
        reason = "backslash in the path; `allow_backslash: true` on the endpoint permits it"
    elif PathOddity.CHANGED in odd and endpoint.reject_noncanonical:
        reason = "request-target must be canonical"
    else:
        return None
    return Denial(Stage.L7, DenialCode.INVALID_REQUEST_TARGET, reason, entry=authorization.entry)
