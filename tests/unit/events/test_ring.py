from egress.events.ring import Ring
from tests.unit.events import samples

EVENT = samples.exchange()


def filled(size: int, count: int) -> Ring:
    ring = Ring(size)
    for number in range(1, count + 1):
        ring.offer((number, EVENT))
    return ring


def numbers(items):
    return [number for number, _ in items]


def test_keeps_the_newest():
    ring = filled(3, 5)
    assert numbers(ring.newest(10)) == [3, 4, 5]
    assert numbers(ring.newest(2)) == [4, 5]
    assert numbers(ring.newest(0)) == []


def test_resumes_after_a_number():
    ring = filled(3, 5)
    assert numbers(ring.since(4)) == [5]
    assert numbers(ring.since(5)) == []
    assert numbers(ring.since(0)) == [3, 4, 5]
