"""`ProcessIdentity`: from an accepted connection to the processes behind it, off the event loop and under a deadline.

Tuple -> socket -> every owner -> executables, ancestors and digests -> the socket again, which must be the same.
"""

import asyncio
import logging
import sys
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from egress.events.event import Finding
from egress.identity.lineage import ForeignView, Image, Lineage, LineageReader, one_program
from egress.identity.owners import OwnerWalker, Walk
from egress.identity.procfs import Procfs, Unreadable, Vanished
from egress.identity.sockets import ClientSockets, Namespace, SocketRow
from egress.identity.trust import Distrust, TofuMode, TrustStore
from egress.identity.walker import WalkProcess
from egress.model.intent import SocketPair
from egress.model.process import Evidence, EvidenceUnavailable, Process, ProcessEvidence, UnavailableReason

log = logging.getLogger(__name__)

DEADLINE_SECONDS = 2.0
WALK_SHARE = 0.1
"""Of one core, for walks of /proc."""
RETRY_DELAYS = (0.002, 0.012, 0.036)
"""The client's end may become visible after accept(): three more looks within 50 ms."""
MAX_OWNERS = 64
REMEMBERED_CONNECTIONS = 4096
_THREADS = 2

type AnchorSource = Callable[[], int | None]
"""The pid of the workload's entrypoint, None while there is none yet."""


@dataclass(frozen=True, slots=True)
class IdentitySettings:
    """Settings `identity.*`. Without `anchor` clients may be anywhere on this host; `netns` is a namespace file."""

    anchor: AnchorSource | None = None
    netns: Path | None = None
    tofu: TofuMode = TofuMode.STRICT


def pid_file_anchor(path: Path) -> AnchorSource:
    """The anchor named by a pid file, read at each use."""

    def read() -> int | None:
        try:
            with path.open("rb") as file:
                return int(file.read(32)) or None
        except (OSError, ValueError):
            return None

    return read


class _Refused(Exception):
    """There will be no evidence, and why."""

    def __init__(self, reason: UnavailableReason, detail: str) -> None:
        super().__init__(detail)
        self.evidence = EvidenceUnavailable(reason, detail)


def _unresolved(why: str) -> _Refused:
    return _Refused(UnavailableReason.UNAVAILABLE, f"failed to resolve peer binary: {why}")


@dataclass(frozen=True, slots=True)
class _Look:
    """One look-up under way: the connection, its socket, and the view it is judged from."""

    pair: SocketPair
    row: SocketRow
    anchor: int | None
    namespace: Namespace


@dataclass(frozen=True, slots=True)
class _Owned:
    """The owners of a socket, read and agreed; their digests are still to be verified."""

    look: _Look
    lineages: tuple[Lineage, ...]
    reader: LineageReader


@dataclass(frozen=True, slots=True)
class _Identified:
    owned: _Owned
    evidence: ProcessEvidence


class ProcessIdentity:
    """Who is connected. One per process; `close` it. `report` is called on the event loop."""

    def __init__(
        self,
        settings: IdentitySettings,
        report: Callable[[Finding], None] = lambda _: None,
        procfs: Procfs | None = None,
    ) -> None:
        self._settings = settings
        self._procfs = procfs or Procfs()
        self._report = report
        self._loop: asyncio.AbstractEventLoop | None = None
        self.trust = TrustStore(self._procfs, settings.tofu, self._report_from_thread)
        self._sockets = ClientSockets()
        proc = self._procfs.root
        self._home = (
            Namespace(None, proc / "net")
            if settings.netns is None
            else Namespace(settings.netns, proc / "thread-self/net", enter_to_read=True)
        )
        self._walks = WalkProcess(self._procfs)
        self._walker = OwnerWalker(self._walks if procfs is None else self._walks.here, WALK_SHARE)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="identity")
        self._readers: tuple[Walk, dict[int | None, LineageReader]] | None = None
        self._recent: OrderedDict[SocketPair, _Identified] = OrderedDict()

    def close(self) -> None:
        self._walker.close()
        self._walks.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._sockets.close()

    async def identify(self, pair: SocketPair) -> Evidence:
        """The processes that hold the client's end of a connection, or why they are not known. Never raises."""
        if sys.platform != "linux":
            detail = "identity binding unavailable on this platform"
            return EvidenceUnavailable(UnavailableReason.UNAVAILABLE, detail)
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                return await self._identify(pair)
        except _Refused as refused:
            return refused.evidence
        except TimeoutError:
            return _unresolved(f"no answer within {DEADLINE_SECONDS:g} s").evidence
        except Exception:
            log.exception("process identity failed")
            return _unresolved("internal error").evidence

    async def recheck(self, pair: SocketPair) -> Evidence:
        """Identify anew, whatever was found before: the socket may have been handed on meanwhile."""
        self.forget(pair)
        return await self.identify(pair)

    def forget(self, pair: SocketPair) -> None:
        """The connection ended."""
        self._recent.pop(pair, None)

    async def socket_uid(self, pair: SocketPair) -> int | None:
        """The uid that owns the client's socket; None when it is not in the namespace that is asked."""
        if sys.platform != "linux":
            return None
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                row = await self._find(pair, self._namespace(self._anchor()))
        except (OSError, ValueError):
            return None
        return None if row is None else row.uid

    async def _identify(self, pair: SocketPair) -> ProcessEvidence:
        anchor = self._anchor()
        if self._settings.anchor is not None and anchor is None:
            raise _Refused(UnavailableReason.UNAVAILABLE, "entrypoint process not yet spawned")
        try:
            namespace = self._namespace(anchor)
            row = await self._find(pair, namespace)
        except (OSError, ValueError) as error:
            raise _unresolved(f"socket table unreadable: {_words(error)}") from None
        if row is None:
            raise _unresolved("no ESTABLISHED connection found for the tuple")
        look = _Look(pair, row, anchor, namespace)
        return self._remembered(look) or await self._resolve(look)

    async def _resolve(self, look: _Look) -> ProcessEvidence:
        why = Vanished()
        for _ in range(2):
            try:
                found = await asyncio.wrap_future(self._walker.submit(look.row.inode, partial(self._read, look)))
                if isinstance(found, _Owned):
                    running = asyncio.get_running_loop().run_in_executor(self._threads, self._verify, found)
                    found = await running
            except Vanished as vanished:
                why = vanished
            except OSError as error:
                raise _unresolved(f"process table unreadable: {_words(error)}") from None
            else:
                self._remember(found)
                return found.evidence
        raise _unresolved(str(why))

    def _remembered(self, look: _Look) -> ProcessEvidence | None:
        """What was found for the same socket, while the same processes still run the same images.

        A cookie names one socket for good. Owners that joined since are noticed by `recheck` only: evidence is that
        of the moment a connection was first judged.
        """
        known = self._recent.get(look.pair)
        if known is None or not look.row.cookie or known.owned.look != look:
            return None
        if not all(known.owned.reader.unchanged(lineage.owner) for lineage in known.owned.lineages):
            self.forget(look.pair)
            return None
        return known.evidence

    def _remember(self, found: _Identified) -> None:
        self._recent[found.owned.look.pair] = found
        if len(self._recent) > REMEMBERED_CONNECTIONS:
            self._recent.popitem(last=False)

    # Below: on the walker's thread or on one of ours, apart from the socket query, which may run inline.

    async def _find(self, pair: SocketPair, namespace: Namespace) -> SocketRow | None:
        find = partial(self._sockets.find, pair, namespace)
        quick = self._sockets.quick(namespace)
        for delay in (*RETRY_DELAYS, None):
            row = find() if quick else await asyncio.get_running_loop().run_in_executor(self._threads, find)
            if row is not None or delay is None:
                return row
            await asyncio.sleep(delay)
        return None

    def _anchor(self) -> int | None:
        return None if self._settings.anchor is None else self._settings.anchor()

    def _namespace(self, anchor: int | None) -> Namespace:
        if anchor is None or self._settings.netns is not None:
            return self._home
        proc = self._procfs.root
        theirs = proc / str(anchor) / "ns/net"
        same = theirs.samefile(proc / "self/ns/net")
        return Namespace(None if same else theirs, proc / str(anchor) / "net")

    def _read(self, look: _Look, walk: Walk) -> _Owned | _Identified:
        """The owners that a walk found, on the walker's thread: everything but reading files that were never hashed."""
        reader = self._reader(walk, look.anchor)
        pids = walk.holders[look.row.inode]
        if not pids:
            raise _unresolved("no process holds the socket; SYS_PTRACE may be missing")
        if len(pids) > MAX_OWNERS:
            raise _Refused(UnavailableReason.AMBIGUOUS, f"{_shared(look, pids)} too many to compare")
        self._refuse_incomplete(walk, reader, pids, look)
        lineages = one_program([_read_lineage(reader, pid) for pid in pids])
        if lineages is None:
            raise _Refused(UnavailableReason.AMBIGUOUS, f"{_shared(look, pids)} with different policy identities")
        owned = _Owned(look, lineages, reader)
        hashed = all(self.trust.known_digest(image) for lineage in lineages for image in lineage.images)
        return self._verify(owned) if hashed else owned

    def _reader(self, walk: Walk, anchor: int | None) -> LineageReader:
        if self._readers is None or self._readers[0] is not walk:
            self._readers = (walk, {})
        return self._readers[1].setdefault(anchor, LineageReader(self._procfs, anchor))

    def _refuse_incomplete(self, walk: Walk, reader: LineageReader, pids: list[int], look: _Look) -> None:
        """A process we may not look into could hold the socket too: one of the workload's, or a child of an owner."""
        tree = set(pids) if look.anchor is None else {look.anchor}
        for pid in walk.unreadable:
            try:
                hidden = not self._procfs.stat(pid).dead and not tree.isdisjoint((pid, *reader.ancestor_pids(pid)))
            except (Vanished, Unreadable):
                continue
            if hidden:
                detail = f"failed to resolve peer binary: descriptors of PID {pid} are not readable"
                raise _Refused(UnavailableReason.INCOMPLETE, detail)

    def _verify(self, owned: _Owned) -> _Identified:
        """Digests, then the look back: the same socket, held by the same processes, running the same images."""
        digests: dict[Image, str | None] = {}
        for lineage in owned.lineages:
            for image in lineage.images:
                if image not in digests:
                    digests[image] = self._digest(image, of_owner=image is lineage.owner)
        look = owned.look
        try:
            row = self._sockets.find(look.pair, look.namespace)
        except (OSError, ValueError) as error:
            raise _unresolved(f"socket table unreadable: {_words(error)}") from None
        if row != look.row:
            raise _unresolved("the connection changed while it was identified")
        for lineage in owned.lineages:
            if not owned.reader.unchanged(lineage.owner):
                raise Vanished(f"process {lineage.owner.pid} changed while it was identified")
        first = owned.lineages[0]
        return _Identified(
            owned,
            ProcessEvidence(
                tuple(_process(lineage.owner, digests) for lineage in owned.lineages),
                tuple(_process(image, digests) for image in first.ancestors),
                first.command_paths,
                look.row.uid,
            ),
        )

    def _digest(self, image: Image, *, of_owner: bool) -> str | None:
        verdict = self.trust.verify(image)
        if not isinstance(verdict, Distrust):
            return verdict
        prefix = "" if of_owner else f"ancestor integrity check failed for {image.path}: "
        raise _Refused(verdict.reason, prefix + verdict.detail)

    def _report_from_thread(self, finding: Finding) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._report, finding)


def _read_lineage(reader: LineageReader, pid: int) -> Lineage:
    try:
        return reader.read(pid)
    except (Unreadable, ForeignView) as error:
        detail = f"failed to resolve peer binary for PID {pid}: {error}"
        raise _Refused(UnavailableReason.UNAVAILABLE, detail) from None


def _process(image: Image, digests: dict[Image, str | None]) -> Process:
    return Process(image.pid, image.started, image.path, digests[image])


def _shared(look: _Look, pids: list[int]) -> str:
    shown = ", ".join(map(str, pids[:MAX_OWNERS]))
    return f"ambiguous shared socket ownership: inode {look.row.inode} is held by PIDs [{shown}]"


def _words(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "malformed table"
