"""Collapsed stacks are summed by innermost frame, by innermost Python function, and inclusively."""

from benchmarks.profile import summarize

STACKS = """\
serve (app.py:10);relay (lane.py:20);send (libc.so.6) 6
serve (app.py:10);relay (lane.py:25) 2
epoll_wait (libc.so.6) 2
run (sink.py:3);Condition.wait (threading.py:355);futex (libc.so.6) 90
"""


def section(title: str) -> list[str]:
    return summarize(STACKS).split(f"-- {title} --\n")[1].split("\n-- ")[0].splitlines()


def test_a_thread_that_waits_is_not_counted():
    assert not any("futex" in line or "sink" in line for line in summarize(STACKS).splitlines())


def test_own_time_goes_to_the_innermost_frame():
    assert section("own time") == [
        " 60.0%  send (libc.so.6)",
        " 20.0%  relay (lane.py)",
        " 20.0%  epoll_wait (libc.so.6)",
    ]


def test_native_time_goes_to_its_python_caller():
    assert section("own time, C counted to its Python caller") == [" 80.0%  relay (lane.py)", " 20.0%  (no Python)"]


def test_inclusive_time_ignores_line_numbers():
    assert " 80.0%  serve (app.py)" in section("inclusive")
