"""Clocks that differ."""

from email.utils import formatdate

import pytest

from egress.credentials.aws.skew import HOSTS, Skew
from egress.model.body import NO_BODY
from egress.model.message import ResponseHead
from tests.unit.credentials.aws.samples import NOW


def reply(status: int, theirs: float | None) -> ResponseHead:
    fields = () if theirs is None else ((b"Date", formatdate(theirs, usegmt=True).encode()),)
    return ResponseHead(status, b"", fields, NO_BODY)


@pytest.mark.parametrize("status", [400, 401, 403])
@pytest.mark.parametrize(("ahead", "learnt"), [(600.0, 600.0), (-600.0, -600.0), (7200.0, 900.0), (-7200.0, -900.0)])
def test_a_refusal_with_another_date_corrects_the_next_signature(status: int, ahead: float, learnt: float) -> None:
    skew = Skew()
    skew.learn("a.test", reply(status, NOW + ahead), NOW)
    assert skew.seconds("a.test") == learnt
    assert skew.seconds("b.test") == 0.0


@pytest.mark.parametrize(("status", "theirs"), [(200, NOW + 600), (404, NOW + 600), (403, NOW + 200), (403, None)])
def test_nothing_else_does(status: int, theirs: float | None) -> None:
    skew = Skew()
    skew.learn("a.test", reply(status, theirs), NOW)
    assert skew.seconds("a.test") == 0.0


def test_an_unreadable_date_teaches_nothing() -> None:
    skew = Skew()
    for date in (b"soon", b"\xff", b"Thu, 99 Jan 2026 00:00:00 GMT", b""):
        skew.learn("a.test", ResponseHead(403, b"", ((b"date", date),), NO_BODY), NOW)
    assert skew.seconds("a.test") == 0.0


def test_a_wrong_correction_is_corrected() -> None:
    skew = Skew()
    skew.learn("a.test", reply(403, NOW + 600), NOW)
    skew.learn("a.test", reply(403, NOW + 500), NOW)
    assert skew.seconds("a.test") == 600.0
    skew.learn("a.test", reply(403, NOW), NOW)
    assert skew.seconds("a.test") == 0.0


def test_memory_is_bounded() -> None:
    skew = Skew()
    for number in range(HOSTS + 1):
        skew.learn(f"{number}.test", reply(403, NOW + 600), NOW)
    assert skew.seconds(f"{HOSTS}.test") == 600.0
    assert skew.seconds("0.test") == 0.0
