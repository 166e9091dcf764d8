"""The local authority: its key and certificate, the files they live in, and the trust bundle of workloads."""

import datetime
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from egress.model.errors import DependencyError
from egress.tls.profile import system_bundle

CERTIFICATE_FILE = "ca.pem"
KEY_FILE = "ca-key.pem"
BUNDLE_FILE = "ca-bundle.pem"
OPENSHELL_ALIASES = {"openshell-ca.pem": CERTIFICATE_FILE}
"""File names that images made for OpenShell look for; its bundle is called like ours."""

_LIFETIME = datetime.timedelta(days=3650)
CLOCK_SKEW = datetime.timedelta(days=1)
_LOCK_SECONDS = 10.0
_MAX_FILE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LocalAuthority:
    """Our signing certificate and key. `key` signs leaves and nothing else."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def pem(self) -> bytes:
        """The certificate, safe to hand out."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, lower-case hex."""
        return self.certificate.fingerprint(hashes.SHA256()).hex()

    @classmethod
    def create(cls) -> Self:
        """A new authority that exists in memory only."""
        key = ec.generate_private_key(ec.SECP256R1())
        return cls(_self_signed(key), key)


@dataclass(frozen=True, slots=True)
class TrustFiles:
    """What workloads are pointed at: `certificate` adds to a client's roots, `bundle` replaces them."""

    certificate: Path
    bundle: Path


def _self_signed(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    # The suffix keeps subjects of two installations apart: some clients look issuers up by name alone.
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "egress"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"egress local authority {identifier.digest.hex()[:8]}"),
        ]
    )
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_CERTIFICATE_AND_CRL_SIGNING, critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )


_CERTIFICATE_AND_CRL_SIGNING = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def open_authority(directory: Path) -> LocalAuthority:
    """The authority of `directory`, made now if there is none. Several processes may ask at once: all get the same."""
    with _locked(directory):
        if not (directory / KEY_FILE).exists():
            _save(LocalAuthority.create(), directory)
        return load_authority(directory)


def rotate_authority(directory: Path) -> LocalAuthority:
    """Replace the authority of `directory`. Workloads must be given the new certificate."""
    with _locked(directory):
        _save(LocalAuthority.create(), directory)
        return load_authority(directory)


def load_authority(directory: Path) -> LocalAuthority:
    """Read an authority that exists. Refuses a key that others may read, and a pair that does not belong together."""
    try:
        key_pem = _read_private(directory / KEY_FILE)
        certificate_pem = (directory / CERTIFICATE_FILE).read_bytes()[:_MAX_FILE_BYTES]
        key = serialization.load_pem_private_key(key_pem, password=None)
        certificate = x509.load_pem_x509_certificate(certificate_pem)
    except OSError as error:
        raise _failure(f"{error.filename}: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise _failure(f"{directory} holds no readable PEM certificate and key") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise _failure(f"{directory / KEY_FILE} is no elliptic-curve key")
    if certificate.public_key() != key.public_key():
        raise _failure(f"{CERTIFICATE_FILE} and {KEY_FILE} in {directory} do not belong together")
    _check_signer(certificate, directory / CERTIFICATE_FILE)
    return LocalAuthority(certificate, key)


def publish(authority: LocalAuthority, directory: Path) -> TrustFiles:
    """Write certificate and bundle, which workloads may read; never the key."""
    _make_directory(directory)
    files = TrustFiles(directory / CERTIFICATE_FILE, directory / BUNDLE_FILE)
    key_file = directory / KEY_FILE
    if key_file.exists() and load_authority(directory).certificate != authority.certificate:
        raise _failure(f"{directory} belongs to another authority")
    _replace(files.certificate, authority.pem, 0o644)
    _replace(files.bundle, bundle(authority), 0o644)
    for alias, name in OPENSHELL_ALIASES.items():
        _alias(directory / alias, name)
    return files


def bundle(authority: LocalAuthority) -> bytes:
    """The system's roots followed by our certificate: hosts that are only tunnelled keep working."""
    roots = system_bundle()
    system = roots.read_bytes().rstrip() + b"\n" if roots else b""
    return system + authority.pem


def _check_signer(certificate: x509.Certificate, path: Path) -> None:
    """An operator's own certificate has to be one that clients accept leaves from."""
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except (x509.ExtensionNotFound, ValueError) as error:
        raise _failure(f"{path} lacks basicConstraints or subjectKeyIdentifier") from error
    if not constraints.value.ca:
        raise _failure(f"{path} is not the certificate of an authority")
    if certificate.not_valid_after_utc <= datetime.datetime.now(datetime.UTC):
        raise _failure(f"{path} has expired; make another with `egress ca rotate`")


def _read_private(path: Path) -> bytes:
    """Read a file of mode 0600 or narrower that is ours, judging the descriptor and not the name."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) & 0o077:
            raise _failure(f"{path} may be read by others; set its mode to 0600")
        if status.st_uid not in (0, os.geteuid()):
            raise _failure(f"{path} belongs to another user")
        return file.read(_MAX_FILE_BYTES)


def _save(authority: LocalAuthority, directory: Path) -> None:
    key_pem = authority.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    # The key comes last: an interrupted start leaves a directory without one, and the next start begins again.
    (directory / KEY_FILE).unlink(missing_ok=True)
    _replace(directory / CERTIFICATE_FILE, authority.pem, 0o644)
    _replace(directory / KEY_FILE, key_pem, 0o600)


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Put a whole file in place at once; readers see the old one or the new one."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(descriptor, mode)
            file.flush()
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def _alias(link: Path, name: str) -> None:
    if not link.is_symlink() and not link.exists():
        link.symlink_to(name)


def _make_directory(directory: Path) -> None:
    """Make what is missing, each level closed to others: `mkdir(parents=True)` leaves parents open."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        for path in reversed(missing):
            path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _failure(f"cannot make {directory}: {error.strerror}") from error


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the directory against other starting processes. The kernel drops the lock of a process that dies."""
    _make_directory(directory)
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise _failure(f"another process holds {directory}")
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _failure(reason: str) -> DependencyError:
    return DependencyError("local authority", reason)
