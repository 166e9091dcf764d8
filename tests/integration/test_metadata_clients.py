"""The metadata server under the clients it is for: google-auth, Google's Node and Go libraries, botocore.

Each asks many times, since clients ask differently once they remember the first answer.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from egress.credentials.metadata import MetadataAnswered, MetadataServer, address_of, bind_metadata
from egress.credentials.metadata_answers import MetadataView, Token
from egress.credentials.metadata_facts import Clouds, GoogleFacts, aws_environment, google_environment
from egress.model.clock import SystemClock
from tests.support.suites import module, node

EMAIL = "robot@proj.iam.gserviceaccount.com"
ROUNDS = 12
FULL = GoogleFacts.of(
    {"project_id": "proj", "numeric_project_id": "123", "zone": "europe-west1-b", "service_account_email": EMAIL,
     "instance_id": "42", "instance_name": "box", "hostname": "box.internal"}, vertex=False,
)  # fmt: skip
BARE = GoogleFacts(project_id="proj")


class Site:
    def __init__(self, address: str, facts: GoogleFacts) -> None:
        self.address = address
        self.facts = facts
        self.seen: list[MetadataAnswered] = []

    def run(self, *command: str | Path, **more: str) -> str:
        """What the program prints, its environment being that of a workload."""
        plain = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
        cloud = google_environment(self.address, self.facts) | aws_environment(self.address)
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, timeout=50, env=plain | cloud | more
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@contextmanager
def serving(facts: GoogleFacts, life: float) -> Iterator[Site]:
    """A server on a loop of its own. Each view is a new revision: another placeholder, as after a rotation."""
    count = 0
    listener = bind_metadata("127.0.0.1:0")
    site = Site(address_of(listener), facts)

    def view() -> MetadataView:
        nonlocal count
        count += 1
        expires = SystemClock().now() + life
        names = ("GCP_SA_ACCESS_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        tokens = {name: Token("p", f"openshell:resolve:env:v{count}_{name}", expires) for name in names}
        return MetadataView(configured=True, clouds=Clouds(facts, aws=True), tokens=tokens)

    with on_a_loop(lambda: MetadataServer(view, SystemClock(), observe=site.seen.append).run(listener)):
        yield site


@contextmanager
def on_a_loop(serve: Callable[[], object]) -> Iterator[None]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    future = asyncio.run_coroutine_threadsafe(serve(), loop)  # type: ignore[arg-type]
    yield
    future.cancel()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


PYTHON = """
import json, google.auth, google.auth.transport.requests as transport
from google.auth.compute_engine import _metadata
request = transport.Request()
assert _metadata.ping(request)
credentials, project = google.auth.default(scopes=SCOPES)
tokens = []
for _ in range(ROUNDS):
    credentials.refresh(request)
    tokens.append(credentials.token)
print(json.dumps([type(credentials).__module__, project, credentials.service_account_email, tokens,
    credentials.expired, credentials.universe_domain]))
"""


@pytest.mark.parametrize("scopes", ["None", "['https://www.googleapis.com/auth/devstorage.read_only']"])
@pytest.mark.parametrize(("facts", "email"), [(FULL, EMAIL), (BARE, "default")], ids=["email", "no-email"])
def test_google_auth_refreshes_over_and_over(facts: GoogleFacts, email: str, scopes: str) -> None:
    script = PYTHON.replace("ROUNDS", str(ROUNDS)).replace("SCOPES", scopes)
    with serving(facts, 3600) as site:
        kind, project, account, tokens, expired, universe = json.loads(site.run(sys.executable, "-c", script))
    assert (kind, project, account, expired, universe) == (
        "google.auth.compute_engine.credentials", "proj", email, False, "googleapis.com",
    )  # fmt: skip
    assert len(set(tokens)) == ROUNDS
    assert all(token.endswith("_GCP_SA_ACCESS_TOKEN") for token in tokens)
    assert not [seen for seen in site.seen if seen.status != 200]


def test_google_auth_refreshes_by_itself_when_a_token_is_nearly_over() -> None:
    """A token with under 225 s counts as stale, so each request refreshes: the path of a long-running workload."""
    script = """
import json, google.auth, google.auth.transport.requests as transport
credentials, _ = google.auth.default()
request, seen = transport.Request(), []
for _ in range(6):
    headers = {}
    credentials.before_request(request, "GET", "https://storage.googleapis.com/b", headers)
    seen.append(headers["authorization"])
print(json.dumps(seen))
"""
    with serving(FULL, 200) as site:
        seen = json.loads(site.run(sys.executable, "-c", script))
    assert len(set(seen)) == 6
    assert all(value.startswith("Bearer openshell:resolve:env:v") for value in seen)


NODE = """
const {GoogleAuth} = require('google-auth-library');
const gcp = require('gcp-metadata');
(async () => {
  const available = await gcp.isAvailable();
  const auth = new GoogleAuth();
  const client = await auth.getClient();
  const tokens = [];
  for (let i = 0; i < ROUNDS; i++) {
    const {token} = await client.getAccessToken();
    tokens.push(token);
    client.credentials.expiry_date = 1;
  }
  console.log(JSON.stringify({
    available, kind: client.constructor.name, project: await auth.getProjectId(), tokens,
    universe: await auth.getUniverseDomain(), email: (await auth.getCredentials()).client_email,
    id: String(await gcp.instance('id')), zone: await gcp.instance('zone'),
    number: String(await gcp.project('numeric-project-id')),
  }));
})().catch(error => { console.error(error); process.exit(1); });
"""


@pytest.mark.parametrize("detection", ["assume-present", "ping-only"])
def test_node_asks_over_and_over(detection: str) -> None:
    place = module("google-auth-library").parent.parent
    script = NODE.replace("ROUNDS", str(ROUNDS))
    with serving(FULL, 3600) as site:
        found = json.loads(
            site.run(node(), "-e", script, NODE_PATH=str(place / "node_modules"), METADATA_SERVER_DETECTION=detection)
        )
    assert len(set(found.pop("tokens"))) == ROUNDS
    assert found == {
        "available": True, "kind": "Compute", "project": "proj", "universe": "googleapis.com", "email": EMAIL,
        "id": "42", "zone": "projects/123/zones/europe-west1-b", "number": "123",
    }  # fmt: skip


GO = """
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"cloud.google.com/go/compute/metadata"
)

func must(value string, err error) string {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	tokens := map[string]bool{}
	for i := 0; i < ROUNDS; i++ {
		var answer struct {
			Token string `json:"access_token"`
			Life  int    `json:"expires_in"`
		}
		text := must(metadata.Get("instance/service-accounts/default/token"))
		if json.Unmarshal([]byte(text), &answer) != nil || answer.Life < 3000 {
			os.Exit(2)
		}
		tokens[answer.Token] = true
	}
	scopes, err := metadata.Scopes("")
	if err != nil {
		os.Exit(3)
	}
	_, missing := metadata.Get("instance/nothing")
	_, undefined := missing.(metadata.NotDefinedError)
	json.NewEncoder(os.Stdout).Encode(map[string]interface{}{
		"gce": metadata.OnGCE(), "tokens": len(tokens), "scopes": scopes, "undefined": undefined,
		"project": must(metadata.ProjectID()), "number": must(metadata.NumericProjectID()),
		"email": must(metadata.Email("default")), "zone": must(metadata.Zone()), "id": must(metadata.InstanceID()),
		"name": must(metadata.InstanceName()), "host": must(metadata.Hostname()),
	})
}
"""


@pytest.mark.skipif(shutil.which("go") is None, reason="needs golang-go")
def test_go_asks_over_and_over(tmp_path: Path) -> None:
    source = tmp_path / "main.go"
    source.write_text(GO.replace("ROUNDS", str(ROUNDS)))
    program = tmp_path / "asks"
    go = {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOFLAGS": "", "GOTOOLCHAIN": "local"}
    cache = {"GOCACHE": str(Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "go-build")}
    with serving(FULL, 3600) as site:
        site.run("go", "build", "-o", program, source, **go, **cache)
        found = json.loads(site.run(program))
    assert found == {
        "gce": True, "tokens": ROUNDS, "scopes": ["https://www.googleapis.com/auth/cloud-platform"], "undefined": True,
        "project": "proj", "number": "123", "email": EMAIL, "zone": "europe-west1-b", "id": "42", "name": "box",
        "host": "box.internal",
    }  # fmt: skip


BOTO = """
import json, botocore.session
credentials = botocore.session.get_session().get_credentials()
seen = []
for _ in range(ROUNDS):
    seen.append(credentials.get_frozen_credentials().access_key)
print(json.dumps([credentials.method, seen, credentials.get_frozen_credentials().token]))
"""


@pytest.mark.parametrize(("life", "fetches"), [(3600, 1), (300, ROUNDS)])
def test_botocore_comes_back_when_the_real_end_is_near(life: float, fetches: int, tmp_path: Path) -> None:
    clean = {"AWS_CONFIG_FILE": str(tmp_path / "none"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none")}
    with serving(FULL, life) as site:
        method, seen, token = json.loads(site.run(sys.executable, "-c", BOTO.replace("ROUNDS", str(ROUNDS)), **clean))
    assert method == "container-role"
    assert len(set(seen)) >= fetches
    assert (len(set(seen)) == 1) == (fetches == 1)
    assert token.endswith("_AWS_SESSION_TOKEN")
