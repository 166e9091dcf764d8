"""Other people's suites through the installed proxy, by both lanes: MCP conformance and GraphQL over HTTP."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.proxy import LANES, EgressProcess, Endpoint, plain_environment, policy_text
from tests.support.suites import installed, module, node, node_server

CONFORMANCE = "node_modules/.bin/conformance"
CLIENT = f"{sys.executable} -m tests.support.mcp_suite_client"
SCENARIOS = ("initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry")
AUTHORIZED = (
    "metadata-default", "metadata-var1", "metadata-var2", "metadata-var3", "basic-cimd", "scope-from-www-authenticate",
    "scope-from-scopes-supported", "scope-omitted-when-undefined", "scope-step-up", "scope-retry-limit",
    "token-endpoint-auth-basic", "token-endpoint-auth-post", "token-endpoint-auth-none", "pre-registration",
    "2025-03-26-oauth-metadata-backcompat", "2025-03-26-oauth-endpoint-fallback", "resource-mismatch",
    "offline-access-scope", "offline-access-not-supported", "client-credentials-jwt", "client-credentials-basic",
)  # fmt: skip
MCP = {"protocol": "mcp", "enforcement": "enforce", "mcp": {"allow_all_known_mcp_methods": True}}
GRAPHQL = {"protocol": "graphql", "enforcement": "enforce", "access": "full"}

UNREADABLE = ("572B", "FDE2")
"""Documents with syntax errors. The audits want the server's own 200; what cannot be read is refused before it."""

GRAPHQL_SERVER = """
import { createHandler } from 'graphql-http/lib/use/http';
import { buildSchema } from 'graphql';
import http from 'http';
const schema = buildSchema('type Query { hello: String } type Mutation { m: String }');
http.createServer(createHandler({ schema, rootValue: { hello: 'world' } })).listen(process.env.PORT, '127.0.0.1');
"""
GRAPHQL_AUDITS = """
import { serverAudits } from 'graphql-http';
import { ProxyAgent, fetch } from 'undici';
const { PROXY, TUNNEL, TARGET } = process.env;
const dispatcher = PROXY && new ProxyAgent({ uri: PROXY, proxyTunnel: TUNNEL === 'CONNECT' });
const fetchFn = (url, options) => fetch(url, dispatcher ? { ...options, dispatcher } : options);
const found = {};
for (const audit of serverAudits({ url: TARGET, fetchFn })) found[audit.id] = (await audit.fn()).status;
console.log(JSON.stringify(found));
process.exit(0);
"""


def run_client(scenario: str, project: Path, **environment: str) -> tuple[int, str]:
    """Exit code and summary of one scenario."""
    done = subprocess.run(
        [node(), CONFORMANCE, "client", "--command", CLIENT, "--scenario", scenario],
        capture_output=True, text=True, timeout=60, cwd=installed(),
        env=plain_environment(PYTHONPATH=str(project), **environment),
    )  # fmt: skip
    summary = re.search(r"Passed: .*", done.stdout + done.stderr)
    return done.returncode, summary[0] if summary else ""


def passes_through(scenario: str, lane: str, project: Path, told: Path) -> int:
    """The exit code that both ways have in common."""
    direct = run_client(scenario, project)
    proxied = run_client(scenario, project, MCP_SUITE_LANE=lane, MCP_SUITE_TOLD=str(told))
    assert proxied == direct
    assert "POST" in json.loads(told.read_text())
    return direct[0]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_mcp_client_scenarios(scenario: str, lane: str, project: Path, tmp_path: Path) -> None:
    assert passes_through(scenario, lane, project, tmp_path / "told.json") == 0


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("scenario", AUTHORIZED)
def test_mcp_client_scenarios_with_authorization(scenario: str, lane: str, project: Path, tmp_path: Path) -> None:
    passes_through(f"auth/{scenario}", lane, project, tmp_path / "told.json")


@pytest.fixture(scope="module")
def everything() -> Iterator[int]:
    """The port of the server that has a bit of everything."""
    with node_server(module("@modelcontextprotocol/server-everything") / "dist" / "index.js", "streamableHttp") as port:
        yield port


def run_server_suite(url: str, **environment: str) -> dict[str, str]:
    """Passed and failed checks by scenario."""
    done = subprocess.run(
        [node(), CONFORMANCE, "server", "--url", url, "--suite", "active"],
        capture_output=True, text=True, timeout=120, cwd=installed(), env=plain_environment(**environment),
    )  # fmt: skip
    return dict(re.findall(r"^\W*([a-z0-9-]+): (\d+ passed, \d+ failed)", done.stdout, re.MULTILINE))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("lane", LANES)
def test_mcp_server_suite(lane: str, everything: int) -> None:
    direct = run_server_suite(f"http://127.0.0.1:{everything}/mcp")
    assert len(direct) > 25
    endpoint = Endpoint("localhost", everything, MCP)
    with EgressProcess(policy_text(endpoint), aliases={"localhost": "127.0.0.1"}, settings=LANES[lane]) as proxy:
        proxied = run_server_suite(
            f"http://localhost:{everything}/mcp", NODE_USE_ENV_PROXY="1", HTTP_PROXY=proxy.url, NO_PROXY=""
        )
        # Direct, the server answers a foreign Host; the proxy lets no request pass whose Host is not its target.
        assert proxied == direct | {"dns-rebinding-protection": "2 passed, 0 failed"}
        assert len(proxy.wait_events(30)) > 30


@pytest.fixture(scope="module")
def graphql_server() -> Iterator[int]:
    with node_server("--input-type=module", "-e", GRAPHQL_SERVER) as port:
        yield port


def run_audits(target: str, **environment: str) -> dict[str, str]:
    done = subprocess.run(
        [node(), "--input-type=module", "-e", GRAPHQL_AUDITS],
        capture_output=True, text=True, timeout=60, cwd=installed(), env=os.environ | environment | {"TARGET": target},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("form", ["CONNECT", "absolute"])
def test_graphql_over_http_audits(form: str, lane: str, graphql_server: int) -> None:
    direct = run_audits(f"http://127.0.0.1:{graphql_server}/")
    assert len(direct) == 61
    endpoint = Endpoint("gql.test", graphql_server, GRAPHQL)
    with EgressProcess(policy_text(endpoint), aliases={"gql.test": "127.0.0.1"}, settings=LANES[lane]) as proxy:
        proxied = run_audits(f"http://gql.test:{graphql_server}/", PROXY=proxy.url, TUNNEL=form)
    differing = {name: (status, proxied[name]) for name, status in direct.items() if status != proxied[name]}
    assert differing == dict.fromkeys(UNREADABLE, ("ok", "warn"))
