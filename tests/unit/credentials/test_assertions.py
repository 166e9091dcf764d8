"""Identity documents of every kind, and that no failure says more than it should."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from egress.credentials.assertions import Assertions, DocumentUnavailable
from egress.credentials.grant_rules import AssertionSpec, GrantSpec
from egress.credentials.sources.registry import Sources, Surroundings
from egress.model.clock import SystemClock
from egress.model.secret import Secret
from egress.sdk.secrets import BadSpec, Fetched, IdentityDocuments, SecretSource, SourceUnavailable

AUDIENCE = "https://sso.test/realms/mesh"


class Time:
    def __init__(self) -> None:
        self.value = 1_700_000_000.0

    def now(self) -> float:
        return self.value

    def monotonic(self) -> float:
        return self.value


class Source:
    """A value source that reads what the test holds now."""

    def __init__(self, sources: "Given", name: str) -> None:
        self.sources = sources
        self.name = name

    async def fetch(self) -> Fetched:
        if self.name not in self.sources.values:
            raise SourceUnavailable("not_found")
        return Fetched.one(*self.sources.values[self.name])


class Given:
    def __init__(self) -> None:
        self.values: dict[str, tuple[str, float | None]] = {}
        self.asked: list[tuple[Mapping[str, object], Path]] = []

    def make(self, spec: Mapping[str, object], base: Path) -> SecretSource:
        self.asked.append((spec, base))
        return Source(self, next(iter(spec)))


class Setting:
    def __init__(self) -> None:
        self.clock = Time()
        self.sources = Given()
        self.assertions = Assertions({}, self.sources.make, self.clock)

    async def ask(self, scheme: str, audience: str = AUDIENCE, **fields: object) -> str:
        spec = GrantSpec("mesh", "t", "https://sso.test/t", assertion=AssertionSpec(scheme, json.dumps(fields)))
        return (await self.assertions.document(replace(spec, base=Path("/etc/egress")), audience)).reveal()


@pytest.mark.parametrize("scheme", ["file", "command"])
async def test_a_source_is_read_anew_each_time(scheme: str) -> None:
    setting = Setting()
    setting.sources.values[scheme] = ("eyJ.one.x\n", None)
    assert await setting.ask(scheme, path="token") == "eyJ.one.x"
    setting.sources.values[scheme] = ("eyJ.two.x", None)
    assert await setting.ask(scheme, path="token") == "eyJ.two.x"
    assert setting.sources.asked[0] == ({scheme: {"path": "token"}}, Path("/etc/egress"))


async def test_one_with_a_known_end_is_used_again() -> None:
    setting = Setting()
    setting.sources.values["command"] = ("eyJ.one.x", setting.clock.now() + 100)
    await setting.ask("command")
    setting.clock.value += 49
    await setting.ask("command")
    assert len(setting.sources.asked) == 1
    await setting.ask("command", audience="other")
    assert len(setting.sources.asked) == 2
    setting.clock.value += 1
    await setting.ask("command")
    assert len(setting.sources.asked) == 3


async def failure(setting: Setting, scheme: str, **fields: object) -> str:
    with pytest.raises(DocumentUnavailable) as caught:
        await setting.ask(scheme, **fields)
    assert caught.value.__cause__ is None
    return str(caught.value)


@pytest.mark.parametrize("text", ["", " \n", "x" * (16 * 1024 + 1)])
async def test_what_is_no_document(text: str) -> None:
    setting = Setting()
    setting.sources.values["file"] = (text, None)
    assert await failure(setting, "file") == "identity document is empty or too large"


async def test_no_source() -> None:
    assert await failure(Setting(), "file") == "identity document not available: not_found"


async def test_no_plugin() -> None:
    assert "no plugin gives identity documents of the scheme `spiffe`" in await failure(Setting(), "spiffe")


def pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode()


EC = ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(65537, 2048)


@pytest.mark.parametrize(("key", "alg"), [(EC, "ES256"), (RSA, "RS256"), (RSA, "PS256")], ids=["ec", "rsa", "pss"])
async def test_signed_with_our_own_key(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, alg: str) -> None:
    setting = Setting()
    setting.sources.values["file"] = (pem(key), None)
    fields = {"client_id": "egress", "key": {"file": {"path": "k.pem"}}, "alg": alg, "kid": "k1"}
    first, second = [await setting.ask("private_key_jwt", **fields) for _ in range(2)]
    assert jwt.get_unverified_header(first) == {"alg": alg, "kid": "k1", "typ": "JWT"}
    untimed = {"verify_exp": False, "verify_iat": False}
    claims = jwt.decode(first, key.public_key(), [alg], audience=AUDIENCE, options=untimed)
    assert claims.pop("jti") != jwt.decode(second, options={"verify_signature": False})["jti"]
    now = int(setting.clock.now())
    assert claims == {"iss": "egress", "sub": "egress", "aud": AUDIENCE, "iat": now, "exp": now + 300}
    assert setting.sources.asked[0] == ({"file": {"path": "k.pem"}}, Path("/etc/egress"))


@pytest.mark.parametrize(("text", "alg"), [("no key at all", "ES256"), (pem(RSA), "ES256"), (pem(EC), "RS256")])
async def test_a_key_that_does_not_sign(text: str, alg: str) -> None:
    setting = Setting()
    setting.sources.values["file"] = (text, None)
    reason = await failure(setting, "private_key_jwt", client_id="egress", key={"file": "k.pem"}, alg=alg)
    assert reason == "identity document could not be signed with the given key"


async def test_a_specification_that_never_works_is_not_hidden() -> None:
    def bad(spec: object, base: Path) -> SecretSource:
        raise BadSpec("no such field", ("path",))

    setting = Setting()
    setting.assertions = Assertions({}, bad, setting.clock)
    with pytest.raises(BadSpec):
        await setting.ask("file")


@pytest.mark.parametrize(
    ("scheme", "fields", "fault"),
    [
        ("file", {"path": "t"}, None),
        ("file", {"pth": "t"}, "assertion: pth: "),
        ("command", {"argv": ["get-token"]}, None),
        ("command", {}, "assertion: argv: "),
        ("spiffe", {}, "no plugin gives identity documents of the scheme `spiffe`; install egress-identity-spiffe"),
        ("mine", {}, None),
        ("private_key_jwt", {"client_id": "egress", "key": {"file": "k.pem"}}, None),
        ("private_key_jwt", {"client_id": "egress", "key": {"file": "k.pem"}, "alg": "EdDSA", "kid": "1"}, None),
        ("private_key_jwt", {"client_id": "egress", "key": {"file": "k.pem"}, "alg": "HS256"}, "assertion: alg: "),
        ("private_key_jwt", {"client_id": "egress", "key": {"file": "k.pem"}, "alg": "none"}, "assertion: alg: "),
        ("private_key_jwt", {"client_id": "egress", "key": {"file": "k.pem"}, "aud": "x"}, "assertion: aud: "),
        ("private_key_jwt", {"client_id": "egress", "key": "k.pem"}, "assertion: key: "),
        ("private_key_jwt", {"client_id": 7, "key": {"file": "k.pem"}}, "assertion: client_id: "),
        ("private_key_jwt", {"key": {"file": "k.pem"}}, "assertion: client_id: "),
        ("private_key_jwt", {"client_id": "egress", "key": {"no_such": "k.pem"}}, "assertion: "),
    ],
)
def test_faults_are_found_before_anything_is_fetched(
    scheme: str, fields: dict[str, object], fault: str | None, tmp_path: Path
) -> None:
    found = real({"mine": NoDocuments()}, tmp_path).fault(grant(scheme, tmp_path, **fields))
    assert found is None if fault is None else found is not None and found.startswith(fault)


class NoDocuments:
    async def fetch(self, audience: str) -> tuple[Secret, float | None]:
        raise SourceUnavailable("unreachable")


def grant(scheme: str, base: Path, **fields: object) -> GrantSpec:
    return GrantSpec("mesh", "t", "https://sso.test/t", assertion=AssertionSpec(scheme, json.dumps(fields)), base=base)


def real(identities: dict[str, IdentityDocuments], directory: Path) -> Assertions:
    """Over the product's own sources."""
    clock = SystemClock()
    around = Surroundings(None, clock, directory)  # type: ignore[arg-type]
    return Assertions(identities, lambda spec, base: Sources(around, base).nested(spec), clock)


async def test_a_projected_token_is_read_again_when_it_is_replaced(tmp_path: Path) -> None:
    assertions = real({}, tmp_path)
    for text in ("eyJ.one.x", "eyJ.two.x"):
        new = tmp_path / "new"
        new.write_text(text + "\n")
        new.chmod(0o600)
        new.rename(tmp_path / "token")
        assert await assertions.document(grant("file", tmp_path, path="token"), AUDIENCE) == Secret(text)


async def test_a_command(tmp_path: Path) -> None:
    assertions = real({}, tmp_path)
    good = grant("command", tmp_path, argv=["echo", "eyJ.one.x"])
    assert await assertions.document(good, AUDIENCE) == Secret("eyJ.one.x")
    for argv, timeout, kind in ((["false"], "5s", "exit_1"), (["sleep", "5"], "0.02s", "timeout")):
        with pytest.raises(DocumentUnavailable, match=kind) as caught:
            await assertions.document(grant("command", tmp_path, argv=argv, timeout=timeout), AUDIENCE)
        assert caught.value.__cause__ is None
