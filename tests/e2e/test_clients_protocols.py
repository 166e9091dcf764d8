"""MCP and GraphQL clients as people use them, through the proxy by both lanes: what passes, and what they are told."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.origins import OriginLoop
from tests.support.proxy import LANES, EgressProcess, Endpoint, plain_environment, policy_text
from tests.support.suites import free_port, installed, node, node_server, wait_for_port
from tests.support.workload import Workload

MCP_SERVER = """
import sys
from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
server = MCPServer("demo")
@server.tool()
def read_file(path: str) -> str: return "content of " + path
@server.tool()
def delete_all() -> str: return "gone"
open_to_all = TransportSecuritySettings(enable_dns_rebinding_protection=False)
server.run("streamable-http", port=int(sys.argv[1]), transport_security=open_to_all)
"""
PYTHON_CLIENT = """
import asyncio, json, sys
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
async def main(url):
    async with streamable_http_client(url) as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        names = [tool.name for tool in (await session.list_tools()).tools]
        read = (await session.call_tool("read_file", {"path": "/x"})).content[0].text
        try:
            told = str(await session.call_tool("delete_all", {}))
        except Exception as error:
            told = str(error)
        print(json.dumps([names, read, told]))
asyncio.run(main(sys.argv[1]))
"""
NODE_CLIENT = """
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
const client = new Client({ name: 'test', version: '1' });
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[1])));
const names = (await client.listTools()).tools.map(tool => tool.name);
const read = (await client.callTool({ name: 'read_file', arguments: { path: '/x' } })).content[0].text;
const told = await client.callTool({ name: 'delete_all', arguments: {} }).then(String, error => error.message);
console.log(JSON.stringify([names, read, told]));
process.exit(0);
"""
GRAPHQL_SERVER = """
import { createHandler } from 'graphql-http/lib/use/http';
import { buildSchema } from 'graphql';
import http from 'http';
const schema = buildSchema('type Query { hello: String secret: String }');
const rootValue = { hello: 'world', secret: 'told' };
http.createServer(createHandler({ schema, rootValue })).listen(process.env.PORT, '127.0.0.1');
"""
GQL_CLIENT = """
import json, sys
from gql import Client, gql
from gql.transport.httpx import HTTPXTransport
client = Client(transport=HTTPXTransport(url=sys.argv[1]))
hello = client.execute(gql("query { hello }"))
try:
    told = client.execute(gql("query { secret }"))
except Exception as error:
    told = f"{type(error).__name__} {error}"
print(json.dumps([hello, told]))
"""
GQL_WEBSOCKET_CLIENT = """
import asyncio, json, sys
from gql import Client, gql
from gql.transport.websockets import WebsocketsTransport
async def main(url):
    told = []
    for text in ("subscription { ticks }", "subscription { secrets }"):
        transport = WebsocketsTransport(url=url, subprotocols=["graphql-transport-ws"], connect_args={"proxy": True})
        try:
            async with Client(transport=transport) as session:
                async for found in session.subscribe(gql(text)):
                    told.append(found)
        except Exception as error:
            told.append(f"{error} {error.__cause__}")
    print(json.dumps(told))
asyncio.run(main(sys.argv[1]))
"""
TOOLS = {
    "protocol": "mcp", "enforcement": "enforce",
    "rules": [{"allow": {"method": name}} for name in ("initialize", "notifications/initialized", "tools/list")]
    + [{"allow": {"method": "tools/call", "tool": "read_*"}}],
}  # fmt: skip
QUERIES = {
    "protocol": "graphql", "enforcement": "enforce",
    "rules": [{"allow": {"operation_type": "query", "fields": ["hello"]}}],
}  # fmt: skip
SUBSCRIPTIONS = {
    "protocol": "websocket", "enforcement": "enforce",
    "rules": [
        {"allow": {"method": "GET", "path": "/**"}},
        {"allow": {"operation_type": "subscription", "fields": ["ticks"]}},
    ],
}  # fmt: skip


@dataclass(frozen=True)
class Site:
    workload: Workload
    tools: str
    queries: str
    subscriptions: str


@pytest.fixture(scope="module")
def mcp_server() -> Iterator[int]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", MCP_SERVER, str(port)], env=plain_environment(),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for_port(port)
    yield port
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def graphql_server() -> Iterator[int]:
    with node_server("--input-type=module", "-e", GRAPHQL_SERVER) as port:
        yield port


@pytest.fixture(scope="module")
def subscription_server(origin_loop: OriginLoop) -> Iterator[int]:
    """Answers every subscription with one result."""
    from websockets.asyncio.server import ServerConnection, serve

    async def answer(connection: ServerConnection) -> None:
        async for text in connection:
            message: dict[str, Any] = json.loads(text)
            if message["type"] == "connection_init":
                await connection.send('{"type": "connection_ack"}')
            elif message["type"] == "subscribe":
                result = {"id": message["id"], "type": "next", "payload": {"data": {"ticks": 1}}}
                await connection.send(json.dumps(result))
                await connection.send(json.dumps({"id": message["id"], "type": "complete"}))

    async def start() -> Any:
        return await serve(answer, "127.0.0.1", 0, subprotocols=["graphql-transport-ws"])  # type: ignore[list-item]

    server = origin_loop.run(start())
    yield server.sockets[0].getsockname()[1]

    async def stop() -> None:
        server.close()
        await asyncio.wait_for(server.wait_closed(), 5)

    origin_loop.run(stop())


@pytest.fixture(scope="module", params=LANES)
def site(
    request: pytest.FixtureRequest,
    mcp_server: int,
    graphql_server: int,
    subscription_server: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    policy = policy_text(
        Endpoint("mcp.test", mcp_server, TOOLS),
        Endpoint("gql.test", graphql_server, QUERIES),
        Endpoint("ws.test", subscription_server, SUBSCRIPTIONS),
    )
    aliases = dict.fromkeys(("mcp.test", "gql.test", "ws.test"), "127.0.0.1")
    with EgressProcess(policy, aliases=aliases, settings=LANES[request.param]) as proxy:
        yield Site(
            Workload(proxy, tmp_path_factory.mktemp("protocols")),
            f"http://mcp.test:{mcp_server}/mcp",
            f"http://gql.test:{graphql_server}/",
            f"ws://ws.test:{subscription_server}/graphql",
        )


def refused_tool(output: str) -> None:
    """The menu lacks what cannot be called, and the refusal says what was refused."""
    names, read, told = json.loads(output)
    assert (names, read) == (["read_file"], "content of /x")
    assert "POST /mcp not permitted by policy" in told


@pytest.mark.timeout(120)
def test_python_mcp_sdk(site: Site) -> None:
    done = site.workload.python(PYTHON_CLIENT, site.tools)
    assert done.returncode == 0, done.stderr
    refused_tool(done.stdout)


@pytest.mark.timeout(400)
def test_typescript_mcp_sdk(site: Site) -> None:
    done = site.workload.run(
        "sh", "-c", 'cd "$1" && exec "$2" --input-type=module -e "$3" "$4"', "sh", installed(), node(), NODE_CLIENT,
        site.tools,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    refused_tool(done.stdout)


@pytest.mark.timeout(400)
def test_gql_over_http(site: Site) -> None:
    done = site.workload.python(GQL_CLIENT, site.queries)
    assert done.returncode == 0, done.stderr
    hello, told = json.loads(done.stdout)
    assert hello == {"hello": "world"}
    assert "403" in told


@pytest.mark.timeout(120)
def test_gql_over_websocket(site: Site) -> None:
    done = site.workload.python(GQL_WEBSOCKET_CLIENT, site.subscriptions)
    assert done.returncode == 0, done.stderr
    passed, told = json.loads(done.stdout)
    assert passed == {"ticks": 1}
    assert "1008" in told
