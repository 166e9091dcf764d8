"""List replies cut to what may be called, whole and as event streams in any pieces."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.l7.mcp_replies import ReplyFilter
from egress.model.limits import LIMITS
from egress.model.message import Malformed
from egress.model.operation import GraphqlOperations, McpSessionEnd, McpStream, Operation, RpcCall, RpcMessages
from egress.model.verdict import DenialCode
from tests.unit.l7.rpc import grant, head

FILTER = (
    "protocol: mcp, rules: [{allow: {method: 'tools/list'}}, {allow: {method: resources/read}}, "
    "{allow: {method: tools/call, tool: 'read*'}}], deny_rules: [{method: tools/call, tool: read_secret}]"
)
EVERYTHING = "protocol: mcp, rules: [{allow: {method: '*'}}]"


def listing(*methods: str) -> RpcMessages:
    return RpcMessages(tuple(RpcCall(method, number) for number, method in enumerate(methods)), 0, len(methods) > 1)


def reply(operation: Operation | None = None, members: str = FILTER, *others: str) -> ReplyFilter:
    authorization, endpoint = grant(members, *others)
    return ReplyFilter(authorization, endpoint, head(), operation or listing("tools/list"))


def result(call_id: object = 0, /, **members: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": call_id, "result": members}


def tools(*names: object, **others: object) -> dict[str, Any]:
    return result(tools=[{"name": name, "inputSchema": {"type": "object"}} for name in names], **others)


def encoded(value: object) -> bytes:
    return json.dumps(value, indent=1).encode()


@pytest.mark.parametrize(
    ("operation", "members", "wanted"),
    [
        (listing("tools/list"), FILTER, True),
        (listing("ping", "tools/list"), FILTER, True),
        (listing("prompts/list"), FILTER, True),
        (listing("resources/list"), FILTER, False),
        (listing("resources/templates/list"), FILTER, False),
        (listing("tools/call"), FILTER, False),
        (listing("ping"), FILTER, False),
        (McpStream(), FILTER, True),
        (McpSessionEnd(), FILTER, False),
        (RpcMessages((), 1), FILTER, False),
        (GraphqlOperations(()), FILTER, False),
        (listing("tools/list"), EVERYTHING, False),
        (McpStream(), EVERYTHING, False),
        (listing("tools/list"), "protocol: mcp, mcp: {allow_all_known_mcp_methods: true}", False),
        (listing("prompts/list"), f"{EVERYTHING}, deny_rules: [{{method: prompts/get}}]", True),
        (listing("tools/list"), f"{EVERYTHING}, deny_rules: [{{method: prompts/get}}]", False),
        (listing("tools/list"), f"{EVERYTHING}, deny_rules: [{{method: tools/call, tool: drop}}]", True),
        (McpStream(), f"{EVERYTHING}, deny_rules: [{{method: tools/call, tool: drop}}]", True),
        (listing("tools/list"), FILTER.replace("mcp,", "mcp, enforcement: audit,"), False),
        (listing("tools/list"), f"{EVERYTHING}, deny_rules: "
         "[{method: tools/call, params: {arguments: {a: b}}}]", False),
    ],
)  # fmt: skip
def test_when_replies_are_read(operation: Operation, members: str, wanted: bool) -> None:
    assert reply(operation, members).wanted is wanted


def test_nothing_of_a_request_that_was_not_read() -> None:
    authorization, endpoint = grant(FILTER)
    assert not ReplyFilter(authorization, endpoint, head(), None).wanted


def filtered(value: object, keep: ReplyFilter | None = None) -> Any:
    found = (keep or reply()).filter_json(encoded(value))
    assert isinstance(found, bytes), found
    return json.loads(found)


def test_tools_that_cannot_be_called_are_not_on_the_menu() -> None:
    body = tools("read", "write", "read_secret", "Read", "read.x", nextCursor="c1", ttlMs=5, _meta={"x": [1.5]})
    body["extra"] = {"kept": None}
    expected = tools("read", "read.x", nextCursor="c1", ttlMs=5, _meta={"x": [1.5]})
    expected["extra"] = {"kept": None}
    assert filtered(body) == expected


@pytest.mark.parametrize("item", ["read", 1, None, [], {}, {"name": 1}, {"name": None}, {"title": "read"}])
def test_items_without_a_name_are_dropped(item: object) -> None:
    assert filtered(result(tools=[item, {"name": "read"}])) == result(tools=[{"name": "read"}])


def test_an_empty_menu_is_a_list() -> None:
    assert filtered(tools("write", "drop")) == result(tools=[])


def test_names_that_strict_names_refuse_are_cut_too() -> None:
    assert filtered(tools("read file", "read", "readé")) == tools("read")
    loose = "protocol: mcp, mcp: {strict_tool_names: false}, rules: [{allow: {method: tools/call, tool: read file}}]"
    assert filtered(tools("read file", "read"), reply(members=loose)) == tools("read file")


@pytest.mark.parametrize(
    "value",
    [
        tools("read", "read.x"),
        tools(),
        result(tools=None),
        result(other=1),
        result(prompts=[{"name": "p"}]),
        result(content=[{"type": "text", "text": '{"tools": [{"name": "write"}]}'}]),
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "no", "data": {"tools": [{"name": "write"}]}}},
        {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
        {"jsonrpc": "2.0", "id": 1, "result": "x"},
        [],
        "text",
        None,
    ],
)
def test_what_holds_nothing_to_cut_is_passed_on_as_it_is(value: object) -> None:
    body = encoded(value)
    assert reply().filter_json(body) is body


def test_an_empty_body_is_no_reply() -> None:
    assert reply().filter_json(b"") == b""


def test_batches_are_cut_message_by_message() -> None:
    both = reply(listing("tools/list", "prompts/list", "resources/list"))
    body = [
        tools("read", "write"), result(1, prompts=[{"name": "p"}]), result(2, resources=[{"uri": "u", "name": "r"}]),
    ]  # fmt: skip
    assert filtered(body, both) == [tools("read"), result(1, prompts=[]), body[2]]


def test_prompts_and_resources_go_with_their_methods() -> None:
    lists = listing("prompts/list", "resources/list", "resources/templates/list")
    body = [
        result(0, prompts=[{"name": "p"}]), result(1, resources=[{"uri": "u"}], nextCursor="c"),
        result(2, resourceTemplates=[{"uriTemplate": "u{x}"}]), tools("write"),
    ]  # fmt: skip
    assert filtered(body, reply(lists, "protocol: mcp, rules: [{allow: {method: ping}}]")) == [
        result(0, prompts=[]), result(1, resources=[], nextCursor="c"), result(2, resourceTemplates=[]), tools("write"),
    ]  # fmt: skip
    assert not reply(lists, EVERYTHING).wanted


def test_other_endpoints_add_to_the_menu_and_take_from_it() -> None:
    deny = "deny_rules: [{method: tools/call, tool: w2}]"
    more = f"protocol: mcp, rules: [{{allow: {{method: tools/call, tool: 'w*'}}}}], {deny}"
    assert filtered(tools("read", "write", "w2", "drop"), reply(None, FILTER, more)) == tools("read", "write")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "list reply: invalid JSON"),
        (b"<html>", "list reply: invalid JSON"),
        (b" ", "list reply: invalid JSON"),
        (b'{"result":{"tools":[],"tools":[]}}', "list reply: duplicate JSON key"),
        (b'{"result":{"tools":{"name":"write"}}}', "`tools` of a list reply is no list"),
        (b'{"result":{"tools":"write"}}', "`tools` of a list reply is no list"),
        (encoded(tools("read")).decode().encode("utf-16"), "list reply: invalid JSON"),
        (b'"' + b"x" * LIMITS.mcp_reply_bytes + b'"', "list reply is larger than 4194304 bytes"),
        (b'{"result":{"tools":[1],"n":%b}}' % (b"9" * 5000), "list reply: invalid JSON"),
    ],
)
def test_replies_that_cannot_be_read(body: bytes, reason: str) -> None:
    assert reply().filter_json(body) == Malformed(reason, DenialCode.UPSTREAM_PROTOCOL_ERROR)


def test_the_longest_numbers_that_are_read_can_be_written() -> None:
    found = reply().filter_json(b'{"result":{"tools":[1],"n":%b}}' % (b"9" * 4300))
    assert found == b'{"result":{"tools":[],"n":%b}}' % (b"9" * 4300)


def streamed(pieces: list[bytes], keep: ReplyFilter | None = None) -> bytes | Malformed:
    events = (keep or reply()).events()
    out = b""
    for piece in pieces:
        found = events.feed(piece)
        if isinstance(found, Malformed):
            return found
        out += found
    rest = events.finish()
    return rest if isinstance(rest, Malformed) else out + rest


def data(value: object, end: bytes = b"\n") -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + end


CUT, WHOLE = tools("read"), tools("read", "write")


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (data(WHOLE) + b"\n", data(CUT) + b"\n"),
        (b"\n" + data(WHOLE) + b"\n\n" + data(WHOLE) + b"\n", b"\n" + data(CUT) + b"\n\n" + data(CUT) + b"\n"),
        (data(WHOLE, b"\r\n") + b"\r\n", data(CUT, b"\r\n") + b"\r\n"),
        (data(WHOLE, b"\r") + b"\r", data(CUT, b"\r") + b"\r"),
        (data(WHOLE, b"\r\n") + b"\n", data(CUT, b"\r\n") + b"\n"),
        (data(WHOLE, b"\n") + b"\r\n" + data(WHOLE) + b"\n", data(CUT, b"\n") + b"\r\n" + data(CUT) + b"\n"),
        (b"event: message\nid: 7\n" + data(WHOLE) + b": c\nretry: 5\n\n",
         b"event: message\nid: 7\n" + data(CUT) + b": c\nretry: 5\n\n"),
        (b'data:{"result":\nid: 1\ndata\ndata: {"tools":[{"name":"write"}]}}\n\n',
         b'data: {"result":{"tools":[]}}\nid: 1\n\n'),
        (b"\xef\xbb\xbf" + data(WHOLE) + b"\n", b"\xef\xbb\xbf" + data(CUT) + b"\n"),
        (data(WHOLE), data(CUT)),
        (data(WHOLE, b""), data(CUT, b"")),
        (data([WHOLE, result(1, x=1)]) + b"\n", data([CUT, result(1, x=1)]) + b"\n"),
    ],
)  # fmt: skip
def test_events_that_are_cut(stream: bytes, expected: bytes) -> None:
    assert streamed([stream]) == expected
    assert streamed([stream[at : at + 1] for at in range(len(stream))]) == expected


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        b"\n\n\n",
        b": comment\n\n: another\r\r\r\n",
        b"event: endpoint\ndata: /messages?session=1\n\n",
        b"data:  {not json, but not told as it\n\n".replace(b"{", b"("),
        data(CUT) + b"\n",
        b"data: " + json.dumps(CUT, indent=1).encode().replace(b"\n", b"\ndata: ") + b"\n\n",
        b"id: 1\n\nretry: 3\n\ndata\n\ndata:\n\n",
        b'Data: {"result":{"tools":[{"name":"write"}]}}\n\n',
        b'datax: {"result":{"tools":[{"name":"write"}]}}\n\n',
        b"data: 7\n\ndata: true\n\n",
        b"data: \xff\n\n",
        b"\xef\xbb\xbf: comment\n\n",
    ],
)
def test_everything_else_passes_byte_for_byte(stream: bytes) -> None:
    assert streamed([stream]) == stream
    assert streamed([stream[at : at + 1] for at in range(len(stream))]) == stream


pieces = st.lists(
    st.sampled_from([
        b": ping\n", b"\n", b"\r\n", b"\r", b"id: 4\r\n", b"event: message\n", data(WHOLE), data(CUT, b"\r"),
        data(result(3, prompts=[{"name": "p"}]), b"\r\n"), b"data: text\n", b"data:\n",
    ]),
    max_size=12,
)  # fmt: skip


@given(pieces, st.data())
def test_pieces_do_not_matter(parts: list[bytes], draw: st.DataObject) -> None:
    keep = reply(McpStream())
    stream = b"".join(parts)
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    whole = streamed([stream], keep)
    assert streamed(chunks, keep) == whole
    if b"text" not in stream:  # beside other data in one event, JSON is none
        assert isinstance(whole, Malformed) or b'"write"' not in whole


def test_comments_and_complete_events_do_not_wait() -> None:
    events = reply().events()
    assert events.feed(b": keep-alive\n") == b": keep-alive\n"
    assert events.feed(b"\n") == b"\n"
    assert events.feed(b"data: 1\n") == b""
    assert events.feed(b"\n: x\r\nda") == b"data: 1\n\n: x\r\n"
    assert events.feed(b"ta: 2\r\r") == b"data: 2\r\r"


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (b"data: {\n\n", "list reply: invalid JSON"),
        (b'data: [{"a":1,"a":2}]\n\n', "list reply: duplicate JSON key"),
        (b"data:  \t{nonsense}\n\n", "list reply: invalid JSON"),
        (b"data: \ndata: {nonsense}\n\n", "list reply: invalid JSON"),
        (b'data: {"result":{"tools":{}}}\n\n', "`tools` of a list reply is no list"),
        (b"data: {", "list reply: invalid JSON"),
    ],
)
def test_events_that_cannot_be_read_end_the_stream(stream: bytes, reason: str) -> None:
    found = streamed([data(1) + b"\n", stream])
    assert found == Malformed(reason, DenialCode.UPSTREAM_PROTOCOL_ERROR)


@pytest.mark.parametrize("start", [b"data: {", b"data: x", b": comment", b"id: "])
def test_events_are_bounded(start: bytes) -> None:
    events = reply().events()
    chunk = b"x" * (LIMITS.mcp_reply_bytes // 4)
    found: bytes | Malformed = events.feed(start)
    for _ in range(4):
        assert found == b""
        found = events.feed(chunk)
    assert found == Malformed("an event is larger than 4194304 bytes", DenialCode.UPSTREAM_PROTOCOL_ERROR)


def test_an_event_at_its_bound_passes() -> None:
    stream = b"data: [" + b" " * (LIMITS.mcp_reply_bytes - 2) + b"]\n\n"
    assert streamed([stream]) == stream
