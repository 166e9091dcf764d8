"""Event files: append only, opened without following links, renamed away by date and size, compressed, and few."""

import fcntl
import gzip
import logging
import os
import re
import shutil
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from egress.events.settings import Compress, Fsync, Rotation
from egress.model.clock import Clock

_log = logging.getLogger(__name__)

MODE = 0o640
DIRECTORY_MODE = 0o750
CHECK_SECONDS = 1.0
FSYNC_SECONDS = 5.0
# Other processes append to a renamed file until they notice, at most CHECK_SECONDS later.
ARCHIVE_DELAY = 2 * CHECK_SECONDS
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_LAST = 1 << 30


@dataclass(frozen=True, slots=True)
class Naming:
    """`<stem>.<date><suffix>` in `directory`, or `fixed`; older parts are `<stem>.<date>.<n><suffix>`, maybe `.gz`."""

    directory: Path
    stem: str
    suffix: str
    fixed: bool

    def active(self, date: str) -> Path:
        name = f"{self.stem}{self.suffix}" if self.fixed else f"{self.stem}.{date}{self.suffix}"
        return self.directory / name

    def part(self, date: str, number: int) -> Path:
        return self.directory / f"{self.stem}.{date}.{number}{self.suffix}"

    def parts(self) -> list[tuple[tuple[str, int], Path]]:
        """Every dated file with its place in time, oldest first. The unnumbered one of a day is its last."""
        stem, suffix = re.escape(self.stem), re.escape(self.suffix)
        pattern = re.compile(rf"{stem}\.(\d{{4}}-\d\d-\d\d)(?:\.(\d{{1,9}}))?{suffix}(?:\.gz)?\Z", re.ASCII)
        found = []
        for path in self.directory.iterdir():
            match = pattern.match(path.name)
            if match:
                found.append(((match[1], int(match[2]) if match[2] else _LAST), path))
        return sorted(found)


def dated(directory: Path, stem: str) -> Naming:
    """A new file every day, named after it."""
    return Naming(directory, stem, ".log", fixed=False)


def named(path: Path) -> Naming:
    """One name that stays; what is rotated away gets a date."""
    return Naming(path.parent, path.stem, path.suffix, fixed=True)


def in_background(job: Callable[[], None]) -> None:
    threading.Thread(target=job, name="events-archive", daemon=True).start()


class RotatingFile:
    """Appends to the active file and makes room. Several processes may share the name: the lock on the open file
    decides who renames, the others notice within `CHECK_SECONDS`."""

    def __init__(
        self,
        naming: Naming,
        rotation: Rotation,
        fsync: Fsync,
        clock: Clock,
        start: Callable[[Callable[[], None]], None] = in_background,
    ) -> None:
        self._naming = naming
        self._rotation = rotation
        self._fsync = fsync
        self._clock = clock
        self._start = start
        self._descriptor = -1
        self._mid_line = False
        self._dirty = False
        self._checked = self._synced = clock.monotonic()
        naming.directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        self._open()

    def write(self, data: bytes) -> int:
        """Append; a short write leaves the rest to the caller. Files change between lines only."""
        if not self._mid_line:
            self._make_room(len(data))
        written = os.write(self._descriptor, data)
        self._size += written
        self._dirty = True
        self._mid_line = written < len(data) and data[written - 1] != ord("\n")
        return written

    def settle(self) -> bool:
        """Synchronise what was written, every few seconds; True while something still has to be."""
        now = self._clock.monotonic()
        if self._dirty and self._fsync is Fsync.INTERVAL and now - self._synced >= FSYNC_SECONDS:
            self._synced = now
            self._synchronise()
        return self._dirty and self._fsync is Fsync.INTERVAL

    def close(self) -> None:
        if self._dirty and self._fsync is Fsync.INTERVAL:
            self._synchronise()
        os.close(self._descriptor)
        self._descriptor = -1

    def _synchronise(self) -> None:
        if self.regular:
            os.fdatasync(self._descriptor)
        self._dirty = False

    def _open(self) -> None:
        now = self._clock.now()
        path = self._naming.active(utc_date(now))
        descriptor = os.open(path, _FLAGS, MODE)
        status = os.fstat(descriptor)
        self.regular = stat.S_ISREG(status.st_mode)
        if not self.regular and not stat.S_ISCHR(status.st_mode):
            os.close(descriptor)
            raise OSError(f"{path} is neither a regular file nor a character device")
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self.path, self._size = descriptor, path, status.st_size
        # What a file with a lasting name already holds is of the day it was last written.
        self._date = utc_date(status.st_mtime if self._naming.fixed and status.st_size else now)

    def _make_room(self, length: int) -> None:
        now = self._clock.monotonic()
        if now - self._checked >= CHECK_SECONDS:
            self._checked = now
            self._follow()
        if not self.regular:
            return
        over = self._size > 0 and self._size + length > self._rotation.max_bytes
        date_changed = self._rotation.daily and utc_date(self._clock.now()) != self._date
        if over or date_changed:
            self._rotate()

    def _follow(self) -> bool:
        """True while the name still leads to our file. Another process, or a person, may have moved it away; then
        the one that has the name now is opened."""
        ours = os.fstat(self._descriptor)
        self._size = ours.st_size
        try:
            there = self.path.stat(follow_symlinks=False)
        except FileNotFoundError:
            there = None
        if there and (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
            return True
        self._open()
        return False

    def _rotate(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        if not self._follow():
            return
        next_path = self._naming.active(utc_date(self._clock.now()))
        if self._size and next_path == self.path:
            taken = [place[1] for place, _ in self._naming.parts() if place[0] == self._date and place[1] != _LAST]
            self.path.rename(self._naming.part(self._date, max(taken, default=0) + 1))
        # Opening the next file closes this one, and with it goes the lock.
        self._open()
        self._start(Archive(self._naming, self._rotation, self.path).run)


@dataclass(frozen=True, slots=True)
class Archive:
    """Compresses what was rotated away and removes what is too old. `active` is left alone."""

    naming: Naming
    rotation: Rotation
    active: Path
    delay: float = ARCHIVE_DELAY

    def run(self) -> None:
        """Do it all; a failure is told and tried again at the next rotation."""
        threading.Event().wait(self.delay)
        try:
            if self.rotation.compress is Compress.GZIP:
                for path in self._old():
                    if path.suffix != ".gz":
                        compress(path)
            for path in self._old()[: -self.rotation.keep or None]:
                path.unlink(missing_ok=True)
        except OSError as error:
            _log.error("event file not archived", extra={"file": error.filename, "error": error.strerror})

    def _old(self) -> list[Path]:
        return [path for _, path in self.naming.parts() if path != self.active]


def compress(path: Path) -> None:
    """Replace `path` by its gzip, or leave it: the new name appears only when it is whole. One process does it."""
    try:
        source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    with os.fdopen(source, "rb") as plain:
        try:
            fcntl.flock(plain, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        unfinished = path.with_name(f"{path.name}.gz.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(unfinished, flags, MODE), "wb") as raw:
            # Level 1: lines repeat themselves, higher levels cost several times as much for little.
            with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=1) as packed:
                shutil.copyfileobj(plain, packed, 1 << 20)
            raw.flush()
            os.fsync(raw.fileno())
        unfinished.rename(path.with_name(f"{path.name}.gz"))
        path.unlink()


def utc_date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


class Descriptor:
    """A standard stream of this process. It is not ours to close."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes) -> int:
        return os.write(self._descriptor, data)

    def settle(self) -> bool:
        return False

    def close(self) -> None:
        pass
