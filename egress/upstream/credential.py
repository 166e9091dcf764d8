"""What we prove to a corporate proxy, from a file that is read again when it changes."""

import logging
import os
import re
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from egress.model.secret import Secret

MAX_CREDENTIAL_BYTES = 4096
MAX_SOCKS_PART = 255
"""Octets of a user name or password (RFC 1929 section 2)."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*\Z", re.ASCII)

log = logging.getLogger(__name__)


class AuthScheme(StrEnum):
    BASIC = "basic"
    DIGEST = "digest"
    BEARER = "bearer"

    @property
    def reveals(self) -> bool:
        """True when whoever reads the connection learns the credential."""
        return self is not AuthScheme.DIGEST


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a file holds no usable credential. `code` is a stable word, `text` repeats nothing of the content."""

    code: str
    text: str


def read_credential(path: Path, scheme: AuthScheme) -> Secret | Fault:
    """`user:password`, or a token for BEARER."""
    content = read_private(path, MAX_CREDENTIAL_BYTES)
    if isinstance(content, Fault):
        return content
    try:
        text = content.decode().strip()
    except UnicodeDecodeError:
        return Fault("file_not_text", "is not UTF-8 text")
    if not text:
        return Fault("cred_empty", "is empty")
    if _CONTROL.search(text):
        return Fault("cred_control", "holds a control character, or more than one line")
    if scheme is AuthScheme.BEARER:
        return Secret(text) if _TOKEN.match(text) else Fault("cred_not_token", "holds no bearer token")
    user, colon, _ = text.partition(":")
    if not colon:
        return Fault("cred_no_colon", "has no `:` between user and password")
    return Secret(text) if user else Fault("cred_no_user", "has no user before the `:`")


def read_private(path: Path, limit: int) -> bytes | Fault:
    """The content of a regular file that nobody else may read; judged by its open descriptor, so that it cannot be
    exchanged in between."""
    try:
        # A FIFO would otherwise hold the start until somebody writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as failure:
        return Fault("file_open", f"cannot be read: {os.strerror(failure.errno or 0)}")
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return Fault("file_not_regular", "is not a regular file")
        if stat.S_IMODE(status.st_mode) & 0o077:
            return Fault("file_shared", "may be read by others; set its mode to 0600")
        if status.st_uid not in (0, os.geteuid()):
            return Fault("file_foreign", "belongs to another user")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(limit + 1)
    except OSError as failure:
        return Fault("file_open", f"cannot be read: {os.strerror(failure.errno or 0)}")
    finally:
        os.close(descriptor)
    return content if len(content) <= limit else Fault("file_too_big", f"is larger than {limit} bytes")


class CredentialFile:
    """The credential in force. Looking costs one `stat` unless the file changed.

    Equal whatever it holds: a rotated credential leads to the same place.
    """

    __slots__ = ("_bad_since", "_good", "_grace", "_stamp", "path", "scheme")

    def __init__(self, path: Path, scheme: AuthScheme, good: Secret, grace: float) -> None:
        """`good` was just read; it stays in use for `grace` seconds after the file turned bad."""
        self.path = path
        self.scheme = scheme
        self._good: Secret | None = good
        self._grace = grace
        self._bad_since: float | None = None
        self._stamp = _stamp(path)

    def current(self, now: float) -> Secret | None:
        """None when the file has been unusable for longer than its grace."""
        stamp = _stamp(self.path)
        if stamp != self._stamp:
            self._stamp = stamp
            self._read(now)
        if self._bad_since is not None and now - self._bad_since >= self._grace:
            self._good = None
        return self._good

    def _read(self, now: float) -> None:
        found = read_credential(self.path, self.scheme)
        if isinstance(found, Secret):
            self._good, self._bad_since = found, None
            return
        if self._bad_since is None:
            self._bad_since = now
        log.error("upstream proxy credential unusable", extra={"file": str(self.path), "reason": found.text})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CredentialFile) and self._terms() == other._terms()

    def __hash__(self) -> int:
        return hash(self._terms())

    def _terms(self) -> tuple[object, ...]:
        return self.path, self.scheme, self._grace

    def __repr__(self) -> str:
        return f"CredentialFile({self.scheme})"


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes when the file does."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return (
        status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size, status.st_mode, status.st_uid,
    )  # fmt: skip
