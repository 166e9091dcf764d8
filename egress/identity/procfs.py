"""A /proc tree read from a given root. Gives facts about single processes and judges nothing.

Raises `Vanished` for a process that is gone and `Unreadable` for one that may not be looked at.
"""

# Path objects would double what a walk costs, and readlink is asked for bytes where names need not be UTF-8.
# ruff: noqa: PTH115, PTH116, PTH208

import contextlib
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

DELETED = b" (deleted)"
MAX_ARGUMENT_BYTES = 64 * 1024


class Vanished(Exception):
    """The process ended, or became another one, while it was looked at."""


class Unreadable(Exception):
    """The kernel does not let us look at this process."""


@dataclass(frozen=True, slots=True)
class Stat:
    """From `stat`: parent, start time in clock ticks since boot, and whether only the corpse is left."""

    parent: int
    started: int
    dead: bool


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What changes when a file's content does."""

    size: int
    modified: int
    changed: int
    device: int
    inode: int


def fingerprint_of(status: os.stat_result) -> Fingerprint:
    return Fingerprint(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino)


@contextlib.contextmanager
def _translated(pid: int) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, ProcessLookupError):
        raise Vanished(f"process {pid} ended while it was identified") from None
    except OSError as error:
        raise Unreadable(f"{error.strerror}") from None


class Procfs:
    """Reads below `root`, which is `/proc` or a directory that looks like it."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self.root = root
        self._root = str(root)

    def pids(self) -> list[int]:
        """Every process, threads not listed."""
        return [int(name) for name in os.listdir(self._root) if name.isdecimal()]

    def socket_links(self, pid: int, wanted: Collection[str]) -> set[str]:
        """Which of `wanted` (`socket:[inode]`) some descriptor of the process links to."""
        directory = f"{self._root}/{pid}/fd"
        found: set[str] = set()
        with _translated(pid):
            names = os.listdir(directory)
        for name in names:
            try:
                link = os.readlink(f"{directory}/{name}")
            except FileNotFoundError:
                continue  # closed meanwhile
            except OSError as error:
                raise Unreadable(f"{error.strerror}") from None
            if link in wanted:
                found.add(link)
        return found

    def stat(self, pid: int) -> Stat:
        """Readable for every process, whoever owns it."""
        text = self._content(pid, "stat", 1024)
        # The name in parentheses may hold spaces and parentheses itself.
        fields = text.rpartition(b")")[2].split()
        try:
            return Stat(int(fields[1]), int(fields[19]), fields[0] in (b"Z", b"X"))
        except (IndexError, ValueError):
            raise Unreadable("its stat file is not understood") from None

    def executable_link(self, pid: int) -> bytes:
        """The link text of `exe`, as the kernel gives it."""
        with _translated(pid):
            return os.readlink(f"{self._root}/{pid}/exe".encode())

    def executable_fingerprint(self, pid: int) -> Fingerprint:
        """Of the image that runs, not of the file that now has its name."""
        with _translated(pid):
            return fingerprint_of(os.stat(f"{self._root}/{pid}/exe"))

    def open_executable(self, pid: int) -> int:
        """A descriptor of the image that runs; the caller closes it."""
        with _translated(pid):
            return os.open(f"{self._root}/{pid}/exe", os.O_RDONLY | os.O_CLOEXEC)

    def mount_namespace(self, pid: int) -> str:
        with _translated(pid):
            return os.readlink(f"{self._root}/{pid}/ns/mnt")

    def argument_paths(self, pid: int) -> tuple[str, ...]:
        """Arguments that are absolute paths. The process chooses them freely."""
        arguments = self._content(pid, "cmdline", MAX_ARGUMENT_BYTES).split(b"\0")
        return tuple(dict.fromkeys(decode(argument) for argument in arguments if argument.startswith(b"/")))

    def _content(self, pid: int, name: str, limit: int) -> bytes:
        with _translated(pid):
            descriptor = os.open(f"{self._root}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.read(descriptor, limit)
            finally:
                os.close(descriptor)

    def below_root_of(self, pid: int, path: bytes) -> bytes:
        """Where `path` lies in the mount view of the process."""
        return f"{self._root}/{pid}/root".encode() + path


def decode(path: bytes) -> str:
    """A path as text that can be printed and compared everywhere; bytes that are no UTF-8 are shown escaped."""
    return path.decode("utf-8", errors="backslashreplace")
