"""Credential files: what is refused, that nothing of them is shown, and how long a good value outlives its file."""

import os
import pickle
from pathlib import Path

import pytest

from egress.model.secret import Secret
from egress.upstream.credential import AuthScheme, CredentialFile, Fault, read_credential

BASIC, BEARER = AuthScheme.BASIC, AuthScheme.BEARER


def write(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("content", "scheme", "value"),
    [
        (b"user:pass", BASIC, "user:pass"),
        (b"  user:pass\r\n", BASIC, "user:pass"),
        (b"user:", BASIC, "user:"),
        (b"user:a:b c", BASIC, "user:a:b c"),
        ("usér:päss".encode(), BASIC, "usér:päss"),
        (b"u:" + b"x" * 4094, BASIC, "u:" + "x" * 4094),
        (b"eyJ.a-b_c~/+==\n", BEARER, "eyJ.a-b_c~/+=="),
    ],
)
def test_good(tmp_path: Path, content: bytes, scheme: AuthScheme, value: str) -> None:
    assert read_credential(write(tmp_path / "c", content), scheme) == Secret(value)


@pytest.mark.parametrize(
    ("content", "scheme", "code"),
    [
        (b"", BASIC, "cred_empty"),
        (b" \n\t ", BASIC, "cred_empty"),
        (b"user:a\nb", BASIC, "cred_control"),
        (b"user:a\rb", BASIC, "cred_control"),
        (b"user:a\0b", BASIC, "cred_control"),
        (b"user:a\tb", BASIC, "cred_control"),
        (b"user:a\x7fb", BASIC, "cred_control"),
        ("user:a\x85b".encode(), BASIC, "cred_control"),
        (b"s3cret", BASIC, "cred_no_colon"),
        (b":s3cret", BASIC, "cred_no_user"),
        (b"user:\xff", BASIC, "file_not_text"),
        (b"u:" + b"x" * 4095, BASIC, "file_too_big"),
        (b"two words", BEARER, "cred_not_token"),
        (b"s3cret, x=y", BEARER, "cred_not_token"),
    ],
)
def test_bad(tmp_path: Path, content: bytes, scheme: AuthScheme, code: str) -> None:
    fault = read_credential(write(tmp_path / "c", content), scheme)
    assert isinstance(fault, Fault)
    assert (fault.code, "s3cret" in fault.text) == (code, False)


def test_what_is_no_private_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    write(tmp_path / "shared", b"u:p", 0o640)
    write(tmp_path / "open", b"u:p", 0o604)
    found = {
        name: read_credential(tmp_path / name, BASIC) for name in ("none", "fifo", "shared", "open", ".")
    } | {"device": read_credential(Path("/dev/null"), BASIC)}  # fmt: skip
    assert {name: fault.code for name, fault in found.items() if isinstance(fault, Fault)} == {
        "none": "file_open", "fifo": "file_not_regular", "shared": "file_shared", "open": "file_shared",
        ".": "file_not_regular", "device": "file_not_regular",
    }  # fmt: skip


def test_a_good_value_outlives_its_file_by_the_grace(tmp_path: Path) -> None:
    path = write(tmp_path / "c", b"user:one")
    file = CredentialFile(path, BASIC, Secret("user:one"), grace=10.0)
    assert file.current(0.0) == Secret("user:one")
    write(path, b"user:two")
    assert file.current(1.0) == Secret("user:two")
    write(path, b"broken")
    assert file.current(2.0) == Secret("user:two")
    path.unlink()
    assert file.current(11.9) == Secret("user:two")
    assert file.current(12.0) is None
    assert file.current(13.0) is None
    write(path, b"user:three")
    assert file.current(14.0) == Secret("user:three")


def test_nothing_is_shown(tmp_path: Path) -> None:
    secret = Secret("user:s3cret")
    file = CredentialFile(write(tmp_path / "c", b"user:s3cret"), BASIC, secret, 1.0)
    assert "s3cret" not in f"{secret} {secret!r} {file!r} {[secret]}"
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def test_a_rotated_file_is_the_same_credential(tmp_path: Path) -> None:
    path = write(tmp_path / "c", b"user:one")
    one, two = (CredentialFile(path, BASIC, Secret(text), 1.0) for text in ("a:b", "c:d"))
    assert (one == two, hash(one) == hash(two)) == (True, True)
    assert one != CredentialFile(path, AuthScheme.DIGEST, Secret("a:b"), 1.0)
