"""The bus gives everybody everything, once redacted, and never lets a sink's trouble out."""

import logging

from egress.events.bus import EventBus, Numbered
from egress.events.event import Finding
from egress.events.redact import Redactor
from egress.events.ring import Ring
from egress.model.verdict import DenialCode, Stage
from tests.unit.events import samples


class Broken:
    name = "broken"

    def offer(self, item: Numbered) -> None:
        raise RuntimeError("secret-in-message")

    def close(self, seconds: float) -> None:
        raise RuntimeError("secret-in-message")


class Closing:
    name = "closing"

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def offer(self, item: Numbered) -> None:
        pass

    def close(self, seconds: float) -> None:
        self.seconds.append(seconds)


def test_every_sink_gets_the_same_numbered_event():
    first, second = Ring(10), Ring(10)
    bus = EventBus((first, second))
    events = list(samples.KINDS.values())[:5]
    for event in events:
        bus.emit(event)
    assert first.newest(10) == second.newest(10) == list(enumerate(events, start=1))


def test_events_are_redacted_before_any_sink():
    ring = Ring(10)
    bus = EventBus((ring,))
    bus.emit(samples.exchange(path="/openshell:resolve:env:KEY"))
    assert ring.newest(1)[0][1].path == "/[CREDENTIAL]"


def test_a_new_redactor_takes_over():
    class Everything(Redactor):
        def clean(self, event):
            return samples.lifecycle()

    ring = Ring(10)
    bus = EventBus((ring,))
    bus.use(Everything())
    bus.emit(samples.exchange())
    assert ring.newest(1) == [(1, samples.lifecycle())]


def test_a_finding_follows_its_denial_and_is_redacted_too():
    ring = Ring(10)
    denial = samples.denial(DenialCode.REQUEST_AUTHORITY_MISMATCH, "why", Stage.L7, None)
    EventBus((ring,)).emit(samples.exchange(denial))
    (first, event), (second, finding) = ring.newest(10)
    assert (first, second) == (1, 2)
    assert event.verdict == denial
    assert isinstance(finding, Finding)
    assert finding.type == "openshell.http.request_authority_mismatch"


def test_a_broken_sink_harms_nobody_and_is_told_once(caplog):
    ring = Ring(10)
    bus = EventBus((Broken(), ring))
    with caplog.at_level(logging.ERROR):
        bus.emit(samples.exchange())
        bus.emit(samples.exchange())
        bus.close(1)
    assert len(ring.newest(10)) == 2
    assert bus.failures == 3
    assert [record.getMessage() for record in caplog.records] == ["event not delivered"]
    assert "secret" not in caplog.text


def test_an_event_that_cannot_be_redacted_reaches_no_sink(caplog):
    ring = Ring(10)
    bus = EventBus((ring,))
    bus.emit(samples.exchange(path=None))
    assert ring.newest(10) == []
    assert bus.failures == 1


def test_sinks_share_one_deadline():
    one, two = Closing(), Closing()
    EventBus((one, two)).close(5)
    assert 4.5 < two.seconds[0] <= one.seconds[0] <= 5
