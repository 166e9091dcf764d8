"""One owner of a socket: its executable as the workload's mount view names it, and its ancestors.

Also whether several owners are one program that forked, or a socket that went from hand to hand.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from egress.identity.procfs import DELETED, Fingerprint, Procfs, Unreadable, Vanished, decode

MAX_ANCESTORS = 64


@dataclass(frozen=True, slots=True)
class Image:
    """What one process runs, as it was when it was read.

    `familiar` is false for a process in another mount namespace whose file cannot be compared with the path it
    shows, because that path is unlinked: it may only be what is trusted under this path already.
    """

    pid: int
    started: int
    link: bytes
    path: str
    fingerprint: Fingerprint
    familiar: bool
    argument_paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lineage:
    """An owner and its ancestors, parent first."""

    owner: Image
    ancestors: tuple[Image, ...]

    @property
    def images(self) -> tuple[Image, ...]:
        return (self.owner, *self.ancestors)

    @property
    def command_paths(self) -> tuple[str, ...]:
        """Absolute paths in the arguments of all of them, without the executables."""
        executables = {image.path for image in self.images}
        paths = dict.fromkeys(path for image in self.images for path in image.argument_paths)
        return tuple(path for path in paths if path not in executables)


class ForeignView(Exception):
    """A process of another mount namespace shows a path under which the workload has another file."""


class LineageReader:
    """Reads lineages in the mount view of `anchor`, the entrypoint of the workload; None: in the proxy's own.

    Remembers what it read: one reader serves the look-ups of one walk and no others.
    """

    def __init__(self, procfs: Procfs, anchor: int | None) -> None:
        self._procfs = procfs
        self._anchor = anchor
        self._reference = os.getpid() if anchor is None else anchor
        self._reference_mounts: str | None = None
        self._parents: dict[int, int] = {}
        self._images: dict[int, Image] = {}

    def read(self, pid: int) -> Lineage:
        """Raises `Vanished`, `Unreadable` or `ForeignView` for the owner; an unreadable ancestor is left out, since
        ancestors only ever grant."""
        owner = self.image(pid)
        ancestors: list[Image] = []
        for ancestor in self.ancestor_pids(pid):
            try:
                ancestors.append(self.image(ancestor))
            except Unreadable:
                continue
        return Lineage(owner, tuple(ancestors))

    def ancestor_pids(self, pid: int) -> list[int]:
        """Parent first, up to the anchor or pid 1; empty for the anchor itself."""
        found: list[int] = []
        while pid not in (self._anchor, 1) and len(found) < MAX_ANCESTORS:
            pid = self._parent(pid)
            if pid == 0:
                break
            found.append(pid)
        return found

    def _parent(self, pid: int) -> int:
        if pid not in self._parents:
            self._parents[pid] = self._procfs.stat(pid).parent
        return self._parents[pid]

    def image(self, pid: int) -> Image:
        """What a process runs; read once per reader."""
        if pid not in self._images:
            self._images[pid] = self._read_image(pid)
        return self._images[pid]

    def _read_image(self, pid: int) -> Image:
        procfs = self._procfs
        started = procfs.stat(pid).started
        link = procfs.executable_link(pid)
        fingerprint = procfs.executable_fingerprint(pid)
        path = self._without_mark(link)
        familiar = self._familiar(pid, path, fingerprint, unlinked=path != link)
        return Image(pid, started, link, decode(path), fingerprint, familiar, procfs.argument_paths(pid))

    def unchanged(self, image: Image) -> bool:
        """Still the same process, running the same image: execve keeps pid and start time."""
        try:
            started = self._procfs.stat(image.pid).started
            link = self._procfs.executable_link(image.pid)
            fingerprint = self._procfs.executable_fingerprint(image.pid)
        except (Vanished, Unreadable):
            return False
        # An unlink in between marks the link and moves the change time, and leaves the image what it was.
        same_file = (fingerprint.device, fingerprint.inode) == (image.fingerprint.device, image.fingerprint.inode)
        return started == image.started and same_file and link.removesuffix(DELETED) == image.link.removesuffix(DELETED)

    def _without_mark(self, link: bytes) -> bytes:
        """The kernel marks unlinked files by a suffix that a file's real name may end in as well."""
        if link.endswith(DELETED) and self._lookup(link) is None:
            return link.removesuffix(DELETED)
        return link

    def _familiar(self, pid: int, path: bytes, fingerprint: Fingerprint, *, unlinked: bool) -> bool:
        if self._reference_mounts is None:
            self._reference_mounts = self._procfs.mount_namespace(self._reference)
        if self._procfs.mount_namespace(pid) == self._reference_mounts:
            return True
        # Whoever may make a mount namespace can show any path: /usr/bin/git may be a file of its own there.
        there = self._lookup(path)
        if there is not None and (there.st_dev, there.st_ino) == (fingerprint.device, fingerprint.inode):
            return True
        if unlinked:
            return False
        raise ForeignView(f"process {pid} runs in another mount namespace and its file is not the one known here")

    def _lookup(self, path: bytes) -> os.stat_result | None:
        try:
            return Path(os.fsdecode(self._procfs.below_root_of(self._reference, path))).stat()
        except OSError:
            return None


def one_program(lineages: Sequence[Lineage]) -> tuple[Lineage, ...] | None:
    """The lineages with the ancestors all of them share, or None when they are not one program that forked.

    A child that inherited the socket from another owner adds that owner to its ancestors; taken out, the rest must
    be equal in every respect policy or a reader could see.
    """
    owners = {lineage.owner.pid for lineage in lineages}
    reduced = tuple(Lineage(lineage.owner, _outside(lineage.ancestors, owners)) for lineage in lineages)
    return reduced if len({_visible(lineage) for lineage in reduced}) == 1 else None


def _outside(ancestors: tuple[Image, ...], owners: set[int]) -> tuple[Image, ...]:
    first = next((at for at, image in enumerate(ancestors) if image.pid not in owners), len(ancestors))
    return ancestors[first:]


def _visible(lineage: Lineage) -> tuple[object, ...]:
    images = [(image.path, image.fingerprint) for image in lineage.images]
    return (*images, lineage.command_paths)
