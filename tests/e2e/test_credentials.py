"""Credentials through the installed command: the origin sees the value, the workload never does."""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.origins import Origin, OriginLoop, answer, say_ok
from tests.support.proxy import LANES, EgressProcess, policy_text, rest
from tests.support.raw import eventually
from tests.support.workload import Workload

VALUE = "tok-live-9f8e7d6c5b4a"


def providers(*items: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"version": 1, "providers": list(items), **more}


@dataclass
class Site:
    proxy: EgressProcess
    workload: Workload
    origin: Origin

    def url(self, path: str, host: str = "origin.test") -> str:
        return f"https://{host}:{self.origin.port}{path}"

    def token(self, key: str = "API_TOKEN") -> str:
        """The placeholder that `egress env` prints."""
        done = self.proxy.command("env", "--format", "json", "--ready-file", str(self.proxy.ready_file))
        assert done.returncode == 0, done.stderr
        found: str = json.loads(done.stdout)[key]
        return found

    def curl(self, *words: str) -> tuple[int, str]:
        """Status and everything that curl was sent."""
        done = self.workload.run("curl", "-sSi", "--suppress-connect-headers", *words)
        assert done.returncode == 0, done.stderr
        assert VALUE not in done.stdout
        return int(done.stdout.split(" ", 2)[1]), done.stdout


@pytest.fixture(scope="module", params=LANES)
def site(
    request: pytest.FixtureRequest, origin_loop: OriginLoop, authority: OriginAuthority,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:  # fmt: skip
    origin = Origin(origin_loop, authority.server_context("origin.test", "other.test"))
    place = {"host": "origin.test", "port": origin.port, "protocol": "rest", "access": "full"}
    body = {**place, "path": "/body/**", "request_body_credential_rewrite": True}
    file = providers(
        {
            "name": "desk", "profile": "generic-bearer", "values": {"API_TOKEN": {"env": "DESK_TOKEN"}},
            "endpoints": [place, body],
        }
    )  # fmt: skip
    with EgressProcess(
        policy_text(rest("origin.test", origin.port), rest("other.test", origin.port)),
        aliases={"origin.test": "127.0.0.1", "other.test": "127.0.0.1"},
        trust=authority.ca_file, settings=LANES[request.param], providers=file, environment={"DESK_TOKEN": VALUE},
    ) as proxy:  # fmt: skip
        yield Site(proxy, Workload(proxy, tmp_path_factory.mktemp("work")), origin)
    origin.stop()


@pytest.fixture(autouse=True)
def fresh(site: Site) -> None:
    site.origin.script = say_ok
    site.origin.take()


def test_the_origin_gets_the_value_and_the_client_a_mask(site: Site) -> None:
    token = site.token()
    assert token.startswith("openshell:resolve:env:s")
    echo = f"HTTP/1.1 200 OK\r\nContent-Length: {len(VALUE)}\r\nX-Echo: {VALUE}\r\n\r\n{VALUE}"
    site.origin.script = answer(echo.encode())
    _, shown = site.curl("-H", f"Authorization: Bearer {token}", site.url("/a"))
    assert f"Bearer {VALUE}".encode() in site.origin.take()
    assert shown.count("*" * len(VALUE)) == 2
    assert eventually(lambda: "egress.credential.reflected" in json.dumps(site.proxy.events()), 10)


def test_places_that_take_a_placeholder(site: Site) -> None:
    token = site.token()
    site.curl("-u", f"user:{token}", site.url("/basic"))
    assert base64.b64encode(f"user:{VALUE}".encode()) in site.origin.take()
    site.curl(site.url(f"/bot{token}/send?key={token}&x=1"))
    assert f"GET /bot{VALUE}/send?key={VALUE}&x=1 ".encode() in site.origin.take()
    site.curl("-H", "Content-Type: application/json", "-d", json.dumps({"key": token}), site.url("/body/x"))
    assert json.dumps({"key": VALUE}).encode() in site.origin.take()


@pytest.mark.parametrize(
    ("words", "path", "status", "error"),
    [
        (("-H", "X-Key: {token}"), "/x", 403, "credential_endpoint_mismatch"),
        (("-H", "X-Key: openshell:resolve:env:NOBODYS"), "/x", 500, "credential_unavailable"),
        (("-d", "key={token}"), "/x", 403, "credential_body_denied"),
        (("--path-as-is",), "/openshell:resolve:env:/x", 500, "credential_unavailable"),
    ],
)
def test_a_placeholder_elsewhere_does_not_leave(
    site: Site, words: tuple[str, ...], path: str, status: int, error: str
) -> None:
    token = site.token()
    before = len(site.proxy.events())
    got, shown = site.curl(*[word.format(token=token) for word in words], site.url(path, "other.test"))
    assert got == status
    refusal = json.loads(shown.rpartition("\r\n\r\n")[2])
    assert refusal["error"] == error
    assert b"openshell" not in site.origin.take()
    assert eventually(lambda: error in json.dumps(site.proxy.events()[before:]), 10)
    assert "openshell:resolve" not in json.dumps(site.proxy.events())


def test_what_an_operator_sees(site: Site) -> None:
    listed = site.proxy.command("credentials", "list", "--json")
    assert listed.returncode == 0, listed.stderr
    (one,) = json.loads(listed.stdout)
    assert (one["provider"], one["key"], one["source"], one["state"]) == ("desk", "API_TOKEN", "env", "ok")
    assert VALUE not in listed.stdout
    assert site.proxy.command("credentials", "refresh", "nobody").returncode == 1
    assert site.proxy.asked("/v1/status")["mode"] == "active"
