"""`egress proxy`: the ways out as they are set, and one of them tried step by step."""

import asyncio
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from egress.cli.operator import load_settings
from egress.cli.terminal import ExitCode, complain, fail, refuse, show, show_json
from egress.config.settings import Settings
from egress.destination.resolver import NameResolver, ResolverSettings, WorkloadHosts
from egress.destination.validate import DestinationSettings, plan, validate
from egress.documents.diagnostic import Diagnostic, has_errors
from egress.engine.carried import OriginStream
from egress.engine.stream import DeadlineExceeded
from egress.generation.routes import routes_of
from egress.http.target import read_connect_target
from egress.model.address import Origin
from egress.model.destination import AddressRule, PinnedDestination
from egress.model.errors import EgressError
from egress.model.intent import Ingress
from egress.model.message import Malformed
from egress.model.verdict import Denial
from egress.tls.profile import FAILURE_TEXT, TlsProfile, failure_reason
from egress.upstream.chain import Attempt, ChainDialer
from egress.upstream.dial import Dialer, DialTimes
from egress.upstream.failure import Failure
from egress.upstream.health import Health
from egress.upstream.plan import Chain, Direct, Hop, Hops, Route, Routes

_TLS_PORT = 443


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of trying one destination. `trouble` is empty when it was reached."""

    origin: Origin
    addresses: tuple[str, ...] = ()
    route: Route | None = None
    attempts: tuple[Attempt, ...] = ()
    trouble: Denial | None = None
    tls: str = ""
    """How TLS with the destination went, where it was tried."""
    tls_trouble: bool = False


def status(config: Path | None, *, as_json: bool) -> ExitCode:
    """Every proxy with a look at it now, every chain and rule."""
    settings, routes = _configured(config)
    looks = asyncio.run(look(settings, routes))
    if as_json:
        show_json(_status_json(settings, routes, looks))
    else:
        show("".join(_status_text(settings, routes, looks)))
    return ExitCode.FAILURE if any(looks.values()) else ExitCode.FINE


def test(target: str, config: Path | None, *, as_json: bool) -> ExitCode:
    """Take the way to one destination and tell each step."""
    origin = read_connect_target(target.encode())
    if isinstance(origin, Malformed):
        fail(f"`{target}` is no HOST:PORT: {origin.reason}", ExitCode.INVALID)
    settings, routes = _configured(config)
    outcome = asyncio.run(try_destination(settings, routes, origin))
    if as_json:
        show_json(_outcome_json(outcome))
    else:
        show("".join(f"{line}\n" for line in describe(outcome)))
    return ExitCode.FAILURE if outcome.trouble or outcome.tls_trouble else ExitCode.FINE


def _configured(config: Path | None) -> tuple[Settings, Routes]:
    loaded = load_settings(config)
    if isinstance(loaded, tuple):
        refuse(loaded)
    found: list[Diagnostic] = []
    routes = routes_of(loaded.settings, loaded.locate, found)
    if has_errors(found):
        refuse(found)
    complain(found)
    return loaded.settings, routes


# trying ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Way:
    """A dialer that remembers what it tried."""

    dialer: ChainDialer[OriginStream]
    attempts: list[Attempt] = field(default_factory=list)


def _way(settings: Settings, routes: Routes) -> _Way:
    loop = asyncio.get_running_loop()
    attempts: list[Attempt] = []
    times = DialTimes(settings.timeouts.connect_address, settings.timeouts.connect)
    sockets = Dialer(lambda: OriginStream(loop), times)
    dialer = ChainDialer(sockets, Health(loop.time, lambda _hop, _up: None), loop, attempts.append)
    dialer.install(routes, sockets)
    return _Way(dialer, attempts)


async def look(settings: Settings, routes: Routes) -> dict[Hop, Failure | None]:
    """Every proxy that is reached from here, and what is wrong with it."""
    return await _way(settings, routes).dialer.check()


async def try_destination(settings: Settings, routes: Routes, origin: Origin) -> Outcome:
    """Resolve, plan, dial, and where it looks like it, verify TLS at the far end."""
    pinned = await _resolved(settings, origin)
    return Outcome(origin, trouble=pinned) if isinstance(pinned, Denial) else await try_pinned(settings, routes, pinned)


async def try_pinned(settings: Settings, routes: Routes, pinned: PinnedDestination) -> Outcome:
    """The same for a destination that is resolved already."""
    origin = pinned.origin
    way = _way(settings, routes)
    route = way.dialer.route(pinned, Ingress.CONNECT)
    stream = await way.dialer.dial(pinned, Ingress.CONNECT)
    addresses = tuple(map(str, pinned.addresses))
    if isinstance(stream, Denial):
        return Outcome(origin, addresses, route, tuple(way.attempts), stream)
    try:
        tls, trouble = await _verify(settings, stream, origin) if origin.port == _TLS_PORT else ("", False)
    finally:
        stream.abort()
    return Outcome(origin, addresses, route, tuple(way.attempts), tls=tls, tls_trouble=trouble)


async def _resolved(settings: Settings, origin: Origin) -> PinnedDestination | Denial:
    """As for a policy that names the host."""
    chosen = settings.resolver
    servers = tuple((address, server.port) for server in chosen.servers if (address := server.host.address))
    resolver = NameResolver(ResolverSettings(servers, chosen.timeout, 0, WorkloadHosts.OFF))
    aliases = {host.name: address for host, address in settings.destinations.aliases.items()}
    try:
        planned = plan(AddressRule(declared=True, control_plane_port=True), origin, DestinationSettings(aliases))
        answers = planned if isinstance(planned, Denial) else await resolver.resolve(planned)
    finally:
        resolver.close()
    if isinstance(planned, Denial):
        return planned
    return answers if isinstance(answers, Denial) else validate(planned, answers, frozenset())


async def _verify(settings: Settings, stream: OriginStream, origin: Origin) -> tuple[str, bool]:
    context = TlsProfile(settings.tls.upstream_ca_file).upstream_context(("http/1.1",))
    seconds = settings.timeouts.tls_handshake
    try:
        await stream.start_tls(context, server_side=False, server_hostname=origin.host.name, seconds=seconds)
    except ssl.SSLError as error:
        return FAILURE_TEXT[failure_reason(error)], True
    except DeadlineExceeded:
        return "the TLS handshake with the origin timed out", True
    except EgressError as error:
        return f"TLS: {error}", True
    return "the origin's certificate is good", False


# telling -----------------------------------------------------------------------------------------------------------


def describe(outcome: Outcome) -> Iterator[str]:
    """Each step on a line of its own."""
    if outcome.addresses:
        yield f"{outcome.origin} resolves to {', '.join(outcome.addresses)}"
    match outcome.route:
        case Direct(addresses):
            yield "plan: direct" + (f", to {', '.join(map(str, addresses))} only" if addresses else "")
        case Hops() as hops:
            yield f"plan: {hops}, asked for the {hops.target}"
    for attempt in outcome.attempts:
        failure = attempt.failure
        answer = "connected" if failure is None else f"{attempt.hop.name} {failure.told_operators}"
        yield f"{_chain_text(attempt.chain)}: {attempt.asked}: {answer} ({attempt.seconds * 1000:.0f} ms)"
    if outcome.trouble is not None:
        reason = outcome.trouble.reason_code
        yield f"failed: {outcome.trouble.log_reason or outcome.trouble.reason}" + (f" [{reason}]" if reason else "")
    if outcome.tls:
        yield outcome.tls


def _chain_text(chain: Chain) -> str:
    return " > ".join(hop.name for hop in chain)


def _status_text(settings: Settings, routes: Routes, looks: dict[Hop, Failure | None]) -> Iterator[str]:
    if not routes.hops:
        yield "no upstream proxy: every destination is dialled directly\n"
        return
    for hop in routes.hops:
        yield f"{_look_text(hop, looks):<10} {hop}{_credential_text(hop)}\n"
        failure = looks.get(hop)
        if failure is not None:
            yield f"{'':<10} {failure.told_operators}\n"
    for name, chains in settings.upstream_proxy.chains.items():
        yield f"chain {name}: {' or '.join(' > '.join(chain) for chain in chains)}\n"
    if routes.no_proxy:
        yield f"direct: {settings.upstream_proxy.no_proxy}\n"
    for rule in settings.upstream_proxy.rules:
        yield f"rule: {', '.join(rule.match)} via {rule.via}\n"
    yield f"plain requests: {routes.plain_http}\n"


def _look_text(hop: Hop, looks: dict[Hop, Failure | None]) -> str:
    if hop not in looks:
        return "behind"  # only reached through other proxies
    return "up" if looks[hop] is None else "down"


def _credential_text(hop: Hop) -> str:
    return f", {hop.credential.scheme} credential" if hop.credential else ""


def _status_json(settings: Settings, routes: Routes, looks: dict[Hop, Failure | None]) -> dict[str, Any]:
    proxies = [
        {
            "name": hop.name,
            "kind": hop.kind,
            "address": str(hop.place),
            "credential": hop.credential.scheme if hop.credential else None,
            "state": _look_text(hop, looks),
            "reason": failure.told_operators if (failure := looks.get(hop)) else None,
        }
        for hop in routes.hops
    ]
    return {
        "proxies": proxies,
        "chains": {name: [list(chain) for chain in chains] for name, chains in settings.upstream_proxy.chains.items()},
        "rules": [{"match": list(rule.match), "via": rule.via} for rule in settings.upstream_proxy.rules],
        "no_proxy": settings.upstream_proxy.no_proxy,
        "plain_http": routes.plain_http,
    }


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    trouble = outcome.trouble
    attempts = [
        {
            "chain": [hop.name for hop in attempt.chain],
            "asked": str(attempt.asked),
            "seconds": round(attempt.seconds, 3),
            "failed_at": attempt.hop.name if attempt.failure else None,
            "reason_code": attempt.failure.reason if attempt.failure else None,
            "answer": attempt.failure.told_operators if attempt.failure else "connected",
        }
        for attempt in outcome.attempts
    ]
    return {
        "destination": str(outcome.origin),
        "addresses": list(outcome.addresses),
        "plan": "direct" if isinstance(outcome.route, Direct) else "proxy" if outcome.route else None,
        "attempts": attempts,
        "ok": trouble is None and not outcome.tls_trouble,
        "error": trouble.code.word if trouble else None,
        "reason_code": trouble.reason_code if trouble else None,
        "tls": outcome.tls or None,
    }
