"""Token grants through the installed command: what an agent, a token endpoint and an origin see of them."""

import base64
import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs

import jwt
import pytest

from tests.support.authorities import OriginAuthority
from tests.support.origins import Conversation, Origin, OriginLoop, answer, say_ok
from tests.support.proxy import LANES, EgressProcess, policy_text, rest
from tests.support.raw import eventually
from tests.support.workload import Workload

PLUGIN = Path(__file__).parents[2] / "plugins" / "egress-identity-spiffe" / "tests"
ISSUER = "https://sso.test:{port}/realms/mesh"


def workload_api() -> ModuleType:
    """The Workload API of the plugin's own tests."""
    spec = importlib.util.spec_from_file_location("spiffe_workload_api", PLUGIN / "spiffe_workload_api.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found


@dataclass
class TokenEndpoint:
    """Numbers its tokens; under `/broken` it gives none, under `/gone` it resets."""

    origin: Origin
    forms: list[dict[str, list[str]]] = field(default_factory=list)
    count: int = 0

    async def __call__(self, talk: Conversation) -> None:
        self.forms.append(parse_qs((await talk.body()).decode(), strict_parsing=True))
        self.count += 1
        status, body = "200 OK", dict[str, object](access_token=f"granted-token-{self.count}", expires_in=3600)
        assert talk.request is not None
        if talk.request.target == b"/gone":
            talk.reset()
            return
        if talk.request.target == b"/broken":
            status, body = "400 Bad Request", {"error": "invalid_client", "error_description": "no\nsuch client"}
        text = json.dumps(body).encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        await talk.send(head.encode() + text)

    def asked(self, audience: str) -> list[dict[str, list[str]]]:
        """All that was ever asked for this audience: a token is kept, and which test needs it first is chance."""
        return [dict(form) for form in self.forms if form.get("audience") == [audience]]


@dataclass
class Site:
    proxy: EgressProcess
    workload: Workload
    origin: Origin
    plain: Origin
    tokens: TokenEndpoint

    def curl(self, url: str, *options: str) -> tuple[int, str]:
        """Status and body of one request, sent with a worthless token in the field of the grant."""
        words = ["curl", "-sS", "-w", "\n%{http_code}", "-H", "Authorization: Bearer mine", *options, url]
        done = self.workload.run(*words)
        assert done.returncode == 0, done.stderr
        body, _, status = done.stdout.rpartition("\n")
        return int(status), body

    def url(self, path: str) -> str:
        return f"https://origin.test:{self.origin.port}{path}"

    def bearer(self) -> list[bytes]:
        """`Authorization` of the latest request."""
        return (self.origin.requests or self.plain.requests)[-1].values(b"authorization")


def provider(name: str, endpoints: list[dict[str, Any]], grant: dict[str, Any]) -> dict[str, Any]:
    credential = {
        "name": "mesh_token", "auth_style": "bearer", "header_name": "Authorization", "token_grant": grant,
    }  # fmt: skip
    inline = {"id": name, "display_name": name, "credentials": [credential], "endpoints": endpoints}
    return {"name": name, "profile": inline}


@pytest.fixture(scope="module", params=LANES)
def site(
    request: pytest.FixtureRequest, origin_loop: OriginLoop, authority: OriginAuthority,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:  # fmt: skip
    work = tmp_path_factory.mktemp("work")
    (work / "agent").mkdir()
    agent = workload_api().WorkloadApi(work / "agent" / "api.sock")
    origin = Origin(origin_loop, authority.server_context("origin.test"))
    plain = Origin(origin_loop)
    sso = Origin(origin_loop, authority.server_context("sso.test"))
    sso.script = tokens = TokenEndpoint(sso)
    place = {"host": "origin.test", "port": origin.port, "enforcement": "enforce"}
    endpoint = place | {"access": "full"}
    endpoints = [
        endpoint | {"path": "/rest/**", "protocol": "rest"},
        endpoint | {"path": "/graphql", "protocol": "graphql"},
        place | {"path": "/rpc", "protocol": "json-rpc", "rules": [{"allow": {"method": "*"}}]},
        place | {"path": "/mcp", "protocol": "mcp", "rules": [{"allow": {"method": "*"}}]},
        endpoint | {"path": "/ws", "protocol": "websocket"},
        endpoint | {"host": "plain.test", "port": plain.port, "protocol": "rest"},
    ]
    grant = {
        "token_endpoint": f"https://sso.test:{sso.port}/realms/mesh/protocol/openid-connect/token",
        "audience": "orders",
        "scopes": ["orders.read"],
        "audience_overrides": [{"path": "/rest/admin/**", "audience": "orders-admin", "scopes": ["orders.admin"]}],
    }
    with EgressProcess(
        policy_text(rest("free.test", origin.port)),
        aliases={f"{name}.test": "127.0.0.1" for name in ("origin", "plain", "sso", "broken", "gone", "free")},
        trust=authority.ca_file,
        providers={
            "version": 1,
            "providers": [
                provider("mesh", endpoints, grant),
                *[
                    provider(
                        name, [endpoint | {"host": f"{name}.test", "protocol": "rest"}],
                        {"token_endpoint": f"https://sso.test:{sso.port}/{name}"},
                    )
                    for name in ("broken", "gone")
                ],
            ],
        },
        settings=LANES[request.param] | {
            "plugins": {"enabled": ["identity-spiffe"]}, "token_grants": {"workload_api": f"unix:{agent.socket}"},
        },
    ) as proxy:  # fmt: skip
        yield Site(proxy, Workload(proxy, work), origin, plain, tokens)
    for server in (origin, plain, sso):
        server.stop()
    agent.stop()


@pytest.fixture(autouse=True)
def fresh(site: Site) -> None:
    site.origin.script = site.plain.script = say_ok
    site.origin.requests.clear()
    site.plain.requests.clear()


def test_a_grant_from_svid_to_origin(site: Site) -> None:
    assert site.curl(site.url("/rest/a"), "-H", "authorization: Basic x") == (200, "ok")
    (bearer,) = site.bearer()
    assert bearer.startswith(b"Bearer granted-token-")
    *_, form = granted = site.tokens.asked("orders")
    (document,) = form.pop("client_assertion")
    claims = jwt.decode(document, options={"verify_signature": False})
    assert claims["aud"] == [ISSUER.format(port=site.tokens.origin.port)]
    assert claims["sub"] == "spiffe://corp.test/egress"
    assert form == {
        "grant_type": ["client_credentials"],
        "client_assertion_type": ["urn:ietf:params:oauth:client-assertion-type:jwt-bearer"],
        "audience": ["orders"],
        "scope": ["orders.read"],
    }
    for _ in range(3):
        site.curl(site.url("/rest/b"), "-d", "body")
        assert site.bearer() == [bearer]
        assert site.origin.requests[-1].body == b"body"
    assert len(site.tokens.asked("orders")) == len(granted)


def test_a_path_with_an_audience_of_its_own(site: Site) -> None:
    site.curl(site.url("/rest/admin/x"))
    (form,) = site.tokens.asked("orders-admin")
    assert form["scope"] == ["orders.admin"]


KINDS = {
    "rest": ("/rest/x", ()),
    "graphql": ("/graphql", ("-H", "Content-Type: application/json", "-d", '{"query": "{ me { id } }"}')),
    "json-rpc": ("/rpc", ("-H", "Content-Type: application/json", "-d", '{"jsonrpc": "2.0", "id": 1, "method": "a"}')),
    "mcp": (
        "/mcp",
        ("-H", "Content-Type: application/json", "-H", "Accept: application/json, text/event-stream", "-d",
         '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_endpoint(site: Site, kind: str) -> None:
    path, options = KINDS[kind]
    site.origin.script = answer(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
    status, body = site.curl(site.url(path), *options)
    assert (status, body) == (200, "{}")
    (bearer,) = site.bearer()
    assert bearer.startswith(b"Bearer granted-token-")


def test_an_upgrade(site: Site) -> None:
    site.origin.script = answer(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
    key = base64.b64encode(b"0123456789abcdef").decode()
    options = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}")
    status, _ = site.curl(site.url("/ws"), "--http1.1", *[word for line in options for word in ("-H", line)])
    assert status == 403
    (bearer,) = site.bearer()
    assert bearer.startswith(b"Bearer granted-token-")


def test_a_forward_request(site: Site) -> None:
    assert site.curl(f"http://plain.test:{site.plain.port}/x") == (200, "ok")
    (bearer,) = site.plain.requests[-1].values(b"authorization")
    assert bearer.startswith(b"Bearer granted-token-")


def test_a_placeholder_in_the_field_does_not_fail(site: Site) -> None:
    assert site.curl(site.url("/rest/a"), "-H", "Authorization: Bearer openshell:resolve:env:NOBODY") == (200, "ok")
    assert len(site.bearer()) == 1


def test_an_origin_that_echoes_it(site: Site) -> None:
    async def echo(talk: Conversation) -> None:
        assert talk.request is not None
        await talk.body()
        (value,) = talk.request.values(b"authorization")
        await talk.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b" % (len(value), value)
        )

    site.origin.script = echo
    status, body = site.curl(site.url("/rest/echo"))
    assert status == 200
    assert "granted-token" not in body
    assert body.startswith("Bearer ****")


def test_no_token(site: Site) -> None:
    before, asked = len(site.proxy.events()), len(site.tokens.forms)
    for _ in range(2):  # a failure is repeated for a while, and asked for once
        status, text = site.curl(f"https://broken.test:{site.origin.port}/a")
        body = json.loads(text)
        assert (status, body["error"], body["reason_code"], body["detail"]) == (
            502, "token_grant_failed", "rejected", "dynamic token grant failed",
        )  # fmt: skip
    assert len(site.tokens.forms) == asked + 1
    assert site.origin.requests == []
    reason = "status 400 Bad Request: error=invalid_client; error_description=no such client"
    assert eventually(lambda: reason in json.dumps(site.proxy.events()[before:]))


def test_an_endpoint_that_resets(site: Site) -> None:
    status, text = site.curl(f"https://gone.test:{site.origin.port}/a")
    assert (status, json.loads(text)["reason_code"]) == (502, "endpoint_unreachable")


def test_nothing_tells_a_token_or_a_document(site: Site) -> None:
    site.curl(site.url("/rest/a"))
    (bearer,) = site.bearer()
    assert bearer.startswith(b"Bearer granted-token-")
    assert eventually(lambda: any("/rest/a" in json.dumps(event) for event in site.proxy.events()))
    told = json.dumps(site.proxy.events()) + site.proxy.stderr()
    assert "granted-token" not in told
    assert "eyJ" not in told
