"""Durations and sizes."""

import pytest

from egress.documents.units import read_duration, read_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("200ms", 0.2), ("5s", 5), ("1.5s", 1.5), ("15m", 900), ("24h", 86400), ("7d", 604800), (3, 3.0), (0, 0.0)],
)
def test_durations(text: object, seconds: float) -> None:
    assert read_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "5 s", "s", "-1s", True, None, "1e3s", "1y", -1, "9" * 30 + "s", "367d"])
def test_no_durations(text: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        read_duration(text)


@pytest.mark.parametrize(("text", "size"), [(0, 0), (5, 5), ("64KiB", 65536), ("2MiB", 2097152), ("7B", 7), ("9", 9)])
def test_sizes(text: object, size: int) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize("text", [-1, True, "64KB", "1.5MiB", "", None, "KiB", "9" * 20])
def test_no_sizes(text: object) -> None:
    with pytest.raises(ValueError, match="must be a size"):
        read_size(text)
