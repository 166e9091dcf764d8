"""How far the clocks of AWS and of this host are apart, learnt from refusals; requests are never sent again for it."""

from email.utils import parsedate_to_datetime

from egress.model.message import ResponseHead

MOST_SECONDS = 15 * 60.0
"""A correction is never larger."""
ALLOWED_SECONDS = 4 * 60.0
"""Signatures live five minutes. A refusal with a date further off than this is about the date."""
HOSTS = 256
"""Corrections remembered. Beyond: all are forgotten, and learnt again."""


class Skew:
    """Corrections per host, for the lifetime of the process."""

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def seconds(self, host: str) -> float:
        """What to add to our time for a signature that `host` will check."""
        return self._seconds.get(host, 0.0)

    def learn(self, host: str, response: ResponseHead, now: float) -> None:
        """Read a reply to a request that was signed; `now` is our own time."""
        if response.status not in (400, 401, 403):
            return
        date = next((value for name, value in response.fields if name.lower() == b"date"), None)
        theirs = None if date is None else _seconds(date)
        if theirs is None:
            return
        if abs(theirs - now - self.seconds(host)) <= ALLOWED_SECONDS:
            return
        if len(self._seconds) >= HOSTS:
            self._seconds.clear()
        self._seconds[host] = max(-MOST_SECONDS, min(MOST_SECONDS, theirs - now))


def _seconds(date: bytes) -> float | None:
    try:
        return parsedate_to_datetime(date.decode("ascii")).timestamp()
    except (ValueError, OverflowError):
        return None
