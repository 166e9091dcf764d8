"""Policies that people run: each loads, or is refused with a message its author could act on."""

from pathlib import Path

import pytest

from egress.documents.diagnostic import Severity
from egress.documents.yaml import Document, read
from egress.policy.authorization import Authorization
from egress.policy.compile import Compilation, compile_policy
from egress.policy.compiled import Protocol
from tests.unit.policy.samples import ask, evidence, granted

ROOT = Path(__file__).parents[3] / "shared" / "real-policies"
REFUSED = {
    "escapades-orchestrator": [
        "178:15 network_policies.gitlab.endpoints[0].host: the host is empty",
        "198:15 network_policies.gerrit.endpoints[0].host: the host is empty",
    ],
    "nemoclaw-preset-slack": ["4:1 the key `version` is missing", "4:1 unknown key `preset`"],
}
ENTRIES = {
    "escapades-nmb-client": 1,
    "fullsend-github-review": 2,
    "fullsend-gitlab-code": 4,
    "nemoclaw-anf-hermes": 7,
    "openshell-community-gemini": 10,
    "openshell-community-openclaw": 6,
    "stackrox-github-pr-reviewer": 1,
    "stackrox-sandbox-default": 7,
}

pytestmark = pytest.mark.skipif(not ROOT.exists(), reason="the collected policies are not beside this checkout")


def load(name: str) -> Compilation:
    document = read((ROOT / f"{name}.yaml").read_bytes(), name)
    assert isinstance(document, Document)
    return compile_policy([document])


def messages(found: Compilation, severity: Severity) -> list[str]:
    return [
        f"{one.location.line}:{one.location.column} {one.message}"
        for one in found.diagnostics
        if one.severity is severity
    ]


def test_every_collected_file_is_expected_here() -> None:
    assert {path.stem for path in ROOT.glob("*.yaml")} == {*REFUSED, *ENTRIES}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused_on_purpose(name: str) -> None:
    found = load(name)
    assert found.policy is None
    assert messages(found, Severity.ERROR) == REFUSED[name]


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_loads(name: str) -> None:
    found = load(name)
    assert messages(found, Severity.ERROR) == []
    assert found.policy is not None
    assert len(found.policy.entries) == ENTRIES[name]


def test_unfilled_placeholders_are_warned_about_rule_by_rule() -> None:
    warnings = messages(load("stackrox-github-pr-reviewer"), Severity.WARNING)
    assert [line for line in warnings if "unfilled placeholder" in line] == [
        f"{line}:21 network_policies.github_api.endpoints[0].rules[{index}].allow.path: "
        "holds an unfilled placeholder, which is never expanded"
        for index, line in enumerate((37, 40, 43, 46, 49, 52))
    ]


def test_deprecated_tls_words_are_warned_about_once_per_field() -> None:
    warnings = messages(load("nemoclaw-anf-hermes"), Severity.WARNING)
    text = (ROOT / "nemoclaw-anf-hermes.yaml").read_text()
    assert len(warnings) == sum(line.strip() == "tls: terminate" for line in text.splitlines())
    assert all("`terminate` is deprecated and has no effect" in line for line in warnings)


def test_regional_hosts_and_programs_below_node_modules() -> None:
    policy = load("openshell-community-gemini").policy
    assert policy is not None
    hosts = {endpoint.host for entry in policy.entries.values() for endpoint in entry.endpoints}
    assert "*-aiplatform.googleapis.com" in hosts
    (owner,) = {
        entry.key
        for entry in policy.entries.values()
        if any(endpoint.host == "*-aiplatform.googleapis.com" for endpoint in entry.endpoints)
    }
    program = next(binary.path for binary in policy.entries[owner].binaries if "*" not in binary.path)
    found = ask(policy, "europe-west1-aiplatform.googleapis.com", by=evidence(program))
    assert isinstance(found, Authorization)
    assert not isinstance(ask(policy, "a.b-aiplatform.googleapis.com", by=evidence(program)), Authorization)


def test_graphql_beside_rest_on_one_host() -> None:
    policy = load("fullsend-github-review").policy
    assert policy is not None
    found = granted(policy, "api.github.com", by=evidence("/usr/bin/gh"))
    assert [(endpoint.protocol, endpoint.path) for endpoint in found.endpoints] == [
        (Protocol.REST, ""),
        (Protocol.GRAPHQL, "/graphql"),
    ]
