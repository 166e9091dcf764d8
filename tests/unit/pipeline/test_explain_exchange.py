"""Offline decisions on bodies and WebSocket messages: verdict, rule, near misses, and what the client would get."""

import asyncio
import gzip
import json
from typing import Any

import pytest
import yaml

from egress.cli.question import HttpRequest, Program, ask_for_request
from egress.destination.validate import DestinationSettings
from egress.documents.yaml import Document, read
from egress.generation.generation import AgentTerms, Generation
from egress.model.ids import GenerationNumber
from egress.model.intent import DEFAULT_AGENT
from egress.model.process import IdentityMode
from egress.model.verdict import ReasonCode
from egress.pipeline.answer import Answer, Decision
from egress.pipeline.explain import World, explain
from egress.policy.compile import compile_policy

MESSAGE_RULES = [
    {"allow": {"method": "GET", "path": "/**"}},
    {"allow": {"method": "WEBSOCKET_TEXT", "path": "/chat/**"}},
]
QUERY_RULES = [
    {"allow": {"method": "GET", "path": "/**"}},
    {"allow": {"operation_type": "query", "fields": ["viewer"]}},
]
ENDPOINTS: list[dict[str, Any]] = [
    {"host": "graphql.test", "enforcement": "enforce", "protocol": "graphql",
     "rules": [{"allow": {"operation_type": "query", "fields": ["viewer", "issue*"]}}],
     "deny_rules": [{"operation_type": "query", "fields": ["issueSecret"]}]},
    {"host": "rpc.test", "enforcement": "enforce", "protocol": "json-rpc", "json_rpc": {"max_body_bytes": 1024},
     "rules": [{"allow": {"method": "files.read"}}]},
    {"host": "mcp.test", "enforcement": "enforce", "protocol": "mcp",
     "rules": [{"allow": {"method": "initialize"}}, {"allow": {"method": "tools/call", "tool": "read_*"}}]},
    {"host": "profile.test", "enforcement": "enforce", "protocol": "mcp", "mcp": {"allow_all_known_mcp_methods": True},
     "rules": [{"allow": {"method": "tools/call", "tool": "read_*"}}]},
    {"host": "watched.test", "protocol": "json-rpc", "enforcement": "audit", "rules": [{"allow": {"method": "a"}}]},
    {"host": "ws.test", "enforcement": "enforce", "protocol": "websocket", "rules": MESSAGE_RULES},
    {"host": "gqlws.test", "enforcement": "enforce", "protocol": "websocket", "rules": QUERY_RULES},
    {"host": "rest.test", "enforcement": "enforce", "protocol": "rest", "access": "full", "allow_upgrade": True},
    {"host": "open.test"},
]  # fmt: skip


def world() -> World:
    entries = {
        endpoint["host"].partition(".")[0]: {
            "endpoints": [{"port": 443, **endpoint}],
            "binaries": [{"path": "/**"}],
        }
        for endpoint in ENDPOINTS
    }
    document = read(yaml.safe_dump({"version": 1, "network_policies": entries}).encode(), "p.yaml")
    assert isinstance(document, Document)
    compiled = compile_policy([document])
    assert compiled.policy is not None, compiled.diagnostics
    terms = AgentTerms(compiled.policy, IdentityMode.OFF)
    return World(Generation(GenerationNumber(0), {DEFAULT_AGENT: terms}, "0" * 64), DestinationSettings())


WORLD = world()


def ask(url: str, method: str = "POST", **more: Any) -> Answer:
    question = ask_for_request(HttpRequest(url, method, **more), DEFAULT_AGENT, Program())
    return asyncio.run(explain(question, WORLD))


def post(url: str, body: object, **headers: str) -> Answer:
    return ask(url, body=json.dumps(body).encode(), headers=headers)


def call(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


def mcp(host: str, body: object) -> Answer:
    return post(f"https://{host}/mcp", body, Accept="application/json, text/event-stream")


def told(answer: Answer) -> tuple[Decision, str]:
    return answer.decision, answer.trace[-1].detail


def misses(answer: Answer) -> list[str]:
    return [str(miss).partition(") ")[2] for miss in answer.misses]


def test_a_body_that_is_left_open_decides_nothing() -> None:
    for host in ("graphql.test", "rpc.test", "mcp.test"):
        assert told(ask(f"https://{host}/")) == (
            Decision.UNDECIDABLE,
            "it depends on the body of the request; give one",
        )
    assert ask("https://rest.test/").decision is Decision.ALLOW
    assert ask("https://rpc.test/", body=b"").decision is Decision.DENY


def test_a_graphql_operation_names_its_rule() -> None:
    answer = post("https://graphql.test/", {"query": "{ mine: viewer { id } }"})
    assert told(answer) == (Decision.ALLOW, "rule graphql/endpoints[0]/rules[0]")
    assert answer.rule is not None


def test_a_graphql_denial_has_near_misses_and_the_reply() -> None:
    answer = post("https://graphql.test/", {"query": "mutation Close { closeIssue { id } }"})
    assert told(answer) == (
        Decision.DENY,
        "mutation Close { closeIssue }: GraphQL operation blocked by endpoint policy",
    )
    assert misses(answer) == [
        "misses by operation type and fields: it lists operation type query, fields viewer, issue*"
    ]
    assert answer.reply is not None
    assert answer.reply.status == 403


def test_a_graphql_deny_rule_is_named_and_nothing_suggested() -> None:
    answer = post("https://graphql.test/", {"query": "{ issueSecret }"})
    assert answer.rule is not None
    assert (answer.rule.id, answer.misses) == ("graphql/endpoints[0]/deny_rules[0]", ())


def test_graphql_over_get_needs_no_body() -> None:
    assert ask("https://graphql.test/?query=%7Bviewer%7D", "GET").decision is Decision.ALLOW


def test_rpc_calls() -> None:
    assert told(post("https://rpc.test/", call("files.read"))) == (Decision.ALLOW, "rule rpc/endpoints[0]/rules[0]")
    answer = post("https://rpc.test/", call("files.delete"))
    assert told(answer) == (Decision.DENY, "files.delete: POST / not permitted by policy")
    assert misses(answer) == ["misses by method: it lists method files.read"]


def test_a_body_beyond_the_ceiling() -> None:
    answer = ask("https://rpc.test/", body=b" " * 1025)
    assert answer.reply is not None
    assert (answer.reply.status, answer.misses) == (413, ())


def test_a_coded_body_is_judged_decoded() -> None:
    body = gzip.compress(json.dumps(call("files.delete")).encode())
    answer = ask("https://rpc.test/", body=body, headers={"Content-Encoding": "gzip"})
    assert told(answer) == (Decision.DENY, "files.delete: POST / not permitted by policy")


def test_audit_tells_what_it_would_deny() -> None:
    answer = post("https://watched.test/", call("b"))
    assert told(answer) == (
        Decision.AUDIT, "b: POST / not permitted by policy; `enforcement: audit` lets it pass",
    )  # fmt: skip
    assert (answer.reply, misses(answer)) == (None, ["misses by method: it lists method a"])


def test_a_refused_tool_is_told_as_a_result() -> None:
    answer = mcp("mcp.test", call("tools/call", name="delete_all", arguments={}))
    assert answer.denial is not None
    assert answer.denial.reason_code is ReasonCode.TOOL_DENIED
    assert misses(answer)[0] == "misses by tool: it lists method tools/call, tool read_*"
    assert answer.reply is not None
    reply = json.loads(answer.reply.body)
    assert (answer.reply.status, reply["id"], reply["error"]["data"]["error"]) == (200, 7, "policy_denied")


def test_why_mcp_passes_without_a_rule() -> None:
    assert told(mcp("profile.test", call("tools/list"))) == (
        Decision.ALLOW, "the method profile of the endpoint allows it",
    )  # fmt: skip
    assert told(mcp("mcp.test", {"jsonrpc": "2.0", "id": 1, "result": {}})) == (
        Decision.ALLOW, "answers to the server: rules bind what a client starts",
    )  # fmt: skip
    listening = ask("https://mcp.test/mcp", "GET", headers={"Accept": "text/event-stream"})
    assert told(listening) == (
        Decision.ALLOW, "the stream that the server talks on: rules bind what a client starts",
    )  # fmt: skip


def test_a_method_that_mcp_has_not_is_told_which_it_has() -> None:
    answer = ask("https://mcp.test/mcp", "PUT", body=b"{}")
    assert answer.reply is not None
    assert (answer.reply.status, dict(answer.reply.fields)[b"Allow"]) == (405, b"GET, POST, DELETE")


def test_messages_are_judged_one_by_one() -> None:
    answer = ask("wss://ws.test/chat/1", "GET", messages=("one", b"two", "three"))
    assert [step.detail for step in answer.trace[-3:]] == [
        "rule ws/endpoints[0]/rules[0]",
        "message 1: rule ws/endpoints[0]/rules[1]",
        "message 2: WEBSOCKET_BINARY /chat/1 not permitted by policy",
    ]
    assert (answer.decision, answer.close, answer.reply) == (Decision.DENY, 1003, None)
    assert "misses by method: it lists WEBSOCKET_TEXT /chat/**" in misses(answer)


def test_a_message_on_another_path() -> None:
    answer = ask("wss://ws.test/other", "GET", messages=("one",))
    assert (answer.decision, answer.close) == (Decision.DENY, 1008)
    assert "misses by path: it lists WEBSOCKET_TEXT /chat/**" in misses(answer)


def test_graphql_messages() -> None:
    start = '{"type": "connection_init"}'
    query, mutation = (
        json.dumps({"type": "subscribe", "id": "1", "payload": {"query": text}})
        for text in ("{ viewer }", "mutation { close }")
    )
    passed = ask("wss://gqlws.test/", "GET", messages=(start, query))
    assert [step.detail for step in passed.trace[-2:]] == [
        "message 1: nothing in it has to be allowed by a rule",
        "message 2: rule gqlws/endpoints[0]/rules[1]",
    ]
    answer = ask("wss://gqlws.test/", "GET", messages=(start, mutation))
    assert (answer.decision, answer.close) == (Decision.DENY, 1008)
    assert misses(answer) == ["misses by operation type and fields: it lists operation type query, fields viewer"]


@pytest.mark.parametrize("message", ["text", b"binary"])
def test_messages_of_a_rest_endpoint_have_no_rules(message: str | bytes) -> None:
    assert ask("wss://rest.test/", "GET", messages=(message,)).decision is Decision.ALLOW


def test_messages_where_no_websocket_opens() -> None:
    refused = ask("wss://graphql.test/", "GET", messages=("one",))
    assert (refused.decision, refused.close) == (Decision.DENY, None)
    assert told(ask("wss://open.test/", "GET", messages=("one",))) == (Decision.ALLOW, "messages are relayed unread")
