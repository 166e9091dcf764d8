"""Trust on first use: the digest first seen under a path is the one this path must keep until restart.

What is hashed is the image that runs, never the file that now has its name; a digest only ever denies.
"""

import hashlib
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from egress.events.event import Finding, Severity
from egress.identity.lineage import Image
from egress.identity.procfs import Fingerprint, Procfs, Unreadable, Vanished, fingerprint_of
from egress.model.clock import Clock, SystemClock
from egress.model.process import UnavailableReason

REMEMBERED_DIGESTS = 4096
REMEMBERED_PATHS = 65_536 + REMEMBERED_DIGESTS
MAX_IMAGE_BYTES = 1 << 30
HASH_SECONDS = 30.0
_BLOCK_BYTES = 64 * 1024


class TofuMode(StrEnum):
    """`warn` reports a changed executable and trusts the new one; `off` compares nothing."""

    STRICT = "strict"
    WARN = "warn"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Distrust:
    """Why an executable is not taken for what its path says."""

    reason: UnavailableReason
    detail: str


def _discard(_: Finding) -> None:
    """The report of a store that nobody listens to."""


class TrustStore:
    """Digests by file, trusted digests by path. Called from several threads.

    The least recently used file is hashed again when it comes back; its path is remembered all the same. Every
    path ever trusted stays, up to a bound; then new paths are refused.
    """

    def __init__(
        self,
        procfs: Procfs,
        mode: TofuMode = TofuMode.STRICT,
        report: Callable[[Finding], None] = _discard,
        clock: Clock | None = None,
    ) -> None:
        """`report` is called from the thread that noticed."""
        self._clock = clock or SystemClock()
        self._procfs = procfs
        self.mode = mode
        self._report = report
        self._digests: OrderedDict[Fingerprint, str] = OrderedDict()
        self._trusted: dict[str, str] = {}
        self._pins: Mapping[str, frozenset[str]] = {}
        self._lock = threading.Lock()
        self._hashing: dict[tuple[int, int], threading.Lock] = {}

    def pin(self, pins: Mapping[str, frozenset[str]]) -> None:
        """Digests that policy lists for a path are as good as the one first seen. Replaces all earlier pins."""
        self._pins = pins

    def forget(self, path: str) -> bool:
        """The next executable seen under this path is trusted anew; false when none was."""
        with self._lock:
            return self._trusted.pop(path, None) is not None

    def remember(self, path: str, descriptor: int) -> None:
        """Trust an open file under a path before any process ran it, unless another one is trusted already."""
        digest, _ = _hash(descriptor)
        with self._lock:
            if len(self._trusted) < REMEMBERED_PATHS:
                self._trusted.setdefault(path, digest)

    def verify(self, image: Image) -> str | Distrust | None:
        """The digest of an image that may be taken for its path; None: unreadable, and nothing is compared anyway."""
        digest = self._digest(image)
        if isinstance(digest, Distrust):
            return None if self.mode is TofuMode.OFF else digest
        return self._judge(image, digest) or digest

    def known_digest(self, image: Image) -> str | None:
        """The digest of an image whose file was hashed before and did not change since; reads nothing."""
        with self._lock:
            digest = self._digests.get(image.fingerprint)
            if digest is not None:
                self._digests.move_to_end(image.fingerprint)
            return digest

    def _digest(self, image: Image) -> str | Distrust:
        """The digest of an image; reads the file when it must, once for all that ask for the same file meanwhile."""
        key = (image.fingerprint.device, image.fingerprint.inode)
        with self._lock:
            turn = self._hashing.setdefault(key, threading.Lock())
        try:
            with turn:
                return self.known_digest(image) or self._hash_image(image)
        except (Unreadable, OSError) as error:
            why = str(error) if isinstance(error, Unreadable) else (error.strerror or "read error")
            detail = f"binary integrity check failed: {image.path} cannot be hashed: {why}"
            return Distrust(UnavailableReason.UNAVAILABLE, detail)
        finally:
            with self._lock:
                self._hashing.pop(key, None)

    def _hash_image(self, image: Image) -> str:
        descriptor = self._procfs.open_executable(image.pid)
        try:
            opened = fingerprint_of(os.fstat(descriptor))
            if (opened.device, opened.inode) != (image.fingerprint.device, image.fingerprint.inode):
                raise Vanished(f"process {image.pid} changed while it was identified")
            digest, fingerprint = _hash(descriptor)
        finally:
            os.close(descriptor)
        with self._lock:
            self._digests[fingerprint] = digest
            if len(self._digests) > REMEMBERED_DIGESTS:
                self._digests.popitem(last=False)
        return digest

    def _judge(self, image: Image, digest: str) -> Distrust | None:
        """Compare with what is trusted under the image's path; first sight makes it trusted."""
        if self.mode is TofuMode.OFF or digest in self._pins.get(image.path, ()):
            return None
        with self._lock:
            trusted = self._trusted.get(image.path)
            if trusted is None:
                return self._first_sight(image, digest)
            if trusted == digest:
                return None
            if self.mode is TofuMode.WARN:
                self._trusted[image.path] = digest
        self._report(self._changed(image, trusted, digest))
        if self.mode is TofuMode.WARN:
            return None
        detail = f"Binary integrity violation: {image.path} hash changed (cached: {trusted}, current: {digest})"
        return Distrust(UnavailableReason.HASH_CHANGED, f"binary integrity check failed: {detail}")

    def _first_sight(self, image: Image, digest: str) -> Distrust | None:
        if not image.familiar:
            detail = f"process {image.pid} runs an unlinked file of another mount namespace as {image.path}"
            return Distrust(UnavailableReason.UNAVAILABLE, f"binary integrity check failed: {detail}")
        if len(self._trusted) >= REMEMBERED_PATHS:
            self._report(self._full())
            detail = "binary integrity check failed: too many different executables were seen"
            return Distrust(UnavailableReason.STORE_FULL, detail)
        self._trusted[image.path] = digest
        return None

    def _changed(self, image: Image, trusted: str, digest: str) -> Finding:
        return Finding(
            self._clock.now(),
            "egress.identity.executable_changed",
            "An executable is not the one first seen under its path",
            Severity.HIGH,
            blocked=self.mode is TofuMode.STRICT,
            evidence=(("path", image.path), ("trusted_sha256", trusted), ("sha256", digest)),
        )

    def _full(self) -> Finding:
        title = "Too many different executables were seen; new ones are refused"
        return Finding(self._clock.now(), "egress.identity.store_full", title, Severity.HIGH)


def _hash(descriptor: int) -> tuple[str, Fingerprint]:
    """SHA-256 of an open file and its fingerprint, equal before and after. Raises `OSError` or `Unreadable`."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable("not a regular file")
    if status.st_size > MAX_IMAGE_BYTES:
        raise Unreadable(f"larger than {MAX_IMAGE_BYTES} bytes")
    deadline = time.monotonic() + HASH_SECONDS
    digest = hashlib.sha256()
    offset = 0
    while block := os.pread(descriptor, _BLOCK_BYTES, offset):
        digest.update(block)
        offset += len(block)
        if offset > MAX_IMAGE_BYTES or time.monotonic() > deadline:
            raise Unreadable(f"not hashed within {HASH_SECONDS:g} s")
    if fingerprint_of(os.fstat(descriptor)) != fingerprint_of(status):
        raise Unreadable("it changed while it was hashed")
    return digest.hexdigest(), fingerprint_of(status)
