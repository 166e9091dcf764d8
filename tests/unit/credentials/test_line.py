"""One feed over time: when it is asked again, and until when the old is good. Nothing waits here."""

from collections.abc import Mapping

import pytest

from egress.credentials.feeds import Feed, Outlet, Presence, Terms
from egress.credentials.line import LONGEST_BACKOFF, NEVER, SHORTEST_WAIT, Line, Moment
from egress.credentials.scope import Scope
from egress.sdk.secrets import Fetched, Secret, SourceUnavailable

NOW, THEN = 1_800_000_000.0, 5000.0
SCOPE = Scope(())


class Nothing:
    async def fetch(self) -> Fetched:
        raise AssertionError


def moment(after: float = 0.0, chance: float = 0.5) -> Moment:
    return Moment(NOW + after, THEN + after, chance)


def line(terms: Terms, *outlets: Outlet) -> Line:
    return Line(Feed("p", "file", "", outlets or (Outlet("K", "K", SCOPE),), terms, Nothing()))


def one(expires: float | None = None, refresh_at: float | None = None) -> Fetched:
    return Fetched({"": Secret("v")}, expires, refresh_at)


@pytest.mark.parametrize(
    ("terms", "fetched", "due"),
    [
        (Terms(refresh=900), one(), 900),
        (Terms(refresh=None), one(), NEVER),
        (Terms(refresh=None), one(NOW + 60), NEVER),
        (Terms(refresh=900, refresh_before=300), one(NOW + 3600), 900),
        (Terms(refresh=7200, refresh_before=300), one(NOW + 3600), 3300 * 0.95),
        (Terms(refresh=7200, refresh_before=300), one(NOW + 400), 200 * 0.95),
        (Terms(refresh=7200), one(NOW + 3600, NOW + 1000), 1000),
        (Terms(refresh=0), one(), SHORTEST_WAIT),
    ],
)
def test_when_it_is_due(terms: Terms, fetched: Fetched, due: float) -> None:
    held = line(terms)
    held.succeed(fetched, moment())
    assert held.due - THEN == pytest.approx(due)
    assert held.good(THEN)


@pytest.mark.parametrize(("chance", "due"), [(0.0, 810), (0.5, 900), (1.0, 990)])
def test_refreshes_are_spread_by_a_tenth(chance: float, due: float) -> None:
    held = line(Terms(refresh=900))
    held.succeed(one(), moment(chance=chance))
    assert held.due - THEN == pytest.approx(due)


@pytest.mark.parametrize("life", [10.0, 600.0, 43_200.0])
@pytest.mark.parametrize("chance", [0.0, 1.0])
def test_a_value_is_asked_for_before_it_ends(life: float, chance: float) -> None:
    held = line(Terms(refresh=86_400))
    held.succeed(one(NOW + life), moment(chance=chance))
    assert 0 < held.due - THEN < life


def test_failures_back_off_to_a_minute_and_a_success_ends_that() -> None:
    held = line(Terms())
    waits = []
    for _ in range(9):
        held.fail("timeout", moment())
        waits.append(held.due - THEN)
    assert waits == pytest.approx([1, 2, 4, 8, 16, 32, *[LONGEST_BACKOFF] * 3])
    held.succeed(one(), moment())
    held.fail("timeout", moment())
    assert held.due - THEN == pytest.approx(1)


def test_a_failure_takes_the_value_away() -> None:
    held = line(Terms())
    held.succeed(one(NOW + 3600), moment())
    held.fail("not_found", moment(5))
    assert (held.good(THEN + 5), held.held, held.error, held.fetched) == (False, {}, "not_found", NOW)


def test_keep_for_counts_from_the_first_failure() -> None:
    held = line(Terms(on_failure=("keep_for", 60.0)))
    held.succeed(one(), moment())
    held.fail("timeout", moment(100))
    held.fail("timeout", moment(150))
    assert held.good(THEN + 159)
    assert not held.good(THEN + 160)
    held.fail("timeout", moment(161))
    assert held.held == {}
    held.succeed(one(), moment(170))
    held.fail("timeout", moment(400))
    assert held.good(THEN + 459)


def test_keep_until_expiry() -> None:
    held = line(Terms(on_failure=("keep_until_expiry", 0.0)))
    held.succeed(one(NOW + 3600), moment())
    held.fail("timeout", moment(100))
    assert held.good(THEN + 3599)
    assert not held.good(THEN + 3600)


def test_keep_until_expiry_means_nothing_without_one() -> None:
    held = line(Terms(on_failure=("keep_until_expiry", 0.0)))
    held.succeed(one(), moment())
    held.fail("timeout", moment())
    assert not held.good(THEN)


def bundle(values: Mapping[str, str]) -> Line:
    outlets = (
        Outlet("AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY_ID", SCOPE, presence=Presence.REQUIRED),
        Outlet("AWS_SESSION_TOKEN", "AWS_SESSION_TOKEN", SCOPE, presence=Presence.OPTIONAL),
    )
    held = line(Terms(), *outlets)
    held.succeed(Fetched({key: Secret(value) for key, value in values.items()}), moment())
    return held


def test_a_bundle_may_lack_what_is_optional() -> None:
    assert set(bundle({"AWS_ACCESS_KEY_ID": "a"}).held) == {"AWS_ACCESS_KEY_ID"}
    assert set(bundle({"AWS_ACCESS_KEY_ID": "a", "AWS_SESSION_TOKEN": "b", "X": "c"}).held) == {
        "AWS_ACCESS_KEY_ID",
        "AWS_SESSION_TOKEN",
    }


@pytest.mark.parametrize("values", [{}, {"AWS_SESSION_TOKEN": "b"}, {"": "one text for all of them"}])
def test_a_bundle_may_not_lack_what_is_required(values: dict[str, str]) -> None:
    with pytest.raises(SourceUnavailable, match="no_such_output"):
        bundle(values)


def test_one_bad_part_spoils_all() -> None:
    held = line(Terms(), Outlet("A", "A", SCOPE), Outlet("B", "B", SCOPE))
    held.succeed(Fetched({"A": Secret("1"), "B": Secret("2")}), moment())
    with pytest.raises(SourceUnavailable, match="unsafe_value"):
        held.succeed(Fetched({"A": Secret("3"), "B": Secret("4\n5")}), moment(1))
    assert held.held["A"].secret == Secret("1")


def test_what_has_ended_already_is_nothing() -> None:
    with pytest.raises(SourceUnavailable, match="expired"):
        line(Terms()).succeed(one(NOW), moment())
