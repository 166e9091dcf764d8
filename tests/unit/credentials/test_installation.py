"""What an installation remembers of its credentials, and how it keeps that private."""

import stat
from pathlib import Path

import pytest

from egress.credentials.installation import Installation, write_private
from egress.model.errors import DependencyError


def test_everything_is_known_again(tmp_path: Path) -> None:
    first = Installation(tmp_path)
    ids = [first.provider_id("a"), first.provider_id("b"), first.provider_id("a")]
    first.revoke("a", ["K", "L"])
    first.revoke("a", ["K"])
    first.restore("a", ["L"])
    again = Installation(tmp_path)
    assert ids[0] == ids[2] != ids[1]
    assert [again.provider_id("a"), again.provider_id("b")] == ids[:2]
    assert (again.key, again.sandbox_id) == (first.key, first.sandbox_id)
    assert [again.revocations("a", key) for key in ("K", "L", "M")] == [2, 1, 0]
    assert [again.is_withdrawn("a", key) for key in ("K", "L", "M")] == [True, False, False]


def test_files_are_private(tmp_path: Path) -> None:
    Installation(tmp_path).provider_id("a")
    directory = tmp_path / "credentials"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert modes == {"handle.key": 0o600, "state.json": 0o600}


def test_two_installations_share_nothing(tmp_path: Path) -> None:
    one, other = Installation(tmp_path / "1"), Installation(tmp_path / "2")
    assert one.key != other.key
    assert one.sandbox_id != other.sandbox_id
    assert one.provider_id("a") != other.provider_id("a")


@pytest.mark.parametrize("text", ["", "[]", "{", "5"])
def test_damage_is_told(tmp_path: Path, text: str) -> None:
    Installation(tmp_path).provider_id("a")
    (tmp_path / "credentials" / "state.json").write_text(text)
    with pytest.raises(DependencyError, match="is damaged"):
        Installation(tmp_path)


def test_a_key_that_others_can_read_is_none(tmp_path: Path) -> None:
    Installation(tmp_path)
    (tmp_path / "credentials" / "handle.key").chmod(0o644)
    with pytest.raises(DependencyError, match="is damaged"):
        Installation(tmp_path)


def test_a_state_directory_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DependencyError, match="Not a directory"):
        Installation(tmp_path / "file")


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    write_private(tmp_path / "a", b"one")
    (tmp_path / "dir").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_private(tmp_path / "dir", b"two")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "dir"]
    (tmp_path / "link").symlink_to(tmp_path / "a")
    write_private(tmp_path / "link", b"three")
    assert (tmp_path / "a").read_bytes() == b"one"
    assert not (tmp_path / "link").is_symlink()
