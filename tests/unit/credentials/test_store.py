"""The store: what it installs, when, and what happens to values that cannot be fetched or may not be used any more."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from egress.credentials.feeds import Feed, HandleTerms, Intake, Outlet, Presence, Terms
from egress.credentials.installation import Installation
from egress.credentials.scope import Place, Scope, Selector
from egress.credentials.snapshot import Credential, CredentialSnapshot, Fault
from egress.credentials.sources.registry import Threads
from egress.credentials.store import CredentialStore, ProviderChanged
from egress.model.clock import SystemClock
from egress.sdk.secrets import Fetched, Secret, SourceUnavailable

PLACE = Place("api.test", 443, "/", "GET", "default", ())
ENDPOINTS = (("api.test", 443, ""),)
SCOPE = Scope((Selector.of("api.test", 443),))
HANDLE = HandleTerms("box", "spec", "profile", 0, ENDPOINTS)


@dataclass
class Source:
    """Gives `value`, or fails with `kind`; waits while `gate` is closed."""

    value: str = "v1"
    kind: str = ""
    expires: float | None = None
    fetches: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    is_changed: bool = False

    def __post_init__(self) -> None:
        self.gate.set()

    async def fetch(self) -> Fetched:
        self.fetches += 1
        await self.gate.wait()
        if self.kind == "bug":
            raise RuntimeError("canary-in-a-text")
        if self.kind:
            raise SourceUnavailable(self.kind)
        return Fetched.one(self.value, self.expires)


class Watched(Source):
    def changed(self) -> bool:
        return self.is_changed


@dataclass
class World:
    store: CredentialStore
    installed: list[CredentialSnapshot]
    told: list[ProviderChanged]
    directory: Path

    def value(self, key: str = "K", placeholder: str | None = None) -> str | Fault:
        snapshot = self.store.snapshot
        token = placeholder or snapshot.placeholders("default").get(key)
        resolver = snapshot.resolver(PLACE, SystemClock().now())
        assert token is not None
        assert resolver is not None
        found = resolver.resolve(token.encode())
        return found if isinstance(found, Fault) else found.reveal()

    def placeholder(self, key: str = "K") -> str:
        return self.store.snapshot.placeholders("default")[key]

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not done():
                await asyncio.sleep(0.005)

    @property
    def states(self) -> dict[str, tuple[str, str]]:
        return {one.key: (one.state, one.error) for one in self.store.listing()}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    installed: list[CredentialSnapshot] = []
    told: list[ProviderChanged] = []
    threads = Threads()
    store = CredentialStore(Installation(tmp_path), installed.append, SystemClock(), threads, told.append)
    yield World(store, installed, told, tmp_path)
    await store.close()
    threads.close()


def feed(source: Source, provider: str = "p", *keys: str, terms: Terms | None = None, **more: object) -> Feed:
    outlets = tuple(Outlet(key, keys[0] if keys else "K", SCOPE, handle=HANDLE) for key in keys or ("K",))
    outlets = tuple(replace(outlet, **more) for outlet in outlets)  # type: ignore[arg-type]
    return Feed(provider, "file", "digest", outlets, terms or Terms(), source)


def often(on_failure: tuple[str, float] = ("revoke", 0.0)) -> Terms:
    return Terms(refresh=0.05, on_failure=on_failure)


# first values --------------------------------------------------------------------------------------------------------


async def test_first_values_are_fetched_at_once_and_installed_together(world: World) -> None:
    sources = [Source(f"v{number}") for number in range(5)]
    for source in sources:
        source.gate.clear()
    intake = Intake([feed(source, f"p{number}", f"K{number}") for number, source in enumerate(sources)])
    replacing = asyncio.create_task(world.store.replace(intake))
    await world.until(lambda: all(source.fetches for source in sources))
    assert world.installed == []
    for source in sources:
        source.gate.set()
    await replacing
    assert len(world.installed) == 1
    assert [world.value(f"K{number}") for number in range(5)] == [f"v{number}" for number in range(5)]
    assert world.told == [ProviderChanged(f"p{number}", True) for number in range(5)]


async def test_a_start_waits_so_long_and_no_longer(world: World) -> None:
    quick, slow = Source("quick"), Source("late")
    slow.gate.clear()
    staged = await world.store.stage(Intake([feed(quick, "q", "Q"), feed(slow, "s", "S")]), seconds=0.05)
    world.store.adopt(staged)
    assert (world.value("Q"), world.value("S")) == ("quick", Fault.UNAVAILABLE)
    given_early = world.placeholder("S")
    slow.gate.set()
    await world.until(lambda: bool(world.installed))
    assert world.value("S", given_early) == "late"
    assert slow.fetches == 1


async def test_a_provider_that_fails_at_start_is_tried_again(world: World) -> None:
    source = Source(kind="not_found")
    await world.store.replace(Intake([feed(source)]))
    early = world.placeholder()
    assert world.value() is Fault.UNAVAILABLE
    assert world.states == {"K": ("unavailable", "not_found")}
    assert world.told == [ProviderChanged("p", False, "not_found")]
    source.kind = ""
    await world.store.refresh("p")
    assert world.value(placeholder=early) == "v1"
    assert world.told[-1] == ProviderChanged("p", True)


@pytest.mark.parametrize(("kind", "error"), [("bug", "broken:RuntimeError"), ("exit_1", "exit_1")])
async def test_failures_are_known_by_their_class(world: World, kind: str, error: str) -> None:
    await world.store.replace(Intake([feed(Source(kind=kind))]))
    assert world.states["K"][1] == error
    assert "canary" not in repr(world.store.listing()) + repr(world.told)


async def test_a_source_that_hangs_has_its_time(world: World) -> None:
    source = Source()
    source.gate.clear()
    await world.store.replace(Intake([feed(source, terms=Terms(timeout=0.05))]))
    assert world.states == {"K": ("unavailable", "timeout")}


# refresh -------------------------------------------------------------------------------------------------------------


async def test_a_new_value_under_the_same_placeholder(world: World) -> None:
    source = Source()
    await world.store.replace(Intake([feed(source, terms=often())]))
    placeholder = world.placeholder()
    source.value = "v2"
    await world.until(lambda: world.store.snapshot is not world.installed[0])
    assert world.value(placeholder=placeholder) == "v2"
    assert world.installed[-1] is world.store.snapshot


async def test_a_value_that_did_not_change_is_not_installed_again(world: World) -> None:
    source = Source()
    await world.store.replace(Intake([feed(source, terms=often())]))
    await world.until(lambda: source.fetches > 3)
    assert len(world.installed) == 1


async def test_one_fetch_for_all_who_ask(world: World) -> None:
    source = Source()
    await world.store.replace(Intake([feed(source)]))
    source.gate.clear()
    asking = [asyncio.create_task(world.store.refresh(name)) for name in ("p", "p:K", "p")]
    await world.until(lambda: source.fetches == 2)
    source.gate.set()
    assert await asyncio.gather(*asking) == [True, True, True]
    assert source.fetches == 2


async def test_unknown_names(world: World) -> None:
    await world.store.replace(Intake([feed(Source())]))
    for name in ("x", "p:X", "", ":K", "P"):
        assert not await world.store.refresh(name)
        assert not await world.store.revoke(name)
    assert world.value() == "v1"


async def test_values_that_end_soon_are_fetched_when_asked_for(world: World) -> None:
    now = SystemClock().now()
    soon, late = Source(expires=now + 100), Source(expires=now + 10_000)
    await world.store.replace(Intake([feed(soon, "p", "A"), feed(late, "p", "B")]))
    await world.store.refresh_due("p", 300)
    assert (soon.fetches, late.fetches) == (2, 1)


async def test_a_source_that_changed_is_fetched(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("egress.credentials.store.WATCH_SECONDS", 0.02)
    source = Watched()
    await world.store.replace(Intake([feed(source, terms=Terms(refresh=None))]))
    source.value, source.is_changed = "v2", True
    await world.until(lambda: source.fetches > 1)
    source.is_changed = False
    await world.until(lambda: world.value() == "v2")


# failure -------------------------------------------------------------------------------------------------------------


async def test_a_failed_refresh_takes_the_value_away_and_a_good_one_brings_it_back(world: World) -> None:
    source = Source()
    await world.store.replace(Intake([feed(source, terms=often())]))
    placeholder = world.placeholder()
    source.kind = "http_503"
    await world.until(lambda: world.value(placeholder=placeholder) is Fault.UNAVAILABLE)
    assert world.states == {"K": ("unavailable", "http_503")}
    source.kind = ""
    await world.store.refresh("p")
    assert world.value(placeholder=placeholder) == "v1"
    assert [(one.available, one.error) for one in world.told] == [(True, ""), (False, "http_503"), (True, "")]


async def test_placeholders_by_revision_recover_too(world: World) -> None:
    source = Source()
    await world.store.replace(Intake([feed(source, handle=None)]))
    placeholder = world.placeholder()
    source.kind = "timeout"
    await world.store.refresh("p")
    assert world.value(placeholder=placeholder) is Fault.UNAVAILABLE
    source.kind, source.value = "", "v2"
    await world.store.refresh("p")
    assert world.value(placeholder=placeholder) == "v2"


async def test_a_provider_has_all_its_values_or_none(world: World) -> None:
    name, password, other = Source("n"), Source("p"), Source("o")
    intake = Intake([feed(name, "p", "NAME"), feed(password, "p", "PASSWORD"), feed(other, "q", "OTHER")])
    await world.store.replace(intake)
    password.kind = "timeout"
    await world.store.refresh("p:PASSWORD")
    found = (world.value("NAME"), world.value("PASSWORD"), world.value("OTHER"))
    assert found == (Fault.UNAVAILABLE, Fault.UNAVAILABLE, "o")


async def test_keep_for_keeps_it_so_long(world: World) -> None:
    source = Source()
    await world.store.replace(Intake([feed(source, terms=often(("keep_for", 0.4)))]))
    source.kind = "timeout"
    await world.until(lambda: (world.states["K"], world.value()) == (("kept", "timeout"), "v1"))
    await world.until(lambda: (world.states["K"], world.value()) == (("unavailable", "timeout"), Fault.UNAVAILABLE))


async def test_an_expired_value_is_none_without_a_fetch(world: World) -> None:
    source = Source(expires=SystemClock().now() + 0.1)
    await world.store.replace(Intake([feed(source, terms=Terms(refresh=None))]))
    assert world.value() == "v1"
    await world.until(lambda: world.value() is Fault.UNAVAILABLE)
    assert world.states["K"][0] == "unavailable"


# revocation ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stable", [True, False])
async def test_what_was_issued_before_a_revoke_never_works_again(world: World, stable: bool) -> None:
    source = Source()
    intake = Intake([feed(source, handle=HANDLE if stable else None)])
    await world.store.replace(intake)
    old = world.placeholder()
    assert await world.store.revoke("p")
    assert world.value(placeholder=old) is Fault.MISMATCH
    assert world.store.snapshot.placeholders("default") == {}
    assert world.states["K"][0] == "revoked"
    assert await world.store.refresh("p")
    new = world.placeholder()
    assert new != old
    assert (world.value(placeholder=new), world.value(placeholder=old)) == ("v1", Fault.UNAVAILABLE)


async def test_a_refresh_by_itself_does_not_undo_a_revoke(world: World) -> None:
    source = Source()
    await world.store.replace(Intake([feed(source, terms=often())]))
    await world.store.revoke("p")
    source.value = "v2"
    fetches = source.fetches
    await asyncio.sleep(0.2)
    assert source.fetches >= fetches
    assert world.states["K"][0] == "revoked"
    assert list(world.store.snapshot.values()) == []


async def test_a_revoke_outlives_the_process(world: World) -> None:
    await world.store.replace(Intake([feed(Source())]))
    old = world.placeholder()
    await world.store.revoke("p:K")
    threads = Threads()
    again = CredentialStore(Installation(world.directory), lambda _: None, SystemClock(), threads)
    await again.replace(Intake([feed(Source())]))
    assert again.snapshot.placeholders("default") == {}
    await again.refresh("p:K")
    assert again.snapshot.placeholders("default")["K"] != old
    await again.close()
    threads.close()


async def test_one_key_is_revoked_alone(world: World) -> None:
    await world.store.replace(Intake([feed(Source(), "p", "A", "B")]))
    await world.store.revoke("p:A")
    assert set(world.store.snapshot.placeholders("default")) == {"B"}
    assert world.value("B") == "v1"


async def test_a_revoke_that_cannot_be_remembered_holds_all_the_same(world: World) -> None:
    await world.store.replace(Intake([feed(Source())]))
    old = world.placeholder()
    for path in (world.directory / "credentials").iterdir():
        path.unlink()
    (world.directory / "credentials").rmdir()
    with pytest.raises(Exception, match="credential state"):
        await world.store.revoke("p")
    assert world.value(placeholder=old) is Fault.MISMATCH


# reload --------------------------------------------------------------------------------------------------------------


async def test_what_did_not_change_is_not_fetched_again(world: World) -> None:
    kept, gone = Source("kept"), Source("gone")
    await world.store.replace(Intake([feed(kept, "a", "A"), feed(gone, "b", "B", terms=often())]))
    placeholder = world.placeholder("A")
    elsewhere = Scope((Selector.of("api.test", 443), Selector.of("other.test", 443)))
    new = Source("new")
    await world.store.replace(Intake([feed(kept, "a", "A", scope=elsewhere), feed(new, "c", "C")]))
    assert (kept.fetches, new.fetches) == (1, 1)
    assert (world.value("A", placeholder), world.value("C")) == ("kept", "new")
    assert set(world.store.snapshot.placeholders("default")) == {"A", "C"}
    assert next(iter(world.store.snapshot.values())).scope == elsewhere
    fetches = gone.fetches
    await asyncio.sleep(0.15)
    assert gone.fetches == fetches


async def test_another_source_is_another_handle(world: World) -> None:
    await world.store.replace(Intake([feed(Source())]))
    first = world.placeholder()
    moved = replace(feed(Source("v2"), handle=replace(HANDLE, specification="elsewhere")), specification="other")
    await world.store.replace(Intake([moved]))
    assert world.placeholder() != first
    assert world.value(placeholder=first) is Fault.UNAVAILABLE


@pytest.mark.parametrize("changed", [{"profile": "x"}, {"epoch": 1}, {"endpoints": ()}, {"agent": "build"}])
async def test_what_moves_a_handle(world: World, changed: dict[str, object]) -> None:
    await world.store.replace(Intake([feed(Source())]))
    first = world.placeholder()
    await world.store.replace(Intake([feed(Source(), handle=replace(HANDLE, **changed))]))  # type: ignore[arg-type]
    assert world.placeholder() != first


async def test_a_key_of_the_operator_makes_other_handles(world: World) -> None:
    await world.store.replace(Intake([feed(Source())]))
    first = world.placeholder()
    await world.store.replace(Intake([feed(Source())], handle_key=bytes(32)))
    second = world.placeholder()
    await world.store.replace(Intake([feed(Source())]))
    assert (world.placeholder(), second == first) == (first, False)


async def test_a_stage_that_is_not_adopted_leaves_everything_as_it_is(world: World) -> None:
    await world.store.replace(Intake([feed(Source())]))
    before = world.store.snapshot
    stray = Source("x")
    staged = await world.store.stage(Intake([feed(stray, "q", "Q", terms=often())]))
    staged.discard()
    fetches = stray.fetches
    await asyncio.sleep(0.12)
    assert world.store.snapshot is before
    assert stray.fetches == fetches
    assert world.value() == "v1"


async def test_an_invalid_file_takes_every_value_away_until_it_is_valid_again(world: World) -> None:
    source = Source()
    intake = Intake([feed(source, handle=None)])
    await world.store.replace(intake)
    old = world.placeholder()
    snapshot = world.store.revoke_all()
    assert snapshot is world.store.snapshot
    assert world.value(placeholder=old) is Fault.MISMATCH
    assert world.store.listing() == []
    assert world.told[-1] == ProviderChanged("p", False)
    await world.store.replace(Intake([feed(Source("v2"), handle=None)]))
    assert world.value(placeholder=old) == "v2"


async def test_no_providers_any_more(world: World) -> None:
    await world.store.replace(Intake([feed(Source())]))
    old = world.placeholder()
    await world.store.replace(Intake())
    assert world.value(placeholder=old) is Fault.MISMATCH


async def test_configuration_stands_beside_the_values(world: World) -> None:
    fixed = Credential("p", "REGION", Secret("eu-west-1"), None)
    await world.store.replace(Intake([feed(Source(kind="timeout"))], [fixed]))
    assert world.value("REGION") == "eu-west-1"


async def test_a_part_that_a_bundle_lacks_has_no_placeholder(world: World) -> None:
    class Keys(Source):
        async def fetch(self) -> Fetched:
            return Fetched({"A": Secret("a")})

    outlets = [Outlet(key, key, SCOPE, handle=HANDLE, presence=presence) for key, presence in
               (("A", Presence.REQUIRED), ("T", Presence.OPTIONAL))]  # fmt: skip
    await world.store.replace(Intake([Feed("p", "aws_session", "", tuple(outlets), Terms(), Keys())]))
    assert set(world.store.snapshot.placeholders("default")) == {"A"}


async def test_rotation_while_others_read(world: World) -> None:
    """Whoever takes a snapshot has values of one moment, however often they rotate."""
    names = Source("0"), Source("0")
    await world.store.replace(Intake([feed(names[0], "p", "A"), feed(names[1], "p", "B")]))
    for turn in range(1, 50):
        for source in names:
            source.value = str(turn)
        await world.store.refresh("p")
        values: Sequence[str | Fault] = [world.value("A"), world.value("B")]
        assert values == [str(turn), str(turn)]
