"""What is read from a JSON-RPC body, and how refusals read. The breadth is in tests/policies/jsonrpc.yaml."""

import json

import pytest

from egress.l7.jsonrpc import judge_messages, read_request
from egress.model.limits import LIMITS
from egress.model.operation import RpcCall, RpcMessages
from egress.model.verdict import Allow, Audited, Denial, DenialCode, ReasonCode, RuleKind, Stage
from tests.unit.l7.rpc import grant, head, message

AUTHORIZATION, ENDPOINT = grant("protocol: json-rpc, rules: [{allow: {method: a}}], deny_rules: [{method: b}]")


def rejected(reason: str, code: DenialCode = DenialCode.INVALID_JSONRPC_REQUEST) -> Denial:
    return Denial(Stage.L7, code, f"JSON-RPC request rejected: {reason}", entry="e")


def read(body: bytes) -> object:
    return read_request(ENDPOINT, head(body=body), body)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (message("a"), RpcMessages((RpcCall("a", 1),))),
        (message("a", id="x"), RpcMessages((RpcCall("a", "x"),))),
        (message("a", id=None), RpcMessages((RpcCall("a", None, notification=False),))),
        (b'{"jsonrpc":"2.0","method":"a"}', RpcMessages((RpcCall("a", None, notification=True),))),
        (b"[%b,%b]" % (message("a"), message("b", id=2)), RpcMessages((RpcCall("a", 1), RpcCall("b", 2)), 0, True)),
        (b"[%b]" % message("a"), RpcMessages((RpcCall("a", 1),), 0, True)),
        (
            message("tools/call", {"name": "t", "arguments": {"x": 1}}),
            RpcMessages((RpcCall("tools/call", 1, False, "t", {"x": 1}),)),
        ),
        (message("tools/call", {"name": 1}), RpcMessages((RpcCall("tools/call", 1),))),
        (message("other", {"name": "t"}), RpcMessages((RpcCall("other", 1),))),
    ],
)
def test_what_is_read(body: bytes, expected: RpcMessages) -> None:
    assert read(body) == expected


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "invalid JSON"),
        (b"{", "invalid JSON"),
        (b"\xff", "invalid JSON"),
        (b"\xef\xbb\xbf" + message("a"), "invalid JSON"),
        (message("a").decode().encode("utf-16"), "invalid JSON"),
        (b'{"a":1,"a":1}', "duplicate JSON key"),
        (b"[" * 300 + b"]" * 300, "JSON is nested deeper than 200 levels"),
        (b"[]", "empty batch"),
        (b"[" + b",".join([message("a")] * (LIMITS.rpc_batch_messages + 1)) + b"]", "batch of more than 1000 messages"),
        (b"7", "message is not an object"),
        (b"[[]]", "message is not an object"),
        (b'{"jsonrpc":"2.0","Method":"a"}', "member spelled in other letter case"),
        (b'{"method":"a"}', '`jsonrpc` is not "2.0"'),
        (message("a", result=1), "message is both call and response"),
        (message("a", method=1), "`method` is not a string"),
        (message("a", id=[]), "`id` is neither string nor number"),
        (b'{"jsonrpc":"2.0"}', "message is neither call nor response"),
        (b'{"jsonrpc":"2.0","id":1,"result":1,"error":{}}', "response has both `result` and `error`"),
        (b'{"jsonrpc":"2.0","result":1}', "response without a valid `id`"),
        (b'{"jsonrpc":"2.0","id":1,"error":1}', "`error` is not an object"),
    ],
)
def test_why_nothing_is_read(body: bytes, reason: str) -> None:
    assert read(body) == rejected(reason)


def test_a_full_batch_is_read() -> None:
    body = b"[" + b",".join([message("a")] * LIMITS.rpc_batch_messages) + b"]"
    found = read(body)
    assert isinstance(found, RpcMessages)
    assert len(found.calls) == LIMITS.rpc_batch_messages


def test_refusals_repeat_nothing_of_the_body() -> None:
    secret = "hunter2-correct-horse"
    bodies = [
        message(secret, id={}), message("a", **{secret: 1}, jsonrpc="1"), secret.encode(), json.dumps(secret).encode(),
        b'{"%b":1,"%b":1}' % (secret.encode(), secret.encode()),
    ]  # fmt: skip
    for body in bodies:
        found = read(body)
        assert isinstance(found, Denial)
        assert secret not in found.reason


def test_response_frames() -> None:
    reason = "JSON-RPC response frames are not permitted from client to server"
    expected = Denial(Stage.L7, DenialCode.POLICY_DENIED, reason, ReasonCode.RESPONSE_FRAME, entry="e")
    assert read(b'{"jsonrpc":"2.0","id":1,"result":1}') == expected
    assert read(b'[%b,{"jsonrpc":"2.0","id":1,"error":{}}]' % message("a")) == expected


def test_content_types() -> None:
    def typed(*values: bytes) -> object:
        body = message("a")
        return read_request(ENDPOINT, head("POST", "/", *((b"content-type", value) for value in values)), body)

    assert typed() == typed(b"application/json") == RpcMessages((RpcCall("a", 1),))
    assert typed(b"application/json", b"application/json") == rejected("more than one content type")
    assert typed(b"MULTIPART/form-data") == rejected("a form is no JSON")
    assert typed(b"application/json; charset=latin1") == rejected(
        "charset is not UTF-8", DenialCode.UNSUPPORTED_ENCODING
    )


def test_verdicts_name_the_operation() -> None:
    def verdict(body: bytes, method: str = "POST") -> object:
        asked = head(method, "/x")
        messages = read_request(ENDPOINT, asked, body)
        assert isinstance(messages, RpcMessages)
        return judge_messages(AUTHORIZATION, ENDPOINT, asked, messages)

    assert verdict(message("a")) == Allow(ENDPOINT.rules[0].ref)
    assert ENDPOINT.deny_rules[0].ref.kind is RuleKind.DENY
    assert verdict(message("b")) == Denial(
        Stage.L7, DenialCode.POLICY_DENIED, "POST /x blocked by deny rule", ReasonCode.DENY_RULE, entry="e",
        rule=ENDPOINT.deny_rules[0].ref, hard=False, operation="b",
    )  # fmt: skip
    assert verdict(message("c")) == Denial(
        Stage.L7, DenialCode.POLICY_DENIED, "POST /x not permitted by policy", ReasonCode.OPERATION_DENIED, entry="e",
        hard=False, operation="c",
    )  # fmt: skip
    assert verdict(message("a"), "PUT") == Denial(
        Stage.L7, DenialCode.POLICY_DENIED, "PUT /x not permitted by policy", ReasonCode.METHOD_PATH_DENIED, entry="e",
        hard=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("method", "shown"),
    [("x\r\ny\x00", "x\\x0d\\x0ay\\x00"), ("é", "é"), ("m" * 10_000, "m" * 200), ("\u202ex", "\\x202ex")],
)
def test_operations_are_safe_to_show(method: str, shown: str) -> None:
    messages = read(message(method))
    assert isinstance(messages, RpcMessages)
    verdict = judge_messages(AUTHORIZATION, ENDPOINT, head(), messages)
    assert isinstance(verdict, Denial)
    assert verdict.operation == shown


def test_a_batch_is_denied_for_its_first_bad_call() -> None:
    body = b"[%b,%b,%b]" % (message("a"), message("c"), message("b"))
    messages = read(body)
    assert isinstance(messages, RpcMessages)
    verdict = judge_messages(AUTHORIZATION, ENDPOINT, head(), messages)
    assert isinstance(verdict, Denial)
    assert (verdict.operation, verdict.rule) == ("c", None)


def test_audit() -> None:
    authorization, endpoint = grant("protocol: json-rpc, enforcement: audit, rules: [{allow: {method: a}}]")
    verdict = judge_messages(authorization, endpoint, head(), RpcMessages((RpcCall("z", 1),)))
    assert isinstance(verdict, Audited)
    assert verdict.denial.operation == "z"
