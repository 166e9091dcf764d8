"""Faults that other proxies and policies had in public, each as a table: requests and what becomes of them.

Classes that need sockets stand elsewhere; `ELSEWHERE` says where, and that is checked.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from egress.cli.question import HttpRequest, Program, ask_for_connection, ask_for_request
from egress.destination.validate import DestinationSettings
from egress.documents.yaml import Document, read
from egress.generation.generation import AgentTerms, Generation
from egress.model.ids import GenerationNumber
from egress.model.intent import DEFAULT_AGENT
from egress.model.process import IdentityMode
from egress.pipeline.answer import Answer, Decision
from egress.pipeline.explain import Payload, World, explain
from egress.policy.compile import Compilation, compile_policy

ELSEWHERE = {
    "O-04": "e2e/test_clients_packages.py",
    "O-20": "integration/test_websocket.py",
    "O-21": "integration/test_websocket.py",
    "O-22": "e2e/test_clients_curl.py",
    "O-23": "e2e/test_clients_curl.py",
    "O-24": "e2e/test_clients_git.py",
    "O-25": "e2e/test_clients_curl.py",
    "O-26": "conformance/test_http2.py",
    "O-27": "faults/test_peers.py",
    "O-49": "faults/test_reload.py",
    "O-58": "conformance/corpus/first_bytes.yaml",
    "O-59": "conformance/test_http2.py",
}
READ_ONLY = {"protocol": "rest", "enforcement": "enforce", "access": "read-only"}
CALLER = Program("/usr/bin/caller")


def compiled(entries: dict[str, Any], **top: Any) -> Compilation:
    document = read(yaml.safe_dump({"version": 1, "network_policies": entries, **top}).encode(), "p.yaml")
    assert isinstance(document, Document)
    return compile_policy([document])


def entry(*endpoints: dict[str, Any], binaries: tuple[str, ...] = ("/**",)) -> dict[str, Any]:
    return {"endpoints": [{"port": 443, **one} for one in endpoints], "binaries": [{"path": path} for path in binaries]}


def world(**entries: dict[str, Any]) -> World:
    policy = compiled(entries).policy
    assert policy is not None, compiled(entries).diagnostics
    terms = AgentTerms(policy, IdentityMode.REQUIRED)
    return World(Generation(GenerationNumber(0), {DEFAULT_AGENT: terms}, "0" * 64), DestinationSettings())


def connect(where: World, target: str, program: Program = CALLER) -> Answer:
    return asyncio.run(explain(ask_for_connection(target, Payload.NOTHING, DEFAULT_AGENT, program), where))


def ask(where: World, url: str, method: str = "GET", program: Program = CALLER, **more: Any) -> Answer:
    return asyncio.run(explain(ask_for_request(HttpRequest(url, method, **more), DEFAULT_AGENT, program), where))


def post(where: World, url: str, body: object, **headers: str) -> Answer:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ask(where, url, "POST", body=content, headers={"Accept": "application/json, text/event-stream"} | headers)


def allowed(answer: Answer) -> bool:
    assert answer.decision in (Decision.ALLOW, Decision.DENY), answer.trace
    return answer.decision is Decision.ALLOW


@pytest.mark.parametrize(("case", "file"), ELSEWHERE.items())
def test_classes_that_need_sockets_are_tested_elsewhere(case: str, file: str, project: Path) -> None:
    assert case in (project / "tests" / file).read_text()


@pytest.mark.parametrize(
    ("host", "passes"),
    [
        ("api.example.test", True), ("API.Example.TEST", True), ("example.test", False), ("a.b.example.test", False),
        ("example.test.evil.test", False), ("xexample.test", False), ("a.deep.test", True), ("a.b.deep.test", True),
        ("deep.test", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["connect", "absolute"])
def test_a_wildcard_covers_exactly_one_label(host: str, passes: bool, form: str) -> None:
    """O-01"""
    one = entry({"host": "*.example.test", "ports": [80, 443], **READ_ONLY})
    two = entry({"host": "**.deep.test", "ports": [80, 443], **READ_ONLY})
    for endpoint in (*one["endpoints"], *two["endpoints"]):
        del endpoint["port"]
    where = world(one=one, two=two)
    answer = connect(where, f"{host}:443") if form == "connect" else ask(where, f"http://{host}/")
    assert allowed(answer) is passes


@pytest.mark.parametrize(
    ("host", "loads"),
    [(host, True) for host in ("*.example.test", "**.example.test", "*-svc.example.test", "*.s3.*.example.test")]
    + [(host, False) for host in ("*", "**", "*.test", "**.test", "foo.us-*.example.test", "foo.**.example.test",
                                  "foo**.example.test", "", "http://example.test", "example.test:443",
                                  "example.test/path")],
)  # fmt: skip
def test_patterns_that_are_too_broad_or_malformed_do_not_load(host: str, loads: bool) -> None:
    """O-02, O-06"""
    found = compiled({"one": entry({"host": host, **READ_ONLY})})
    assert (found.policy is not None) is loads
    assert loads or any("one" in diagnostic.message for diagnostic in found.diagnostics)


@pytest.mark.parametrize(
    ("path", "body", "passes"),
    [
        ("/graphql", b'{"query":"{viewer{login}}"}', True),
        ("/graphql", b'{"query":"mutation{addStar(id:1){id}}"}', False),
        ("/repos/o/r", b"{}", False),
    ],
)
def test_two_protocols_on_one_host_are_told_apart_by_path(path: str, body: bytes, passes: bool) -> None:
    """O-03"""
    graphql = {"protocol": "graphql", "enforcement": "enforce", "access": "read-only", "path": "/graphql"}
    where = world(api=entry({"host": "api.test", **READ_ONLY}, {"host": "api.test", **graphql}))
    assert allowed(post(where, f"https://api.test{path}", body)) is passes
    assert allowed(ask(where, "https://api.test/repos/o/r"))


def test_full_access_without_a_protocol_is_a_tunnel_for_its_programs() -> None:
    """O-05"""
    where = world(gh=entry({"host": "github.test", "access": "full"}, binaries=("/usr/bin/git",)))
    assert allowed(connect(where, "github.test:443", Program("/usr/bin/git")))
    assert allowed(ask(where, "https://github.test/any", "DELETE", Program("/usr/bin/git")))
    answer = connect(where, "github.test:443", Program("/usr/bin/curl"))
    assert answer.denial is not None
    assert answer.denial.reason_code is not None
    assert answer.denial.reason_code.value == "binary_not_allowed"


def test_placeholders_are_told_and_never_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """O-06"""
    monkeypatch.setenv("REPO", "x")
    rules = [{"allow": {"method": "GET", "path": "/repos/${REPO}/pulls"}}]
    entries = {"api": entry({"host": "api.test", "protocol": "rest", "enforcement": "enforce", "rules": rules})}
    found = compiled(entries)
    assert ["unfilled placeholder" in one.message for one in found.diagnostics] == [True]
    assert not allowed(ask(world(**entries), "https://api.test/repos/x/pulls"))


def test_a_preset_file_is_refused_in_words() -> None:
    """O-07"""
    document = read(b"preset: {name: chat}\nnetwork_policies: {}\n", "p.yaml")
    assert isinstance(document, Document)
    found = compile_policy([document])
    text = " ".join(one.message for one in found.diagnostics)
    assert found.policy is None
    assert "preset" in text
    assert "version" in text


def test_deprecated_tls_words_load_with_a_warning() -> None:
    """O-08"""
    for word in ("terminate", "passthrough"):
        found = compiled({"api": entry({"host": "api.test", "tls": word, **READ_ONLY})})
        assert found.policy is not None
        assert [("tls" in one.message, one.severity.value) for one in found.diagnostics] == [(True, "warning")]


@pytest.mark.parametrize(
    ("program", "method", "path", "passes"),
    [
        ("git", "GET", "/o/r.git/info/refs?service=git-upload-pack", True),
        ("git", "GET", "/o/r/archive/main.zip", False),
        ("pip", "GET", "/o/r/archive/main.zip", True),
        ("both", "GET", "/x", True),
        ("both", "POST", "/x", False),
    ],
)
def test_one_host_inspected_for_one_program_and_open_for_another(
    program: str, method: str, path: str, passes: bool
) -> None:
    """O-57"""
    rules = [{"allow": {"method": "GET", "path": "/**/info/refs*"}}]
    git = {"host": "github.test", "protocol": "rest", "enforcement": "enforce", "rules": rules}
    where = world(
        git=entry(git, binaries=("/bin/git",)),
        pip=entry({"host": "github.test"}, binaries=("/bin/pip", "/bin/both")),
        both=entry({"host": "github.test", **READ_ONLY}, binaries=("/bin/both",)),
    )
    assert allowed(ask(where, f"https://github.test{path}", method, Program(f"/bin/{program}"))) is passes


LISTED = ("initialize", "notifications/initialized", "tools/list", "ping")
TOOLS = world(
    mcp=entry({
        "host": "mcp.test", "protocol": "mcp", "enforcement": "enforce", "mcp": {"strict_tool_names": True},
        "rules": [{"allow": {"method": name}} for name in LISTED]
        + [{"allow": {"method": "tools/call", "tool": {"any": ["read_*", "search"]}}}],
        "deny_rules": [{"method": "tools/call", "tool": "read_secret"}],
    }),
    rpc=entry({"host": "rpc.test", "protocol": "json-rpc", "enforcement": "enforce",
               "rules": [{"allow": {"method": "reports.read"}}, {"allow": {"method": "ping"}}]}),
)  # fmt: skip


def call(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@pytest.mark.parametrize(
    ("name", "passes"),
    [("read_file", True), ("search", True), ("read_secret", False), ("Search", False), ("read file", False),
     ("", False), (5, False), ("read_" + "a" * 200, False)],
)  # fmt: skip
def test_tools_by_name(name: object, passes: bool) -> None:
    """O-31"""
    assert allowed(post(TOOLS, "https://mcp.test/mcp", call("tools/call", name=name, arguments={}))) is passes


@pytest.mark.parametrize("body", [call("resources/list"), call("Tools/Call"), call("tools/call "), call("tools/call")])
def test_methods_that_are_not_listed(body: object) -> None:
    """O-31"""
    assert not allowed(post(TOOLS, "https://mcp.test/mcp", body))


def test_a_batch_is_refused_for_one_of_its_members() -> None:
    """O-28"""
    for url, refused in (
        ("https://mcp.test/mcp", call("tools/call", name="delete_all")),
        ("https://rpc.test/", call("x")),
    ):
        assert not allowed(post(TOOLS, url, [call("ping"), refused]))
        assert not allowed(post(TOOLS, url, []))
        assert not allowed(post(TOOLS, url, [call("ping"), 5]))
    assert allowed(post(TOOLS, "https://rpc.test/", [call("ping"), call("reports.read")]))


def test_answers_that_a_client_sends() -> None:
    """O-29"""
    answer = {"jsonrpc": "2.0", "id": 7, "result": {"ok": True}}
    both = {"jsonrpc": "2.0", "id": 7, "result": {}, "method": "reports.delete"}
    assert not allowed(post(TOOLS, "https://rpc.test/", answer))
    assert allowed(post(TOOLS, "https://mcp.test/mcp", answer))
    assert not allowed(post(TOOLS, "https://rpc.test/", both))
    assert not allowed(post(TOOLS, "https://mcp.test/mcp", both))


def test_get_and_delete_of_mcp_need_no_body() -> None:
    """O-30"""
    listening = {"Accept": "text/event-stream", "Last-Event-ID": "41"}
    assert allowed(ask(TOOLS, "https://mcp.test/mcp", headers=listening))
    assert allowed(ask(TOOLS, "https://mcp.test/mcp", "DELETE", headers={"Mcp-Session-Id": "s-1"}))


QUERIES = world(
    api=entry({"host": "api.test", "protocol": "graphql", "enforcement": "enforce",
               "rules": [{"allow": {"operation_type": "query", "fields": ["viewer"]}}]}),
    reads=entry({"host": "reads.test", "protocol": "graphql", "enforcement": "enforce", "access": "read-only"}),
)  # fmt: skip
SEVERAL = """
query Safe { viewer { id } }
mutation Danger { x: deleteRepository(id: 1) { ok } }
query Sneaky { ...on Query { a: viewer { id } ...F } }
fragment F on Query { b: adminSecrets }
"""


@pytest.mark.parametrize(
    ("body", "passes"),
    [
        ({"query": SEVERAL, "operationName": "Safe"}, True),
        ({"query": SEVERAL, "operationName": "Danger"}, False),
        ({"query": SEVERAL, "operationName": "Sneaky"}, False),
        ({"query": SEVERAL}, False),
        ({"query": SEVERAL, "operationName": "Nope"}, False),
        ({"query": "{ viewer { id }"}, False),
        ([{"query": "{viewer{id}}"}, {"query": "mutation{m}"}], False),
        ([{"query": "{viewer{id}}"}], True),
    ],
)
def test_what_the_server_would_execute_is_judged(body: object, passes: bool) -> None:
    """O-32"""
    assert allowed(post(QUERIES, "https://api.test/graphql", body)) is passes


def test_a_query_that_can_be_read_in_two_ways_is_refused() -> None:
    """O-33"""
    target = "https://reads.test/graphql"
    assert allowed(ask(QUERIES, f"{target}?query=%7Bviewer%7Bid%7D%7D"))
    assert not allowed(ask(QUERIES, f"{target}?query=%7Bviewer%7Bid%7D%7D&query=mutation%7Bm%7D"))
    assert not allowed(ask(QUERIES, f"{target}?query=mutation%7Bm%7D"))
    assert not allowed(post(QUERIES, f"{target}?query=mutation%7Bm%7D", {"query": "{viewer{id}}"}))
    for kind, body in (
        ("application/graphql", b"mutation{m}"), ("application/x-www-form-urlencoded", b"query=mutation%7Bm%7D"),
        ("multipart/form-data; boundary=x", b"--x--"),
    ):  # fmt: skip
        assert not allowed(post(QUERIES, target, body, **{"Content-Type": kind}))
