"""Files an operator named: bounds, kinds, modes and owners."""

import os
from pathlib import Path

import pytest

from egress.config.files import MAX_DOCUMENT_BYTES, origin_problems, read_document, read_secret
from egress.documents.diagnostic import Diagnostic


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory that only we may write, below others of that kind."""
    place = tmp_path / "etc"
    place.mkdir(mode=0o755)
    return place


def write(path: Path, content: bytes = b"x", mode: int = 0o644) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def messages(path: Path, *agent_uids: int) -> list[str]:
    return [
        f"{problem.location.file.rpartition('/')[2]} {problem.message}" for problem in origin_problems(path, agent_uids)
    ]


def refusal(found: object) -> str:
    assert isinstance(found, Diagnostic)
    return found.message


def test_documents_are_bounded(place: Path) -> None:
    assert read_document(write(place / "a", b"x" * MAX_DOCUMENT_BYTES)) == b"x" * MAX_DOCUMENT_BYTES
    assert refusal(read_document(write(place / "b", b"x" * (MAX_DOCUMENT_BYTES + 1)))) == "is larger than 8388608 bytes"


def test_only_regular_files_are_read(place: Path) -> None:
    os.mkfifo(place / "fifo")
    assert refusal(read_document(place / "fifo")) == "is not a regular file"
    assert refusal(read_document(place)) == "is not a regular file"
    assert refusal(read_document(place / "missing")) == "cannot be read: No such file or directory"
    assert refusal(read_document(Path("/dev/zero"))) == "is not a regular file"


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o440, 0o640])
def test_secrets_of_our_own(place: Path, mode: int) -> None:
    assert read_secret(write(place / "s", b"hunter2\r\nsecond line\n", mode)) == "hunter2"


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o620, 0o610, 0o601])
def test_secrets_that_others_may_touch(place: Path, mode: int) -> None:
    assert refusal(read_secret(write(place / "s", b"hunter2", mode))) == "holds a secret and others may read it"


def test_a_secret_in_a_strange_group(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(place / "s", b"hunter2", 0o640)
    monkeypatch.setattr("os.getegid", lambda: 4242)
    monkeypatch.setattr("os.getgroups", lambda: [4243])
    assert refusal(read_secret(path)) == "holds a secret and others may read it"


def test_secrets_are_text_and_not_empty(place: Path) -> None:
    assert refusal(read_secret(write(place / "a", b"\xff", 0o600))) == "is not UTF-8 text"
    assert refusal(read_secret(write(place / "b", b"\nx", 0o600))) == "is empty"


def test_files_that_only_we_may_write(place: Path) -> None:
    assert messages(write(place / "a.yaml")) == []


@pytest.mark.parametrize(("mode", "who"), [(0o666, "everybody"), (0o602, "everybody"), (0o664, "its group")])
def test_files_that_others_may_write(place: Path, mode: int, who: str) -> None:
    assert messages(write(place / "a.yaml", mode=mode)) == [f"a.yaml may be written by {who}"]


def test_directories_count_up_to_the_root(place: Path) -> None:
    path = write(place / "a.yaml")
    place.chmod(0o777)
    assert messages(path) == ["etc may be written by everybody"]
    place.chmod(0o1777)
    assert messages(path) == []


def test_the_other_end_of_a_link_counts_too(place: Path, tmp_path: Path) -> None:
    open_place = tmp_path / "open"
    open_place.mkdir()
    open_place.chmod(0o777)
    write(open_place / "real.yaml")
    (place / "a.yaml").symlink_to(open_place / "real.yaml")
    assert messages(place / "a.yaml") == ["open may be written by everybody"]
    (open_place / "back.yaml").symlink_to(write(place / "b.yaml"))
    assert messages(open_place / "back.yaml") == ["open may be written by everybody"]


def test_files_of_strangers(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(place / "a.yaml")
    monkeypatch.setattr("os.geteuid", lambda: 4242)
    owner = path.stat().st_uid
    expected = [] if owner == 0 else [f"a.yaml belongs to uid {owner}, neither root nor our own"]
    assert messages(path)[:1] == expected


def test_files_of_those_who_are_judged_by_them(place: Path) -> None:
    path = write(place / "a.yaml")
    owner = path.stat().st_uid
    assert messages(path, owner)[0] == f"a.yaml belongs to uid {owner}, an agent that is judged by it"
