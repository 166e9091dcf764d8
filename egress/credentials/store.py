"""Keeps the values of all providers fresh and swaps them as a whole: first fetch, refresh, failure, revocation
(credentials.md sections 10 and 15). The one part of credentials that waits for time."""

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from egress.credentials.feeds import HandleTerms, Intake, Outlet
from egress.credentials.handles import HandleInputs, epoch_of, handle
from egress.credentials.installation import Installation
from egress.credentials.line import Line, Moment
from egress.credentials.snapshot import Credential, CredentialSnapshot
from egress.model.clock import Clock
from egress.sdk.secrets import RunBlocking, Secret, SourceUnavailable, Watched

START_SECONDS = 15.0
"""How long a start or a reload waits for first values; what is late is late for its provider alone."""
WATCH_SECONDS = 2.0
"""How often sources are asked whether they changed."""
_NOTHING = Secret("")


@dataclass(frozen=True, slots=True)
class ValueState:
    """One value for `credentials list`. `state` is `ok`, `kept`, `unavailable` or `revoked`; times are in seconds,
    `expires` since the epoch."""

    provider: str
    key: str
    kind: str
    state: str
    places: tuple[str, ...]
    expires: float | None
    age: float | None
    error: str


@dataclass(frozen=True, slots=True)
class ProviderChanged:
    """A provider came or went, for events. `error` is the class of the failure that took it away."""

    provider: str
    available: bool
    error: str = ""


@dataclass(slots=True, eq=False)
class _Running:
    """A line with what runs for it."""

    line: Line
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    fetching: "asyncio.Task[None] | None" = None
    keeping: "asyncio.Task[None] | None" = None

    def stop(self) -> None:
        for task in (self.keeping, self.fetching):
            if task is not None:
                task.cancel()
        self.line.drop()


@dataclass(frozen=True, slots=True)
class Staged:
    """First values of what is new, beside what goes on. Adopt it or `discard` it."""

    intake: Intake
    lines: tuple[_Running, ...]
    fresh: tuple[_Running, ...]

    def discard(self) -> None:
        for running in self.fresh:
            running.stop()


class CredentialStore:
    """`install` is called with each new snapshot, in one turn of the loop with what led to it. `tell` hears of
    providers that come and go."""

    def __init__(
        self,
        installation: Installation,
        install: Callable[[CredentialSnapshot], None],
        clock: Clock,
        run_blocking: RunBlocking,
        tell: Callable[[ProviderChanged], None] = lambda _: None,
    ) -> None:
        self.snapshot = CredentialSnapshot.empty()
        self._installation = installation
        self._install = install
        self._clock = clock
        self._run_blocking = run_blocking
        self._tell = tell
        self._intake = Intake()
        self._lines: tuple[_Running, ...] = ()
        self._told: dict[str, bool] = {}
        self._issued: tuple[Credential, ...] = ()
        self._watching: asyncio.Task[None] | None = None

    # what is configured ------------------------------------------------------------------------------------------

    async def stage(self, intake: Intake, seconds: float = START_SECONDS) -> Staged:
        """Fetch what is new in `intake`, all at once, for `seconds` at most. Touches nothing live."""
        known = {running.line.feed.identity: running for running in self._lines}
        lines = tuple(known.get(feed.identity) or _Running(Line(feed)) for feed in intake.feeds)
        fresh = tuple(running for running in lines if running.keeping is None)
        staged = Staged(intake, lines, fresh)
        try:
            if fresh:
                await asyncio.wait([self._start_fetch(running) for running in fresh], timeout=seconds)
        except BaseException:
            staged.discard()
            raise
        return staged

    def adopt(self, staged: Staged) -> CredentialSnapshot:
        """Make it what is configured, and give the snapshot to install. Does not call `install` itself."""
        for running in self._lines:
            if running not in staged.lines:
                running.stop()
        for running, feed in zip(staged.lines, staged.intake.feeds, strict=True):
            # The source stays: it may remember what nobody else does, such as a refresh token it could not write.
            running.line.feed = replace(feed, source=running.line.feed.source)
            if running.keeping is None:
                running.keeping = asyncio.create_task(self._keep(running))
        self._intake, self._lines = staged.intake, staged.lines
        if self._watching is None and any(isinstance(feed.source, Watched) for feed in staged.intake.feeds):
            self._watching = asyncio.create_task(self._watch())
        self._take()
        return self.snapshot

    async def replace(self, intake: Intake) -> None:
        """Stage, adopt and install."""
        self._install(self.adopt(await self.stage(intake)))

    def revoke_all(self) -> CredentialSnapshot:
        """What is configured cannot be used any more: no value is left. Placeholders recover when it can again."""
        for running in self._lines:
            running.stop()
        self._intake, self._lines, self._issued = Intake(), (), ()
        self.snapshot = self.snapshot.revoked()
        self._tell_changes()
        return self.snapshot

    async def close(self) -> None:
        """End everything that runs."""
        tasks = [task for running in self._lines for task in (running.keeping, running.fetching) if task is not None]
        if self._watching is not None:
            tasks.append(self._watching)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # what operators ask ------------------------------------------------------------------------------------------

    def listing(self) -> list[ValueState]:
        """Every value, without any."""
        return [self._state(running, outlet) for running in self._lines for outlet in running.line.feed.outlets]

    async def refresh(self, name: str) -> bool:
        """Fetch `PROVIDER` or `PROVIDER:KEY` now, and give revoked ones values again. False for unknown names."""
        named = self._named(name)
        for running, keys in named:
            self._installation.restore(running.line.feed.provider, keys)
        if named:
            await asyncio.wait([self._start_fetch(running) for running, _ in named])
            self._publish()
        return bool(named)

    async def refresh_due(self, provider: str, within: float) -> None:
        """Fetch those values of a provider that end in `within` seconds."""
        soon = self._clock.now() + within
        due = [
            running
            for running, _ in self._named(provider)
            if running.line.expires is not None and running.line.expires <= soon
        ]
        if due:
            await asyncio.wait([self._start_fetch(running) for running in due])
            self._publish()

    async def revoke(self, name: str) -> bool:
        """Take `PROVIDER` or `PROVIDER:KEY` away until it is refreshed by name; what was issued for it never works
        again. False for unknown names. Raises `DependencyError` when that cannot be remembered: it holds all the same
        until the next start."""
        named = self._named(name)
        try:
            for running, keys in named:
                self._installation.revoke(running.line.feed.provider, keys)
        finally:
            self._publish()
        return bool(named)

    def _named(self, name: str) -> list[tuple[_Running, tuple[str, ...]]]:
        provider, _, key = name.partition(":")
        found = []
        for running in self._lines:
            feed = running.line.feed
            keys = tuple(outlet.key for outlet in feed.outlets if key in ("", outlet.key))
            if feed.provider == provider and keys:
                found.append((running, keys))
        return found

    def _state(self, running: _Running, outlet: Outlet) -> ValueState:
        line, now = running.line, self._clock.now()
        held = line.held.get(outlet.key)
        state = "unavailable"
        if self._installation.is_withdrawn(line.feed.provider, outlet.key):
            state = "revoked"
        elif self._is_whole(line.feed.provider) and held is not None and (held.expires is None or held.expires > now):
            state = "kept" if line.error else "ok"
        return ValueState(
            line.feed.provider,
            outlet.key,
            line.feed.scheme,
            state,
            tuple(f"{selector.host}:{selector.port}{selector.path}" for selector in outlet.scope.selectors),
            held.expires if held is not None else None,
            now - line.fetched if line.fetched is not None else None,
            line.error,
        )

    # fetching ----------------------------------------------------------------------------------------------------

    async def _keep(self, running: _Running) -> None:
        """Fetch when it is due or asked for, and notice when what is held ends."""
        line = running.line
        while True:
            wait = min(line.due, line.ends if line.held else line.due) - self._clock.monotonic()
            if wait > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if wait == float("inf") else wait):
                        await running.woken.wait()
            if running.woken.is_set() or self._clock.monotonic() >= line.due:
                running.woken.clear()
                await asyncio.wait((self._start_fetch(running),))
            if line.held and not line.good(self._clock.monotonic()):
                line.drop()
            self._publish()

    def _start_fetch(self, running: _Running) -> "asyncio.Task[None]":
        """Everybody who wants it now waits for the same fetch."""
        if running.fetching is None:
            running.fetching = asyncio.create_task(self._fetch(running))
        return running.fetching

    async def _fetch(self, running: _Running) -> None:
        """One try. What goes wrong is known by its class alone: texts of others may quote what they were given."""
        line = running.line
        try:
            async with asyncio.timeout(line.feed.terms.timeout):
                fetched = await line.feed.source.fetch()
            line.succeed(fetched, self._moment())
        except SourceUnavailable as unavailable:
            line.fail(unavailable.kind, self._moment())
        except TimeoutError:
            line.fail("timeout", self._moment())
        except Exception as error:  # a source that breaks is one that gives nothing
            line.fail(f"broken:{type(error).__name__}", self._moment())
        finally:
            running.fetching = None

    def _moment(self) -> Moment:
        return Moment(self._clock.now(), self._clock.monotonic(), random.random())  # noqa: S311 - spreads load only

    async def _watch(self) -> None:
        """Wake the lines of sources that changed."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            for running in self._lines:
                source = running.line.feed.source
                if isinstance(source, Watched):
                    with suppress(OSError, SourceUnavailable, TimeoutError):
                        async with asyncio.timeout(WATCH_SECONDS):
                            if await self._run_blocking(source.changed):
                                running.woken.set()

    # publishing --------------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        before = self.snapshot
        self._take()
        if self.snapshot is not before:
            self._install(self.snapshot)

    def _take(self) -> None:
        """The next snapshot, if anything differs."""
        issued = (*self._intake.fixed, *self._credentials())
        if issued != self._issued or self.snapshot.revision == 0 or self.snapshot.retain != self._intake.retain:
            self._issued = issued
            self.snapshot = self.snapshot.next(issued, retain=self._intake.retain)
        self._tell_changes()

    def _credentials(self) -> Iterator[Credential]:
        """A provider has all its values or none. Without them its keys keep their places, so that placeholders given
        out meanwhile work later; revoked keys have none."""
        whole = {provider: self._is_whole(provider) for provider in self._providers()}
        for running in self._lines:
            feed = running.line.feed
            for outlet in feed.outlets:
                if self._installation.is_withdrawn(feed.provider, outlet.key):
                    continue
                held = running.line.held.get(outlet.key) if whole[feed.provider] else None
                if held is None and whole[feed.provider]:
                    continue  # a part of the bundle that there is none of, such as the token of lasting keys
                issued = self._handle(feed.provider, outlet)
                revocations = self._installation.revocations(feed.provider, outlet.key)
                owner = self._installation.provider_id(feed.provider) + (f"#{revocations}" if revocations else "")
                yield Credential(
                    feed.provider,
                    outlet.key,
                    held.secret if held is not None else _NOTHING,
                    outlet.scope,
                    held.expires if held is not None else 0.0,
                    f"refresh:{issued}" if issued else f"{owner}:{outlet.key}",
                    issued,
                    outlet.placement,
                    outlet.shape,
                )

    def _handle(self, provider: str, outlet: Outlet) -> str:
        terms: HandleTerms | None = outlet.handle
        if terms is None:
            return ""
        known = self._installation
        sandbox = terms.sandbox or known.sandbox_id
        if terms.agent != "default":
            sandbox = f"{sandbox}/{terms.agent}"
        epoch = epoch_of(terms.specification, terms.profile, terms.epoch, known.revocations(provider, outlet.key))
        inputs = HandleInputs(sandbox, known.provider_id(provider), outlet.key, epoch, terms.endpoints)
        return handle(self._intake.handle_key or known.key, inputs)

    def _providers(self) -> Iterable[str]:
        return dict.fromkeys(running.line.feed.provider for running in self._lines)

    def _of(self, provider: str) -> Sequence[Line]:
        return [running.line for running in self._lines if running.line.feed.provider == provider]

    def _is_whole(self, provider: str) -> bool:
        now = self._clock.monotonic()
        return all(line.good(now) for line in self._of(provider))

    def _tell_changes(self) -> None:
        providers = {provider: self._is_whole(provider) for provider in self._providers()}
        for provider in dict.fromkeys((*self._told, *providers)):
            available = providers.get(provider, False)
            if self._told.get(provider) is not available:
                error = next((line.error for line in self._of(provider) if line.error), "")
                self._tell(ProviderChanged(provider, available, error))
        self._told = providers
