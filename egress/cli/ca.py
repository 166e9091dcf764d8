"""`egress ca`: make, look at and hand out the local authority."""

from datetime import datetime
from pathlib import Path

from egress.cli.operator import operator_settings
from egress.cli.terminal import fail, show, show_json
from egress.tls.ca import (
    BUNDLE_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    LocalAuthority,
    TrustFiles,
    bundle,
    load_authority,
    open_authority,
    publish,
    rotate_authority,
)


def directory_of(directory: Path | None, config: Path | None) -> Path:
    """Where the authority lives: as asked, else as the settings say."""
    if directory is not None:
        return directory.absolute()
    settings = operator_settings(config)
    if settings.tls.ephemeral:
        fail("`tls.ephemeral` is set: each start makes its own authority; its ready file says where")
    return settings.ca_dir


def init(directory: Path) -> None:
    """Make the authority, unless there is one."""
    _tell(publish(open_authority(directory), directory))


def rotate(directory: Path) -> None:
    """Replace the authority."""
    _tell(publish(rotate_authority(directory), directory))


def facts(directory: Path) -> dict[str, str]:
    """What may be told about an authority."""
    authority = existing(directory)
    certificate = authority.certificate
    return {
        "subject": certificate.subject.rfc4514_string(),
        "sha256": authority.fingerprint,
        "not_before": _moment(certificate.not_valid_before_utc),
        "not_after": _moment(certificate.not_valid_after_utc),
        "certificate": str(directory / CERTIFICATE_FILE),
        "bundle": str(directory / BUNDLE_FILE),
    }


def show_text(directory: Path) -> None:
    show("".join(f"{name:<12} {value}\n" for name, value in facts(directory).items()))


def show_facts(directory: Path) -> None:
    show_json(facts(directory))


def export(directory: Path, target: Path | None) -> None:
    """Hand out the certificate."""
    _hand_out(existing(directory).pem, target)


def export_bundle(directory: Path, target: Path | None) -> None:
    """Hand out the system's roots and the certificate."""
    _hand_out(bundle(existing(directory)), target)


def existing(directory: Path) -> LocalAuthority:
    """The authority of `directory`; the command ends when there is none."""
    if not (directory / KEY_FILE).exists():
        fail(f"there is no authority in {directory} yet; `egress ca init` makes one")
    return load_authority(directory)


def _tell(files: TrustFiles) -> None:
    show(f"certificate  {files.certificate}\nbundle       {files.bundle}\n")


def _hand_out(pem: bytes, target: Path | None) -> None:
    if target is None or target == Path("-"):
        show(pem.decode("ascii"))
        return
    try:
        target.write_bytes(pem)
    except OSError as error:
        fail(f"{target}: {error.strerror}")


def _moment(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
