import os
from pathlib import Path

import pytest

from egress.identity.procfs import Procfs, Stat, Unreadable, Vanished, decode
from tests.support.fake_proc import FakeProc


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


def test_processes_are_the_numbered_directories(proc: FakeProc) -> None:
    proc.add(7, "/bin/true")
    proc.add(12, "/bin/true")
    assert sorted(proc.procfs.pids()) == [7, 12]


def test_wanted_links_only(proc: FakeProc) -> None:
    proc.add(7, "/bin/true", inodes=(100, 101, 102, 101))
    wanted = {"socket:[101]": 101, "socket:[102]": 102, "socket:[10]": 10}
    assert proc.procfs.socket_links(7, wanted) == {"socket:[101]", "socket:[102]"}


@pytest.mark.parametrize("name", ["x", "a b", "a) S 99 (", "()", ") "])
def test_stat_reads_past_the_name(proc: FakeProc, name: str) -> None:
    proc.add(7, "/bin/true", parent=5, started=4242, name=name)
    assert proc.procfs.stat(7) == Stat(parent=5, started=4242, dead=False)


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_corpse(proc: FakeProc, state: str) -> None:
    proc.add(7, "/bin/true", state=state)
    assert proc.procfs.stat(7).dead


def test_a_stat_file_that_makes_no_sense(proc: FakeProc) -> None:
    (proc.add(7, "/bin/true") / "stat").write_text("7 (x) S")
    with pytest.raises(Unreadable):
        proc.procfs.stat(7)


def test_argument_paths(proc: FakeProc) -> None:
    proc.add(7, "/bin/true", arguments=(b"python3", b"/opt/run.py", b"-x", b"/opt/run.py", b"", b"/a\xff", b"rel/path"))
    assert proc.procfs.argument_paths(7) == ("/opt/run.py", "/a\\xff")


def test_gone_and_unreadable_are_told_apart(proc: FakeProc) -> None:
    for read in (
        proc.procfs.stat,
        proc.procfs.executable_link,
        proc.procfs.argument_paths,
        proc.procfs.open_executable,
    ):
        with pytest.raises(Vanished):
            read(99)
    with pytest.raises(Vanished):
        proc.procfs.socket_links(99, {})
    proc.add(7, "/bin/true")
    proc.hide_descriptors(7)
    with pytest.raises(Unreadable):
        proc.procfs.socket_links(7, {})


def test_paths_are_shown_as_text() -> None:
    assert decode("/usr/bin/é".encode()) == "/usr/bin/é"
    assert decode(b"/usr/bin/\xe9") == "/usr/bin/\\xe9"


def test_the_real_tree() -> None:
    procfs = Procfs()
    me = os.getpid()
    assert me in procfs.pids()
    assert procfs.stat(me).parent == os.getppid()
    assert procfs.executable_link(me) == os.readlink("/proc/self/exe").encode()
    assert procfs.executable_fingerprint(me).inode == os.stat("/proc/self/exe").st_ino
