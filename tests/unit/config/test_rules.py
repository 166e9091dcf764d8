"""Agents and other keys that only make sense together."""

from pathlib import Path

import pytest

from tests.unit.config.test_load import refused, settled

HEAD = "version: 1\npolicy: {file: p.yaml}\n"
EXPOSED = "listen: {proxy: '0.0.0.0:3128'}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    return tmp_path / "egress.yaml"


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("hunter2\n")
    path.chmod(0o600)
    return path


def warnings(text: str, file: Path) -> list[str]:
    return [warning.message for warning in settled(text, file).warnings]


def test_agents_may_bring_every_policy(file: Path) -> None:
    text = "version: 1\nagents: [{name: a, match: {uids: [1]}, policy: a.yaml}]\n"
    assert dict(settled(text, file).settings.policy_files) == {"a": (file.parent / "a.yaml",)}
    assert refused("version: 1\nagents: [{name: a, match: {uids: [1]}}]\n", file) == [
        "1:1: policy: nothing says which policy applies"
    ]


def test_names_are_distinct(file: Path) -> None:
    text = HEAD + "agents: [{name: a, match: {uids: [1]}}, {name: a, match: {uids: [2]}}]\n"
    assert refused(text, file) == ["3:41: agents[1].name: `a` is taken by agents[0]"]


def test_an_agent_matches_somebody(file: Path) -> None:
    assert refused(HEAD + "agents: [{name: a, match: {}}]\n", file) == ["3:27: agents[0].match: matches nobody"]
    assert refused(HEAD + "agents: [{name: a, match: {uids: [], cidrs: [127.0.0.0/8]}}]\n", file) == [
        "3:34: agents[0].match.uids: must not be empty"
    ]


@pytest.mark.parametrize(
    ("first", "second", "hidden"),
    [
        ("uids: [1, 2]", "uids: [2]", True),
        ("uids: [1]", "uids: [1, 2]", False),
        ("uids: [1]", "cidrs: [127.0.0.0/8]", False),
        ("cidrs: [127.0.0.0/8]", "uids: [1], cidrs: [127.0.0.1]", True),
        ("cidrs: [127.0.0.0/8]", "uids: [1]", False),
        ("cidrs: [127.0.0.1]", "cidrs: ['::1']", False),
    ],
)
def test_an_agent_that_is_never_reached_is_told(file: Path, first: str, second: str, hidden: bool) -> None:
    text = f"{HEAD}agents: [{{name: a, match: {{{first}}}}}, {{name: b, match: {{{second}}}}}]\n"
    expected = ["agents[1]: `b` can never be chosen, agents[0] matches all of it"] if hidden else []
    assert warnings(text, file) == expected


@pytest.mark.parametrize(
    ("listen", "agent", "fine"),
    [
        (EXPOSED, "match: {cidrs: [10.0.0.0/24]}", False),
        (EXPOSED, "match: {cidrs: [10.0.0.0/24]}, identity: optional", False),
        (EXPOSED, "match: {cidrs: [10.0.0.0/24]}, identity: off", True),
        (EXPOSED, "match: {cidrs: [10.0.0.0/24], uids: [7]}", True),
        (EXPOSED, "match: {cidrs: [127.0.0.1]}", True),
        ("", "match: {cidrs: [127.0.0.0/8]}", True),
        (EXPOSED + "identity: {netns: /run/netns/x}\n", "match: {cidrs: [10.0.0.0/24]}", True),
        (EXPOSED + "identity: {mode: off}\n", "match: {cidrs: [10.0.0.0/24]}", True),
    ],
)
def test_nobody_is_asked_for_evidence_they_cannot_have(file: Path, listen: str, agent: str, fine: bool) -> None:
    text = f"{HEAD}{listen}agents: [{{name: a, {agent}}}]\n"
    if fine:
        settled(text, file)
    else:
        assert "may be on another host, where no program can be looked up" in refused(text, file)[0]


def test_a_wide_block_is_told(file: Path) -> None:
    text = (
        HEAD
        + EXPOSED
        + "identity: {mode: off}\nagents: [{name: a, match: {cidrs: [10.0.0.0/23, 10.9.0.0/24, 'fd00::/63']}}]\n"
    )
    assert warnings(text, file) == [
        "agents[0]: everybody in 10.0.0.0/23 is this agent",
        "agents[0]: everybody in fd00::/63 is this agent",
    ]


def test_a_password_in_clear_on_the_network_is_told(file: Path, password: Path) -> None:
    agent = f"agents: [{{name: a, identity: off, match: {{proxy_auth: {{user: u, password_file: {password}}}}}}}]\n"
    assert warnings(HEAD + EXPOSED + agent, file) == ["agents[0]: its password crosses the network in clear"]
    assert warnings(HEAD + agent, file) == []


def test_a_password_file_is_read_at_start(file: Path, password: Path) -> None:
    agent = f"agents: [{{name: a, match: {{proxy_auth: {{user: u, password_file: {password}}}}}}}]\n"
    settled(HEAD + agent, file)
    password.chmod(0o644)
    message = "agents[0].match.proxy_auth.password_file: {} holds a secret and others may read it"
    assert refused(HEAD + agent, file) == [f"3:65: {message.format(password)}"]
    password.chmod(0o600)
    password.write_text("\n")
    assert refused(HEAD + agent, file)[0].endswith(f"{password} is empty")


def test_one_alias_has_one_spelling(file: Path) -> None:
    text = HEAD + "destinations: {aliases: {Origin.test: 127.0.0.1, origin.test: 127.0.0.2}}\n"
    assert refused(text, file) == ["3:25: destinations.aliases: two spellings of one name"]
