"""The composition root: settings in, running proxy out. The only module that knows every concrete class."""

import asyncio
import importlib
import ipaddress
import logging
import resource
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from egress import __version__, memory
from egress.accept.admission import Admission, AdmissionLimits
from egress.accept.client import serve_client
from egress.accept.door import Callers, Door
from egress.accept.listener import Listener
from egress.admin.metrics import MetricsEndpoint
from egress.admin.operator import OperatorSocket
from egress.config.overrides import Flags
from egress.config.settings import Settings
from egress.credentials.aws.skew import Skew
from egress.destination.hosts import detect_gateway
from egress.destination.local import LocalAddresses, expand_wildcards
from egress.destination.resolver import NameResolver, ResolverSettings, WorkloadHosts
from egress.destination.validate import DestinationSettings, OwnListeners
from egress.documents.diagnostic import Diagnostic, has_errors
from egress.engine.assemblies import Assemblies
from egress.engine.carried import OriginStream
from egress.engine.drain import Drain
from egress.engine.enter import Front
from egress.engine.origin import Upstream
from egress.engine.stream import Stream
from egress.engine.tunnel import Timeouts, Tunnel
from egress.events.bus import EventBus
from egress.events.event import Lifecycle, LifecycleStep, Severity, StateChange
from egress.events.metrics import Metrics
from egress.events.settings import (
    Compat,
    Compress,
    Device,
    EventSettings,
    Fsync,
    Rotation,
    Standard,
    StderrMode,
)
from egress.events.sinks import Sinks, build_sinks
from egress.generation.cell import RuntimeCell
from egress.generation.generation import Generation
from egress.generation.prepare import Candidate
from egress.generation.providers import plugins_of
from egress.generation.reload import Reloader, Watched
from egress.identity.agents import AuthFailures
from egress.identity.resolver import AnchorSource, IdentitySettings, ProcessIdentity, pid_file_anchor
from egress.identity.trust import TofuMode
from egress.l7.mcp_sessions import SessionTable
from egress.model.address import IpAddress
from egress.model.clock import SystemClock
from egress.model.errors import DependencyError
from egress.model.intent import AgentName
from egress.model.message import RequestHead
from egress.pipeline.ports import Services
from egress.tls.ca import LocalAuthority, TrustFiles, open_authority, publish
from egress.tls.cache import ContextCache
from egress.upstream.chain import ChainDialer, Dialled
from egress.upstream.dial import Dialer, DialTimes
from egress.upstream.health import Health
from egress.upstream.plan import Hop, Routes
from egress.upstream.pool import Pool, PoolLimits

if TYPE_CHECKING:
    from egress.credentials.store import Staged
    from egress.custody import Custody

log = logging.getLogger(__name__)

EVENT_CLOSE_SECONDS = 5.0
_HOSTS_FILE = Path("/etc/hosts")


@dataclass(frozen=True, slots=True)
class Ready:
    """What a started proxy tells: addresses as `host:port`, PEM files that workloads need, the operator socket."""

    proxy: tuple[str, ...]
    metrics: str | None
    trust: TrustFiles | None
    admin: Path | None = None


@dataclass(frozen=True, slots=True)
class _Lasting:
    """Parts that outlive a reload."""

    loop: asyncio.AbstractEventLoop
    clock: SystemClock
    authority: LocalAuthority | None
    identity: ProcessIdentity
    local: LocalAddresses
    failures: AuthFailures
    admission: Admission
    pool: Pool[OriginStream]
    dialer: ChainDialer[OriginStream]
    drain: Drain
    assemblies: Assemblies
    mcp_sessions: SessionTable
    events: EventBus
    cell: RuntimeCell
    own: tuple[tuple[IpAddress, int], ...]
    anchor: AnchorSource | None
    skew: Skew


class Proxy:
    """One running proxy. `run` returns when it has stopped; `stop` and `reload` may be called from signal handlers."""

    def __init__(
        self,
        candidate: Candidate,
        flags: Flags,
        environment: Mapping[str, str],
        *,
        anchor: AnchorSource | None = None,
        operated: bool = True,
    ) -> None:
        """`anchor` overrides `identity.anchor`; `operated` is False for a proxy that needs no operator socket."""
        self._anchor = anchor or _anchor(candidate.settings)
        self._candidate = candidate
        self._flags = flags
        self._environment = environment
        self._stop = asyncio.Event()
        self._kill = asyncio.Event()
        self._reloader: Reloader | None = None
        self._door: Door | None = None
        self._custody: Custody | None = None
        self._staged: Staged | None = None
        self._lasts: _Lasting | None = None
        self._started = 0.0
        self._operated = operated
        self._metrics: Metrics | None = None

    def stop(self) -> None:
        """Drain; a second call ends at once."""
        if self._stop.is_set():
            self._kill.set()
        self._stop.set()

    def reload(self) -> None:
        """Read the files again now."""
        if self._reloader is not None:
            self._reloader.trigger()

    async def run(self, ready: Callable[[Ready], None]) -> None:
        """Listen, serve, drain. Raises `OSError` and `DependencyError` when it cannot start."""
        settings = self._candidate.settings
        sockets = [Listener.bind(address.host.name, address.port) for address in settings.listen.proxy]
        metrics_socket = None
        if settings.metrics.address is not None:
            metrics_socket = Listener.bind(settings.metrics.address.host.name, settings.metrics.address.port)
        clock = SystemClock()
        sinks = build_sinks(_event_settings(settings), clock)
        self._metrics = sinks.metrics
        sinks.metrics.proxies(self._proxies_up)
        events = EventBus(sinks.all)
        events.emit(Lifecycle(clock.now(), LifecycleStep.START))
        own = [_bound(sock) for sock in (*sockets, *([metrics_socket] if metrics_socket else []))]
        authority, trust = _authority(settings)
        self._lasts = lasting = self._lasting(clock, events, authority, own)
        self._door = _door(self._candidate, lasting, None)
        self._started = clock.now()
        try:
            await self._take_routes(lasting)
            await self._stage(self._candidate)
            self._adopt(self._candidate)
            self._door = _door(self._candidate, lasting, self._custody)
            await self._serve(lasting, sinks, sockets, metrics_socket, trust, ready)
        finally:
            events.emit(Lifecycle(clock.now(), LifecycleStep.STOP))
            if self._custody is not None:
                await self._custody.close()
            lasting.pool.close()
            lasting.identity.close()
            events.close(EVENT_CLOSE_SECONDS)

    async def _serve(
        self,
        lasting: _Lasting,
        sinks: Sinks,
        sockets: list[socket.socket],
        metrics_socket: socket.socket | None,
        trust: TrustFiles | None,
        ready: Callable[[Ready], None],
    ) -> None:
        listener = Listener(self._serve_client)
        endpoint = MetricsEndpoint(sinks.metrics.render)
        async with asyncio.TaskGroup() as group:
            if metrics_socket is not None:
                await endpoint.start(metrics_socket)
            await listener.start(sockets, group)
            addresses = tuple(_spelled(sock) for sock in sockets)
            for address in addresses:
                lasting.events.emit(Lifecycle(lasting.clock.now(), LifecycleStep.LISTEN, address=address))
            self._tell_loaded(lasting, "loaded", self._candidate.generation)
            self._reloader = self._make_reloader(lasting)
            watching = group.create_task(self._reloader.run())
            checking = group.create_task(lasting.dialer.watch())
            trimming = group.create_task(memory.give_back(lasting.admission.ended))
            operator = await self._operator(sinks)
            memory.settle()
            admin = self._candidate.settings.admin_socket if operator is not None else None
            ready(Ready(addresses, _spelled(metrics_socket) if metrics_socket else None, trust, admin))
            await self._stop.wait()
            watching.cancel()
            checking.cancel()
            trimming.cancel()
            listener.stop()
            endpoint.close()
            if operator is not None:
                operator.close()
            lasting.drain.begin()
            await self._drain(listener)

    async def _serve_client(self, client: Stream) -> None:
        await serve_client(client, self._current_door)

    def _current_door(self) -> Door:
        assert self._door is not None
        return self._door

    async def _drain(self, listener: Listener) -> None:
        """Let work finish for `timeouts.drain`, or until a second signal."""
        async with asyncio.TaskGroup() as group:
            finished = group.create_task(listener.drained(self._candidate.settings.timeouts.drain))
            killed = group.create_task(self._kill.wait())
            await asyncio.wait((finished, killed), return_when=asyncio.FIRST_COMPLETED)
            finished.cancel()
            killed.cancel()
        listener.abort()

    def _lasting(
        self, clock: SystemClock, events: EventBus, authority: LocalAuthority | None, own: list[tuple[IpAddress, int]]
    ) -> _Lasting:
        settings = self._candidate.settings
        loop = asyncio.get_running_loop()
        local = LocalAddresses()
        anchor = self._anchor
        netns = settings.identity.netns
        identity = ProcessIdentity(
            IdentitySettings(
                anchor,
                Path(f"/proc/{netns}/ns/net") if isinstance(netns, int) else netns,
                TofuMode(settings.identity.tofu),
            ),
            events.emit,
        )
        identity.trust.pin(_pins(self._candidate.generation))
        return _Lasting(
            loop, clock, authority, identity, local, AuthFailures(clock), Admission(_admission_limits(settings)),
            Pool(loop, _pool_limits(settings)), self._way_out(clock, events, _own_listeners(own, local)),
            Drain(), Assemblies(), SessionTable(clock), events, RuntimeCell(self._candidate.generation),
            tuple(own), anchor, Skew(),
        )  # fmt: skip

    def _way_out(
        self, clock: SystemClock, events: EventBus, own: Callable[[], OwnListeners]
    ) -> ChainDialer[OriginStream]:
        loop = asyncio.get_running_loop()

        def tell(hop: Hop, up: bool) -> None:
            word, severity = ("enabled", Severity.INFO) if up else ("degraded", Severity.HIGH)
            detail = f"upstream proxy {hop.name} is {'up' if up else 'down'}"
            events.emit(StateChange(clock.now(), word, detail, severity, extra=(("proxy", hop.name),)))

        dialer = ChainDialer(
            _dialer(self._candidate.settings, loop), Health(loop.time, tell), loop, own=own, dialled=self._dialled
        )
        dialer.install(self._candidate.routes, _dialer(self._candidate.settings, loop))
        return dialer

    def _dialled(self, dialled: Dialled) -> None:
        if self._metrics is not None:
            self._metrics.dialled(dialled.via, dialled.outcome, dialled.seconds)

    async def _take_routes(self, lasting: _Lasting) -> None:
        """Tell of the corporate proxies, and start only with all of them where that is wanted."""
        routes = self._candidate.routes
        if not routes.hops:
            return
        _tell_routes(routes, lasting)
        if routes.health.verify_at_start:
            await lasting.dialer.verify()

    def _make_reloader(self, lasting: _Lasting) -> Reloader:
        settings = self._candidate.settings

        def install(candidate: Candidate) -> None:
            self._install(candidate, lasting)

        watched = Watched(self._flags, self._environment, settings.reload.watch)
        return Reloader(
            watched, self._candidate, install, lambda generation: self._quarantine(generation, lasting),
            lasting.events.emit, lasting.clock, stage=self._stage, rejected=self._rejected,
        )  # fmt: skip

    def _install(self, candidate: Candidate, lasting: _Lasting) -> None:
        """Make a prepared candidate current, in one turn of the loop. What could fail comes first."""
        settings = candidate.settings
        door, dialer = _door(candidate, lasting, self._custody), _dialer(settings, lasting.loop)
        lasting.admission.limits = _admission_limits(settings)
        lasting.pool.limits = _pool_limits(settings)
        lasting.identity.trust.mode = TofuMode(settings.identity.tofu)
        lasting.identity.trust.pin(_pins(candidate.generation))
        self._door = door
        if candidate.routes != self._candidate.routes:
            _tell_routes(candidate.routes, lasting)
        lasting.dialer.install(candidate.routes, dialer)
        lasting.cell.install(candidate.generation)
        self._adopt(candidate)
        self._candidate = candidate
        self._tell_loaded(lasting, "loaded", candidate.generation)

    # credentials -------------------------------------------------------------------------------------------------

    async def _stage(self, candidate: Candidate) -> None:
        """Fetch what a candidate's providers need, before it is installed."""
        self._staged = None
        if candidate.providers is None:
            return
        if self._custody is None:
            self._custody = self._open_custody(candidate.settings)
        self._staged = await self._custody.stage(candidate)

    def _adopt(self, candidate: Candidate) -> None:
        staged, self._staged = self._staged, None
        if self._custody is None:
            return
        if candidate.providers is None:
            self._custody.revoke_all()
        elif staged is not None:
            self._custody.adopt(candidate, staged)

    def _rejected(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        """A providers file that is invalid takes its static values away (decision 4)."""
        if self._staged is not None:
            self._staged.discard()
            self._staged = None
        providers = self._candidate.providers
        if self._custody is None or providers is None:
            return
        if has_errors(one for one in diagnostics if providers.made_of(one.location.file)):
            self._custody.revoke_all()

    def _open_custody(self, settings: Settings) -> "Custody":
        """Imported when a providers file is named: it brings what others need not pay for."""
        from egress.custody import Custody  # noqa: PLC0415
        from egress.own_calls import own_client  # noqa: PLC0415

        lasting = self._lasts
        assert lasting is not None
        client = own_client(
            lambda: self._current_door().services, lasting.dialer, lambda: self._current_door().upstream.profile
        )
        plugins = plugins_of(settings)
        return Custody(
            settings, lasting.cell, lasting.clock, emit=lasting.events.emit, redact=lasting.events.use, http=client,
            plugins=plugins, allow_literal=self._flags.allow_literal_secrets,
        )  # fmt: skip

    async def fetch_once(self) -> list[Mapping[str, object]]:
        """Fetch every value without serving anybody; what became of each."""
        events = EventBus(())
        self._lasts = lasting = self._lasting(SystemClock(), events, None, [])
        self._door = _door(self._candidate, lasting, None)
        try:
            await self._stage(self._candidate)
            self._adopt(self._candidate)
            return self._custody.listing() if self._custody is not None else []
        finally:
            if self._custody is not None:
                await self._custody.close()
            lasting.identity.close()
            events.close(EVENT_CLOSE_SECONDS)

    def environment(self, agent: AgentName) -> Mapping[str, str]:
        """What a workload's environment holds for its credentials: placeholders."""
        return self._custody.environment(agent) if self._custody is not None else {}

    @property
    def custody(self) -> "Custody | None":
        return self._custody

    def status(self) -> Mapping[str, object]:
        """Version, uptime in seconds, what is in force."""
        lasting = self._lasts
        assert lasting is not None
        generation = lasting.cell.generation
        return {
            "version": __version__,
            "uptime": round(lasting.clock.now() - self._started, 3),
            "generation": generation.number,
            "digest": generation.digest,
            "mode": "active" if generation.quarantine is None else "quarantined",
            "connections": lasting.admission.open,
        }

    def upstream(self) -> Mapping[str, object]:
        """Corporate proxies and whether they answer."""
        return {"proxies": [{"name": name, "up": up} for name, up in self._proxies_up().items()]}

    def _proxies_up(self) -> Mapping[str, bool]:
        if self._lasts is None:
            return {}
        dialer = self._lasts.dialer
        return {hop.name: dialer.health.up(hop) for hop in dialer.routes.hops}

    # the operator ------------------------------------------------------------------------------------------------

    async def _operator(self, sinks: Sinks) -> OperatorSocket | None:
        """The operator's socket; None where nobody needs it or its path cannot be had."""
        if not self._operated:
            return None
        settings = self._candidate.settings
        unix = settings.admin.unix

        def agents() -> frozenset[int]:
            return frozenset(uid for agent in self._candidate.settings.agents for uid in agent.match.uids or ())

        desk = OperatorDesk(self)
        socket_ = OperatorSocket(settings.admin_socket, unix.mode, unix.allow_uids, agents, desk, sinks.metrics.render)
        return socket_ if await socket_.start() else None

    def _quarantine(self, generation: Generation, lasting: _Lasting) -> None:
        lasting.cell.install(generation)
        self._tell_loaded(lasting, "fail_closed", generation)

    @staticmethod
    def _tell_loaded(lasting: _Lasting, word: str, generation: Generation) -> None:
        detail = "policy loaded" if generation.quarantine is None else "quarantined until a valid policy is loaded"
        lasting.events.emit(
            StateChange(
                lasting.clock.now(), word, detail, generation=generation.number, policy_digest=generation.digest
            )
        )


class OperatorDesk:
    """Answers what an operator asks of a running proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def status(self) -> Mapping[str, object]:
        return self._proxy.status()

    def upstream(self) -> Mapping[str, object]:
        return self._proxy.upstream()

    def credentials(self) -> list[Mapping[str, object]]:
        custody = self._proxy.custody
        return custody.listing() if custody is not None else []

    async def refresh_credentials(self, name: str) -> bool:
        custody = self._proxy.custody
        return custody is not None and await custody.refresh(name)

    async def revoke_credentials(self, name: str) -> bool:
        custody = self._proxy.custody
        return custody is not None and await custody.revoke(name)

    def environment(self, agent: str) -> Mapping[str, str]:
        return self._proxy.environment(AgentName(agent))

    def reload(self) -> None:
        self._proxy.reload()


def _door(candidate: Candidate, lasting: _Lasting, custody: "Custody | None") -> Door:
    """Everything a new connection reads, derived from settings."""
    settings, profile = candidate.settings, candidate.profile
    contexts = None
    if lasting.authority is not None:
        contexts = ContextCache(lasting.authority, settings.limits.leaf_cache, profile, lasting.clock)
    services = Services(
        runtime=lasting.cell,
        identity=lasting.identity,
        names=_names(settings, lasting.anchor),
        events=lasting.events,
        clock=lasting.clock,
        destinations=_destinations(settings),
        own_listeners=_own_listeners(lasting.own, lasting.local),
        mcp_sessions=lasting.mcp_sessions,
        via=settings.http.via.encode() if settings.http.via else None,
        skew=lasting.skew,
        grants=custody.grants if custody is not None else None,
    )
    return Door(
        services=services,
        upstream=Upstream(lasting.dialer, lasting.pool, profile, settings.timeouts.tls_handshake),
        front=Front(contexts, settings.engine.fast_lane == "auto", _run_mitm, _forward_mitm),
        timeouts=_timeouts(settings),
        admission=lasting.admission,
        drain=lasting.drain,
        assemblies=lasting.assemblies,
        callers=Callers(candidate.agents, lasting.identity, _client_addresses(settings, lasting), lasting.failures),
        recheck=settings.identity.recheck,
    )


def _dialer(settings: Settings, loop: asyncio.AbstractEventLoop) -> Dialer[OriginStream]:
    times = DialTimes(settings.timeouts.connect_address, settings.timeouts.connect)
    return Dialer(lambda: OriginStream(loop), times)


def _tell_routes(routes: Routes, lasting: _Lasting) -> None:
    word = "enabled" if routes.hops else "disabled"
    names = ", ".join(map(str, routes.hops)) or "none"
    detail = f"upstream proxies: {names}; {len(routes.no_proxy)} NO_PROXY items"
    lasting.events.emit(StateChange(lasting.clock.now(), word, detail))


_MITM_LANE = "egress.engine.mitm.lane"


async def _load_mitm() -> None:
    """mitmproxy costs a second and 15 MB: the first tunnels that need it import it, off the loop that serves others."""
    if not hasattr(sys.modules.get(_MITM_LANE), "run"):  # absent, or still being imported
        await asyncio.to_thread(importlib.import_module, _MITM_LANE)


async def _run_mitm(tunnel: Tunnel) -> None:
    await _load_mitm()
    from egress.engine.mitm import lane  # noqa: PLC0415

    await lane.run(tunnel)


async def _forward_mitm(tunnel: Tunnel, head: RequestHead) -> bool:
    await _load_mitm()
    from egress.engine.mitm import lane  # noqa: PLC0415

    return await lane.serve_forward(tunnel, head)


def _own_listeners(own: Sequence[tuple[IpAddress, int]], local: LocalAddresses) -> Callable[[], OwnListeners]:
    """All addresses that reach our listeners, those that the host gains later included."""
    fixed = expand_wildcards(own, frozenset())
    if not any(address.is_unspecified for address, _ in own):
        return lambda: fixed
    return lambda: expand_wildcards(own, local.current())


def _client_addresses(settings: Settings, lasting: _Lasting) -> Callable[[IpAddress], bool]:
    """In another network namespace any address may be local; the socket query there is what decides."""
    elsewhere = settings.identity.netns is not None or lasting.anchor is not None
    return (lambda _: True) if elsewhere else lasting.local.__contains__


def _pins(generation: Generation) -> dict[str, frozenset[str]]:
    """The digests that policies list for a path replace first-use trust in it."""
    pins: dict[str, frozenset[str]] = {}
    for terms in generation.agents.values():
        for entry in terms.policy.entries.values() if terms.policy else ():
            for binary in entry.binaries:
                if binary.sha256:
                    pins[binary.path] = pins.get(binary.path, frozenset()) | frozenset(binary.sha256)
    return pins


def _names(settings: Settings, anchor: AnchorSource | None) -> NameResolver:
    chosen = settings.resolver

    def workload_root() -> Path | None:
        pid = anchor() if anchor is not None else None
        return Path(f"/proc/{pid}/root") if pid else None

    servers = tuple((address, server.port) for server in chosen.servers if (address := server.host.address))
    return NameResolver(
        ResolverSettings(servers, chosen.timeout, chosen.cache, WorkloadHosts(chosen.workload_hosts)), workload_root
    )


def _destinations(settings: Settings) -> DestinationSettings:
    wanted = settings.destinations.host_gateway
    gateway: IpAddress | None
    if wanted == "auto":
        try:
            gateway = detect_gateway(_HOSTS_FILE.read_text(errors="replace"))
        except OSError:
            gateway = None
    else:
        gateway = None if wanted is None or isinstance(wanted, str) else wanted
    return DestinationSettings(
        {host.name: address for host, address in settings.destinations.aliases.items()},
        gateway,
        settings.destinations.trust_declared_hosts,
        settings.errors.verbose,
    )


def _timeouts(settings: Settings) -> Timeouts:
    chosen = settings.timeouts
    return Timeouts(
        chosen.head, chosen.body_idle, chosen.tunnel_start, chosen.keepalive, chosen.response_idle,
        chosen.response_head, chosen.websocket_idle, chosen.raw_idle, chosen.half_closed, chosen.tls_handshake,
        settings.reload.grace,
    )  # fmt: skip


def _admission_limits(settings: Settings) -> AdmissionLimits:
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return AdmissionLimits(*settings.limits.caps(descriptors))


def _pool_limits(settings: Settings) -> PoolLimits:
    limits = settings.limits
    return PoolLimits(limits.pool_idle, limits.pool_idle_per_key, limits.pool_idle_time)


def _anchor(settings: Settings) -> AnchorSource | None:
    anchor = settings.identity.anchor
    if anchor is None:
        return None
    return pid_file_anchor(anchor) if isinstance(anchor, Path) else lambda: anchor


def _authority(settings: Settings) -> tuple[LocalAuthority | None, TrustFiles | None]:
    """The local authority and its public files; without them tunnels that need TLS opened are refused."""
    try:
        ephemeral = settings.tls.ephemeral
        authority = LocalAuthority.create() if ephemeral else open_authority(settings.ca_dir)
        return authority, publish(authority, settings.ca_dir)
    except (DependencyError, OSError) as error:
        log.error("no local authority", extra={"reason": str(error)})  # noqa: TRY400
        return None, None


def _event_settings(settings: Settings) -> EventSettings:
    chosen = settings.events
    path = chosen.jsonl.path
    rotate = chosen.jsonl.rotate
    return EventSettings(
        device=_device(),
        version=__version__,
        directory=None if path is not None and not chosen.shorthand.enabled else settings.events_dir,
        compat=Compat(chosen.compat),
        jsonl=chosen.jsonl.enabled,
        jsonl_path=Standard.STDOUT if path == Path("-") else path,
        rotation=Rotation(rotate.daily, rotate.max_bytes, rotate.keep, Compress(rotate.compress)),
        fsync=Fsync(chosen.jsonl.fsync),
        shorthand=chosen.shorthand.enabled,
        stderr=StderrMode(chosen.shorthand.stderr),
        ring=chosen.ring,
    )


def _device() -> Device:
    try:
        name = Path("/etc/hostname").read_text(errors="replace").strip()
    except OSError:
        name = ""
    return Device(name or socket.gethostname())


def _bound(sock: socket.socket) -> tuple[IpAddress, int]:

    name = sock.getsockname()
    return ipaddress.ip_address(name[0]), name[1]


def _spelled(sock: socket.socket) -> str:
    address, port = _bound(sock)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
