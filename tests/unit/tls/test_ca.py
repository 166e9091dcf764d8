"""The local authority: what its certificate says, which files it accepts, and that a start makes exactly one."""

import fcntl
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from egress.model.errors import DependencyError
from egress.tls.ca import (
    BUNDLE_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    LocalAuthority,
    load_authority,
    open_authority,
    publish,
    rotate_authority,
)
from egress.tls.profile import system_bundle


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_certificate_can_sign_and_nothing_more() -> None:
    certificate = LocalAuthority.create().certificate
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    identifier = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    assert usage.critical
    assert (usage.value.key_cert_sign, usage.value.crl_sign, usage.value.digital_signature) == (True, True, False)
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    assert identifier.value == x509.SubjectKeyIdentifier.from_public_key(certificate.public_key())
    assert isinstance(certificate.public_key(), ec.EllipticCurvePublicKey)
    assert certificate.public_key().curve.name == "secp256r1"


def test_two_authorities_have_two_names() -> None:
    one, other = LocalAuthority.create(), LocalAuthority.create()
    assert one.certificate.subject != other.certificate.subject


def test_key_never_shows_in_text() -> None:
    assert "key" not in repr(LocalAuthority.create())


def test_first_start_makes_closed_files(tmp_path: Path) -> None:
    directory = tmp_path / "state" / "ca"
    open_authority(directory)
    assert (mode(tmp_path / "state"), mode(directory)) == (0o700, 0o700)
    assert (mode(directory / KEY_FILE), mode(directory / CERTIFICATE_FILE)) == (0o600, 0o644)
    assert sorted(path.name for path in directory.iterdir()) == [KEY_FILE, CERTIFICATE_FILE]


def test_second_start_finds_the_first(tmp_path: Path) -> None:
    assert open_authority(tmp_path).certificate == open_authority(tmp_path).certificate


def test_rotation_replaces_key_and_certificate(tmp_path: Path) -> None:
    first = open_authority(tmp_path)
    second = rotate_authority(tmp_path)
    assert first.certificate != second.certificate
    assert load_authority(tmp_path).certificate == second.certificate
    assert mode(tmp_path / KEY_FILE) == 0o600


def test_an_interrupted_first_start_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / CERTIFICATE_FILE).write_bytes(LocalAuthority.create().pem)
    authority = open_authority(tmp_path)
    assert load_authority(tmp_path).certificate == authority.certificate


def test_starts_at_the_same_time_make_one_authority(tmp_path: Path) -> None:
    together = threading.Barrier(4)

    def start(_: int) -> str:
        together.wait(5)
        return open_authority(tmp_path / "ca").fingerprint

    with ThreadPoolExecutor(4) as starts:
        assert len(set(starts.map(start, range(4)))) == 1


def test_does_not_wait_forever_for_another_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("egress.tls.ca._LOCK_SECONDS", 0.01)
    holder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    try:
        with pytest.raises(DependencyError, match="another process holds"):
            open_authority(tmp_path)
    finally:
        os.close(holder)


@pytest.mark.parametrize("wide", [0o640, 0o604, 0o660, 0o602])
def test_refuses_a_key_that_others_may_touch(tmp_path: Path, wide: int) -> None:
    open_authority(tmp_path)
    (tmp_path / KEY_FILE).chmod(wide)
    with pytest.raises(DependencyError, match="may be read by others"):
        open_authority(tmp_path)


def test_refuses_a_key_behind_a_link(tmp_path: Path) -> None:
    open_authority(tmp_path)
    (tmp_path / KEY_FILE).rename(tmp_path / "elsewhere.pem")
    (tmp_path / KEY_FILE).symlink_to("elsewhere.pem")
    with pytest.raises(DependencyError, match=KEY_FILE):
        load_authority(tmp_path)


def test_refuses_a_pair_that_does_not_match(tmp_path: Path) -> None:
    open_authority(tmp_path)
    (tmp_path / CERTIFICATE_FILE).write_bytes(LocalAuthority.create().pem)
    with pytest.raises(DependencyError, match="do not belong together"):
        load_authority(tmp_path)


@pytest.mark.parametrize("name", [CERTIFICATE_FILE, KEY_FILE])
def test_refuses_damaged_files(tmp_path: Path, name: str) -> None:
    open_authority(tmp_path)
    (tmp_path / name).write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    with pytest.raises(DependencyError, match="no readable PEM"):
        load_authority(tmp_path)


def test_refuses_other_kinds_of_keys(tmp_path: Path) -> None:
    open_authority(tmp_path)
    key = rsa.generate_private_key(65537, 1024)
    (tmp_path / KEY_FILE).write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    with pytest.raises(DependencyError, match="no elliptic-curve key"):
        load_authority(tmp_path)


def test_published_files_are_readable_and_hold_no_key(tmp_path: Path) -> None:
    authority = LocalAuthority.create()
    files = publish(authority, tmp_path / "ca")
    assert (mode(files.certificate), mode(files.bundle)) == (0o644, 0o644)
    assert files.certificate.read_bytes() == authority.pem
    assert (tmp_path / "ca" / "openshell-ca.pem").read_bytes() == authority.pem
    assert not any(b"PRIVATE" in path.read_bytes() for path in (tmp_path / "ca").iterdir())


def test_bundle_holds_the_system_roots_then_ours(tmp_path: Path) -> None:
    authority = LocalAuthority.create()
    content = publish(authority, tmp_path).bundle.read_bytes()
    roots = system_bundle()
    assert roots is not None
    assert content.endswith(authority.pem)
    assert content.startswith(roots.read_bytes()[:1000])
    assert content.count(b"BEGIN CERTIFICATE") == roots.read_bytes().count(b"BEGIN CERTIFICATE") + 1


def test_does_not_publish_over_another_authority(tmp_path: Path) -> None:
    kept = open_authority(tmp_path)
    with pytest.raises(DependencyError, match="belongs to another authority"):
        publish(LocalAuthority.create(), tmp_path)
    assert (tmp_path / CERTIFICATE_FILE).read_bytes() == kept.pem
    assert not (tmp_path / BUNDLE_FILE).exists()
