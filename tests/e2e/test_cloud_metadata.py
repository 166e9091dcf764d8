"""Cloud SDKs in a workload that holds nothing: they ask the metadata server, and the proxy puts in the token."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.origins import Origin, OriginLoop
from tests.support.proxy import LANES, EgressProcess, policy_text, rest
from tests.support.workload import Workload

FIRST, SECOND = "ya29.first-real-token-0123456789", "ya29.second-real-token-0123456789"
EMAIL = "robot@proj.iam.gserviceaccount.com"
HOST = "storage.googleapis.com"

SCRIPT = """
import json, sys, google.auth, google.auth.transport.requests as transport
credentials, project = google.auth.default()
session = transport.AuthorizedSession(credentials)
tokens = []
for _ in range(4):
    credentials.refresh(transport.Request())
    reply = session.get(sys.argv[1])
    assert reply.text == "ok", reply.text
    tokens.append(credentials.token)
print(json.dumps([project, credentials.service_account_email, tokens]))
"""


@dataclass
class Site:
    proxy: EgressProcess
    workload: Workload
    origin: Origin
    token: Path

    @property
    def environment(self) -> dict[str, str]:
        """What `egress env` prints for the workload."""
        done = self.proxy.command("env", "--format", "json", "--ready-file", str(self.proxy.ready_file))
        assert done.returncode == 0, done.stderr
        found: dict[str, str] = json.loads(done.stdout)
        return found

    def bearers(self) -> set[bytes]:
        values = {value for request in self.origin.requests for value in request.values(b"authorization")}
        self.origin.requests.clear()
        return values


@pytest.fixture(scope="module", params=LANES)
def site(
    request: pytest.FixtureRequest, origin_loop: OriginLoop, authority: OriginAuthority,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:  # fmt: skip
    work = tmp_path_factory.mktemp("work")
    origin = Origin(origin_loop, authority.server_context(HOST))
    token = work / "token"
    token.write_text(FIRST)
    token.chmod(0o600)
    provider = {
        "name": "gcp",
        "profile": "google-cloud",
        "config": {"project_id": "proj", "service_account_email": EMAIL},
        "values": {"GCP_SA_ACCESS_TOKEN": {"file": str(token)}},
        "endpoints": [{"host": HOST, "port": origin.port, "protocol": "rest", "access": "full"}],
    }
    with EgressProcess(
        policy_text(rest("free.test", origin.port)), aliases={HOST: "127.0.0.1"}, trust=authority.ca_file,
        providers={"version": 1, "providers": [provider]}, settings=LANES[request.param],
    ) as proxy:  # fmt: skip
        yield Site(proxy, Workload(proxy, work), origin, token)
    origin.stop()


def test_google_auth_works_with_nothing_but_placeholders(site: Site) -> None:
    environment = site.environment
    assert environment["GCE_METADATA_HOST"].startswith("127.0.0.1:")
    assert not [value for value in environment.values() if "ya29" in value]
    for real in (FIRST, SECOND):
        site.token.write_text(real)
        site.proxy.command("credentials", "refresh", "gcp")
        done = site.workload.run(sys.executable, "-c", SCRIPT, f"https://{HOST}:{site.origin.port}/b", **environment)
        assert done.returncode == 0, done.stderr
        project, email, tokens = json.loads(done.stdout)
        assert (project, email) == ("proj", EMAIL)
        assert all(token.startswith("openshell:resolve:env:") for token in tokens)
        assert site.bearers() == {f"Bearer {real}".encode()}
