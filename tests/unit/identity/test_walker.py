"""The walk in a process of its own answers as the walk here does, and its loss is made good."""

import os
import select
import sys
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


def up(walks: WalkProcess) -> None:
    walks.start()
    assert walks._child is not None
    select.select([walks._child.stdout], [], [], 10)


def test_both_walks_see_the_same(walks: WalkProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    up(walks)
    seen = walks.here({100, 101, 555})
    monkeypatch.setattr(walks, "here", None)  # the other process answers, and nobody else
    assert walks({100, 101, 555}) == seen == Walk({100: [20, 30], 101: [30], 555: []}, [])


def test_nobody_waits_for_the_process_to_start(walks: WalkProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "_ask", None)
    assert walks({101}) == Walk({101: [30]}, [])


def test_a_process_that_says_something_else_is_not_asked(walks: WalkProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/echo")
    up(walks)
    assert walks({101}) == Walk({101: [30]}, [])
    assert walks._child is None


def test_a_killed_walker_is_replaced_and_its_question_answered(walks: WalkProcess) -> None:
    up(walks)
    assert walks({101}) == Walk({101: [30]}, [])
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
