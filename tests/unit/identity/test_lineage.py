import os
from pathlib import Path

import pytest

from egress.identity.lineage import ForeignView, Lineage, LineageReader, one_program
from egress.identity.procfs import Unreadable, Vanished
from tests.support.fake_proc import FakeProc


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    tree = FakeProc(tmp_path / "proc")
    tree.add_proxy()
    return tree


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return make(tmp_path / "program")


def make(path: Path) -> Path:
    path.write_bytes(path.name.encode())
    return path


def read(proc: FakeProc, pid: int, anchor: int | None = None) -> Lineage:
    return LineageReader(proc.procfs, anchor).read(pid)


def executables(lineage: Lineage) -> list[str]:
    return [Path(image.path).name for image in lineage.images]


def test_ancestors_parent_first_and_pid_1_included(proc: FakeProc, tmp_path: Path) -> None:
    for pid, parent, name in ((1, 0, "init"), (10, 1, "shell"), (20, 10, "script"), (30, 20, "curl")):
        proc.add(pid, make(tmp_path / name), parent=parent)
    assert executables(read(proc, 30)) == ["curl", "script", "shell", "init"]
    assert executables(read(proc, 30, anchor=10)) == ["curl", "script", "shell"]
    assert executables(read(proc, 10, anchor=10)) == ["shell"]
    assert executables(read(proc, 1)) == ["init"]


def test_a_chain_has_an_end(proc: FakeProc, program: Path) -> None:
    for pid in range(1000, 1066):
        proc.add(pid, program, parent=pid + 1)
    proc.add(1066, program, parent=1000)
    assert len(read(proc, 1000).ancestors) == 64


def test_an_unreadable_ancestor_grants_nothing(proc: FakeProc, program: Path, tmp_path: Path) -> None:
    proc.add(1, make(tmp_path / "init"), parent=0)
    directory = proc.add(10, program, parent=1)
    (directory / "exe").unlink()
    (directory / "exe").mkdir()
    proc.add(20, program, parent=10)
    assert executables(read(proc, 20)) == ["program", "init"]
    with pytest.raises(Unreadable):
        read(proc, 10)


def test_a_parent_that_is_gone_asks_for_another_look(proc: FakeProc, program: Path) -> None:
    proc.add(20, program, parent=10)
    with pytest.raises(Vanished):
        read(proc, 20)


def test_the_mark_of_an_unlinked_file_is_dropped_once(proc: FakeProc, tmp_path: Path) -> None:
    proc.add(1, make(tmp_path / "init"), parent=0)
    live = make(tmp_path / "x (deleted)")
    proc.add(20, live)
    assert read(proc, 20).owner.path == str(live)


def test_unlinked_images(tmp_path: Path) -> None:
    # A link text that ends in the mark, with a file behind it: only the kernel can make these, so the reader is
    # asked through a tree whose links it resolves itself.
    target = make(tmp_path / "x")

    class Unlinked(FakeProc):
        def link(self, pid: int, text: bytes) -> None:
            original = self.procfs.executable_link
            self.procfs.executable_link = lambda asked: text if asked == pid else original(asked)  # type: ignore[method-assign]

    proc = Unlinked(tmp_path / "proc")
    proc.add_proxy()
    proc.add(1, make(tmp_path / "init"), parent=0)
    proc.add(20, target)
    gone = os.fsencode(tmp_path / "gone")
    proc.link(20, gone + b" (deleted)")
    assert read(proc, 20).owner.path == os.fsdecode(gone)
    proc.link(20, gone + b" (deleted) (deleted)")
    assert read(proc, 20).owner.path == os.fsdecode(gone) + " (deleted)"


def test_another_mount_namespace_with_the_same_file(proc: FakeProc, program: Path, tmp_path: Path) -> None:
    proc.add(1, make(tmp_path / "init"), parent=0)
    proc.add(20, program, mounts="mnt:[2]")
    owner = read(proc, 20).owner
    assert (owner.path, owner.familiar) == (str(program), True)


def test_another_mount_namespace_with_another_file(proc: FakeProc, program: Path, tmp_path: Path) -> None:
    proc.add(1, make(tmp_path / "init"), parent=0)
    proc.add(20, program, mounts="mnt:[2]")
    image = proc.procfs.executable_link(20)
    # In its own view the process runs /usr/bin/true; here that path is another file.
    proc.procfs.executable_link = lambda pid: b"/usr/bin/true" if pid == 20 else image  # type: ignore[method-assign]
    with pytest.raises(ForeignView):
        read(proc, 20)


def test_the_anchor_gives_the_view(proc: FakeProc, program: Path, tmp_path: Path) -> None:
    proc.add(10, make(tmp_path / "entrypoint"), mounts="mnt:[9]")
    proc.add(20, program, parent=10, mounts="mnt:[9]")
    root = proc.root / "10/root"
    root.unlink()
    root.symlink_to(tmp_path / "elsewhere")
    assert read(proc, 20, anchor=10).owner.familiar
    proc.add(30, program, parent=10, mounts="mnt:[2]")
    with pytest.raises(ForeignView):
        read(proc, 30, anchor=10)


def test_command_paths_leave_out_the_executables(proc: FakeProc, tmp_path: Path) -> None:
    shell, tool = make(tmp_path / "sh"), make(tmp_path / "tool")
    proc.add(1, make(tmp_path / "init"), parent=0)
    proc.add(10, shell, arguments=(str(shell).encode(), b"/opt/start.sh"))
    proc.add(20, tool, parent=10, arguments=(str(tool).encode(), str(shell).encode(), b"/opt/run.py", b"/opt/start.sh"))
    assert read(proc, 20).command_paths == ("/opt/run.py", "/opt/start.sh")


def test_unchanged_means_same_process_and_same_image(proc: FakeProc, program: Path, tmp_path: Path) -> None:
    proc.add(1, make(tmp_path / "init"), parent=0)
    directory = proc.add(20, program, started=5)
    reader = LineageReader(proc.procfs, None)
    image = reader.image(20)
    assert reader.unchanged(image)
    stat = (directory / "stat").read_text()
    (directory / "stat").write_text(stat.replace(" 5 0 0", " 6 0 0"))
    assert not reader.unchanged(image)
    (directory / "stat").write_text(stat)
    assert reader.unchanged(image)
    (directory / "exe").unlink()
    (directory / "exe").symlink_to(make(tmp_path / "other"))
    assert not reader.unchanged(image)
    (directory / "exe").unlink()
    assert not reader.unchanged(image)


class TestSeveralOwners:
    @pytest.fixture(autouse=True)
    def tree(self, proc: FakeProc, program: Path, tmp_path: Path) -> None:
        self.proc = proc
        proc.add(1, make(tmp_path / "init"), parent=0)
        proc.add(10, make(tmp_path / "shell"))
        proc.add(20, program, parent=10, arguments=(b"/run",))

    def judge(self, *pids: int) -> list[list[str]] | None:
        reader = LineageReader(self.proc.procfs, None)
        lineages = one_program([reader.read(pid) for pid in pids])
        return None if lineages is None else [executables(lineage) for lineage in lineages]

    def test_one_owner_is_itself(self) -> None:
        assert self.judge(20) == [["program", "shell", "init"]]

    def test_children_forked_by_an_owner(self, program: Path) -> None:
        self.proc.add(30, program, parent=20, arguments=(b"/run",))
        self.proc.add(31, program, parent=30, arguments=(b"/run",))
        assert self.judge(20, 30, 31) == [["program", "shell", "init"]] * 3

    def test_siblings_whose_parent_let_go(self, program: Path) -> None:
        self.proc.add(30, program, parent=20, arguments=(b"/run",))
        self.proc.add(31, program, parent=20, arguments=(b"/run",))
        assert self.judge(30, 31) == [["program", "program", "shell", "init"]] * 2

    def test_another_program(self, tmp_path: Path) -> None:
        self.proc.add(30, make(tmp_path / "evil"), parent=20, arguments=(b"/run",))
        assert self.judge(20, 30) is None

    def test_the_same_program_started_by_somebody_else(self, program: Path) -> None:
        self.proc.add(30, program, parent=1, arguments=(b"/run",))
        assert self.judge(20, 30) is None

    def test_the_same_program_with_another_script(self, program: Path) -> None:
        self.proc.add(30, program, parent=20, arguments=(b"/other",))
        assert self.judge(20, 30) is None

    def test_another_image_under_the_same_path(self, program: Path, tmp_path: Path) -> None:
        self.proc.add(30, make(tmp_path / "copy"), parent=20, arguments=(b"/run",))
        original = self.proc.procfs.executable_link
        shown = str(program).encode()
        self.proc.procfs.executable_link = lambda pid: shown if pid == 30 else original(pid)  # type: ignore[method-assign]
        assert self.judge(20, 30) is None

    def test_a_grandchild_behind_a_stranger(self, program: Path, tmp_path: Path) -> None:
        self.proc.add(30, make(tmp_path / "between"), parent=20)
        self.proc.add(40, program, parent=30, arguments=(b"/run",))
        assert self.judge(20, 40) is None
