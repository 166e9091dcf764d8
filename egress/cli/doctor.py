"""`egress doctor`: looks for what keeps a proxy from working on this machine, and says what to do about it."""

import asyncio
import errno
import os
import resource
import socket
import ssl
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

from egress.cli.checks import Check, State
from egress.cli.operator import load_settings
from egress.cli.proxy_checks import examine
from egress.cli.terminal import ExitCode, show, show_json
from egress.config.files import origin_problems
from egress.config.load import Loaded
from egress.config.settings import Settings
from egress.config.types import SocketAddress
from egress.destination.resolver import NameResolver, ResolverSettings, WorkloadHosts
from egress.destination.validate import DestinationSettings, plan
from egress.identity.resolver import IdentitySettings, ProcessIdentity
from egress.model.address import InvalidAddress, Origin, Port, Scheme, parse_host
from egress.model.destination import AddressRule
from egress.model.errors import EgressError
from egress.model.intent import SocketPair
from egress.model.process import EvidenceUnavailable
from egress.model.verdict import Denial
from egress.tls.ca import BUNDLE_FILE, KEY_FILE, LocalAuthority, load_authority
from egress.tls.cache import ContextCache
from egress.tls.profile import TlsProfile, system_bundle

_FEW_DESCRIPTORS = 4096
_RESOLVER_FILE = Path("/etc/resolv.conf")
_PROBE_HOST = "doctor.test"


def doctor(config: Path | None, name: str | None, *, as_json: bool) -> ExitCode:
    """Look at everything and report."""
    checks = tuple(_examine(config, name))
    if as_json:
        show_json([{"name": c.name, "state": c.state, "detail": c.detail, "hint": c.hint or None} for c in checks])
    else:
        show("".join(map(_line, checks)))
    return ExitCode.FAILURE if any(check.state is State.PROBLEM for check in checks) else ExitCode.FINE


def _line(check: Check) -> str:
    text = f"{check.state:<8} {check.name:<12} {check.detail}\n"
    return f"{text}{'':<22}{check.hint}\n" if check.hint else text


def _examine(config: Path | None, name: str | None) -> Iterator[Check]:
    loaded = load_settings(config)
    if isinstance(loaded, tuple):
        yield Check("settings", State.PROBLEM, f"{len(loaded)} finding(s)", "`egress check` prints them")
        loaded = Loaded(Settings(version=1), None)
    else:
        yield Check("settings", State.OK, str(loaded.file or "none, defaults hold"))
    settings = loaded.settings
    yield from map(_port, settings.listen.proxy)
    yield _descriptors(settings)
    yield from _authority(settings)
    yield from _trust(settings)
    yield from _files(loaded)
    yield from asyncio.run(_with_loop(loaded, name))


def _port(address: SocketAddress) -> Check:
    family = socket.AF_INET6 if ":" in address.host.name else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host.name, address.port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                hint = "fine if it is the proxy; else set `listen.proxy`"
                return Check("port", State.WARNING, f"something listens on {address} already", hint)
            return Check("port", State.PROBLEM, f"{address}: {error.strerror}", "set `listen.proxy` or --listen")
    return Check("port", State.OK, f"{address} is free")


def _descriptors(settings: Settings) -> Check:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    total, per_caller = settings.limits.caps(limit)
    detail = f"{limit} descriptors: {total} clients, {per_caller} per caller"
    if limit < _FEW_DESCRIPTORS:
        return Check(
            "descriptors", State.WARNING, detail, "raise the limit (`ulimit -n`, LimitNOFILE=) for a busy host"
        )
    return Check("descriptors", State.OK, detail)


def _authority(settings: Settings) -> Iterator[Check]:
    directory = settings.ca_dir
    if not (directory / KEY_FILE).exists():
        writable = _nearest(directory)
        if os.access(writable, os.W_OK | os.X_OK):
            yield Check("authority", State.OK, f"none in {directory} yet; the first start makes one")
        else:
            yield Check("authority", State.PROBLEM, f"{writable} cannot be written", "set `state_dir` or `tls.ca_dir`")
        return
    try:
        authority = load_authority(directory)
        _handshake(authority)
    except (EgressError, ssl.SSLError) as error:
        yield Check("authority", State.PROBLEM, str(error), "`egress ca rotate` makes a new one")
        return
    end = authority.certificate.not_valid_after_utc
    yield Check("authority", State.OK, f"{directory}, until {end:%Y-%m-%d}; strict clients accept it")
    bundle = directory / BUNDLE_FILE
    if not bundle.exists() or authority.pem not in bundle.read_bytes():
        yield Check("bundle", State.WARNING, f"{bundle} lacks the authority", "`egress ca init` writes it anew")


def _nearest(directory: Path) -> Path:
    """The first directory on the way up that exists."""
    return next(path for path in (directory, *directory.parents) if path.exists())


def _handshake(authority: LocalAuthority) -> None:
    """Be a strict client of our own certificates."""
    client = ssl.create_default_context(cadata=authority.pem.decode("ascii"))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    server = ContextCache(authority, 1, TlsProfile()).server_context(parse_host(_PROBE_HOST), ())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=_PROBE_HOST)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for end in (near, far, near, far):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue


def _trust(settings: Settings) -> Iterator[Check]:
    roots = system_bundle()
    if roots is None:
        hint = "install the distribution's CA certificates"
        yield Check("roots", State.WARNING, "this system has no bundle of root certificates", hint)
    else:
        yield Check("roots", State.OK, str(roots))
    try:
        TlsProfile(settings.tls.upstream_ca_file)
    except EgressError as error:
        yield Check("roots", State.PROBLEM, str(error), "check `tls.upstream_ca_file`")


def _files(loaded: Loaded) -> Iterator[Check]:
    uids = {uid for agent in loaded.settings.agents for uid in agent.match.uids or ()}
    policies = {path for paths in loaded.settings.policy_files.values() for path in paths}
    named = sorted(policies | ({loaded.file} if loaded.file else set()))
    for path in named:
        if not path.exists():
            yield Check("files", State.PROBLEM, f"{path} does not exist")
            continue
        for problem in origin_problems(path, uids):
            yield Check("files", State.PROBLEM, f"{problem.location} {problem.message}", problem.hint)
    state = loaded.settings.state
    if state.exists() and state.stat().st_mode & 0o022:
        yield Check("files", State.PROBLEM, f"{state} may be written by others", f"chmod go-w {state}")


async def _with_loop(loaded: Loaded, name: str | None) -> list[Check]:
    settings = loaded.settings
    checks = [await _identity(settings), *_foreign_processes(settings), await _names(settings, name)]
    return checks + [check async for check in examine(loaded, name)]


async def _identity(settings: Settings) -> Check:
    """Ask who is behind a connection of our own."""
    if settings.identity.mode == "off":
        return Check("identity", State.WARNING, "off: only policy entries for any program (`/**`) match")
    identity = ProcessIdentity(IdentitySettings())
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
            evidence = await identity.identify(_pair(client.getsockname(), server.getsockname()))
    finally:
        identity.close()
    if isinstance(evidence, EvidenceUnavailable):
        hint = "`identity: {mode: off}` does without, and matches only entries for any program"
        return Check("identity", State.PROBLEM, evidence.detail, hint)
    return Check("identity", State.OK, f"connections are traced to programs (found {evidence.executable})")


def _pair(client: tuple[str, int], proxy: tuple[str, int]) -> SocketPair:
    return SocketPair(ip_address(client[0]), Port(client[1]), ip_address(proxy[0]), Port(proxy[1]))


def _foreign_processes(settings: Settings) -> Iterator[Check]:
    """Sockets of other users can be seen by anybody, their programs cannot."""
    if settings.identity.mode == "off" or os.geteuid() == 0:
        return
    closed = sum(not _visible(path) for path in Path("/proc").glob("[0-9]*"))
    if closed:
        detail = f"{closed} processes of other users cannot be looked into; their connections are refused"
        yield Check("identity", State.WARNING, detail, "run as root or with CAP_SYS_PTRACE to serve them")


def _visible(process: Path) -> bool:
    try:
        (process / "exe").readlink()
    except PermissionError:
        return False
    except OSError:
        return True  # a kernel thread, or gone
    return True


async def _names(settings: Settings, name: str | None) -> Check:
    if name is None:
        return _name_servers(settings)
    try:
        origin = Origin(Scheme.HTTPS, parse_host(name), Port(443))
    except InvalidAddress as error:
        return Check("names", State.PROBLEM, f"{name}: {error}")
    chosen = settings.resolver
    servers = tuple((address, server.port) for server in chosen.servers if (address := server.host.address))
    resolver = NameResolver(ResolverSettings(servers, chosen.timeout, 0, WorkloadHosts.OFF))
    try:
        planned = plan(AddressRule(declared=True), origin, DestinationSettings())
        answers = planned if isinstance(planned, Denial) else await resolver.resolve(planned)
    finally:
        resolver.close()
    if isinstance(answers, Denial):
        return Check(
            "names", State.WARNING, f"{name}: {answers.log_reason or answers.reason}", "see `resolver` settings"
        )
    return Check("names", State.OK, f"{name} is {', '.join(map(str, answers))}")


def _name_servers(settings: Settings) -> Check:
    """Who would be asked; nobody is."""
    servers = [str(server) for server in settings.resolver.servers]
    if not servers:
        try:
            words = [line.split() for line in _RESOLVER_FILE.read_text(errors="replace").splitlines()]
        except OSError:
            words = []
        servers = [parts[1] for parts in words if len(parts) > 1 and parts[0] == "nameserver"]
    if servers:
        return Check("names", State.OK, f"asked of {', '.join(servers)}; `--name HOST` tries one")
    return Check("names", State.WARNING, "no name server is configured", "set `resolver.servers`")
