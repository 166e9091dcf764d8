"""Scalars of the settings file: each spelling it takes, and what it says about the others."""

from collections.abc import Callable

import pytest

from egress.config.types import (
    read_address,
    read_count,
    read_duration,
    read_gateway,
    read_host,
    read_literal,
    read_mode,
    read_moment,
    read_network,
    read_path,
    read_pid_or_path,
    read_resolver,
    read_size,
    read_token,
    read_uid,
    read_wait,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("200ms", 0.2),
        ("5s", 5),
        ("15m", 900),
        ("24h", 86400),
        ("7d", 604800),
        ("1.5s", 1.5),
        (30, 30),
        (0.25, 0.25),
        (0, 0),
    ],
)
def test_durations(text: object, seconds: float) -> None:
    assert read_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "5", "5 s", "-5s", "5S", "1h30m", "off", "s", "367d", -1, True, None, float("inf"), float("nan"), "٥s"]
)
def test_no_durations(text: object) -> None:
    with pytest.raises(ValueError, match=r"must be"):
        read_duration(text)


def test_a_wait_of_nothing_is_refused() -> None:
    assert read_wait("1ms") == pytest.approx(0.001)
    with pytest.raises(ValueError, match="more than 0"):
        read_wait(0)


def test_a_moment_is_thirty_seconds_at_most() -> None:
    assert read_moment("30s") == 30
    with pytest.raises(ValueError, match="at most 30s"):
        read_moment("31s")


@pytest.mark.parametrize(
    ("text", "size"), [(0, 0), (4096, 4096), ("64KiB", 65536), ("256MiB", 2**28), ("1GiB", 2**30), ("7B", 7)]
)
def test_sizes(text: object, size: int) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["64KB", "64 KiB", "-1", -1, 1.5, True, "KiB", "1e3"])
def test_no_sizes(text: object) -> None:
    with pytest.raises(ValueError, match="must be a size"):
        read_size(text)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("127.0.0.1:3128", "127.0.0.1:3128"),
        ("[::1]:0", "[::1]:0"),
        ("0.0.0.0:65535", "0.0.0.0:65535"),
        ("localhost:3128", "127.0.0.1:3128"),
        ("[2001:DB8:0:0::1]:80", "[2001:db8::1]:80"),
    ],
)
def test_addresses(text: str, canonical: str) -> None:
    assert str(read_address(text)) == canonical


@pytest.mark.parametrize(
    "text", ["3128", ":3128", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "::1:80", "proxy.test:80", "127.1:80", 3128]
)
def test_no_addresses(text: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_address(text)


def test_loopback_is_told_from_the_world() -> None:
    assert read_address("127.8.0.1:1").loopback
    assert not read_address("0.0.0.0:1").loopback


def test_a_name_server_has_a_usual_port() -> None:
    assert [str(read_resolver(text)) for text in ("9.9.9.9", "2620:fe::fe", "9.9.9.9:5353")] == [
        "9.9.9.9:53",
        "[2620:fe::fe]:53",
        "9.9.9.9:5353",
    ]


def test_a_host_gateway_is_a_word_or_an_address() -> None:
    assert read_gateway("auto") == "auto"
    assert str(read_gateway("169.254.1.2")) == "169.254.1.2"


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (read_literal, "origin.test"),
        (read_literal, "127.1"),
        (read_literal, 5),
        (read_network, "10.0.0.1/8"),
        (read_network, "10.0.0.0/33"),
        (read_host, "127.0.0.1"),
        (read_host, "a..b"),
        (read_path, ""),
        (read_path, "a\x00b"),
        (read_path, "a\nb"),
        (read_path, 7),
        (read_pid_or_path, 0),
        (read_pid_or_path, True),
        (read_token, "two words"),
        (read_token, ""),
        (read_mode, 600),
        (read_mode, "600"),
        (read_mode, "0800"),
        (read_count, 0),
        (read_count, True),
        (read_count, "5"),
        (read_uid, -1),
        (read_uid, 2**32 - 1),
        (read_gateway, "on"),
        (read_resolver, "dns.test"),
    ],
)
def test_refused_values(read: Callable[[object], object], value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(value)
