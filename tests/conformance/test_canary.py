"""No secret, query string, header value or body in any event or log: a canary in every place where one may stand.

`EgressProcess.stop` looks for the same canary after every test of the suite that runs a proxy.
"""

import base64
import json
import urllib.parse
from collections.abc import Iterator

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.canary import CANARY, told
from tests.support.origins import Conversation, Origin, OriginLoop
from tests.support.proxy import LANES, EgressProcess, Endpoint, policy_text, rest
from tests.support.raw import client_context, dial, open_tunnel, start_tls

REST, GRAPHQL, MCP, RPC, DOWN = "rest.test", "graphql.test", "mcp.test", "rpc.test", "down.test"
HOSTS = (REST, GRAPHQL, MCP, RPC)
ENFORCED = {"enforcement": "enforce"}
QUOTED = urllib.parse.quote(CANARY, safe="")
BASIC = base64.b64encode(f"user:{CANARY}".encode()).decode()

RPC_CALL = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "read", "params": {"token": CANARY}})
MCP_CALL = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "read", "arguments": {"token": CANARY}}}
)
QUERY = json.dumps({"query": 'query Read { item(token: "' + CANARY + '") { id } }', "variables": {"token": CANARY}})

REQUESTS = {
    "allowed": (REST, "POST", "/open", CANARY),
    "denied": (REST, "DELETE", "/open", CANARY),
    "malformed-json": (RPC, "POST", "/", '{"jsonrpc": "2.0", "method": "' + CANARY),
    "graphql-allowed": (GRAPHQL, "POST", "/", QUERY),
    "graphql-denied": (GRAPHQL, "POST", "/", QUERY.replace("query Read", "mutation Read")),
    "graphql-malformed": (GRAPHQL, "POST", "/", json.dumps({"query": "query { " + CANARY})),
    "rpc-allowed": (RPC, "POST", "/", RPC_CALL),
    "rpc-denied": (RPC, "POST", "/", RPC_CALL.replace("read", "write")),
    "mcp-allowed": (MCP, "POST", "/", MCP_CALL),
    "mcp-denied": (MCP, "POST", "/", MCP_CALL.replace('"read"', '"write"')),
    "unknown-host": ("nowhere.test", "GET", "/open", ""),
    "unreachable": (DOWN, "GET", "/open", ""),
}


async def say_secrets(talk: Conversation) -> None:
    """A reply with the canary in a field and in the body, after the body of the request."""
    await talk.body()
    body = json.dumps({"secret": CANARY}).encode()
    await talk.send(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nSet-Cookie: s=%b\r\nContent-Length: %d\r\n\r\n%b"
        % (CANARY.encode(), len(body), body)
    )


@pytest.fixture(scope="module", params=LANES)
def site(
    request: pytest.FixtureRequest, origin_loop: OriginLoop, authority: OriginAuthority
) -> Iterator[tuple[EgressProcess, Origin, Origin]]:
    plain, tls = Origin(origin_loop), Origin(origin_loop, authority.server_context(*HOSTS))
    plain.script = tls.script = say_secrets
    endpoints = [
        endpoint
        for port in (plain.port, tls.port)
        for endpoint in (
            rest(REST, port, ("POST", "/open"), ("GET", "/open")),
            Endpoint(
                GRAPHQL, port, {"protocol": "graphql", **ENFORCED, "rules": [{"allow": {"operation_type": "query"}}]}
            ),
            Endpoint(RPC, port, {"protocol": "json-rpc", **ENFORCED, "rules": [{"allow": {"method": "read"}}]}),
            Endpoint(
                MCP,
                port,
                {"protocol": "mcp", **ENFORCED, "rules": [{"allow": {"method": "tools/call", "tool": "read"}}]},
            ),
        )
    ]
    policy = policy_text(*endpoints, rest(DOWN, 9))
    settings = {**LANES[request.param], "logs": {"level": "debug"}}
    aliases = dict.fromkeys((*HOSTS, DOWN), "127.0.0.1")
    with EgressProcess(policy, aliases=aliases, trust=authority.ca_file, settings=settings) as proxy:
        yield proxy, plain, tls
    plain.stop()
    tls.stop()


def message(method: str, target: str, authority: str, body: str) -> bytes:
    return (
        f"{method} {target} HTTP/1.1\r\nHost: {authority}\r\nAuthorization: Bearer {CANARY}\r\nCookie: s={CANARY}\r\n"
        f"X-Api-Key: {CANARY}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def silent(proxy: EgressProcess, seen: int) -> None:
    assert proxy.wait_events(1, after=seen), "nothing was told, so nothing was proven"
    assert told(proxy.events_file, proxy.stderr_file) == []


@pytest.mark.parametrize("inside", [True, False], ids=["tunnel", "forward"])
@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_full_of_secrets(site: tuple[EgressProcess, Origin, Origin], name: str, inside: bool) -> None:
    proxy, plain, tls = site
    host, method, path, body = REQUESTS[name]
    if inside and host not in HOSTS:
        pytest.skip("no tunnel there")
    seen = len(proxy.events())
    target = f"{path}?token={QUOTED}"
    if inside:
        authority = f"{host}:{tls.port}"
        client = start_tls(open_tunnel(proxy.port, authority), client_context(proxy.ca), host)
    else:
        authority = f"{host}:{9 if host == DOWN else plain.port}"
        target = f"http://{authority}{target}"
        client = dial(proxy.port)
    with client:
        client.send(message(method, target, authority, body))
        reply = client.reply(method)
    assert (CANARY in (reply.head + reply.body).decode()) == name.endswith("allowed")  # a refusal tells nothing
    silent(proxy, seen)


@pytest.mark.parametrize(
    "head",
    [
        f"GET http://user:{CANARY}@{REST}/open HTTP/1.1\r\nHost: {REST}\r\n\r\n",
        f"GET http://{REST}/open HTTP/1.1\r\nHost: {REST}\r\nX-Key : {CANARY}\r\n\r\n",
        f"CONNECT {REST}:443 HTTP/1.1\r\nHost: {REST}:443\r\nProxy-Authorization: Basic {BASIC}\r\nBad\r\n\r\n",
        f"GET http://{REST}:9/open?{QUOTED} HTTP/1.1\r\nHost: {REST}:9\r\nProxy-Authorization: Basic {BASIC}\r\n\r\n",
        f"{QUOTED}\r\n\r\n",
        f"GET /open?token={QUOTED}#{QUOTED} HTTP/1.1\r\nHost: {REST}\r\n\r\n",
    ],
    ids=["userinfo", "bad-field", "bad-connect", "credentials", "no-request", "origin-form"],
)
def test_a_refused_head_full_of_secrets(site: tuple[EgressProcess, Origin, Origin], head: str) -> None:
    proxy, _, _ = site
    seen = len(proxy.events())
    with dial(proxy.port) as client:
        client.send(head.encode())
        reply = client.reply()
    assert reply.status >= 400
    assert CANARY not in reply.body.decode()
    silent(proxy, seen)
