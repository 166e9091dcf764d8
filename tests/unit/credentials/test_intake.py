"""From a providers file to what is kept: sources, aliases of keys, bundles, and the terms of handles."""

from pathlib import Path

import pytest

from egress.credentials.feeds import Feed, Intake, Presence, Terms
from egress.credentials.intake import check_sources, intake_of, with_handle_key
from egress.credentials.providers import ProviderSet, load_providers
from egress.credentials.sources.registry import SCHEMES
from egress.model.errors import DependencyError
from tests.support.secret_sources import sources

GITHUB = """\
version: 1
sandbox_id: box
providers:
  - name: work
    profile: github
    values:
      GITHUB_TOKEN: {env: GH, refresh: 30m, on_failure: {keep_for: 1h}, json: /token}
      GH_TOKEN: {same_as: GITHUB_TOKEN}
"""
AWS = """\
version: 1
providers:
  - name: lake
    profile: aws
    bundle: {command: {argv: [aws-keys], parse: aws_process}}
    endpoints: [{host: s3.eu-west-1.amazonaws.com, port: 443, protocol: rest, access: full}]
"""


def providers(tmp_path: Path, text: str) -> ProviderSet:
    (tmp_path / "providers.yaml").write_text(text)
    found = load_providers(tmp_path / "providers.yaml", SCHEMES)
    assert isinstance(found, ProviderSet), [str(one) for one in found]
    return found


def intake(tmp_path: Path, text: str) -> Intake:
    found = intake_of(providers(tmp_path, text), (), sources(tmp_path))
    assert isinstance(found, Intake), [str(one) for one in found]
    return found


def only(found: Intake) -> Feed:
    assert len(found.feeds) == 1
    return found.feeds[0]


def problems(tmp_path: Path, text: str, *, allow_literal: bool = True, kept: bool = False) -> list[str]:
    found = providers(tmp_path, text)
    made = sources(tmp_path, allow_literal=allow_literal)
    checked = [str(one).removeprefix(f"{tmp_path}/") for one in check_sources(found, made)]
    refused = intake_of(found, (), made)
    assert isinstance(refused, Intake) is (kept or checked == [])
    return checked


def test_keys_of_one_source_are_one_feed(tmp_path: Path) -> None:
    feed = only(intake(tmp_path, GITHUB))
    assert (feed.provider, feed.scheme) == ("work", "env")
    assert feed.terms == Terms(1800.0, 300.0, 10.0, ("keep_for", 3600.0))
    assert [(one.key, one.output, one.presence) for one in feed.outlets] == [
        ("GITHUB_TOKEN", "GITHUB_TOKEN", Presence.ALONE),
        ("GH_TOKEN", "GITHUB_TOKEN", Presence.ALONE),
    ]
    assert {one.reading.json for one in feed.outlets} == {"/token"}


def test_a_bundle_is_one_feed_of_named_parts(tmp_path: Path) -> None:
    feed = only(intake(tmp_path, AWS))
    assert {one.key: (one.output, one.presence) for one in feed.outlets} == {
        "AWS_ACCESS_KEY_ID": ("AWS_ACCESS_KEY_ID", Presence.REQUIRED),
        "AWS_SECRET_ACCESS_KEY": ("AWS_SECRET_ACCESS_KEY", Presence.REQUIRED),
        "AWS_SESSION_TOKEN": ("AWS_SESSION_TOKEN", Presence.OPTIONAL),
    }


def handle(tmp_path: Path, text: str) -> object:
    return only(intake(tmp_path, text)).outlets[0].handle


@pytest.mark.parametrize(
    ("old", "new", "moves"),
    [
        ("env: GH", "env: OTHER", True),
        ("json: /token", "json: /other", True),
        ("name: work", "name: work\n    epoch: 2", True),
        ("name: work", "name: work\n    attach: [build]", True),
        ("sandbox_id: box", "sandbox_id: other", True),
        ("refresh: 30m", "refresh: 5m", False),
        ("keep_for: 1h", "keep_for: 2h", False),
        ("name: work", "name: work\n    inject: always", False),
        ("name: work", "name: work\n    attach: [build, test]", False),
        ("name: work", "name: work\n    attach: ['build-*']", False),
    ],
)
def test_what_moves_a_handle(tmp_path: Path, old: str, new: str, moves: bool) -> None:
    assert old in GITHUB
    assert (handle(tmp_path, GITHUB) != handle(tmp_path, GITHUB.replace(old, new))) is moves


LITERAL = "version: 1\nproviders: [{name: p, profile: github, values: {GITHUB_TOKEN: {literal: canary-1}}}]\n"


def test_a_value_in_the_file_is_in_no_handle_and_no_text(tmp_path: Path) -> None:
    first, second = (only(intake(tmp_path, LITERAL.replace("canary-1", value))) for value in ("canary-1", "canary-2"))
    assert first.outlets[0].handle == second.outlets[0].handle
    assert first.identity != second.identity  # a reload takes the new value
    assert "canary" not in repr(first) + repr(first.identity)


def test_placeholders_by_revision(tmp_path: Path) -> None:
    assert handle(tmp_path, GITHUB.replace("name: work", "name: work\n    handle: revision")) is None


def test_configuration_is_no_secret(tmp_path: Path) -> None:
    found = intake(tmp_path, GITHUB.replace("name: work", "name: work\n    config: {GITHUB_HOST: git.test}"))
    assert [(one.key, one.secret.reveal(), one.scope) for one in found.fixed] == [("GITHUB_HOST", "git.test", None)]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("{env: ''}", "env.name: must not be empty"),
        ("{command: {argv: []}}", "command.argv: must not be empty"),
        ("{env: A, json: token}", "env.json: must be a JSON pointer: `/data/token`"),
        ("{env: A, expires: soon}", "env.expires: must be a JSON pointer: `/data/token`"),
        ("{same_as: NOWHERE}", "same_as: must name another key of this provider that has a source"),
        ("{same_as: GITHUB_TOKEN}", "same_as: must name another key of this provider that has a source"),
        ("{oauth2: token}", "oauth2: `oauth2` takes a mapping"),
        (
            "{oauth2: {token_url: 'https://t.test', client_id: a, client_secret: {file: ''}}}",
            "oauth2.client_secret.path: must not be empty",
        ),
    ],
)
def test_problems_have_their_place(tmp_path: Path, given: str, problem: str) -> None:
    text = f"version: 1\nproviders:\n  - name: p\n    profile: github\n    values:\n      GITHUB_TOKEN: {given}\n"
    found = problems(tmp_path, text)
    assert len(found) == 1
    place, _, message = found[0].partition(": error: ")
    assert place.startswith("providers.yaml:6:")
    assert message == problem


def test_a_bundle_is_not_read_by_a_pointer(tmp_path: Path) -> None:
    found = problems(tmp_path, AWS.replace("aws_process}}", "aws_process}, json: /a}"))
    assert [one.rpartition(": error: ")[2] for one in found] == [
        "command: `json` and `base64` mean nothing for a bundle"
    ]


def test_literals_are_refused_without_their_text(tmp_path: Path) -> None:
    found = problems(tmp_path, LITERAL, allow_literal=False)
    assert len(found) == 1
    assert "--allow-literal-secrets" in found[0]
    assert "canary" not in found[0]


async def test_the_operators_own_handle_key(tmp_path: Path) -> None:
    made, plain = sources(tmp_path), intake(tmp_path, GITHUB)
    assert await with_handle_key(plain, providers(tmp_path, GITHUB), made) is plain
    text = f"{GITHUB}handle_key: {{file: key}}\n"
    with pytest.raises(DependencyError, match="not_found"):
        await with_handle_key(plain, providers(tmp_path, text), made)
    (tmp_path / "key").write_text("x" * 31 + "\n")
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(DependencyError, match="shorter"):
        await with_handle_key(plain, providers(tmp_path, text), made)
    (tmp_path / "key").write_text("x" * 32 + "\n")
    keyed = await with_handle_key(plain, providers(tmp_path, text), made)
    assert keyed.handle_key is not None
    assert len(keyed.handle_key) == 32
    assert "handle_key" not in repr(keyed)
    wrong = problems(tmp_path, f"{GITHUB}handle_key: {{file: ''}}\n", kept=True)
    assert [one.rpartition(": error: ")[2] for one in wrong] == ["file.path: must not be empty"]
