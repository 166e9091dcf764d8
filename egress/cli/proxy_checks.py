"""The usual mistakes with corporate proxies, found by trying, and what to set instead."""

from collections.abc import AsyncIterator
from dataclasses import replace
from ipaddress import ip_address

from egress.cli.checks import Check, State
from egress.cli.proxy import Outcome, look, try_destination, try_pinned
from egress.config.load import Loaded
from egress.config.settings import Settings
from egress.documents.diagnostic import Diagnostic, has_errors
from egress.generation.routes import routes_of
from egress.model.address import InvalidAddress, Origin, Port, Scheme, parse_host
from egress.model.destination import DialMode, PinnedDestination
from egress.model.intent import Ingress
from egress.model.verdict import DenialCode, ReasonCode
from egress.upstream.failure import Failure
from egress.upstream.plan import Hop, Hops, Routes, Target, plan

_NAME = "proxy"
_NOWHERE = ip_address("192.0.2.1")
"""Stands for an address that is not known (RFC 5737); nobody is asked for it."""

_RELAY = "run a local relay that speaks it for you, and name that in `url`"
_BY_NAME = "set `upstream_proxy.target: hostname`, also for single rules; the proxy's own rules are then what protects"
_HOP_HINTS = {
    ReasonCode.PROXY_CONNECT_FAILED: "check `url`, and that this host may reach it",
    ReasonCode.PROXY_TIMEOUT: "check `url`, and that this host may reach it",
    ReasonCode.PROXY_TLS_FAILED: "set `ca_file` to the authority of the proxy, `server_name` to the name it has there",
    ReasonCode.PROXY_MALFORMED_REPLY: "check the scheme of `url`: `http`, `https` or `socks5`",
}


async def examine(loaded: Loaded, name: str | None) -> AsyncIterator[Check]:
    """Look at every proxy, then try `name`, or the place of the health check."""
    settings = loaded.settings
    found: list[Diagnostic] = []
    routes = routes_of(settings, loaded.locate, found)
    for problem in found:
        yield Check(_NAME, State.PROBLEM, problem.message, problem.hint)
    if has_errors(found) or not routes.hops:
        return
    for hop, failure in (await look(settings, routes)).items():
        yield _hop(hop, failure)
    origin = _origin(routes, name)
    if origin is not None:
        yield await _destination(settings, routes, origin)


def _origin(routes: Routes, name: str | None) -> Origin | None:
    probe = routes.health.probe
    if name is None:
        return Origin(Scheme.HTTPS, probe.host, probe.port) if probe else None
    try:
        return Origin(Scheme.HTTPS, parse_host(name), Port(443))
    except InvalidAddress:
        return None  # told by the check of names


def _hop(hop: Hop, failure: Failure | None) -> Check:
    if failure is None:
        return Check(_NAME, State.OK, f"{hop} answers")
    return Check(_NAME, State.PROBLEM, f"{hop} {failure.told_operators}", _HOP_HINTS.get(failure.reason, ""))


async def _destination(settings: Settings, routes: Routes, origin: Origin) -> Check:
    outcome = await try_destination(settings, routes, origin)
    if outcome.trouble is None and not outcome.tls_trouble:
        return Check(_NAME, State.OK, f"{origin} is reached. {outcome.tls}".strip())
    detail = outcome.tls if outcome.trouble is None else outcome.trouble.log_reason or outcome.trouble.reason
    return Check(_NAME, State.PROBLEM, f"{origin}: {detail}", await _hint(settings, routes, outcome))


async def _hint(settings: Settings, routes: Routes, outcome: Outcome) -> str:
    trouble = outcome.trouble
    reason = trouble.reason_code if trouble else None
    if reason is ReasonCode.PROXY_AUTH_REJECTED:
        return _auth_hint(outcome)
    by_name = await _by_name(settings, routes, outcome.origin)
    if trouble is not None and trouble.code is DenialCode.DNS_FAILED:
        known = "the proxy knows the name and we do not (split-horizon DNS): "
        remedy = "set `resolver.servers` to servers that know it, or `destinations.aliases`"
        return (known if by_name else "") + remedy
    if by_name and reason is not None and reason.value.startswith("proxy_refused_"):
        refuses = "the proxy refuses addresses and takes the name: " if reason.value < "proxy_refused_5" else ""
        return f"{refuses or 'the proxy reaches it by name (split-horizon DNS): '}{_BY_NAME}"
    if outcome.tls_trouble and by_name and outcome.tls != by_name.tls:
        return f"by its name the proxy reaches another server (split-horizon DNS): {_BY_NAME}, or `resolver.servers`"
    if outcome.tls_trouble:
        return "a proxy that inspects TLS? add its authority to `tls.upstream_ca_file`"
    return _HOP_HINTS.get(reason, "ask who runs the proxy what it allows") if reason else ""


def _auth_hint(outcome: Outcome) -> str:
    answer = outcome.attempts[-1].failure.text if outcome.attempts and outcome.attempts[-1].failure else ""
    if "not spoken" in answer:
        return _RELAY
    if "asks for" in answer:
        return "set `auth` of the proxy: `basic_file`, `digest_file` or `bearer_file`"
    return "check the file that `auth` of the proxy names"


async def _by_name(settings: Settings, routes: Routes, origin: Origin) -> Outcome | None:
    """The same way, asked for by name; None where that does not lead there either, or no proxy is on the way."""
    named = replace(routes, rules=tuple(replace(rule, target=Target.HOSTNAME) for rule in routes.rules))
    unknown = PinnedDestination(origin, (_NOWHERE,), DialMode.DECLARED)
    if named == routes or origin.host.literal or not isinstance(plan(named, unknown, Ingress.CONNECT), Hops):
        return None
    outcome = await try_pinned(settings, named, unknown)
    return outcome if outcome.trouble is None else None
