"""What becomes of a candidate: installed, refused, quarantined, or nothing at all; and that nothing stops the proxy."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import egress.generation.reload as module
from egress.config.overrides import Flags
from egress.documents.diagnostic import Diagnostic, error
from egress.documents.location import Location
from egress.events.event import Event, Severity, StateChange
from egress.generation.generation import Generation
from egress.generation.prepare import Candidate, prepare
from egress.generation.reload import Reloader, Watched
from egress.model.clock import SystemClock
from egress.model.ids import GenerationNumber
from tests.support.proxy import opaque, policy_text


class Site:
    """A reloader over real files, without watching; what it installs, quarantines and tells is noted."""

    def __init__(self, directory: Path, on_invalid: str = "keep") -> None:
        self.settings = directory / "egress.yaml"
        self.policy = directory / "policy.yaml"
        self.lines = (f"policy: {{file: policy.yaml, on_invalid: {on_invalid}}}",)
        self.allow("a.test")
        self.configure(*self.lines)
        self.installed: list[Candidate] = []
        self.quarantined: list[Generation] = []
        self.told: list[StateChange] = []
        flags = Flags(config=self.settings)
        candidate = prepare(flags, {}, GenerationNumber(1))
        assert isinstance(candidate, Candidate), candidate
        self.first = candidate
        watched = Watched(flags, {}, watch=False)
        self.staged: list[Candidate] = []
        self.rejected: list[tuple[Diagnostic, ...]] = []
        self.reloader = Reloader(
            watched, candidate, self._install, self.quarantined.append, self._emit, SystemClock(),
            stage=self._stage, rejected=self.rejected.append,
        )  # fmt: skip
        self.install: Callable[[Candidate], None] = self.installed.append

    async def _stage(self, candidate: Candidate) -> None:
        self.staged.append(candidate)

    def _install(self, candidate: Candidate) -> None:
        assert self.staged[-1] is candidate  # what it needs was fetched before
        self.install(candidate)

    def _emit(self, event: Event) -> None:
        assert isinstance(event, StateChange)
        self.told.append(event)

    def configure(self, *lines: str) -> None:
        self.settings.write_text("\n".join(["version: 1", "reload: {check_origin: off}", *lines]) + "\n")

    def allow(self, host: str) -> None:
        self.policy.write_text(policy_text(opaque(host, 443)))

    def spoil(self, word: str = "surprise") -> None:
        self.policy.write_text(f"version: 1\n{word}: 1\n")

    async def reload(self, *, forced: bool = True) -> None:
        await self.reloader._reload(forced=forced)

    @property
    def numbers(self) -> list[int]:
        return [candidate.generation.number for candidate in self.installed]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_a_change_is_installed_under_the_next_number(site: Site) -> None:
    for host in ("b.test", "c.test"):
        site.allow(host)
        await site.reload(forced=False)
    assert site.numbers == [2, 3]
    assert site.told == []
    assert len({candidate.generation.digest for candidate in [site.first, *site.installed]}) == 3


async def test_equal_trust_keeps_its_profile(site: Site) -> None:
    site.allow("b.test")
    await site.reload()
    assert site.installed[0].profile is site.first.profile


async def test_nothing_changed_is_nothing(site: Site) -> None:
    await site.reload(forced=False)
    await site.reload()
    site.policy.write_text("# remark\n" + site.policy.read_text())
    await site.reload(forced=False)
    assert (site.installed, site.told) == ([], [])


async def test_settings_alone_are_a_change(site: Site) -> None:
    site.configure(*site.lines, "timeouts: {head: 3s}")
    await site.reload(forced=False)
    assert site.numbers == [2]
    assert site.installed[0].generation.digest == site.first.generation.digest


async def test_a_refused_candidate_is_told_once_until_asked_again(site: Site) -> None:
    site.spoil()
    for _ in range(3):
        await site.reload(forced=False)
    (change,) = site.told
    assert (change.word, change.severity, change.generation) == ("invalid", Severity.HIGH, 1)
    assert "surprise" in change.detail
    await site.reload()
    assert len(site.told) == 2
    site.spoil("another")
    await site.reload(forced=False)
    assert len(site.told) == 3
    assert (site.installed, site.quarantined) == ([], [])


async def test_after_a_refusal_the_next_good_one_is_installed(site: Site) -> None:
    site.spoil()
    await site.reload(forced=False)
    site.allow("b.test")
    await site.reload(forced=False)
    assert site.numbers == [2]


async def test_what_was_refused_for_a_file_that_nobody_watched_is_read_again(site: Site) -> None:
    site.configure("policy: {file: later.yaml}")
    await site.reload(forced=False)
    assert [change.word for change in site.told] == ["invalid"]
    site.policy.with_name("later.yaml").write_text(policy_text(opaque("later.test", 443)))
    await site.reload(forced=False)
    assert site.numbers == [2]


async def test_a_key_that_needs_a_restart_is_named(site: Site) -> None:
    site.configure(*site.lines, 'listen: {proxy: "127.0.0.1:1"}')
    await site.reload()
    assert site.installed == []
    assert "listen.proxy cannot change while the proxy runs" in site.told[0].detail


async def test_quarantine_by_choice_and_the_way_out(tmp_path: Path) -> None:
    site = Site(tmp_path, "quarantine")
    site.spoil()
    await site.reload(forced=False)
    site.spoil("again")
    await site.reload(forced=False)
    (quarantined,) = site.quarantined
    assert "surprise" in (quarantined.quarantine or "")
    assert quarantined.number == 2
    site.allow("a.test")
    await site.reload(forced=False)
    assert site.numbers == [3], "the same documents as before must end the quarantine"
    assert site.installed[0].generation.quarantine is None
    await site.reload()
    assert site.numbers == [3]


async def test_what_breaks_while_reading_is_a_refusal(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Candidate:
        raise ZeroDivisionError("a bug with a secret in its text")

    monkeypatch.setattr(module, "prepare", broken)
    await site.reload()
    assert [change.word for change in site.told] == ["invalid"]
    assert "ZeroDivisionError" in site.told[0].detail
    assert "secret" not in site.told[0].detail
    monkeypatch.undo()
    site.allow("b.test")
    await site.reload(forced=False)
    assert site.numbers == [2]


async def test_what_breaks_while_installing_is_a_refusal(site: Site) -> None:
    def broken(_: Candidate) -> None:
        raise ZeroDivisionError

    site.install = broken
    site.allow("b.test")
    await site.reload()
    assert [change.word for change in site.told] == ["invalid"]
    site.install = site.installed.append
    await site.reload()
    assert site.numbers == [2]


async def test_triggers_while_it_works_are_not_lost(site: Site) -> None:
    running = asyncio.create_task(site.reloader.run())
    for host in ("b.test", "c.test"):
        site.allow(host)
        site.reloader.trigger()
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        while not site.installed or site.installed[-1].generation.digest == site.first.generation.digest:
            await asyncio.sleep(0.01)
        site.reloader.trigger()
        await asyncio.sleep(0.05)
    expected = prepare(Flags(config=site.settings), {}, GenerationNumber(9))
    assert isinstance(expected, Candidate)
    assert site.installed[-1].generation.digest == expected.generation.digest
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_directories_that_cannot_be_watched_are_looked_at(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without free inotify watches, as in crowded containers, reload still works and the proxy still runs."""

    async def cannot() -> None:
        raise OSError("OS file watch limit reached")

    monkeypatch.setattr(module, "RESTAT_SECONDS", 0.02)
    monkeypatch.setattr(site.reloader, "_watch_directories", cannot)
    site.reloader._watched = replace(site.reloader._watched, watch=True)
    running = asyncio.create_task(site.reloader.run())
    site.allow("b.test")
    async with asyncio.timeout(5):
        while not site.installed:
            await asyncio.sleep(0.01)
    assert site.numbers == [2]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_diagnostics_compare_by_content() -> None:
    """`Reloader` tells a refusal once because of this."""
    made: tuple[Diagnostic, ...] = (error(Location("a", 1, 2), "x"), error(Location("a", 1, 2), "x"))
    assert made[0] == made[1]
