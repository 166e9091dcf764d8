"""From a plan to the addresses of its host, asked once per connection and under a deadline.

Sources in order: what the plan knows, the workload's hosts file, the named DNS servers or the system resolver.
"""

import asyncio
import ipaddress
import logging
import os
import socket
import stat
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from egress.destination.hosts import addresses_of
from egress.destination.ranges import normalize
from egress.destination.validate import Plan
from egress.model.address import Host, IpAddress
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage

log = logging.getLogger(__name__)

type Answers = tuple[IpAddress, ...]

MAX_CACHE_SECONDS = 30.0
CACHED_NAMES = 1024
LOOKUP_THREADS = 16
HOSTS_FILE_BYTES = 256 * 1024
"""A workload's hosts file beyond this is cut: it is input under the workload's influence."""

_LOOPBACK: Answers = (ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"))


class WorkloadHosts(StrEnum):
    """Whether the workload's own hosts file may answer; `declared-only`: for hosts that policy names literally."""

    OFF = "off"
    DECLARED_ONLY = "declared-only"
    ON = "on"


@dataclass(frozen=True, slots=True)
class ResolverSettings:
    """Settings `resolver.*`; durations in seconds. Without `servers` the system resolver is asked."""

    servers: tuple[tuple[IpAddress, int], ...] = ()
    timeout: float = 5.0
    cache: float = 0.0
    workload_hosts: WorkloadHosts = WorkloadHosts.DECLARED_ONLY


class _LookupFailed(Exception):
    """A look-up gave no addresses."""

    def __init__(self, code: ReasonCode, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


class NameResolver:
    """Names to addresses. `workload_root` gives the root directory of the workload once there is one."""

    def __init__(self, settings: ResolverSettings, workload_root: Callable[[], Path | None] = lambda: None) -> None:
        self._settings = settings
        self._workload_root = workload_root
        # An executor of our own: threads that hang in the system resolver must not starve anybody else's.
        self._threads = ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="resolver")
        self._running: dict[str, asyncio.Future[Answers]] = {}
        self._cache: OrderedDict[str, tuple[float, Answers]] = OrderedDict()
        self._look_up: Callable[[Host], Awaitable[Answers]] = (
            _NameServers(settings.servers, settings.timeout).look_up if settings.servers else self._ask_system
        )

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def resolve(self, plan: Plan) -> Answers | Denial:
        """The addresses of the planned host. Called once per connection: what it says is all there is to dial."""
        host = plan.origin.host
        if plan.known is not None:
            return plan.known
        if host.name == "localhost" or host.name.endswith(".localhost"):
            return _LOOPBACK  # RFC 6761 section 6.3: never asked of anybody
        try:
            async with asyncio.timeout(self._settings.timeout):
                return await self._workload_answers(plan) or await self._cached(host)
        except TimeoutError:
            return _failed(plan, ReasonCode.DNS_TIMEOUT, f"no answer within {self._settings.timeout:g} s")
        except _LookupFailed as failure:
            return _failed(plan, failure.code, failure.why)

    async def _workload_answers(self, plan: Plan) -> Answers:
        wanted = self._settings.workload_hosts
        if plan.ours or wanted is WorkloadHosts.OFF or (wanted is WorkloadHosts.DECLARED_ONLY and not plan.declared):
            return ()
        root = self._workload_root()
        if root is None:
            return ()
        # In a thread: the file may lie on a file system that the workload itself serves, and hang.
        loop = asyncio.get_running_loop()
        text = await loop.run_in_executor(self._threads, _read_hosts, root / "etc/hosts")
        addresses = addresses_of(plan.origin.host.name, text)
        if addresses:
            log.debug("workload hosts file answered", extra={"host": plan.origin.host.name})
        return addresses

    async def _cached(self, host: Host) -> Answers:
        now = time.monotonic()
        expires, answers = self._cache.get(host.name, (0.0, ()))
        if now < expires:
            return answers
        answers = await self._look_up(host)
        lifetime = min(self._settings.cache, MAX_CACHE_SECONDS)
        if lifetime > 0:
            self._cache[host.name] = (now + lifetime, answers)
            self._cache.move_to_end(host.name)
            if len(self._cache) > CACHED_NAMES:
                self._cache.popitem(last=False)
        return answers

    async def _ask_system(self, host: Host) -> Answers:
        """One thread per name at a time: connections that ask for it meanwhile share the answer."""
        running = self._running.get(host.name)
        if running is None:
            loop = asyncio.get_running_loop()
            running = loop.run_in_executor(self._threads, _getaddrinfo, host.name)
            self._running[host.name] = running
            running.add_done_callback(lambda done: self._finished(host.name, done))
        return await asyncio.shield(running)

    def _finished(self, name: str, done: "asyncio.Future[Answers]") -> None:
        del self._running[name]
        if not done.cancelled():
            done.exception()  # every waiter may have given up


def _failed(plan: Plan, code: ReasonCode, why: str) -> Denial:
    reason = f"DNS resolution failed for {plan.origin}: {why}"
    return Denial(Stage.DESTINATION, DenialCode.DNS_FAILED, "name resolution failed", code, log_reason=reason)


_NO_ANSWER = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


def _getaddrinfo(name: str) -> Answers:
    try:
        # Bytes keep the idna codec out of it: the name is in A-label form already.
        rows = socket.getaddrinfo(name.encode("ascii"), None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        code = ReasonCode.DNS_NO_ANSWER if error.errno in _NO_ANSWER else ReasonCode.DNS_ERROR
        raise _LookupFailed(code, error.strerror or "resolver error") from None
    except OSError as error:
        raise _LookupFailed(ReasonCode.DNS_ERROR, error.strerror or "resolver error") from None
    return tuple(dict.fromkeys(normalize(ipaddress.ip_address(row[4][0])) for row in rows))


def _read_hosts(path: Path) -> str:
    """The text of a hosts file, empty when there is none. Anything but a plain file is left alone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            plain = stat.S_ISREG(os.fstat(descriptor).st_mode)
            content = os.read(descriptor, HOSTS_FILE_BYTES) if plain else b""
        finally:
            os.close(descriptor)
    except OSError:
        return ""
    return content.decode("utf-8", errors="replace")


class _NameServers:
    """DNS over named servers; A and AAAA together make one look-up."""

    def __init__(self, servers: Sequence[tuple[IpAddress, int]], timeout: float) -> None:
        # Half a second of imports that the system resolver does not need.
        import dns.asyncresolver  # noqa: PLC0415
        import dns.nameserver  # noqa: PLC0415

        self._resolver = dns.asyncresolver.Resolver(configure=False)
        self._resolver.nameservers = [dns.nameserver.Do53Nameserver(str(host), port) for host, port in servers]
        self._timeout = timeout

    async def look_up(self, host: Host) -> Answers:
        import dns.exception  # noqa: PLC0415
        import dns.resolver  # noqa: PLC0415

        try:
            found = await self._resolver.resolve_name(f"{host.name}.", lifetime=self._timeout, search=False)
        except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
            raise _LookupFailed(ReasonCode.DNS_NO_ANSWER, "the name has no addresses") from None
        except dns.exception.Timeout:
            raise TimeoutError from None
        except (dns.exception.DNSException, OSError) as error:
            raise _LookupFailed(ReasonCode.DNS_ERROR, type(error).__name__) from None
        canonical = found.canonical_name().to_text(omit_final_dot=True)
        if canonical != host.name:
            log.debug("name is an alias", extra={"host": host.name, "canonical": canonical})
        return tuple(normalize(ipaddress.ip_address(text)) for text in found.addresses())
