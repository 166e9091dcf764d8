"""Fan-out of events to sinks: synchronous, never blocking, never raising. Redaction happens here, once, so that no
sink can see what must not be written."""

import itertools
import logging
import time
from typing import Protocol

from egress.events.event import Event
from egress.events.findings import finding_of
from egress.events.redact import Redactor

type Numbered = tuple[int, Event]
"""An event and its place in the stream of this process; sinks derive equal event ids from it."""

_log = logging.getLogger(__name__)


class Sink(Protocol):
    """Whoever listens. `offer` takes or drops at once; `close` writes what is held, within `seconds`."""

    @property
    def name(self) -> str: ...

    def offer(self, item: Numbered) -> None: ...

    def close(self, seconds: float) -> None: ...


class EventBus:
    """Gives every event to every sink. Called from the event loop's thread only."""

    def __init__(self, sinks: tuple[Sink, ...], redactor: Redactor | None = None) -> None:
        self._sinks = sinks
        self._redactor = redactor or Redactor()
        self._numbers = itertools.count(1)
        self.failures = 0

    def use(self, redactor: Redactor) -> None:
        """From now on redact with this one; for a new set of known secrets."""
        self._redactor = redactor

    def emit(self, event: Event) -> None:
        """Deliver `event`, and the finding that a security team should see beside it, if there is one."""
        try:
            safe = self._redactor.clean(event)
            self._deliver((next(self._numbers), safe))
            finding = finding_of(safe)
            if finding is not None:
                self._deliver((next(self._numbers), finding))
        except Exception as error:
            self._failed("redaction", error)

    def _deliver(self, item: Numbered) -> None:
        for sink in self._sinks:
            try:
                sink.offer(item)
            except Exception as error:
                self._failed(sink.name, error)

    def _failed(self, where: str, error: Exception) -> None:
        """Said once and counted after. The class of the error only: its text may hold what was to be redacted."""
        self.failures += 1
        if self.failures == 1:
            _log.error("event not delivered", extra={"sink": where, "error": type(error).__name__})

    def close(self, seconds: float) -> None:
        """Let every sink write what it holds; gives up on all of them together after `seconds`."""
        end = time.monotonic() + seconds
        for sink in self._sinks:
            try:
                sink.close(max(0.0, end - time.monotonic()))
            except Exception as error:
                self._failed(sink.name, error)
