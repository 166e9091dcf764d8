"""What a placeholder stands for, where and since when; and what it stands for no longer."""

from dataclasses import replace

import pytest

from egress.credentials.placeholder import spell
from egress.credentials.scope import Place, Scope, Selector
from egress.credentials.snapshot import (
    RETAINED_GENERATIONS,
    Credential,
    CredentialSnapshot,
    Fault,
    Placement,
    Resolver,
)
from egress.model.secret import Secret
from tests.unit.credentials.samples import ELSEWHERE, HERE, NOW, SCOPE, A, P, bound, config, snapshot

HANDLE = "ab" * 32
OTHER_HANDLE = "cd" * 32


def at(made: CredentialSnapshot, place: Place = HERE, now: float = NOW) -> Resolver:
    resolver = made.resolver(place, now)
    assert resolver is not None
    return resolver


def value(made: CredentialSnapshot, token: str, place: Place = HERE, now: float = NOW) -> str | Fault:
    found = at(made, place, now).resolve(token.encode())
    return found if isinstance(found, Fault) else found.reveal()


def token(made: CredentialSnapshot, key: str = "KEY") -> str:
    return made.placeholders("default")[key]


def test_nothing_was_ever_configured() -> None:
    assert CredentialSnapshot.empty().resolver(HERE, NOW) is None
    assert CredentialSnapshot.empty().placeholders("default") == {}


# the forms, by place -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "here", "elsewhere"),
    [
        ("REVISION", "text", Fault.MISMATCH),
        ("v6_KEY", Fault.UNAVAILABLE, Fault.MISMATCH),
        ("KEY", Fault.UNAVAILABLE, Fault.MISMATCH),
        (f"s{HANDLE}_KEY", Fault.UNAVAILABLE, Fault.MISMATCH),
    ],
)
@pytest.mark.parametrize("before", [P, f"sk-{A}"])
def test_a_bound_key_without_a_handle(token: str, here: str | Fault, elsewhere: Fault, before: str) -> None:
    made = snapshot(bound("KEY", "text"))
    whole = before + token.replace("REVISION", f"v{made.revision}_KEY")
    assert value(made, whole) == here
    assert value(made, whole, ELSEWHERE) is elsewhere


@pytest.mark.parametrize("before", [P, f"sk-{A}"])
def test_a_stable_placeholder_is_good_by_its_handle_alone(before: str) -> None:
    made = snapshot(bound("KEY", "text", handle=HANDLE))
    assert token(made) == f"{P}s{HANDLE}_KEY"
    assert value(made, f"{before}s{HANDLE}_KEY") == "text"
    assert value(made, f"{before}s{OTHER_HANDLE}_KEY") is Fault.UNAVAILABLE
    assert value(made, f"{before}v{made.revision}_KEY") is Fault.UNAVAILABLE
    assert value(made, f"{before}KEY") is Fault.UNAVAILABLE
    assert value(made, f"{before}s{HANDLE}_KEY", ELSEWHERE) is Fault.MISMATCH
    rotated = made.next([bound("KEY", "newer", handle=HANDLE)])
    assert value(rotated, f"{before}s{HANDLE}_KEY") == "newer"


@pytest.mark.parametrize("form", ["KEY", "v12345_KEY", "v05_KEY", f"s{HANDLE}_KEY"])
def test_configuration_is_visible_everywhere(form: str) -> None:
    made = snapshot(config("KEY", "text"))
    expected = "text" if form in ("KEY", "v12345_KEY") else Fault.UNAVAILABLE
    assert value(made, P + form, ELSEWHERE) == expected
    assert value(made, token(made), ELSEWHERE) == "text"


def test_what_is_no_placeholder() -> None:
    assert value(snapshot(config("KEY", "text")), f"{P}KEY tail") is Fault.MALFORMED
    assert value(snapshot(config("KEY", "text")), f"{P}NOBODYS") is Fault.UNAVAILABLE


@pytest.mark.parametrize("text", ["", "a\rb", "a\nb", "a\0b"])
def test_values_that_are_never_given_out(text: str) -> None:
    assert value(snapshot(config("KEY", text)), P + "KEY") is Fault.UNAVAILABLE


def test_expiry_is_to_the_moment() -> None:
    made = snapshot(bound("KEY", "text", expires=NOW))
    assert value(made, token(made), now=NOW - 0.1) == "text"
    assert value(made, token(made), now=NOW) is Fault.UNAVAILABLE
    assert made.has("KEY", NOW - 1)
    assert not made.has("KEY", NOW)
    assert made.expiry("KEY") == NOW


# revisions -----------------------------------------------------------------------------------------------------------


def test_revisions_of_the_same_identity_give_the_current_value() -> None:
    first = snapshot(bound("KEY", "old"))
    second = first.next([bound("KEY", "new")])
    assert [value(second, token(one)) for one in (first, second)] == ["new", "new"]
    assert value(first, token(second)) is Fault.UNAVAILABLE


def test_kept_generations_give_the_value_of_their_time_until_they_age_out() -> None:
    made = [snapshot(bound("KEY", "v0"), config("CONF", "c0"), retain="generations")]
    for number in range(1, RETAINED_GENERATIONS + 1):
        made.append(made[-1].next([bound("KEY", f"v{number}"), config("CONF", f"c{number}")], retain="generations"))
    last = made[-1]
    texts = [value(last, token(one)) for one in made]
    assert texts == ["v8", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8"]
    assert [value(last, token(one, "CONF")) for one in made[:2]] == ["c8", "c1"]


def test_an_expired_generation_does_not_fall_back_to_the_current_value() -> None:
    first = snapshot(bound("KEY", "old", expires=NOW - 1), retain="generations")
    second = first.next([bound("KEY", "new")], retain="generations")
    assert value(second, token(first)) is Fault.UNAVAILABLE


def test_another_identity_never_answers_to_old_placeholders() -> None:
    first = snapshot(bound("KEY", "mine", "one"), retain="generations")
    second = first.next([bound("KEY", "theirs", "two")], retain="generations")
    assert value(second, token(first)) is Fault.UNAVAILABLE
    assert value(second, token(second)) == "theirs"
    third = second.next([bound("KEY", "mine", "one")], retain="generations")
    assert value(third, token(first)) is Fault.UNAVAILABLE


def test_a_changed_set_of_identities_clears_every_generation() -> None:
    first = snapshot(bound("KEY", "old"), retain="generations")
    second = first.next([bound("KEY", "new"), bound("MORE", "x", "more")], retain="generations")
    assert value(second, token(first)) == "new"


def test_placeholders_recover_after_an_outage() -> None:
    first = snapshot(bound("KEY", "old"))
    out = first.revoked()
    assert value(out, token(first)) is Fault.MISMATCH
    assert value(out.next([bound("KEY", "new")]), token(first)) == "new"
    assert value(out.next([bound("KEY", "other", "two")]), token(first)) is Fault.UNAVAILABLE
    assert value(first.revoked(keep_epochs=False).next([bound("KEY", "new")]), token(first)) is Fault.UNAVAILABLE


def test_the_revision_of_an_outage_was_never_given_out() -> None:
    out = snapshot(bound("KEY", "old")).revoked()
    back = out.next([bound("KEY", "new")])
    assert value(back, spell("KEY", revision=out.revision)) is Fault.UNAVAILABLE


def test_a_key_that_went_away_stays_known() -> None:
    first = snapshot(bound("KEY", "text"), bound("MORE", "x", "more"))
    assert value(first.next([bound("MORE", "x", "more")]), token(first)) is Fault.MISMATCH
    assert value(first.next([]), token(first)) is Fault.MISMATCH
    again = first.next([]).next([bound("KEY", "text")])
    assert value(again, token(first)) is Fault.UNAVAILABLE


def test_a_bound_key_that_became_configuration_is_not_given_to_who_held_it() -> None:
    first = snapshot(bound("KEY", "text"))
    assert value(first.next([config("KEY", "plain")]), token(first)) is Fault.MISMATCH


def test_no_more_revisions_are_remembered_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("egress.credentials.snapshot.REMEMBERED_REVISIONS", 3)
    made = [snapshot(bound("KEY", "0"))]
    for number in range(1, 5):
        made.append(made[-1].next([bound("KEY", str(number))]))
    texts = [value(made[-1], token(one)) for one in made]
    assert texts == [Fault.UNAVAILABLE, Fault.UNAVAILABLE, "4", "4", "4"]


def test_an_older_snapshot_is_not_changed_by_the_next() -> None:
    first = snapshot(bound("KEY", "old"))
    second = first.next([bound("KEY", "new")])
    assert first.revision != second.revision
    assert value(first, token(first)) == "old"


# who is served -------------------------------------------------------------------------------------------------------


def test_placeholders_go_to_the_agents_of_the_provider() -> None:
    scope = Scope((Selector.of("api.test", 443),), agents=("build-*",))
    made = snapshot(Credential("ci", "KEY", Secret("text"), scope), config("CONF", "c"))
    assert set(made.placeholders("build-1")) == {"KEY", "CONF"}
    assert set(made.placeholders("desk")) == {"CONF"}


def test_authorities_that_credentials_may_go_to() -> None:
    made = snapshot(bound("KEY", "text"), config("CONF", "c"))
    for _ in range(2):
        assert made.credentialed("api.test", 443)
        assert not made.credentialed("api.test", 80)
        assert not made.credentialed("other.test", 443)
    assert not made.revoked().credentialed("api.test", 443)


def test_the_same_place_is_judged_alike_each_time() -> None:
    made = snapshot(bound("KEY", "text"))
    assert [value(made, token(made), place) for place in (HERE, ELSEWHERE, HERE, ELSEWHERE)] == [
        "text", Fault.MISMATCH, "text", Fault.MISMATCH,
    ]  # fmt: skip


# what a request used -------------------------------------------------------------------------------------------------


def test_used_values_and_their_neighbours_are_scrubbed() -> None:
    made = snapshot(
        bound("KEY", "long-enough-1", handle=HANDLE),
        bound("MORE", "long-enough-2", handle=OTHER_HANDLE),
        bound("TINY", "short", handle=HANDLE),
        replace(bound("FOREIGN", "long-enough-3"), provider="other"),
        replace(bound("FAR", "long-enough-4"), scope=Scope((Selector.of("far.test", 443),))),
        config("CONF", "long-enough-5"),
    )
    resolver = at(made)
    assert resolver.to_scrub() == ()
    resolver.resolve(token(made).encode())
    resolver.resolve(token(made).encode())
    assert [one.key for one in resolver.used] == ["KEY"]
    assert [secret.reveal() for secret in resolver.to_scrub()] == ["long-enough-1", "long-enough-2"]


def test_refused_values_are_not_used() -> None:
    made = snapshot(bound("KEY", "text"))
    resolver = at(made, ELSEWHERE)
    assert resolver.resolve(token(made).encode()) is Fault.MISMATCH
    assert resolver.used == []


def test_values_by_name_for_signing() -> None:
    made = snapshot(
        bound("AWS_KEY", "text"),
        replace(bound("AWS_KEY__far", "text2"), provider="far", scope=Scope((Selector.of("far.test", 443),))),
        config("CONF", "c"),
    )
    assert at(made).key("AWS_KEY") == Secret("text")
    assert at(made).key("AWS_KEY", "far") is Fault.MISMATCH
    assert at(made).key("CONF") is None
    assert at(made).key("NOBODYS") is None
    assert at(made, ELSEWHERE).key("AWS_KEY") is Fault.MISMATCH


@pytest.mark.parametrize(("when", "expected"), [("never", []), ("if_absent", ["KEY"]), ("always", ["KEY"])])
def test_injections(when: str, expected: list[str]) -> None:
    made = snapshot(replace(bound("KEY", "text"), placement=Placement("bearer", when=when)), bound("MORE", "x"))
    assert [one.key for one in at(made).injections()] == expected
    assert at(made, ELSEWHERE).injections() == []


def test_nothing_shows_a_value_or_a_key() -> None:
    made = snapshot(replace(bound("KEY_NAME", "text-value"), scope=SCOPE))
    resolver = at(made)
    resolver.resolve(token(made, "KEY_NAME").encode())
    for shown in (repr(made), repr(resolver), str(made)):
        assert "text-value" not in shown
        assert "KEY_NAME" not in shown
    assert "text-value" not in repr(resolver.used)
