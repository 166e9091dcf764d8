"""The plugin against Vault's HTTP contract, over the proxy's own client."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from egress_secrets_vault.plugin import egress_secret_sources
from vault_server import ROOT, Vault, kv1, kv2, leased

from egress.credentials.sources.registry import Sources, Surroundings
from egress.destination.resolver import NameResolver, ResolverSettings
from egress.destination.validate import DestinationSettings, OwnListeners
from egress.engine.carried import OriginStream
from egress.own_calls import own_client
from egress.sdk.secrets import BadSpec, Fetched, SecretSource, SourceUnavailable
from egress.tls.profile import TlsProfile
from egress.upstream.chain import ChainDialer
from egress.upstream.client import OwnClient
from egress.upstream.dial import Dialer, DialTimes
from egress.upstream.health import Health

NOW = 1_800_000_000.0


class Clock:
    at = 0.0

    def now(self) -> float:
        return NOW + self.at

    def monotonic(self) -> float:
        return 1000.0 + self.at


class Reach:
    names = NameResolver(ResolverSettings())
    destinations = DestinationSettings()

    def own_listeners(self) -> OwnListeners:
        return frozenset()


def http() -> OwnClient:
    loop = asyncio.get_running_loop()
    dialer = ChainDialer(Dialer(lambda: OriginStream(loop), DialTimes()), Health(loop.time, lambda *_: None), loop)
    profile = TlsProfile()
    return own_client(Reach, dialer, lambda: profile)


@pytest.fixture
def vault() -> Iterator[Vault]:
    with Vault() as server:
        yield server


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make(
    base: Path, fields: Mapping[str, object], clock: Clock | None = None, environment: Mapping[str, str] | None = None
) -> SecretSource:
    around = Surroundings(http(), clock or Clock(), base / "state", {"VAULT_TOKEN": ROOT, **(environment or {})},
                          allow_literal=True)  # fmt: skip
    return Sources(around, base, dict(egress_secret_sources())).make("vault", fields)


def values(fetched: Fetched) -> dict[str, str]:
    return {key: secret.reveal() for key, secret in fetched.values.items()}


async def refusal(source: SecretSource) -> str:
    with pytest.raises(SourceUnavailable) as caught:
        await source.fetch()
    assert caught.value.__cause__ is None
    return caught.value.kind


async def test_a_field_of_version_2(vault: Vault, tmp_path: Path) -> None:
    vault.secrets["kv/data/desk/prod"] = kv2({"token": "t0ken", "other": "x"})
    fields = {"addr": vault.url, "mount": "kv", "path": "desk/prod", "field": "token", "namespace": "team"}
    found = await make(tmp_path, fields).fetch()
    assert (values(found), found.expires, found.refresh_at) == ({"": "t0ken"}, None, None)
    assert vault.calls[0].headers["x-vault-token"] == ROOT
    assert vault.calls[0].headers["x-vault-namespace"] == "team"
    assert vault.calls[0].headers["x-vault-request"] == "true"


async def test_a_version_and_every_field(vault: Vault, tmp_path: Path) -> None:
    vault.secrets["secret/data/a%20b?version=2"] = kv2({"A": "1", "B": "2", "n": 3})
    fields = {"addr": vault.url + "/", "path": "/a b/", "version": 2}
    assert values(await make(tmp_path, fields).fetch()) == {"A": "1", "B": "2"}


async def test_version_1_says_how_often_to_look(vault: Vault, tmp_path: Path) -> None:
    vault.secrets["kv/desk"] = kv1({"token": "v"}, 600)
    found = await make(tmp_path, {"addr": vault.url, "mount": "kv", "path": "desk", "field": "token", "kv": 1}).fetch()
    assert (values(found), found.expires, found.refresh_at) == ({"": "v"}, None, NOW + 400)


async def test_addresses_from_the_environment(vault: Vault, tmp_path: Path) -> None:
    vault.secrets["secret/data/a"] = kv2({"t": "v"})
    environment = {"VAULT_ADDR": vault.url, "VAULT_NAMESPACE": "ns"}
    assert values(await make(tmp_path, {"path": "a"}, environment=environment).fetch()) == {"t": "v"}
    assert vault.calls[0].headers["x-vault-namespace"] == "ns"


# leases --------------------------------------------------------------------------------------------------------------


async def test_a_lease_is_renewed_and_then_replaced(vault: Vault, tmp_path: Path, clock: Clock) -> None:
    fields = {"addr": vault.url, "mount": "database", "path": "creds/reader", "kv": 1}
    vault.secrets["database/creds/reader"] = leased("l/1", 300, {"username": "u1", "password": "p1"})
    source = make(tmp_path, fields, clock)
    found = await source.fetch()
    assert (found.expires, found.refresh_at) == (NOW + 300, NOW + 200)
    vault.secrets["database/creds/reader"] = leased("l/2", 300, {"username": "u2", "password": "p2"})
    vault.renewals["l/1"] = leased("l/1", 150)
    clock.at = 200
    renewed = await source.fetch()
    assert values(renewed) == values(found) == {"username": "u1", "password": "p1"}
    assert (renewed.expires, renewed.refresh_at) == (NOW + 350, NOW + 300)
    renewal = vault.calls[-1]
    assert (renewal.method, renewal.path) == ("PUT", "/v1/sys/leases/renew")
    assert renewal.body == {"lease_id": "l/1", "increment": 300}
    del vault.renewals["l/1"]  # its longest time is over
    clock.at = 300
    assert values(await source.fetch()) == {"username": "u2", "password": "p2"}


async def test_a_lease_that_is_not_renewable_is_read_again(vault: Vault, tmp_path: Path) -> None:
    vault.secrets["aws/creds/r"] = leased("l", 60, {"access_key": "a"}, renewable=False)
    source = make(tmp_path, {"addr": vault.url, "mount": "aws", "path": "creds/r", "kv": 1, "field": "access_key"})
    await source.fetch()
    await source.fetch()
    assert [call.method for call in vault.calls] == ["GET", "GET"]


# logins --------------------------------------------------------------------------------------------------------------


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("auth", "path", "body"),
    [
        (
            {"approle": {"role_id": "r", "secret_id": {"file": "credential"}}},
            "auth/approle/login",
            {"role_id": "r", "secret_id": "c"},
        ),
        ({"approle": {"role_id": "r", "mount": "team/apps"}}, "auth/team/apps/login", {"role_id": "r"}),
        (
            {"kubernetes": {"role": "r", "jwt": {"file": "credential"}}},
            "auth/kubernetes/login",
            {"role": "r", "jwt": "c"},
        ),
        ({"jwt": {"role": "r", "jwt": {"file": "credential"}}}, "auth/jwt/login", {"role": "r", "jwt": "c"}),
        ({"jwt": {"jwt": {"file": "credential"}, "mount": "ci"}}, "auth/ci/login", {"jwt": "c"}),
    ],
)
async def test_logins(vault: Vault, tmp_path: Path, auth: object, path: str, body: dict[str, str]) -> None:
    private(tmp_path / "credential", "c\n")
    vault.logins[path] = body
    vault.secrets["secret/data/a"] = kv2({"t": "v"})
    source = make(tmp_path, {"addr": vault.url, "path": "a", "auth": auth})
    assert values(await source.fetch()) == {"t": "v"}
    assert values(await source.fetch()) == {"t": "v"}
    assert [call.path for call in vault.calls] == [f"/v1/{path}", "/v1/secret/data/a", "/v1/secret/data/a"]
    assert "x-vault-token" not in vault.calls[0].headers


async def test_a_login_is_repeated_before_its_token_ends_and_when_it_is_refused(
    vault: Vault, tmp_path: Path, clock: Clock
) -> None:
    vault.logins["auth/approle/login"] = {"role_id": "r"}
    vault.secrets["secret/data/a"] = kv2({"t": "v"})
    source = make(tmp_path, {"addr": vault.url, "path": "a", "auth": {"approle": {"role_id": "r"}}}, clock)
    await source.fetch()
    clock.at = 3600 * 2 / 3
    await source.fetch()
    assert len(vault.tokens) == 3
    vault.tokens = {ROOT}  # all of them were revoked
    await source.fetch()
    vault.tokens = set()
    vault.logins = {}
    assert await refusal(source) == "http_400"


async def test_tokens_that_are_given(vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault.secrets["secret/data/a"] = kv2({"t": "v"})
    private(tmp_path / "token", ROOT + "\n")
    fields = {"addr": vault.url, "path": "a"}
    assert values(await make(tmp_path, {**fields, "auth": {"token": {"file": "token"}}}).fetch()) == {"t": "v"}
    assert await refusal(make(tmp_path, {**fields, "auth": "token"}, environment={"VAULT_TOKEN": "old"})) == "denied"
    monkeypatch.setenv("HOME", str(tmp_path))
    private(tmp_path / ".vault-token", ROOT)
    around = Surroundings(http(), Clock(), tmp_path, {})
    source = Sources(around, tmp_path, dict(egress_secret_sources())).make("vault", fields)
    assert values(await source.fetch()) == {"t": "v"}


# what gives nothing --------------------------------------------------------------------------------------------------


async def test_secrets_that_are_not_there(vault: Vault, tmp_path: Path) -> None:
    vault.secrets["secret/data/a"] = kv2({"t": "v", "n": 5})
    vault.secrets["secret/data/deleted"] = {"data": {"data": None, "metadata": {"deletion_time": "x"}}}
    fields = {"addr": vault.url}
    assert await refusal(make(tmp_path, {**fields, "path": "none"})) == "not_found"
    assert await refusal(make(tmp_path, {**fields, "path": "deleted"})) == "not_found"
    assert await refusal(make(tmp_path, {**fields, "path": "a", "field": "other"})) == "no_such_field"
    assert await refusal(make(tmp_path, {**fields, "path": "a", "field": "n"})) == "no_such_field"
    vault.sealed = True
    assert await refusal(make(tmp_path, {**fields, "path": "a"})) == "sealed"
    assert await refusal(make(tmp_path, {"addr": "http://127.0.0.1:1", "path": "a"})) == "unreachable"


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"path": "a"}, ("addr",)),
        ({"addr": "http://vault.corp.test:8200", "path": "a"}, ("addr",)),
        ({"addr": "https://v.test?x=1", "path": "a"}, ("addr",)),
        ({"addr": "https://v.test"}, ("path",)),
        ({"addr": "https://v.test", "path": "a/../b"}, ("path",)),
        ({"addr": "https://v.test", "path": "a//b"}, ("path",)),
        ({"addr": "https://v.test", "path": "a", "mount": ".."}, ("mount",)),
        ({"addr": "https://v.test", "path": "a", "kv": 3}, ("kv",)),
        ({"addr": "https://v.test", "path": "a", "auth": "ldap"}, ("auth",)),
        ({"addr": "https://v.test", "path": "a", "auth": {"token": {}, "jwt": {}}}, ("auth",)),
        ({"addr": "https://v.test", "path": "a", "auth": "cert"}, ("auth",)),
        ({"addr": "https://v.test", "path": "a", "auth": {"approle": {}}}, ("role_id",)),
        ({"addr": "https://v.test", "path": "a", "auth": {"jwt": {"role": "r"}}}, ("jwt",)),
        ({"addr": "https://v.test", "path": "a", "auth": {"token": {"file": ""}}}, ("auth", "token", "path")),
        ({"addr": "https://v.test", "path": "a", "canary": 1}, ("canary",)),
    ],
)
async def test_specifications_that_cannot_be(tmp_path: Path, fields: dict[str, object], path: tuple[str, ...]) -> None:
    with pytest.raises(BadSpec) as caught:
        make(tmp_path, fields)
    assert caught.value.path == path
