"""The walk in a process of its own answers as the walk here does, and its loss is made good."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from egress.identity.owners import Walk
from egress.identity.walker import WalkProcess
from tests.support.fake_proc import FakeProc


@pytest.fixture
def walks(tmp_path: Path) -> Iterator[WalkProcess]:
    tree = FakeProc(tmp_path / "proc")
    tree.add(30, "/bin/true", inodes=(100, 101))
    tree.add(20, "/bin/true", inodes=(100,))
    process = WalkProcess(tree.procfs)
    yield process
    process.close()


def test_both_walks_see_the_same(walks: WalkProcess) -> None:
    assert walks({100, 101, 555}) == walks.here({100, 101, 555}) == Walk({100: [20, 30], 101: [30], 555: []}, [])


def test_a_killed_walker_is_replaced_and_its_question_answered(walks: WalkProcess) -> None:
    walks.start()
    assert walks._child is not None
    first = walks._child.pid
    os.kill(first, 9)
    walks._child.wait(5)
    assert walks({101}) == Walk({101: [30]}, [])
    assert walks({100}) == Walk({100: [20, 30]}, [])
    assert walks._child is not None
    assert walks._child.pid != first


def test_closing_ends_the_process(walks: WalkProcess) -> None:
    walks({100})
    child = walks._child
    assert child is not None
    walks.close()
    assert child.returncode is not None
