"""When a proxy counts as down, and that this only changes the order."""

from egress.upstream.health import Health
from egress.upstream.plan import HealthTerms, Hop
from tests.unit.upstream.routes import hop

A, B, C = hop("a"), hop("b"), hop("c")
CHAINS = ((A, B), (C,))


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def make(**terms: object) -> tuple[Health, Time, list[tuple[str, bool]]]:
    time, told = Time(), []

    def tell(changed: Hop, up: bool) -> None:
        told.append((changed.name, up))

    health = Health(time, tell)
    health.install((A, B, C), HealthTerms(fail_after=2, interval=10.0, **terms))  # type: ignore[arg-type]
    return health, time, told


def test_failures_in_a_row_take_a_proxy_down_and_one_success_brings_it_back() -> None:
    health, _, told = make()
    health.failed(B)
    health.succeeded(B)
    health.failed(B)
    assert (health.order(CHAINS), told) == (CHAINS, [])
    health.failed(B)
    assert (health.order(CHAINS), told) == (((C,), (A, B)), [("b", False)])
    health.failed(B)
    health.succeeded(B)
    assert (health.order(CHAINS), told) == (CHAINS, [("b", False), ("b", True)])


def test_with_none_up_all_are_tried_in_their_order() -> None:
    health, _, _ = make()
    for down in (A, C):
        health.failed(down)
        health.failed(down)
    assert health.order(CHAINS) == CHAINS


def test_without_checks_a_proxy_is_tried_again_after_a_while() -> None:
    health, time, _ = make(enabled=False)
    health.failed(A)
    health.failed(A)
    time.now = 9.9
    assert health.order(CHAINS) == ((C,), (A, B))
    time.now = 10.0
    assert health.order(CHAINS) == CHAINS


def test_a_reload_keeps_what_is_known_of_proxies_that_stay() -> None:
    health, _, _ = make()
    health.failed(A)
    health.failed(A)
    health.install((A, C), HealthTerms())
    assert (health.up(A), health.up(C)) == (False, True)
    health.install((C,), HealthTerms())
    health.install((A,), HealthTerms())
    assert health.up(A)
