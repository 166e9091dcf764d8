"""Durations and sizes as documents write them."""

import re

_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h|d)\Z", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MAX_SECONDS = 366 * 86400
_SIZE = re.compile(r"([0-9]{1,15})(B|KiB|MiB|GiB)?\Z", re.ASCII)
_BYTES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def read_duration(value: object) -> float:
    """Seconds, from `200ms`, `5s`, `15m`, `24h`, `7d` or a bare number of seconds."""
    seconds = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    if seconds is None and isinstance(value, str) and (match := _DURATION.match(value)):
        seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds is None:
        raise ValueError("must be a duration\nwrite `200ms`, `5s`, `15m`, `24h`, or a number of seconds")
    if not 0 <= seconds <= _MAX_SECONDS:
        raise ValueError("must be between 0 and 366 days")
    return seconds


def read_size(value: object) -> int:
    """Bytes, from a bare number or `64KiB`, `16MiB`, `1GiB`."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and (match := _SIZE.match(value)):
        return int(match[1]) * _BYTES[match[2] or "B"]
    raise ValueError("must be a size\nwrite a number of bytes, or `64KiB`, `16MiB`, `1GiB`")
