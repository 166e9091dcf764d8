"""The plugin over a real backend, a file in the place of a desktop's keyring."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keyring
import pytest
from egress_secrets_keyring.plugin import egress_secret_sources
from keyring.backend import KeyringBackend
from keyring.backends.fail import Keyring as NoKeyring
from keyring.errors import KeyringError, KeyringLocked
from keyrings.alt.file import PlaintextKeyring

from egress.credentials.sources.registry import Sources, Surroundings
from egress.model.clock import SystemClock
from egress.sdk.secrets import BadSpec, SecretSource, SourceUnavailable


@pytest.fixture(autouse=True)
def backend(tmp_path: Path) -> Iterator[KeyringBackend]:
    before = keyring.get_keyring()
    made = PlaintextKeyring()
    made.file_path = str(tmp_path / "keyring.cfg")
    keyring.set_keyring(made)
    yield made
    keyring.set_keyring(before)


def make(base: Path, fields: Mapping[str, object]) -> SecretSource:
    nobody: Any = None
    around = Surroundings(nobody, SystemClock(), base / "state", {})
    return Sources(around, base, dict(egress_secret_sources())).make("keyring", fields)


async def refusal(source: SecretSource) -> str:
    with pytest.raises(SourceUnavailable) as caught:
        await source.fetch()
    assert caught.value.__cause__ is None
    return caught.value.kind


async def test_a_password(tmp_path: Path) -> None:
    keyring.set_password("gh:github.com", "anna", "t0ken")
    source = make(tmp_path, {"service": "gh:github.com", "username": "anna"})
    assert (await source.fetch()).values[""].reveal() == "t0ken"
    keyring.set_password("gh:github.com", "anna", "rotated")
    assert (await source.fetch()).values[""].reveal() == "rotated"
    keyring.delete_password("gh:github.com", "anna")
    assert await refusal(source) == "not_found"


class Failing(PlaintextKeyring):
    def __init__(self, error: KeyringError) -> None:
        super().__init__()
        self.error = error

    def get_password(self, service: str, username: str) -> str | None:
        raise self.error


@pytest.mark.parametrize(
    ("other", "kind"),
    [
        (NoKeyring(), "no_keyring"),
        (Failing(KeyringLocked("canary")), "locked"),
        (Failing(KeyringError("canary")), "refused"),
    ],
)
async def test_keyrings_that_give_nothing(tmp_path: Path, other: KeyringBackend, kind: str) -> None:
    keyring.set_keyring(other)
    assert await refusal(make(tmp_path, {"service": "s", "username": "u"})) == kind


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"username": "u"}, ("service",)),
        ({"service": "s"}, ("username",)),
        ({"service": "s", "username": ""}, ("username",)),
        ({"service": "s", "username": "u", "canary": "x"}, ("canary",)),
    ],
)
def test_specifications_that_cannot_be(tmp_path: Path, fields: dict[str, object], path: tuple[str, ...]) -> None:
    with pytest.raises(BadSpec) as caught:
        make(tmp_path, fields)
    assert caught.value.path == path
