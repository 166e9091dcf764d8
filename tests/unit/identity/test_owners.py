from concurrent.futures import CancelledError
from pathlib import Path
from threading import Event

import pytest

from egress.identity.owners import OwnerWalker, Walk, walk
from egress.identity.walker import WalkProcess
from tests.support.fake_proc import FakeProc

PROXY = 50


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    tree = FakeProc(tmp_path / "proc")
    tree.add(PROXY, "/bin/true", inodes=(900, 901))
    tree.add(30, "/bin/true", inodes=(100, 101))
    tree.add(20, "/bin/true", inodes=(100,))
    tree.add(40, "/bin/true")
    return tree


def test_every_owner_of_every_inode_in_one_walk(proc: FakeProc) -> None:
    seen = walk(proc.procfs, {100, 101, 555}, own_pid=PROXY)
    assert seen == Walk({100: [20, 30], 101: [30], 555: []}, [])


def test_the_proxy_is_an_owner_where_nobody_else_is(proc: FakeProc) -> None:
    assert walk(proc.procfs, {900}, own_pid=PROXY).holders == {900: [PROXY]}


def test_processes_that_hide_their_descriptors_are_named(proc: FakeProc) -> None:
    proc.hide_descriptors(40)
    assert walk(proc.procfs, {100}, own_pid=PROXY).unreadable == [40]


def test_a_process_that_ended_meanwhile_owns_nothing(proc: FakeProc) -> None:
    (proc.root / "60").mkdir()  # in the listing, but without descriptors any more
    assert walk(proc.procfs, {100}, own_pid=PROXY) == Walk({100: [20, 30]}, [])


def test_look_ups_that_wait_share_the_next_walk(proc: FakeProc) -> None:
    walker = OwnerWalker(WalkProcess(proc.procfs).here)
    begun, may_go_on = Event(), Event()

    def hold(seen: Walk) -> Walk:
        begun.set()
        may_go_on.wait(5)
        return seen

    first = walker.submit(100, hold)
    assert begun.wait(5)
    waiting = [walker.submit(inode, lambda seen: seen) for inode in (100, 101, 100)]
    # Handed on after the first walk was done: whoever waits must not be answered by it.
    proc.add(70, "/bin/true", inodes=(101,))
    may_go_on.set()
    walks = [future.result(5) for future in waiting]
    assert walks[0] is walks[1] is walks[2]
    assert walks[0] is not first.result(5)
    assert walks[0].holders == {100: [20, 30], 101: [30, 70]}
    walker.close()


def test_a_failure_belongs_to_its_look_up(proc: FakeProc) -> None:
    walker = OwnerWalker(WalkProcess(proc.procfs).here)

    def fail(_: Walk) -> None:
        raise ValueError("mine")

    failing, fine = walker.submit(100, fail), walker.submit(100, lambda seen: seen.holders[100])
    with pytest.raises(ValueError, match="mine"):
        failing.result(5)
    assert fine.result(5) == [20, 30]
    walker.close()


def test_a_tree_that_cannot_be_listed_fails_everybody(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path / "proc")
    walker = OwnerWalker(WalkProcess(proc.procfs).here)
    (tmp_path / "proc").rename(tmp_path / "gone")
    with pytest.raises(OSError, match="proc"):
        walker.submit(1, lambda seen: seen).result(5)
    walker.close()


def test_closing_cancels_those_who_wait(proc: FakeProc) -> None:
    walker = OwnerWalker(WalkProcess(proc.procfs).here)
    begun, may_go_on = Event(), Event()
    walker.submit(100, lambda _: (begun.set(), may_go_on.wait(5)))
    assert begun.wait(5)
    waiting = walker.submit(100, lambda seen: seen)
    walker.close()
    may_go_on.set()
    with pytest.raises(CancelledError):
        waiting.result(5)
    with pytest.raises(RuntimeError):
        walker.submit(100, lambda seen: seen)
