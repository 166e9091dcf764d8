"""Collapsed stacks are summed by innermost function and inclusively, without what is in every stack."""

from benchmarks.profile import summarize

STACKS = """\
main (app.py:1);relay (lane.py:20);write (stream.py:5) 5
main (app.py:1);relay (lane.py:25) 2
main (app.py:1);walk (procfs.py:3) 3
run (sink.py:3);Condition.wait (threading.py:355) 90
"""


def section(title: str) -> list[str]:
    return summarize(STACKS).split(f"-- {title} --\n")[1].split("\n-- ")[0].splitlines()


def test_own_time_goes_to_the_innermost_function_on_any_line():
    assert section("own time") == [" 50.0%  write (stream.py)", " 30.0%  walk (procfs.py)", " 20.0%  relay (lane.py)"]


def test_inclusive_time_leaves_out_what_is_in_every_stack():
    assert section("inclusive") == [" 70.0%  relay (lane.py)", " 50.0%  write (stream.py)", " 30.0%  walk (procfs.py)"]
