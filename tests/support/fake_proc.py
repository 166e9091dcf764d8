"""A directory that looks like /proc."""

import os
from pathlib import Path

from egress.identity.procfs import Procfs


class FakeProc:
    """Processes are added one by one. `exe` is a real file, so that it can be opened and hashed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.procfs = Procfs(root)
        (root / "net").mkdir(parents=True)
        (root / "version").write_text("not a process")

    def add(
        self,
        pid: int,
        exe: Path | str,
        *,
        parent: int = 1,
        started: int = 1000,
        inodes: tuple[int, ...] = (),
        arguments: tuple[bytes, ...] = (),
        mounts: str = "mnt:[1]",
        state: str = "S",
        name: str = "x",
    ) -> Path:
        directory = self.root / str(pid)
        (directory / "fd").mkdir(parents=True)
        (directory / "ns").mkdir()
        (directory / "exe").symlink_to(exe)
        (directory / "root").symlink_to("/")
        (directory / "ns/mnt").symlink_to(mounts)
        (directory / "cmdline").write_bytes(b"\0".join(arguments) + b"\0")
        zeros = " ".join(["0"] * 17)
        (directory / "stat").write_text(f"{pid} ({name}) {state} {parent} {zeros} {started} 0 0")
        (directory / "fd/0").symlink_to("/dev/null")
        (directory / "fd/1").symlink_to("pipe:[77]")
        for number, inode in enumerate(inodes, start=3):
            (directory / f"fd/{number}").symlink_to(f"socket:[{inode}]")
        return directory

    def add_proxy(self, mounts: str = "mnt:[1]") -> None:
        """The process that runs the test, whose mount view is the reference where there is no anchor."""
        self.add(os.getpid(), "/usr/bin/true", mounts=mounts)

    def hide_descriptors(self, pid: int) -> None:
        """Make them unreadable for root as well."""
        directory = self.root / str(pid) / "fd"
        for link in directory.iterdir():
            link.unlink()
        directory.rmdir()
        directory.write_text("")
