"""One feed over time: what it last gave, what went wrong since, when to ask again and until when the old is good.

Times are monotonic unless they are an expiry. Nothing here waits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from egress.credentials.feeds import Feed, Presence
from egress.sdk.secrets import Fetched, Secret, SourceUnavailable

FIRST_BACKOFF = 1.0
LONGEST_BACKOFF = 60.0
JITTER = 0.1
SHORTEST_WAIT = 0.05
"""Even a source whose values end at once is asked only so often."""
NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Held:
    """A value and its expiry in seconds since the epoch."""

    secret: Secret
    expires: float | None


@dataclass(frozen=True, slots=True)
class Moment:
    """The same instant on both clocks, and a number in 0 to 1 that spreads what would happen at once."""

    now: float
    monotonic: float
    chance: float

    def at(self, epoch: float) -> float:
        """An instant of the epoch on the monotonic clock."""
        return self.monotonic + epoch - self.now

    def spread(self, seconds: float) -> float:
        return seconds * (1 + JITTER * (2 * self.chance - 1))

    def sooner(self, seconds: float) -> float:
        """Spread towards now only, for what must not come late."""
        return seconds * (1 - JITTER * self.chance)


@dataclass(slots=True)
class Line:
    """`error` is the class of the last failure, empty after a success."""

    feed: Feed
    held: Mapping[str, Held] = field(default_factory=dict)
    fetched: float | None = None
    """When it last gave something, in seconds since the epoch."""
    error: str = ""
    failures: int = 0
    due: float = 0.0
    ends: float = 0.0
    """Until when `held` counts."""

    def good(self, monotonic: float) -> bool:
        return bool(self.held) and monotonic < self.ends

    def succeed(self, fetched: Fetched, moment: Moment) -> None:
        """Take what was given: all of it or, when some part cannot be read, nothing. Raises `SourceUnavailable`."""
        held: dict[str, Held] = {}
        for outlet in self.feed.outlets:
            if outlet.presence is not Presence.ALONE and outlet.output not in fetched.values:
                if outlet.presence is Presence.REQUIRED:
                    raise SourceUnavailable("no_such_output")
                continue
            secret, expires = outlet.reading.read(fetched, outlet.output, moment.now)
            if expires is not None and expires <= moment.now:
                raise SourceUnavailable("expired")
            held[outlet.key] = Held(secret, expires)
        if not held:
            raise SourceUnavailable("no_such_output")
        self.held = held
        self.fetched, self.error, self.failures, self.ends = moment.now, "", 0, NEVER
        self.due = max(self._due(fetched, moment), moment.monotonic + SHORTEST_WAIT)

    def fail(self, kind: str, moment: Moment) -> None:
        """Keep what is held for as long as the operator said, which is not at all unless they said something."""
        if not self.failures:
            self.ends = min(self.ends, self._kept_until(moment))
        if not self.good(moment.monotonic):
            self.drop()
        self.error = kind
        self.failures += 1
        backoff = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2 ** min(self.failures - 1, 16))
        self.due = moment.monotonic + moment.spread(backoff)

    def drop(self) -> None:
        """Forget the values: whatever happens, they do not come back."""
        self.held, self.ends = {}, 0.0

    @property
    def expires(self) -> float | None:
        """When the first of the values expires."""
        return min((one.expires for one in self.held.values() if one.expires is not None), default=None)

    def _due(self, fetched: Fetched, moment: Moment) -> float:
        terms = self.feed.terms
        if terms.refresh is None:
            return NEVER
        due = moment.monotonic + moment.spread(terms.refresh)
        if fetched.refresh_at is not None:
            due = min(due, moment.at(fetched.refresh_at))
        if self.expires is not None:
            left = self.expires - moment.now
            # What lives shorter than twice the margin would be asked for all the time.
            due = min(due, moment.monotonic + moment.sooner(max(left - terms.refresh_before, left / 2)))
        return due

    def _kept_until(self, moment: Moment) -> float:
        word, seconds = self.feed.terms.on_failure
        if word == "keep_for":
            return moment.monotonic + seconds
        if word == "keep_until_expiry" and all(one.expires is not None for one in self.held.values()):
            return moment.at(self.expires or 0.0)
        return moment.monotonic
