"""GraphQL messages over WebSocket: what each asks for, and exact refusals."""

import json

import pytest

from egress.l7.graphql_ws import CONTROL, OPERATIONS, read_message
from egress.model.operation import GraphqlOperation, GraphqlOperations
from egress.model.verdict import Denial, DenialCode, Stage
from egress.policy.compiled import Endpoint
from tests.unit.policy.samples import entries, granted

RULES = "[{allow: {method: GET, path: /ws}}, {allow: {operation_type: query}}]"


def endpoint() -> Endpoint:
    text = f"host: a.test, port: 443, protocol: websocket, rules: {RULES}"
    (found,) = granted(entries(f"e: {{endpoints: [{{{text}}}], binaries: [{{path: /**}}]}}"), "a.test").endpoints
    return found


ENDPOINT = endpoint()


def refused(reason: str) -> Denial:
    said = f"GraphQL request rejected: {reason}"
    return Denial(Stage.L7, DenialCode.INVALID_GRAPHQL_REQUEST, said, entry="e")


@pytest.mark.parametrize("kind", sorted(OPERATIONS))
def test_operations(kind: str) -> None:
    message = {"id": "1", "type": kind, "payload": {"query": "subscription S { b a }", "variables": {}}}
    expected = GraphqlOperations((GraphqlOperation("subscription", "S", ("a", "b")),))
    assert read_message(ENDPOINT, json.dumps(message)) == expected


@pytest.mark.parametrize("kind", sorted(CONTROL))
@pytest.mark.parametrize("more", [{}, {"id": "1"}, {"payload": {"query": "{"}}, {"payload": None}])
def test_control_messages(kind: str, more: dict[str, object]) -> None:
    assert read_message(ENDPOINT, json.dumps({"type": kind, **more})) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "invalid JSON"),
        ("ping", "invalid JSON"),
        ("\ufeff{}", "invalid JSON"),
        ('{"type":"ping","type":"ping"}', "duplicate JSON key"),
        ('["ping"]', "message is not a JSON object"),
        ('{"TYPE":"ping"}', "key in unusual letter case"),
        ('{"type":"ping","Payload":1}', "key in unusual letter case"),
        ("{}", "message has no type"),
        ('{"type":1}', "message has no type"),
        ('{"type":"subscribed"}', "unknown message type"),
        ('{"type":"subscribe","payload":{"query":"{a}"}}', "message has no id"),
        ('{"type":"subscribe","id":"","payload":{"query":"{a}"}}', "message has no id"),
        ('{"type":"subscribe","id":1,"payload":{"query":"{a}"}}', "message has no id"),
        ('{"type":"subscribe","id":"1"}', "message has no payload"),
        ('{"type":"subscribe","id":"1","payload":[{"query":"{a}"}]}', "message has no payload"),
        ('{"type":"subscribe","id":"1","payload":{}}', "neither a document nor a persisted query"),
        ('{"type":"start","id":"1","payload":{"query":"{a"}}', "document cannot be parsed at line 1, column 3"),
        ('{"type":"start","id":"1","payload":{"QUERY":"{a}"}}', "key in unusual letter case"),
    ],
)
def test_refused(text: str, reason: str) -> None:
    assert read_message(ENDPOINT, text) == refused(reason)


def test_lone_surrogates() -> None:
    assert read_message(ENDPOINT, '{"type":"ping\ud800"}') == refused("invalid JSON")
