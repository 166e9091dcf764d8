"""When to prepare again: signals and watched files; and what becomes of the outcome."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from egress.config.catalogue import needs_restart
from egress.config.overrides import Flags
from egress.config.settings import Settings
from egress.documents.diagnostic import Diagnostic, error, render
from egress.documents.location import Location
from egress.events.event import Event, Severity, StateChange
from egress.generation.files import fingerprint
from egress.generation.generation import Generation
from egress.generation.prepare import Candidate, prepare
from egress.model.clock import Clock
from egress.model.ids import GenerationNumber

log = logging.getLogger(__name__)

RESTAT_SECONDS = 60.0
"""A full look at every file, since inotify can overflow."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Where candidates come from. `watch` is false when only signals reload."""

    flags: Flags
    environment: Mapping[str, str]
    watch: bool


class Reloader:
    """Prepares a candidate when asked and hands it to `install`; a rejected one changes nothing and is told."""

    def __init__(
        self,
        watched: Watched,
        current: Candidate,
        install: Callable[[Candidate], None],
        quarantine: Callable[[Generation], None],
        emit: Callable[[Event], None],
        clock: Clock,
        *,
        stage: Callable[[Candidate], Awaitable[None]],
        rejected: Callable[[tuple[Diagnostic, ...]], None],
    ) -> None:
        """`stage` waits for what a candidate needs before `install`, which does not wait; `rejected` hears of those
        that came to nothing."""
        self._watched = watched
        self._current = current
        self._install = install
        self._quarantine = quarantine
        self._emit = emit
        self._clock = clock
        self._stage = stage
        self._tell_rejected = rejected
        self._number = current.generation.number
        self._quarantined = False
        self._bereft = False
        """Something was rejected since the last install, which may have taken credentials away."""
        self._digest = current.fingerprint
        self._refused: tuple[Diagnostic, ...] | None = None
        """Told already. What is wrong may lie in files that nobody watches yet, so every wake reads again."""
        self._wanted = asyncio.Event()
        self._forced = False
        self._moved = asyncio.Event()
        """Set when other files are to be watched."""

    def trigger(self) -> None:
        """Reload now, without waiting for quiet."""
        self._forced = True
        self._wanted.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._watched.watch:
                group.create_task(self._watch())
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                forced, self._forced = self._forced, False
                await self._reload(forced=forced)

    async def _watch(self) -> None:
        """Wake on changes, or now and then where the system cannot tell of them."""
        while True:
            try:
                await self._watch_directories()
            except (OSError, RuntimeError) as failure:
                log.warning("files are not watched, only looked at", extra={"reason": str(failure)})
                await asyncio.sleep(RESTAT_SECONDS)
                self._wanted.set()

    async def _watch_directories(self) -> None:
        """Look at the directories of our files: editors rename over, Kubernetes swaps a symlink."""
        from watchfiles import awatch  # noqa: PLC0415 - not needed before the first accept

        while True:
            settings = self._current.settings.reload
            directories = {str(path.parent) for file in self._current.files for path in (file, file.resolve())}
            self._moved = asyncio.Event()
            # Files may have changed since they were read; the call comes when the watch below has begun.
            asyncio.get_running_loop().call_soon(self._wanted.set)
            async for _ in awatch(
                *directories,
                debounce=int(settings.max_wait * 1000),
                step=max(1, int(settings.quiet * 1000)),
                rust_timeout=int(RESTAT_SECONDS * 1000),
                yield_on_timeout=True,
                recursive=False,
                stop_event=self._moved,
            ):
                self._wanted.set()

    async def _reload(self, *, forced: bool) -> None:
        digest = await asyncio.to_thread(fingerprint, self._current.files)
        if digest == self._digest and not forced and self._refused is None:
            return
        if forced:
            self._refused = None
        number = GenerationNumber(self._number + 1)
        outcome = await self._prepare(number)
        self._digest = digest
        if isinstance(outcome, Candidate):
            outcome = _restart_only(self._current.settings, outcome) or outcome
        if isinstance(outcome, Candidate):
            self._digest = outcome.fingerprint
            self._refused = None
            if not self._quarantined and not self._bereft and _same(outcome, self._current):
                return
            if outcome.secrets == self._current.secrets:
                # Connections and sessions that were verified by equal trust stay good.
                outcome = replace(outcome, profile=self._current.profile)
            problem = await self._installed(outcome)
            if problem is None:
                self._number = number
                self._quarantined = self._bereft = False
            else:
                self._rejected(problem)
        else:
            self._rejected(outcome)

    async def _installed(self, candidate: Candidate) -> tuple[Diagnostic, ...] | None:
        """Make it current; what breaks here rejects it too, and the proxy goes on."""
        try:
            await self._stage(candidate)
            self._install(candidate)
        except Exception as failure:
            log.exception("install failed")
            return (error(Location("reload"), f"the candidate could not be installed: {type(failure).__name__}"),)
        if candidate.files != self._current.files:
            self._moved.set()
        self._current = candidate
        return None

    async def _prepare(self, number: GenerationNumber) -> Candidate | tuple[Diagnostic, ...]:
        """What breaks here rejects the candidate; the proxy goes on."""
        try:
            return await asyncio.to_thread(prepare, self._watched.flags, self._watched.environment, number)
        except Exception as failure:
            log.exception("reload failed")
            return (error(Location("reload"), f"the files could not be read: {type(failure).__name__}"),)

    def _rejected(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        if diagnostics == self._refused:
            return
        self._refused = diagnostics
        self._bereft = self._current.providers is not None
        self._tell_rejected(diagnostics)
        text = render(diagnostics)
        log.error("reload rejected", extra={"problems": len(diagnostics)})
        log.error(text)
        first = diagnostics[0].message if diagnostics else "unknown"
        self._emit(
            StateChange(
                self._clock.now(), "invalid", f"a reload was rejected: {first}"[:400], Severity.HIGH,
                generation=self._number,
            )
        )  # fmt: skip
        if self._current.settings.policy.on_invalid == "quarantine" and not self._quarantined:
            self._number = GenerationNumber(self._number + 1)
            self._quarantined = True
            self._quarantine(replace(self._current.generation, number=self._number, quarantine=text[:4096]))


def _same(candidate: Candidate, current: Candidate) -> bool:
    return (candidate.generation.digest, candidate.settings, candidate.secrets, _digest(candidate)) == (
        current.generation.digest, current.settings, current.secrets, _digest(current),
    )  # fmt: skip


def _digest(candidate: Candidate) -> str:
    return candidate.providers.digest if candidate.providers is not None else ""


def _restart_only(old: Settings, candidate: Candidate) -> tuple[Diagnostic, ...] | None:
    """Refuse changes that only a restart can make."""
    keys = tuple(needs_restart(old, candidate.settings))
    if not keys:
        return None
    return tuple(error(Location(key), f"{key} cannot change while the proxy runs", "restart it") for key in keys)
