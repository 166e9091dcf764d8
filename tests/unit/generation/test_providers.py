"""A providers file as a part of a candidate: what joins the policy, what refuses both, what is watched."""

from pathlib import Path

import pytest

from egress.config.overrides import Flags
from egress.documents.diagnostic import render
from egress.generation.prepare import Candidate, prepare
from egress.model.ids import GenerationNumber
from egress.model.intent import AgentName

SETTINGS = """\
version: 1
state_dir: state
providers: {file: providers.yaml}
agents:
  - {name: build, match: {cidrs: [10.0.0.0/24]}, policy: policy.yaml, identity: off}
  - {name: review, match: {cidrs: [10.0.1.0/24]}, policy: policy.yaml, identity: off}
"""
PROVIDERS = """\
version: 1
profile_dirs: [profiles]
providers:
  - {name: desk, profile: ticket-desk, attach: [build], values: {DESK_TOKEN: {env: DESK}}}
  - {name: lake, profile: aws, attach: [review], bundle: {aws_session: {}}}
"""
PROFILE = """\
id: ticket-desk
display_name: Ticket Desk
credentials: [{name: token, env_vars: [DESK_TOKEN], auth_style: header, header_name: X-Desk}]
endpoints: [{host: desk.example, port: 443, protocol: rest, access: full}]
"""
POLICY = """\
version: 1
network_policies:
  api:
    endpoints: [{host: x.example, port: 443, protocol: rest, access: full, enforcement: enforce}]
    binaries: [{path: /**}]
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "desk.yaml").write_text(PROFILE)
    (tmp_path / "egress.yaml").write_text(SETTINGS)
    (tmp_path / "providers.yaml").write_text(PROVIDERS)
    (tmp_path / "policy.yaml").write_text(POLICY)
    return tmp_path


def prepared(place: Path) -> Candidate:
    found = prepare(Flags(place / "egress.yaml"), {}, GenerationNumber(1))
    assert isinstance(found, Candidate), render(found)
    return found


def refused(place: Path) -> str:
    found = prepare(Flags(place / "egress.yaml"), {}, GenerationNumber(1))
    assert isinstance(found, tuple)
    return render(one for one in found if one.severity == "error").replace(f"{place}/", "")


def test_entries_join_the_policies_of_the_agents_they_are_attached_to(place: Path) -> None:
    terms = prepared(place).generation.agents
    entries = {name: list(found.policy.entries) if found.policy else [] for name, found in terms.items()}
    assert entries == {AgentName("build"): ["_provider_desk", "api"], AgentName("review"): ["api"]}
    stamped = {name: sorted(one.host for one in found.credentialed) for name, found in terms.items()}
    assert stamped == {AgentName("build"): ["desk.example"], AgentName("review"): []}


def test_values_that_belong_nowhere_are_told(place: Path) -> None:
    told = [str(one) for one in prepared(place).diagnostics if one.location.file.endswith("providers.yaml")]
    assert len(told) == 1
    assert told[0].startswith(f"{place}/providers.yaml:5:5: warning: nothing says where the values of `lake` belong")


def test_a_profile_is_watched_and_its_change_is_one(place: Path) -> None:
    before = prepared(place)
    assert {place / "profiles", place / "profiles" / "desk.yaml"} <= set(before.files)
    (place / "profiles" / "desk.yaml").write_text(PROFILE.replace("X-Desk", "X-Key"))
    after = prepared(place)
    assert before.providers is not None
    assert after.providers is not None
    assert after.fingerprint != before.fingerprint
    assert after.providers.digest != before.providers.digest


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        (
            "policy.yaml", "  api:", "  _provider_mine:",
            "policy.yaml:3:3: error: network_policies._provider_mine: names that begin with `_provider_` belong to "
            "providers\n",
        ),
        (
            "policy.yaml", "enforcement: enforce", "credential_binding: {provider: lake}",
            "policy.yaml:4:17: error: credential_binding: the provider `lake` is not attached to the agent\n"
            "    hint: attach a provider of that name in the providers file\n",
        ),
        (
            "profiles/desk.yaml", "access: full", "access: full, allowed_ips: [10.0.0.300]",
            "profiles/desk.yaml:4:89: error: network_policies._provider_desk.endpoints[0].allowed_ips[0]: not an "
            "address or block\n    hint: write `10.20.0.0/16` or `10.20.0.7`\n",
        ),
        (
            "profiles/desk.yaml", "header_name: X-Desk", "header_name: Host",
            "profiles/desk.yaml:3:86: error: credentials[0].header_name: is no field that a credential can be placed "
            "in\n",
        ),
    ],
)  # fmt: skip
def test_what_refuses_a_candidate(place: Path, file: str, old: str, new: str, says: str) -> None:
    text = (place / file).read_text()
    assert old in text
    (place / file).write_text(text.replace(old, new))
    assert refused(place) == says


@pytest.mark.parametrize("file", ["providers.yaml", "profiles/desk.yaml", "profiles"])
def test_what_others_may_write_is_not_read(place: Path, file: str) -> None:
    """It names commands that run here, and hosts that secrets go to."""
    (place / file).chmod(0o777)
    assert refused(place).startswith(f"{file}: error: may be written by everybody\n")
