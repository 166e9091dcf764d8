"""From files to a candidate: everything that can fail fails here, located, and no two states of files are mixed."""

from pathlib import Path

import pytest

import egress.generation.prepare as module
from egress.config.files import read_document
from egress.config.overrides import Flags
from egress.documents.diagnostic import Diagnostic, render
from egress.generation.files import fingerprint
from egress.generation.prepare import Candidate, prepare
from egress.model.ids import GenerationNumber
from egress.model.intent import AgentName
from egress.model.process import IdentityMode
from tests.support.authorities import OriginAuthority
from tests.support.proxy import opaque, policy_text

NUMBER = GenerationNumber(7)


class Files:
    """A settings file and a policy, to be changed."""

    def __init__(self, directory: Path) -> None:
        directory.chmod(0o700)
        self.directory = directory
        self.settings = directory / "egress.yaml"
        self.policy = directory / "policy.yaml"
        self.policy.write_text(policy_text(opaque("a.test", 443)))
        self.configure("policy: {file: policy.yaml}")

    def configure(self, *lines: str) -> None:
        self.settings.write_text("\n".join(["version: 1", "reload: {check_origin: off}", *lines]) + "\n")

    def prepare(self) -> Candidate | tuple[Diagnostic, ...]:
        return prepare(Flags(config=self.settings), {}, NUMBER)

    def candidate(self) -> Candidate:
        candidate = self.prepare()
        assert isinstance(candidate, Candidate), render(candidate)
        return candidate

    def problems(self) -> str:
        outcome = self.prepare()
        assert not isinstance(outcome, Candidate)
        return render(outcome)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_a_candidate_knows_its_number_its_agents_and_its_files(files: Files) -> None:
    candidate = files.candidate()
    assert candidate.generation.number == NUMBER
    assert {name: terms.identity for name, terms in candidate.generation.agents.items()} == {
        AgentName("default"): IdentityMode.REQUIRED
    }
    assert candidate.generation.agents[AgentName("default")].policy is not None
    assert candidate.files == (files.settings, files.policy)
    assert candidate.generation.sources == (str(files.policy),)
    assert candidate.fingerprint == fingerprint(candidate.files)
    assert candidate.generation.quarantine is None


def test_the_digest_follows_content_and_not_layout(files: Files) -> None:
    before = files.candidate()
    files.policy.write_text("# a remark\n" + files.policy.read_text())
    same = files.candidate()
    files.policy.write_text(policy_text(opaque("b.test", 443)))
    other = files.candidate()
    assert before.generation.digest == same.generation.digest != other.generation.digest
    assert len({before.fingerprint, same.fingerprint, other.fingerprint}) == 3


def test_all_problems_of_all_files_are_told_with_their_places(files: Files) -> None:
    second = files.directory / "second.yaml"
    files.policy.write_text("version: 1\nsurprise: 1\n")
    second.write_text("version: 1\nnetwork_policies: 3\n")
    files.configure("policy: {file: [policy.yaml, second.yaml, third.yaml]}")
    text = files.problems()
    assert f"{files.policy}:2:1: error" in text
    assert f"{second}:2:" in text
    assert f"{files.directory / 'third.yaml'}: error: cannot be read" in text


def test_broken_settings_are_told_before_any_policy_is_read(files: Files) -> None:
    files.policy.unlink()
    files.configure("policy: {file: policy.yaml, surprise: 1}")
    assert f"{files.settings}:3:" in files.problems()


def test_a_directory_stands_for_its_files_and_is_watched_itself(files: Files) -> None:
    directory = files.directory / "policies"
    directory.mkdir()
    files.configure("policy: {file: policies}")
    assert "the directory holds no policy" in files.problems()
    for name in ("b.yaml", "a.yml", ".hidden.yaml", "notes.txt"):
        (directory / name).write_text(
            policy_text(opaque(f"{name[0].replace('.', 'x')}.test", 443)).replace("e0", name[0])
        )
    candidate = files.candidate()
    assert candidate.generation.sources == (str(directory / "a.yml"), str(directory / "b.yaml"))
    assert candidate.files == (files.settings, directory, directory / "a.yml", directory / "b.yaml")
    (directory / "c.yaml").write_text(policy_text(opaque("c.test", 443)).replace("e0", "c"))
    assert fingerprint(candidate.files) != candidate.fingerprint


def agents(files: Files, *lines: str) -> None:
    files.configure("policy: {file: policy.yaml}", "agents:", *lines)


def test_each_agent_has_its_policy_and_its_identity_mode(files: Files) -> None:
    own = files.directory / "own.yaml"
    own.write_text(policy_text(opaque("own.test", 443)))
    agents(
        files,
        "- {name: one, match: {uids: [1]}, policy: own.yaml}",
        "- {name: two, match: {uids: [2]}, identity: optional}",
    )
    terms = files.candidate().generation.agents
    assert {name: term.identity for name, term in terms.items()} == {
        AgentName("one"): IdentityMode.REQUIRED,
        AgentName("two"): IdentityMode.OPTIONAL,
    }
    one, two = terms[AgentName("one")].policy, terms[AgentName("two")].policy
    assert one is not None
    assert two is not None
    assert one.digest != two.digest


def test_a_new_password_is_a_change_although_no_document_changed(files: Files) -> None:
    password = files.directory / "password"
    password.write_text("one\n")
    password.chmod(0o600)
    agents(files, "- {name: a, match: {proxy_auth: {user: a, password_file: password}}, identity: off}")
    before = files.candidate()
    assert password in before.files
    password.write_text("two\n")
    after = files.candidate()
    assert before.generation.digest == after.generation.digest
    assert before.settings == after.settings
    assert before.secrets != after.secrets
    assert before.fingerprint != after.fingerprint


def test_trust_that_cannot_be_loaded_is_a_problem_of_the_candidate(files: Files, authority: OriginAuthority) -> None:
    trust = files.directory / "ca.pem"
    files.configure("policy: {file: policy.yaml}", "tls: {upstream_ca_file: ca.pem}")
    assert "tls.upstream_ca_file: error" in files.problems()
    trust.write_text("no certificate")
    assert "tls.upstream_ca_file: error" in files.problems()
    trust.write_bytes(authority.ca_file.read_bytes())
    assert trust in files.candidate().files


def test_files_that_change_while_they_are_read_are_read_again(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that replaces a pair of files one after the other must never see the two halves mixed."""
    other = files.directory / "other.yaml"
    reads: list[Path] = []
    real = read_document

    def read(path: Path) -> bytes | Diagnostic:
        reads.append(path)
        content = real(path)
        if len(reads) == 1:
            other.write_text(policy_text(opaque("new.test", 443)))
            files.configure("policy: {file: other.yaml}")
        return content

    monkeypatch.setattr(module, "read_document", read)
    candidate = files.candidate()
    assert candidate.generation.sources == (str(other),)
    assert candidate.files == (files.settings, other)
    assert reads == [files.policy, other]


def test_files_that_never_rest_are_refused(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    real = read_document
    count = 0

    def read(path: Path) -> bytes | Diagnostic:
        nonlocal count
        count += 1
        content = real(path)
        files.policy.write_text(policy_text(opaque(f"h{count}.test", 443)))
        return content

    monkeypatch.setattr(module, "read_document", read)
    assert "keep changing" in files.problems()
    assert count == module.READ_ATTEMPTS
