"""Tokens that we ask for ourselves: forms, lives, rotated refresh tokens and where they are kept."""

import base64
import json
import stat
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from egress.sdk.http import HttpReply
from egress.sdk.secrets import BadSpec, Fetched, SecretSource, SourceUnavailable
from tests.support.secret_sources import Replies, StillClock, sources

URL = "https://sso.test/token"
NOW = 1_800_000_000.0
BASE = {"token_url": URL, "client_id": "me"}
SECRET = {"client_secret": {"literal": "s3cret"}}


def token(access: str = "at", **more: object) -> tuple[int, bytes]:
    return 200, json.dumps({"access_token": access, "token_type": "Bearer", **more}).encode()


def make(tmp_path: Path, http: Replies, fields: dict[str, object], scheme: str = "oauth2") -> SecretSource:
    return sources(tmp_path, http=http, clock=StillClock(NOW)).make(scheme, fields)


async def text(source: SecretSource) -> str:
    return (await source.fetch()).values[""].reveal()


async def test_client_credentials(tmp_path: Path) -> None:
    http = Replies([token(expires_in=600)])
    fields = {**BASE, **SECRET, "scopes": "read, write", "audience": "api"}
    found: Fetched = await make(tmp_path, http, fields).fetch()
    assert ({key: one.reveal() for key, one in found.values.items()}, found.expires) == ({"": "at"}, NOW + 600)
    asked = http.asked[0]
    assert (asked.method, asked.url) == ("POST", URL)
    assert asked.form == {
        "grant_type": "client_credentials",
        "scope": "read write",
        "audience": "api",
        "client_id": "me",
        "client_secret": "s3cret",
    }
    assert "Authorization" not in asked.headers


async def test_a_client_that_authenticates_by_a_field(tmp_path: Path) -> None:
    http = Replies([token()])
    fields = {**BASE, "client_id": "m:e", "client_secret": {"literal": "s /"}, "client_auth": "basic"}
    await make(tmp_path, http, fields).fetch()
    assert http.asked[0].form == {"grant_type": "client_credentials"}
    assert base64.b64decode(http.asked[0].headers["Authorization"].removeprefix("Basic ")) == b"m%3Ae:s%20%2F"


async def test_a_tenant_names_the_endpoint(tmp_path: Path) -> None:
    http = Replies([token()])
    fields = {**BASE, **SECRET, "tenant_id": "corp.test", "strategy": "oauth2_client_credentials"}
    await make(tmp_path, http, fields).fetch()
    assert http.asked[0].url == "https://login.microsoftonline.com/corp.test/oauth2/v2.0/token"


@pytest.mark.parametrize(
    ("told", "cap", "life"),
    [
        (600, None, 600),
        ("600", None, 600),
        (86_400, None, 3600),
        (86_400, "2h", 7200),
        (None, None, 3600),
        (None, "10m", 600),
        (-5, None, 3600),
        (True, None, 3600),
        ("soon", None, 3600),
    ],
)
async def test_lives(tmp_path: Path, told: object, cap: str | None, life: int) -> None:
    http = Replies([token(expires_in=told)])
    fields = {**BASE, **SECRET, **({"max_lifetime": cap} if cap else {})}
    assert (await make(tmp_path, http, fields).fetch()).expires == NOW + life


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (None, "unreachable"),
        ((503, b"canary"), "http_503"),
        ((302, b""), "http_302"),
        ((400, b'{"error": "invalid_grant", "error_description": "canary"}'), "http_400:invalid_grant"),
        ((400, b'{"error": "canary"}'), "http_400"),
        ((200, b"canary"), "malformed_reply"),
        ((200, b"[]"), "malformed_reply"),
        ((200, b'{"access_token": ""}'), "malformed_reply"),
        ((200, b'{"access_token": 5}'), "malformed_reply"),
    ],
)
async def test_replies_that_give_nothing(tmp_path: Path, reply: tuple[int, bytes] | None, kind: str) -> None:
    with pytest.raises(SourceUnavailable) as caught:
        await make(tmp_path, Replies([reply]), {**BASE, **SECRET}).fetch()
    assert caught.value.kind == kind
    assert caught.value.__cause__ is None


# refresh tokens ------------------------------------------------------------------------------------------------------


def used(http: Replies) -> list[str]:
    return [asked.form["refresh_token"] for asked in http.asked]


async def test_a_replaced_refresh_token_goes_back_into_its_file(tmp_path: Path) -> None:
    file = tmp_path / "refresh"
    file.write_text("rt1\n")
    file.chmod(0o600)
    http = Replies([token("a1", refresh_token="rt2"), token("a2"), token("a3", refresh_token="rt3"), token("a4")])
    fields = {**BASE, "refresh_token": {"file": "refresh"}}
    source = make(tmp_path, http, fields)
    assert [await text(source), await text(source)] == ["a1", "a2"]
    again = make(tmp_path, http, fields)  # after a restart
    assert [await text(again), await text(again)] == ["a3", "a4"]
    assert used(http) == ["rt1", "rt2", "rt2", "rt3"]
    assert file.read_text() == "rt3"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["refresh"]


async def test_a_file_of_its_own_for_replaced_ones(tmp_path: Path) -> None:
    http = Replies([token(refresh_token="rt2"), token()])
    fields = {**BASE, "refresh_token": {"literal": "rt1"}, "write_back": {"file": "kept"}}
    await make(tmp_path, http, fields).fetch()
    await make(tmp_path, http, fields).fetch()
    assert used(http) == ["rt1", "rt2"]
    (tmp_path / "kept").chmod(0o644)
    with pytest.raises(SourceUnavailable, match="open_to_others"):
        await make(tmp_path, http, fields).fetch()


async def test_a_new_beginning_counts_more_than_what_was_kept(tmp_path: Path) -> None:
    http = Replies([token(refresh_token="rt2"), token(), token(), token()])
    fields = {**BASE, "refresh_token": {"env": "RT"}}
    first = sources(tmp_path, {"RT": "rt1"}, http)
    await first.make("oauth2", fields).fetch()
    await first.make("oauth2", fields).fetch()
    await sources(tmp_path, {"RT": "anew"}, http).make("oauth2", fields).fetch()
    await first.make("oauth2", fields).fetch()
    assert used(http) == ["rt1", "rt2", "anew", "rt2"]
    kept = next((tmp_path / "state" / "credentials").iterdir())
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert "rt1" not in kept.read_text()


class Obstructing(Replies):
    """Puts a directory in the way of what is to be written, before it answers."""

    way: Path

    async def request(self, *args: object, **more: object) -> HttpReply:  # type: ignore[override]
        self.way.mkdir(exist_ok=True)
        return await super().request(*args, **more)  # type: ignore[arg-type]


async def test_one_that_cannot_be_written_is_not_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    http = Obstructing([token("a1", refresh_token="rt2"), token("a2"), token("a3", refresh_token="rt3"), token("a4")])
    http.way = tmp_path / "kept"
    source = make(tmp_path, http, {**BASE, "refresh_token": {"literal": "rt1"}, "write_back": {"file": "kept"}})
    assert [await text(source), await text(source), await text(source)] == ["a1", "a2", "a3"]
    assert used(http) == ["rt1", "rt2", "rt2"]
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert not any(token in caplog.text for token in ("rt1", "rt2", "rt3"))
    assert await text(source) == "a4"
    assert used(http)[-1] == "rt3"


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, ("token_url",)),
        ({**BASE, "token_url": "http://sso.test/token", **SECRET}, ("token_url",)),
        ({**BASE, "token_url": "https://anna@sso.test/", **SECRET}, ("token_url",)),
        ({**BASE, "token_url": "token", **SECRET}, ("token_url",)),
        ({**BASE, "tenant_id": "a/b", **SECRET}, ("tenant_id",)),
        ({"token_url": URL, **SECRET}, ("client_id",)),
        (BASE, ("client_secret",)),
        ({**BASE, "client_secret": "canary"}, ("client_secret",)),
        ({**BASE, "client_secret": {"file": {"path": "a", "format": "x"}}}, ("client_secret", "format")),
        ({**BASE, **SECRET, "write_back": {"file": "a"}}, ("write_back",)),
        ({**BASE, "strategy": "refresh_token"}, ("refresh_token",)),
        ({**BASE, "strategy": "password", **SECRET}, ("strategy",)),
        ({**BASE, "client_auth": "basic", "refresh_token": {"literal": "r"}}, ("client_auth",)),
        ({**BASE, **SECRET, "scopes": 5}, ("scopes",)),
        ({**BASE, **SECRET, "canary": 5}, ("canary",)),
    ],
)
def test_specifications_that_cannot_be(tmp_path: Path, fields: dict[str, object], path: tuple[str, ...]) -> None:
    with pytest.raises(BadSpec) as caught:
        make(tmp_path, Replies([None]), fields)
    assert caught.value.path == path


@pytest.mark.parametrize("url", ["http://localhost:8080/t", "http://127.0.0.1/t", "http://[::1]/t"])
def test_this_machine_needs_no_tls(tmp_path: Path, url: str) -> None:
    make(tmp_path, Replies([None]), {**BASE, **SECRET, "token_url": url})


# service accounts ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def pem(key: rsa.RSAPrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


async def test_a_service_account(tmp_path: Path, key: rsa.RSAPrivateKey) -> None:
    account = {"client_email": "robot@project.test", "private_key": pem(key), "private_key_id": "k1"}
    (tmp_path / "sa.json").write_text(json.dumps(account, indent=2))
    (tmp_path / "sa.json").chmod(0o600)
    http = Replies([token("ya29", expires_in=3599)])
    fields = {"key": {"file": "sa.json"}, "scopes": ["https://scope.test/a", "b"], "subject": "anna@corp.test"}
    found = await make(tmp_path, http, fields, "google_service_account").fetch()
    assert (found.values[""].reveal(), found.expires) == ("ya29", NOW + 3599)
    assert http.asked[0].url == "https://oauth2.googleapis.com/token"
    form = http.asked[0].form
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    options = {"verify_iat": False, "verify_exp": False}
    claims = jwt.decode(
        form["assertion"], key.public_key(), algorithms=["RS256"], options=options,
        audience="https://oauth2.googleapis.com/token",
    )  # fmt: skip
    assert claims == {
        "iss": "robot@project.test",
        "scope": "https://scope.test/a b",
        "aud": "https://oauth2.googleapis.com/token",
        "iat": NOW,
        "exp": NOW + 3600,
        "sub": "anna@corp.test",
    }
    assert jwt.get_unverified_header(form["assertion"])["kid"] == "k1"


async def test_a_key_and_an_address(tmp_path: Path, key: rsa.RSAPrivateKey) -> None:
    http = Replies([token()])
    fields = {
        "client_email": "r@p.test", "private_key": {"literal": pem(key)}, "scopes": "a", "token_url": "https://t.test/",
    }  # fmt: skip
    await make(tmp_path, http, fields, "google_service_account").fetch()
    assert http.asked[0].url == "https://t.test/"


@pytest.mark.parametrize("text", ["canary", "{}", '{"client_email": "a", "private_key": "canary"}', "[1]"])
async def test_keys_that_are_none(tmp_path: Path, text: str) -> None:
    source = make(
        tmp_path, Replies([token()]), {"key": {"literal": text}, "scopes": "a"}, "google_service_account"
    )  # fmt: skip
    with pytest.raises(SourceUnavailable) as caught:
        await source.fetch()
    assert (caught.value.kind, caught.value.__cause__) == ("unusable_key", None)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"scopes": "a"}, ("key",)),
        ({"key": {"file": "a"}, "private_key": {"file": "a"}, "scopes": "a"}, ("key",)),
        ({"key": {"file": "a"}}, ("scopes",)),
        ({"key": {"file": "a"}, "scopes": " , "}, ("scopes",)),
        ({"private_key": {"file": "a"}, "scopes": "a"}, ("client_email",)),
    ],
)
def test_accounts_that_cannot_be(tmp_path: Path, fields: dict[str, object], path: tuple[str, ...]) -> None:
    with pytest.raises(BadSpec) as caught:
        make(tmp_path, Replies([None]), fields, "google_service_account")
    assert caught.value.path == path
