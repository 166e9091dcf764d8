"""Reachability agrees with verdicts, and near misses say what kept a rule from matching."""

import pytest

from egress.l7.calls import CallRules, judge_calls, misses
from egress.model.operation import RpcCall, RpcMessages
from egress.model.verdict import Allow, Denial
from egress.policy.explain import Aspect
from tests.unit.l7.rpc import grant, head

TOOLS = ("read", "read.all", "read_secret", "write", "drop", "unknown")
ENDPOINTS = [
    "protocol: mcp, rules: [{allow: {method: '*'}}]",
    "protocol: mcp, mcp: {allow_all_known_mcp_methods: true}",
    "protocol: mcp, mcp: {allow_all_known_mcp_methods: true}, rules: [{allow: {tool: 'read*'}}]",
    "protocol: mcp, mcp: {allow_all_known_mcp_methods: true}, deny_rules: [{tool: '*secret*'}]",
    "protocol: mcp, rules: [{allow: {method: ping}}]",
    "protocol: mcp, rules: [{allow: {method: '*'}}], deny_rules: [{method: tools/call, tool: {any: [drop, write]}}]",
    "protocol: mcp, rules: [{allow: {method: 'tools/*'}}], deny_rules: [{method: 'tools/c*'}]",
]


@pytest.mark.parametrize("members", ENDPOINTS)
@pytest.mark.parametrize(
    "other", [*ENDPOINTS[3:5], ENDPOINTS[2].replace("protocol: mcp", "protocol: mcp, path: /else")]
)
def test_a_tool_is_reachable_where_its_call_passes(members: str, other: str) -> None:
    authorization, endpoint = grant(members, other)
    rules = CallRules(authorization, endpoint, "/mcp")
    passing = set()
    for tool in TOOLS:
        verdict = judge_calls(authorization, endpoint, head(), RpcMessages((RpcCall("tools/call", 1, False, tool),)))
        assert isinstance(verdict, Allow | Denial)
        assert rules.reachable("tools/call", tool) is isinstance(verdict, Allow)
        passing |= {tool} if isinstance(verdict, Allow) else set()
    assert not rules.open("tools/call") or passing == set(TOOLS)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (ENDPOINTS[0], True),
        (ENDPOINTS[1], True),
        (ENDPOINTS[2], False),
        (ENDPOINTS[3], False),
        (ENDPOINTS[4], False),
        (ENDPOINTS[5], False),
        (ENDPOINTS[6], False),
        ("protocol: mcp, rules: [{allow: {method: '*'}}], deny_rules: [{method: ping}]", True),
    ],
)
def test_open_methods(members: str, expected: bool) -> None:
    authorization, endpoint = grant(members)
    assert CallRules(authorization, endpoint, "/mcp").open("tools/call") is expected


def test_arguments_decide_later() -> None:
    authorization, endpoint = grant(
        "protocol: mcp, rules: [{allow: {method: tools/call, tool: read, params: {arguments: {path: '/a*'}}}}, "
        "{allow: {method: tools/call, tool: write}}], "
        "deny_rules: [{method: tools/call, tool: write, params: {arguments: {path: /etc}}}]"
    )
    rules = CallRules(authorization, endpoint, "/mcp")
    assert [rules.reachable("tools/call", tool) for tool in ("read", "write", "drop")] == [True, True, False]


def test_near_misses() -> None:
    authorization, endpoint = grant(
        "protocol: mcp, path: /mcp, rules: [{allow: {method: ping}}, "
        "{allow: {method: tools/call, tool: {any: [read, list]}}}, "
        "{allow: {method: tools/call, tool: write, params: {arguments: {path: '/data/*'}}}}]",
        "protocol: mcp, path: /other, rules: [{allow: {method: tools/call, tool: write}}]",
        "protocol: rest, path: /rest, access: full",
    )
    calls = (RpcCall("ping", 1), RpcCall("tools/call", 2, False, "write", {"path": "/etc"}), RpcCall("other", 3))
    found = misses(authorization, endpoint, head(), RpcMessages(calls, 0, True))
    assert [(miss.rule, miss.missed) for miss in found] == [
        (endpoint.rules[1].ref, (Aspect.TOOL,)),
        (endpoint.rules[2].ref, (Aspect.ARGUMENTS,)),
        (authorization.endpoints[1].rules[0].ref, (Aspect.ENDPOINT_PATH,)),
        (endpoint.rules[0].ref, (Aspect.METHOD,)),
    ]
    assert found[0].wanted == "method tools/call, tool read or list below endpoint path /mcp"
    assert found[1].wanted == "method tools/call, tool write, arguments path below endpoint path /mcp"
    assert misses(authorization, endpoint, head(), RpcMessages(calls[:1])) == ()
