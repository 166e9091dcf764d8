"""Credentials through the installed command: the origin sees the value, the workload never does."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.authorities import OriginAuthority
from tests.support.origins import Origin, OriginLoop, answer, say_ok
from tests.support.proxy import LANES, EgressProcess, policy_text, rest
from tests.support.workload import Workload

VALUE = "tok-live-9f8e7d6c5b4a"


def providers(*items: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"version": 1, "providers": list(items), **more}


@dataclass
class Site:
    proxy: EgressProcess
    workload: Workload
    origin: Origin

    @property
    def environment(self) -> dict[str, str]:
        """What `egress env` prints for the workload."""
        done = self.workload.command("env", "--format", "json")
        assert done.returncode == 0, done.stderr
        found: dict[str, str] = json.loads(done.stdout)
        return found

    def url(self, path: str) -> str:
        return f"https://origin.test:{self.origin.port}{path}"


@pytest.fixture(scope="module", params=LANES)
def site(
    request: pytest.FixtureRequest, origin_loop: OriginLoop, authority: OriginAuthority,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:  # fmt: skip
    origin = Origin(origin_loop, authority.server_context("origin.test", "other.test"))
    place = {"host": "origin.test", "port": origin.port, "protocol": "rest", "access": "full"}
    file = providers(
        {
            "name": "desk", "profile": "generic-bearer", "values": {"API_TOKEN": {"env": "DESK_TOKEN"}},
            "endpoints": [place],
        }
    )  # fmt: skip
    with EgressProcess(
        policy_text(rest("origin.test", origin.port), rest("other.test", origin.port)),
        aliases={"origin.test": "127.0.0.1", "other.test": "127.0.0.1"},
        trust=authority.ca_file, settings=LANES[request.param], providers=file, environment={"DESK_TOKEN": VALUE},
    ) as proxy:  # fmt: skip
        yield Site(proxy, Workload(proxy, tmp_path_factory.mktemp("work")), origin)
    origin.stop()


def token(site: Site) -> str:
    done = site.proxy.command("env", "--format", "json", "--ready-file", str(site.proxy.ready_file))
    assert done.returncode == 0, done.stderr
    found: str = json.loads(done.stdout)["API_TOKEN"]
    return found


def test_the_origin_gets_the_value_and_the_client_a_mask(site: Site) -> None:
    placeholder = token(site)
    assert placeholder.startswith("openshell:resolve:env:s")
    site.origin.script = answer(f"HTTP/1.1 200 OK\r\nContent-Length: {len(VALUE)}\r\nX-Echo: {VALUE}\r\n\r\n{VALUE}".encode())
    site.origin.take()
    done = site.workload.run("curl", "-sSi", "-H", f"Authorization: Bearer {placeholder}", site.url("/a"))
    assert done.returncode == 0, done.stderr
    assert f"Bearer {VALUE}".encode() in site.origin.take()
    assert VALUE not in done.stdout
    assert done.stdout.count("*" * len(VALUE)) == 2
