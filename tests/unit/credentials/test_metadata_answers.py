"""Every row of the metadata routes, as pure answers."""

import json

import pytest

from egress.credentials.metadata_answers import (
    Answer,
    IdentityWanted,
    MetadataView,
    Question,
    Token,
    TokenWanted,
    answer,
    identity_answer,
)
from egress.credentials.metadata_facts import (
    Clouds,
    GoogleFacts,
    aws_environment,
    azure_environment,
    google_environment,
)
from egress.credentials.scope import Scope, Selector
from egress.credentials.snapshot import Credential, CredentialSnapshot
from egress.model.secret import Secret

NO_FACTS = GoogleFacts()
NOW = 1_700_000_000.0
GOOGLE = {"metadata-flavor": ("Google",)}
EMAIL = "robot@proj.iam.gserviceaccount.com"
SERVICE = Token("gcp", "openshell:resolve:env:v7_GCP_SA_ACCESS_TOKEN", NOW + 1234.9)
USER = Token("gcp", "openshell:resolve:env:v7_GCP_ADC_ACCESS_TOKEN", NOW + 900)
BASE = "/computeMetadata/v1"
ACCOUNT = f"{BASE}/instance/service-accounts/default"


def ask(
    path: str, *query: tuple[str, str], method: str = "GET", fields: dict[str, tuple[str, ...]] = GOOGLE
) -> Question:
    return Question(method, path, tuple(query), fields)


def final(question: Question, view: MetadataView) -> Answer:
    outcome = answer(question, view)
    if isinstance(outcome, TokenWanted):
        return outcome.render(view, NOW)
    assert isinstance(outcome, Answer)
    return outcome


def view(facts: GoogleFacts = NO_FACTS, **tokens: Token) -> MetadataView:
    return MetadataView(configured=True, clouds=Clouds(facts), tokens=tokens)


FULL = GoogleFacts(project_id="proj", email=EMAIL)


@pytest.mark.parametrize(
    ("path", "query", "kind", "body"),
    [
        ("", (), "text/plain", b"computeMetadata/\n"),
        ("/computeMetadata", (), "text/plain", b"computeMetadata/\n"),
        (BASE, (), "text/plain", b"computeMetadata/\n"),
        (f"{BASE}/instance", (), "text/plain", b"service-accounts/\n"),
        (f"{BASE}/instance/attributes", (), "text/plain", b""),
        (f"{BASE}/instance/service-accounts", (), "text/plain", b"default/\n"),
        (ACCOUNT, (), "text/plain", b"aliases\nemail\nscopes\ntoken\n"),
        (f"{ACCOUNT}/aliases", (), "text/plain", b"default\n"),
        (f"{ACCOUNT}/email", (), "text/plain", EMAIL.encode()),
        (f"{ACCOUNT}/email", (("alt", "json"),), "application/json", f'"{EMAIL}"'.encode()),
        (f"{ACCOUNT}/scopes", (), "text/plain", b"https://www.googleapis.com/auth/cloud-platform"),
        (f"{BASE}/project/project-id", (), "text/plain", b"proj"),
        (f"{BASE}/project/project-id", (("wait_for_change", "true"),), "text/plain", b"proj"),
        (f"{BASE}/universe/universe-domain", (), "text/plain", b"googleapis.com"),
    ],
)
def test_routes(path: str, query: tuple[tuple[str, str], ...], kind: str, body: bytes) -> None:
    got = final(ask(path, *query), view(FULL))
    assert (got.status, got.kind, got.body, got.served) == (200, kind, body, False)


def test_every_account_route_answers_under_the_address_too() -> None:
    for account in (EMAIL, EMAIL.replace("@", "%40")):
        for leaf in ("", "/email", "/scopes", "/aliases"):
            by_address = ask(f"{BASE}/instance/service-accounts/{account}{leaf}")
            assert final(by_address, view(FULL)) == final(ask(f"{ACCOUNT}{leaf}"), view(FULL))


def test_another_account_is_not_found() -> None:
    got = final(ask(f"{BASE}/instance/service-accounts/other@proj.iam.gserviceaccount.com/token"), view(FULL))
    assert (got.status, got.kind, got.body) == (404, "application/json", b'{"error": "not_found"}')


def test_recursive_account() -> None:
    scopes = ["https://www.googleapis.com/auth/cloud-platform"]
    with_address = final(ask(ACCOUNT, ("recursive", "true")), view(FULL))
    assert json.loads(with_address.body) == {"aliases": ["default"], "email": EMAIL, "scopes": scopes}
    without = final(ask(ACCOUNT, ("recursive", "true")), view())
    assert json.loads(without.body)["email"] == "default"


def test_recursive_accounts() -> None:
    got = final(ask(f"{BASE}/instance/service-accounts", ("recursive", "true")), view(FULL))
    assert set(json.loads(got.body)) == {"default", EMAIL}


def test_configured_instance() -> None:
    facts = GoogleFacts.of(
        {"project_id": "p", "zone": "europe-west1-b", "region": "europe-west1", "instance_id": "42"}, vertex=False
    )
    assert final(ask(f"{BASE}/instance/zone"), view(facts)).body == b"projects/p/zones/europe-west1-b"
    assert final(ask(f"{BASE}/instance/region"), view(facts)).body == b"projects/p/regions/europe-west1"
    assert final(ask(f"{BASE}/instance/id"), view(facts)).body == b"42"
    assert final(ask(f"{BASE}/instance/hostname"), view(facts)).status == 404
    assert final(ask(f"{BASE}/project/numeric-project-id"), view(facts)).status == 404


@pytest.mark.parametrize("path", ["/other", f"{BASE}/no", f"{ACCOUNT}/no", f"{BASE}x", "/v2/credentials/egress"])
def test_unknown_paths(path: str) -> None:
    got = final(ask(path), view(FULL))
    assert (got.status, got.kind, got.body) == (404, "application/json", b'{"error": "not_found"}')


def test_facts_that_are_not_configured() -> None:
    assert final(ask(f"{ACCOUNT}/email"), view()).status == 404
    assert final(ask(f"{BASE}/project/project-id"), view()).status == 404
    for path in (f"{ACCOUNT}/email", f"{BASE}/project/project-id"):
        got = final(ask(path), MetadataView())
        assert (got.status, got.body) == (503, b"")


class TestToken:
    def test_the_service_account_comes_first(self) -> None:
        got = final(ask(f"{ACCOUNT}/token"), view(GCP_SA_ACCESS_TOKEN=SERVICE, GCP_ADC_ACCESS_TOKEN=USER))
        assert (got.status, got.kind, got.served) == (200, "application/json", True)
        expected = {"access_token": SERVICE.placeholder, "expires_in": 1234, "token_type": "Bearer"}
        assert json.loads(got.body) == expected

    def test_an_expired_one_is_passed_over(self) -> None:
        old = Token("gcp", "openshell:resolve:env:v7_GCP_SA_ACCESS_TOKEN", NOW)
        got = final(ask(f"{ACCOUNT}/token"), view(GCP_SA_ACCESS_TOKEN=old, GCP_ADC_ACCESS_TOKEN=USER))
        assert json.loads(got.body) == {"access_token": USER.placeholder, "expires_in": 900, "token_type": "Bearer"}

    def test_an_unknown_end_is_an_hour(self) -> None:
        got = final(ask(f"{ACCOUNT}/token"), view(GCP_SA_ACCESS_TOKEN=Token("gcp", "openshell:resolve:env:X")))
        assert json.loads(got.body)["expires_in"] == 3600

    def test_none(self) -> None:
        got = final(ask(f"{ACCOUNT}/token"), view())
        assert (got.status, got.body) == (503, b'{"error": "token_unavailable"}')
        nobody = final(ask(f"{ACCOUNT}/token"), MetadataView())
        assert (nobody.status, nobody.body) == (503, b'{"error": "credentials_unavailable"}')

    def test_scopes_are_told_without_other_text(self) -> None:
        scope = "https://www.googleapis.com/auth/devstorage.read_only"
        asked = ask(f"{ACCOUNT}/token", ("scopes", f"{scope},sk-my-secret,https://www.googleapis.com/auth/a/b"))
        got = final(asked, view(GCP_SA_ACCESS_TOKEN=SERVICE))
        assert got.status == 200
        assert got.scopes == (scope,)

    def test_a_scope_beyond_the_configured_ones(self) -> None:
        facts = GoogleFacts.of(
            {"scopes": "https://www.googleapis.com/auth/a, https://www.googleapis.com/auth/b"}, vertex=False
        )
        held = view(facts, GCP_SA_ACCESS_TOKEN=SERVICE)
        good = ask(f"{ACCOUNT}/token", ("scopes", "https://www.googleapis.com/auth/b"))
        bad = ask(f"{ACCOUNT}/token", ("scopes", "https://www.googleapis.com/auth/b,https://www.googleapis.com/auth/c"))
        assert final(good, held).status == 200
        assert final(bad, held).status == 400
        assert final(ask(f"{ACCOUNT}/scopes"), held).body.decode().splitlines() == list(facts.scopes)


class TestRefusals:
    @pytest.mark.parametrize("method", ["POST", "PUT", "HEAD", "OPTIONS"])
    def test_other_methods(self, method: str) -> None:
        got = final(ask(f"{ACCOUNT}/token", method=method), view(GCP_SA_ACCESS_TOKEN=SERVICE))
        assert (got.status, got.kind, got.body) == (405, "text/html", b"Method Not Allowed")

    @pytest.mark.parametrize("path", ["", "/other", f"{ACCOUNT}/token"])
    @pytest.mark.parametrize(
        "fields",
        [{}, {"metadata-flavor": ("Amazon",)}, {"metadata-flavor": ("Google",), "x-forwarded-for": ("127.0.0.1",)}],
    )
    def test_flavor(self, path: str, fields: dict[str, tuple[str, ...]]) -> None:
        got = final(ask(path, fields=fields), view(GCP_SA_ACCESS_TOKEN=SERVICE))
        assert (got.status, got.kind, got.body) == (403, "text/html", b"Forbidden")

    def test_flavor_in_any_case(self) -> None:
        assert final(ask("", fields={"metadata-flavor": ("gOOGLE",)}), view()).status == 200


class TestIdentity:
    def test_only_for_listed_audiences(self) -> None:
        listed = MetadataView(configured=True, clouds=Clouds(audiences=frozenset(("https://run.example",))))
        assert answer(ask(f"{ACCOUNT}/identity", ("audience", "https://run.example")), listed) == IdentityWanted(
            "https://run.example"
        )
        other = final(ask(f"{ACCOUNT}/identity", ("audience", "https://other.example")), listed)
        assert other.status == 404
        assert b"other.example" not in other.body
        assert final(ask(f"{ACCOUNT}/identity"), listed).status == 400

    def test_answers(self) -> None:
        assert identity_answer(None).status == 503
        assert identity_answer("a.b.c").body == b"a.b.c"


class TestOtherClouds:
    def test_off_by_default(self) -> None:
        held = view(AWS_ACCESS_KEY_ID=SERVICE, AWS_SECRET_ACCESS_KEY=SERVICE, AZURE_ACCESS_TOKEN=SERVICE)
        assert final(ask("/v2/credentials/egress"), held).status == 404
        assert final(ask("/metadata/identity/oauth2/token"), held).status == 404

    def test_aws_keys_are_placeholders_with_the_real_end(self) -> None:
        tokens = {
            "AWS_ACCESS_KEY_ID": Token("aws", "openshell:resolve:env:v1_AWS_ACCESS_KEY_ID", NOW + 600),
            "AWS_SECRET_ACCESS_KEY": Token("aws", "openshell:resolve:env:v1_AWS_SECRET_ACCESS_KEY", NOW + 600),
            "AWS_SESSION_TOKEN": Token("aws", "openshell:resolve:env:v1_AWS_SESSION_TOKEN", NOW + 500),
        }
        got = final(
            ask("/v2/credentials/egress", fields={}),
            MetadataView(configured=True, tokens=tokens, clouds=Clouds(aws=True)),
        )
        assert got.status == 200
        assert json.loads(got.body) == {
            "AccessKeyId": "openshell:resolve:env:v1_AWS_ACCESS_KEY_ID",
            "SecretAccessKey": "openshell:resolve:env:v1_AWS_SECRET_ACCESS_KEY",
            "Token": "openshell:resolve:env:v1_AWS_SESSION_TOKEN",
            "Expiration": "2023-11-14T22:21:40Z",
        }

    def test_aws_half_a_set_is_none(self) -> None:
        half = MetadataView(configured=True, tokens={"AWS_ACCESS_KEY_ID": SERVICE}, clouds=Clouds(aws=True))
        assert final(ask("/v2/credentials/egress", fields={}), half).status == 503

    def test_azure(self) -> None:
        held = MetadataView(configured=True, tokens={"AZURE_ACCESS_TOKEN": USER}, clouds=Clouds(azure=True))
        path = "/metadata/identity/oauth2/token"
        query = (("api-version", "2018-02-01"), ("resource", "https://management.azure.test/"))
        got = final(ask(path, *query, fields={"metadata": ("true",)}), held)
        assert json.loads(got.body) == {
            "access_token": USER.placeholder,
            "expires_in": "900",
            "expires_on": "1700000900",
            "not_before": "1700000000",
            "resource": "https://management.azure.test/",
            "token_type": "Bearer",
        }
        assert final(ask(path, *query, fields={}), held).status == 400
        assert final(ask(path, query[0], fields={"metadata": ("true",)}), held).status == 400


def test_an_agent_is_told_of_what_serves_it() -> None:
    scope = Scope((Selector.of("*.googleapis.com", 443),), agents=("build-*",))
    snapshot = CredentialSnapshot.empty().next(
        [Credential("gcp", "GCP_SA_ACCESS_TOKEN", Secret("ya29.real"), scope, expires=NOW + 60, identity="gcp:K")]
    )
    seen = MetadataView.of(snapshot, "build-1", Clouds())
    placeholder = f"openshell:resolve:env:v{snapshot.revision}_GCP_SA_ACCESS_TOKEN"
    assert seen == MetadataView(True, Clouds(), {"GCP_SA_ACCESS_TOKEN": Token("gcp", placeholder, NOW + 60)})
    assert b"ya29" not in final(ask(f"{ACCOUNT}/token"), seen).body
    assert MetadataView.of(snapshot, "other", Clouds()) == MetadataView(configured=True)
    assert MetadataView.of(CredentialSnapshot.empty(), "other", Clouds()) == MetadataView()


def test_environment() -> None:
    facts = GoogleFacts(project_id="p", region="r", email=EMAIL)
    found = google_environment("127.0.0.1:8174", facts)
    assert found == {
        "GCE_METADATA_HOST": "127.0.0.1:8174",
        "GCE_METADATA_IP": "127.0.0.1:8174",
        "METADATA_SERVER_DETECTION": "assume-present",
        "GCP_PROJECT_ID": "p",
        "GOOGLE_CLOUD_PROJECT": "p",
        "CLOUD_ML_REGION": "r",
        "GCP_LOCATION": "r",
        "GCP_SERVICE_ACCOUNT_EMAIL": EMAIL,
    }
    assert set(found) - set(google_environment(None, facts)) == {
        "GCE_METADATA_HOST", "GCE_METADATA_IP", "METADATA_SERVER_DETECTION",
    }  # fmt: skip
    vertex = google_environment(None, GoogleFacts.of({"project_id": "p", "region": "r"}, vertex=True))
    assert (vertex["GOOSE_PROVIDER"], vertex["ANTHROPIC_VERTEX_PROJECT_ID"], vertex["VERTEX_LOCATION"]) == (
        "gcp_vertex_ai", "p", "r",
    )  # fmt: skip
    assert aws_environment("127.0.0.1:1")["AWS_CONTAINER_CREDENTIALS_FULL_URI"].startswith("http://127.0.0.1:1/v2/")
    assert azure_environment("127.0.0.1:1") == {"AZURE_POD_IDENTITY_AUTHORITY_HOST": "http://127.0.0.1:1"}
