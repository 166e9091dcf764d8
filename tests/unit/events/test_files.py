"""Rotation by date and size with a clock that is moved, on a real file system."""

import errno
import gzip
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from egress.events.files import (
    CHECK_SECONDS,
    FSYNC_SECONDS,
    Archive,
    Descriptor,
    RotatingFile,
    compress,
    dated,
    named,
)
from egress.events.settings import Compress, Fsync, Rotation


class FakeClock:
    def __init__(self, start: str) -> None:
        self.time = datetime.fromisoformat(start).replace(tzinfo=UTC).timestamp()

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock("2026-05-04T23:59:58")


def opened(naming, clock, *, jobs=None, fsync=Fsync.INTERVAL, **rotation) -> RotatingFile:
    """A file whose archive jobs are collected, not run."""
    collected = [] if jobs is None else jobs
    return RotatingFile(naming, Rotation(**rotation), fsync, clock, collected.append)


def contents(directory: Path) -> dict[str, bytes]:
    return {
        path.name: gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for path in directory.iterdir()
    }


def test_a_dated_file_of_mode_0640_in_a_directory_of_its_own(tmp_path, clock, request):
    previous = os.umask(0)
    request.addfinalizer(lambda: os.umask(previous))
    directory = tmp_path / "log" / "egress"
    file = opened(dated(directory, "egress-ocsf"), clock)
    assert file.write(b"one\n") == 4
    file.close()
    path = directory / "egress-ocsf.2026-05-04.log"
    assert path.read_bytes() == b"one\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert stat.S_IMODE(directory.stat().st_mode) == 0o750


def test_appends_after_a_restart(tmp_path, clock):
    for text in (b"one\n", b"two\n"):
        file = opened(dated(tmp_path, "egress"), clock)
        file.write(text)
        file.close()
    assert contents(tmp_path) == {"egress.2026-05-04.log": b"one\ntwo\n"}


def test_a_link_is_not_followed(tmp_path, clock):
    target = tmp_path / "victim"
    (tmp_path / "egress.2026-05-04.log").symlink_to(target)
    with pytest.raises(OSError, match="symbolic link") as caught:
        opened(dated(tmp_path, "egress"), clock)
    assert caught.value.errno == errno.ELOOP
    assert not target.exists()


def test_a_pipe_is_refused_and_does_not_hang(tmp_path, clock):
    os.mkfifo(tmp_path / "events")
    with pytest.raises(OSError, match=r"No such device|neither"):
        opened(named(tmp_path / "events"), clock)
    reader = os.open(tmp_path / "events", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OSError, match="neither a regular file"):
        opened(named(tmp_path / "events"), clock)
    os.close(reader)


def test_midnight_utc_begins_a_new_file(tmp_path, clock):
    jobs = []
    file = opened(dated(tmp_path, "egress"), clock, jobs=jobs)
    file.write(b"one\n")
    clock.time += 1
    file.write(b"two\n")
    clock.time += 2
    file.write(b"three\n")
    assert contents(tmp_path) == {"egress.2026-05-04.log": b"one\ntwo\n", "egress.2026-05-05.log": b"three\n"}
    assert len(jobs) == 1
    file.close()


def test_a_clock_that_goes_back_over_midnight_loses_nothing(tmp_path, clock):
    file = opened(dated(tmp_path, "egress"), clock)
    for step, text in ((0, b"one\n"), (5, b"two\n"), (-5, b"three\n")):
        clock.time += step
        file.write(text)
    assert contents(tmp_path) == {"egress.2026-05-04.log": b"one\nthree\n", "egress.2026-05-05.log": b"two\n"}
    file.close()


def test_size_begins_a_new_file(tmp_path, clock):
    file = opened(dated(tmp_path, "egress"), clock, max_bytes=8)
    for text in (b"aaaa\n", b"bbb\n", b"c\n", b"too long for one file\n", b"d\n"):
        file.write(text)
    assert contents(tmp_path) == {
        "egress.2026-05-04.1.log": b"aaaa\n",
        "egress.2026-05-04.2.log": b"bbb\nc\n",
        "egress.2026-05-04.3.log": b"too long for one file\n",
        "egress.2026-05-04.log": b"d\n",
    }
    file.close()


def test_a_named_file_keeps_its_name_and_dates_what_it_leaves(tmp_path, clock):
    file = opened(named(tmp_path / "audit.jsonl"), clock, max_bytes=8)
    file.write(b"aaaa\n")
    file.write(b"bbbb\n")
    clock.time += 5
    file.write(b"c\n")
    assert contents(tmp_path) == {
        "audit.2026-05-04.1.jsonl": b"aaaa\n",
        "audit.2026-05-04.2.jsonl": b"bbbb\n",
        "audit.jsonl": b"c\n",
    }
    file.close()


def test_a_named_file_of_yesterday_is_put_away_after_a_restart(tmp_path, clock):
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"old\n")
    os.utime(path, (clock.time - 86400, clock.time - 86400))
    file = opened(named(path), clock)
    file.write(b"new\n")
    assert contents(tmp_path) == {"audit.2026-05-03.1.jsonl": b"old\n", "audit.jsonl": b"new\n"}
    file.close()


def test_no_rotation_by_date_when_switched_off(tmp_path, clock):
    file = opened(named(tmp_path / "audit.jsonl"), clock, daily=False)
    file.write(b"one\n")
    clock.time += 86400
    file.write(b"two\n")
    assert contents(tmp_path) == {"audit.jsonl": b"one\ntwo\n"}
    file.close()


def test_a_line_is_never_split_over_two_files(tmp_path, clock):
    """After a short write the rest belongs to the same file, midnight or not."""
    file = opened(dated(tmp_path, "egress"), clock)
    file._mid_line = True
    clock.time += 5
    file.write(b"rest\n")
    file.write(b"next\n")
    assert contents(tmp_path) == {"egress.2026-05-04.log": b"rest\n", "egress.2026-05-05.log": b"next\n"}
    file.close()


def test_two_processes_rotate_once(tmp_path, clock):
    """Each has the file open; the second notices what the first did."""
    naming = named(tmp_path / "audit.jsonl")
    one, two = (opened(naming, clock, daily=False, max_bytes=8) for _ in range(2))
    one.write(b"aaaaaa\n")
    one.write(b"bb\n")
    clock.time += CHECK_SECONDS / 2
    two.write(b"c\n")
    clock.time += CHECK_SECONDS
    two.write(b"d\n")
    assert contents(tmp_path) == {"audit.2026-05-04.1.jsonl": b"aaaaaa\nc\n", "audit.jsonl": b"bb\nd\n"}
    one.close()
    two.close()


def test_the_loser_of_a_race_does_not_rotate_the_new_file(tmp_path, clock):
    naming = named(tmp_path / "audit.jsonl")
    one, two = (opened(naming, clock, daily=False, max_bytes=8) for _ in range(2))
    one.write(b"aaaaaa\n")
    clock.time += CHECK_SECONDS
    two.write(b"x\n")
    one._checked = clock.time  # It looked just before the other one renamed.
    one.write(b"bb\n")
    one.write(b"cc\n")
    assert contents(tmp_path) == {"audit.2026-05-04.1.jsonl": b"aaaaaa\n", "audit.jsonl": b"x\nbb\ncc\n"}
    one.close()
    two.close()


def test_a_file_that_was_moved_away_is_made_anew(tmp_path, clock):
    path = tmp_path / "audit.jsonl"
    file = opened(named(path), clock)
    file.write(b"one\n")
    path.rename(tmp_path / "taken")
    clock.time += CHECK_SECONDS
    file.write(b"two\n")
    assert contents(tmp_path) == {"taken": b"one\n", "audit.jsonl": b"two\n"}
    file.close()


def archive(naming, active: Path, **rotation) -> None:
    Archive(naming, Rotation(**rotation), active, delay=0).run()


def test_archive_compresses_all_but_the_active_file_and_keeps_the_newest(tmp_path):
    naming = dated(tmp_path, "egress")
    names = ["2026-05-01", "2026-05-02.1", "2026-05-02", "2026-05-03.2", "2026-05-03.10", "2026-05-03", "2026-05-04.1"]
    for name in names:
        (tmp_path / f"egress.{name}.log").write_bytes(name.encode())
    active = tmp_path / "egress.2026-05-04.log"
    active.write_bytes(b"now")
    (tmp_path / "egress-ocsf.2026-05-01.log").write_bytes(b"other")
    (tmp_path / "egress.notes.log").write_bytes(b"mine")
    archive(naming, active, keep=4)
    assert contents(tmp_path) == {
        "egress.2026-05-03.2.log.gz": b"2026-05-03.2",
        "egress.2026-05-03.10.log.gz": b"2026-05-03.10",
        "egress.2026-05-03.log.gz": b"2026-05-03",
        "egress.2026-05-04.1.log.gz": b"2026-05-04.1",
        "egress.2026-05-04.log": b"now",
        "egress-ocsf.2026-05-01.log": b"other",
        "egress.notes.log": b"mine",
    }
    assert stat.S_IMODE((tmp_path / "egress.2026-05-03.log.gz").stat().st_mode) == 0o640


def test_archive_without_compression(tmp_path):
    for day in (1, 2, 3):
        (tmp_path / f"egress.2026-05-0{day}.log").write_bytes(b"x")
    archive(dated(tmp_path, "egress"), tmp_path / "egress.2026-05-03.log", compress=Compress.OFF, keep=1)
    assert sorted(contents(tmp_path)) == ["egress.2026-05-02.log", "egress.2026-05-03.log"]


def test_rotation_and_archive_together(tmp_path, clock):
    naming = dated(tmp_path, "egress")
    file = RotatingFile(naming, Rotation(max_bytes=4, keep=2), Fsync.OFF, clock, lambda job: None)
    for text in (b"1\n", b"22\n", b"33\n", b"44\n", b"55\n"):
        file.write(text)
        archive(naming, file.path, keep=2)
    assert contents(tmp_path) == {
        "egress.2026-05-04.3.log.gz": b"33\n",
        "egress.2026-05-04.4.log.gz": b"44\n",
        "egress.2026-05-04.log": b"55\n",
    }
    file.close()


def test_an_unfinished_compression_is_redone(tmp_path):
    path = tmp_path / "egress.2026-05-03.log"
    path.write_bytes(b"whole")
    (tmp_path / "egress.2026-05-03.log.gz.tmp").write_bytes(b"half of it, from a process that died, and longer")
    compress(path)
    assert contents(tmp_path) == {"egress.2026-05-03.log.gz": b"whole"}


def test_compression_by_somebody_else_is_left_to_them(tmp_path):
    import fcntl

    path = tmp_path / "egress.2026-05-03.log"
    path.write_bytes(b"whole")
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        compress(path)
        assert sorted(contents(tmp_path)) == ["egress.2026-05-03.log"]
    compress(tmp_path / "gone.log")


def test_archive_failures_are_told(tmp_path, caplog):
    archive(dated(tmp_path / "missing", "egress"), tmp_path / "x")
    assert [record.getMessage() for record in caplog.records] == ["event file not archived"]


def test_synchronised_every_few_seconds_while_written(tmp_path, clock):
    file = opened(dated(tmp_path, "egress"), clock, daily=False)
    assert file.settle() is False
    file.write(b"one\n")
    assert file.settle() is True
    clock.time += FSYNC_SECONDS
    assert file.settle() is False
    assert file._dirty is False
    file.close()


def test_never_synchronised_when_off(tmp_path, clock):
    file = opened(dated(tmp_path, "egress"), clock, fsync=Fsync.OFF)
    file.write(b"one\n")
    clock.time += 100
    assert file.settle() is False
    assert file._dirty is True
    file.close()


def test_a_full_device_is_an_error_and_stays_open(clock):
    file = opened(named(Path("/dev/full")), clock)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left") as caught:
            file.write(b"x\n")
        assert caught.value.errno == errno.ENOSPC
    file.close()


def test_a_device_is_not_rotated(clock):
    jobs = []
    file = opened(named(Path("/dev/null")), clock, jobs=jobs, max_bytes=1)
    for _ in range(3):
        file.write(b"line\n")
        clock.time += 86400
    assert jobs == []
    assert file.settle() is False
    file.close()


def test_a_standard_stream_stays_open():
    reader, writer = os.pipe()
    stream = Descriptor(writer)
    assert stream.write(b"line\n") == 5
    assert stream.settle() is False
    stream.close()
    assert os.write(writer, b"more\n") == 5
    assert os.read(reader, 100) == b"line\nmore\n"
    os.close(reader)
    os.close(writer)
