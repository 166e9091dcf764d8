"""The operator's settings file, key by key. Immutable once read; paths are absolute after loading."""

import os
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Literal

from egress.config.credentials import Admin, MetadataServer, Plugins, Providers, TokenGrants
from egress.config.later import Advisor, AgentGateway, Gateway, Inference, Middleware, PolicyLocal, Shadow, Store, Table
from egress.config.sections import Section, fixed, later, live, required
from egress.config.types import (
    Address,
    Addresses,
    Approved,
    Count,
    CountOrAuto,
    DnsName,
    Duration,
    FilePath,
    FilePaths,
    HostGateway,
    Literal4Or6,
    Many,
    Moment,
    Network,
    PidOrPath,
    Resolver,
    Size,
    SocketAddress,
    Some,
    TokenOrOff,
    Uid,
    Wait,
    WaitOrOff,
    Word,
    read_address,
)
from egress.config.upstream import UpstreamProxy
from egress.model.intent import DEFAULT_AGENT, AgentName

DEFAULT_LISTEN: tuple[SocketAddress, ...] = (read_address("127.0.0.1:3128"),)


class Listen(Section):
    proxy: Addresses = fixed(DEFAULT_LISTEN, "where clients reach the proxy")


class ProxyAuth(Section):
    user: str = required("user name of `Proxy-Authorization: Basic`")
    password_file: FilePath = required("file with the password, mode 0600")


class AgentMatch(Section):
    uids: Some[Uid] | None = live(None, "user ids of local processes")
    cidrs: Some[Network] | None = live(None, "client addresses")
    proxy_auth: ProxyAuth | None = live(None, "a credential the client sends")

    def covers_block(self, block: IPv4Network | IPv6Network) -> bool:
        """True when `cidrs` holds every address of `block`."""
        return any(_within(block, own) for own in self.cidrs or ())


class Agent(Section):
    name: Word = required("what events, policies and quotas call this caller")
    match: AgentMatch = required("who is this agent; everything that is given must hold")
    policy: FilePaths | None = live(None, "policy of this agent; default `policy.file`")
    identity: Literal["required", "optional", "off"] | None = live(None, "default `identity.mode`")
    gateway: AgentGateway = later(AgentGateway(), "this agent's own sandbox at the gateway")


class Engine(Section):
    fast_lane: Literal["auto", "off"] = live("auto", "`off` sends every request through the mitmproxy lane")


class Http(Section):
    http2: Literal["auto", "prefer", "off"] = live("auto", "`auto`: HTTP/2 for clients that offer nothing else")
    via: TokenOrOff = live("egress", "name in the `Via` field of forwarded requests")


class Timeouts(Section):
    head: WaitOrOff = live(15.0, "a request head, from its first byte")
    body_idle: WaitOrOff = live(30.0, "silence inside a request body")
    tunnel_start: WaitOrOff = live(30.0, "the first byte in a tunnel that must be inspected")
    keepalive: WaitOrOff = live(300.0, "silence between requests")
    response_idle: WaitOrOff = live(300.0, "silence inside a response body")
    response_head: WaitOrOff = live(600.0, "an origin's response head")
    websocket_idle: WaitOrOff = live(None, "silence in a WebSocket")
    raw_idle: WaitOrOff = live(None, "silence in a raw tunnel")
    half_closed: WaitOrOff = live(60.0, "a raw tunnel of which one side has finished")
    connect: Wait = live(30.0, "connecting to an origin, all addresses together")
    connect_address: Wait = live(10.0, "connecting to one address")
    tls_handshake: Wait = live(10.0, "a TLS handshake, either side")
    drain: Wait = live(30.0, "open exchanges after SIGTERM")


class ConnectionLimits(Section):
    connections: CountOrAuto = live(None, "client connections; `auto`: 40 % of the descriptor limit")
    connections_per_caller: CountOrAuto = live(None, "the same per agent and address; `auto`: half of `connections`")
    pool_idle: Count = live(1024, "idle upstream connections kept")
    pool_idle_per_key: Count = live(16, "the same per destination and caller")
    pool_idle_time: Wait = live(60.0, "how long one is kept")
    leaf_cache: Count = live(1024, "hosts whose certificates are kept ready")

    def caps(self, descriptors: int) -> tuple[int, int]:
        """Client connections in all and per caller, for a process that may open this many descriptors."""
        total = self.connections or max(1, descriptors * 2 // 5)
        return total, self.connections_per_caller or max(1, total // 2)


class Errors(Section):
    verbose: bool = live(False, "refusals name the addresses that were refused")


class Identity(Section):
    mode: Literal["required", "optional", "off"] = live("required", "may a connection of unknown origin be judged")
    anchor: PidOrPath | None = fixed(None, "process, or file with its id, whose network and descendants are served")
    netns: PidOrPath | None = fixed(None, "network namespace of the clients; default our own")
    tofu: Literal["strict", "warn", "off"] = live("strict", "a program whose file changed since its first use")
    recheck: WaitOrOff = live(None, "how often the owner of an open tunnel is asked again")


class Destinations(Section):
    aliases: Mapping[DnsName, Literal4Or6] = live({}, "names with an address that you vouch for; may be loopback")
    host_gateway: HostGateway = live("auto", "address of the container host for its usual names")
    trust_declared_hosts: bool = live(True, "a host that policy names literally may have a private address")


class ResolverSettings(Section):
    servers: Many[Resolver] = live((), "name servers; default the system's resolver")
    timeout: Wait = live(5.0, "one lookup")
    cache: Moment = live(0.0, "how long an answer may be used again, at most 30s")
    workload_hosts: Literal["off", "declared-only", "on"] = live(
        "declared-only", "may names come from the hosts file of the workload"
    )


class Tls(Section):
    ca_dir: FilePath | None = fixed(None, "directory of the local authority; default `<state_dir>/ca`")
    ephemeral: bool = fixed(False, "a new authority each start, whose key is never written")
    upstream_ca_file: FilePath | None = live(None, "certificates trusted for origins beside the system's")


class PolicySettings(Section):
    file: FilePaths | None = live(None, "policy files, or a directory of them, merged in order")
    default_enforcement: Literal["enforce", "audit"] = live("enforce", "where an endpoint does not say")
    on_invalid: Literal["keep", "quarantine"] = live("keep", "a reload that does not load: stay, or deny everything")
    start_without_valid: Literal["exit", "quarantine", "lkg"] = later("exit", "a start without a valid policy")
    approved: Approved = live("auto", "file of approved proposals", only=("auto", "off"))
    tests: Many[FilePath] = live((), "files of requests with their expected answers, for `egress test`")
    shadow: Shadow | None = later(None, "a second policy, only compared")


class Rotate(Section):
    daily: bool = live(True, "a new file each day (UTC)")
    max_bytes: Size = live(256 * 1024 * 1024, "a new file at this size")
    keep: Count = live(7, "files kept")
    compress: Literal["gzip", "off"] = live("gzip", "what becomes of finished files")


class Jsonl(Section):
    enabled: bool = live(True, "OCSF events as JSON lines")
    path: FilePath | None = live(None, "file, or `-` for standard output; default in `events.dir`")
    rotate: Rotate = live(Rotate(), "when files are changed")
    fsync: Literal["interval", "off"] = live("interval", "`interval`: forced to disk once a second")


class Shorthand(Section):
    enabled: bool = live(True, "one readable line per event")
    stderr: Literal["auto", "on", "off"] = live("auto", "also on standard error; `auto`: when it is a terminal")


class Events(Section):
    compat: Literal["openshell", "off"] = live("openshell", "keep the spellings of OpenShell's events")
    dir: FilePath | None = fixed(None, "default `/var/log/egress`, or `<state_dir>/log` when not root")
    jsonl: Jsonl = live(Jsonl(), "the event file")
    shorthand: Shorthand = live(Shorthand(), "the readable log")
    sinks: Many[Table] = later((), "further destinations of events")
    ring: Count = live(20000, "events kept in memory")
    drop_policy: Literal["block_deny_allow"] = live("block_deny_allow", "what is dropped first under pressure")


class Metrics(Section):
    address: Address | None = fixed(None, "where Prometheus may scrape")


class Logs(Section):
    level: Literal["debug", "info", "warning", "error"] = live("warning", "least level that is logged")
    format: Literal["auto", "json"] = live("auto", "`auto`: readable on a terminal, else JSON")


class Reload(Section):
    watch: bool = live(True, "reload when a file changes; SIGHUP always does")
    quiet: Duration = live(0.2, "silence after a change before it is read")
    max_wait: Wait = live(2.0, "longest wait for that silence")
    grace: Moment = live(0.0, "how long a superseded response may go on, at most 30s")
    history: Count = later(50, "generations remembered")
    check_origin: Literal["on", "off"] = live("on", "refuse files that others may write")


class Settings(Section):
    """Everything an operator can set; the keys stand in the order of the reference."""

    version: Literal[1] = required("version of this file's format")
    listen: Listen = live(Listen(), "listeners")
    workers: Count = later(1, "worker processes")
    state_dir: FilePath | None = fixed(None, "default `/var/lib/egress`; not root: `$XDG_STATE_HOME/egress`")
    agents: Many[Agent] = live((), "callers; with none, programs on this host are the agent `default`")
    engine: Engine = live(Engine(), "lanes")
    http: Http = live(Http(), "HTTP")
    timeouts: Timeouts = live(Timeouts(), "deadlines")
    limits: ConnectionLimits = live(ConnectionLimits(), "limits")
    errors: Errors = live(Errors(), "refusals")
    identity: Identity = live(Identity(), "which program is calling")
    destinations: Destinations = live(Destinations(), "where traffic may go, beside policy")
    resolver: ResolverSettings = live(ResolverSettings(), "names")
    tls: Tls = live(Tls(), "certificates")
    policy: PolicySettings = live(PolicySettings(), "policy")
    policy_local: PolicyLocal = later(PolicyLocal(), "`policy.local`")
    advisor: Advisor = later(Advisor(), "proposals from denials")
    providers: Providers = live(Providers(), "credentials")
    token_grants: TokenGrants = live(TokenGrants(), "token grants")
    metadata_server: MetadataServer = live(MetadataServer(), "cloud metadata")
    middleware: Middleware = later(Middleware(), "middleware")
    plugins: Plugins = live(Plugins(), "plugins")
    store: Store = later(Store(), "state shared by instances")
    inference: Inference = later(Inference(), "model routing")
    upstream_proxy: UpstreamProxy = live(UpstreamProxy(), "corporate proxies")
    events: Events = live(Events(), "events")
    metrics: Metrics = live(Metrics(), "metrics")
    logs: Logs = live(Logs(), "diagnostic log")
    reload: Reload = live(Reload(), "reload")
    admin: Admin = live(Admin(), "operator surface")
    gateway: Gateway = later(Gateway(), "OpenShell gateway")

    @property
    def state(self) -> Path:
        """The state directory that is in force."""
        return self.state_dir or default_state_dir()

    @property
    def ca_dir(self) -> Path:
        """Where certificate and bundle are. An ephemeral authority keeps out of the way of a lasting one."""
        directory = self.tls.ca_dir or self.state / "ca"
        return directory / "ephemeral" if self.tls.ephemeral else directory

    @property
    def events_dir(self) -> Path:
        if self.events.dir:
            return self.events.dir
        return Path("/var/log/egress") if os.geteuid() == 0 else self.state / "log"

    @property
    def admin_socket(self) -> Path:
        if self.admin.unix.path:
            return self.admin.unix.path
        return Path("/run/egress/admin.sock") if os.geteuid() == 0 else self.state / "admin.sock"

    @property
    def policy_files(self) -> Mapping[AgentName, tuple[Path, ...]]:
        """Whose policy stands where; an agent without a policy has no files and is denied everything."""
        shared = self.policy.file or ()
        if not self.agents:
            return {DEFAULT_AGENT: shared}
        return {AgentName(agent.name): agent.policy or shared for agent in self.agents}


def _within(inner: IPv4Network | IPv6Network, outer: IPv4Network | IPv6Network) -> bool:
    if inner.version != outer.version or inner.prefixlen < outer.prefixlen:
        return False
    return inner.network_address in outer


def default_state_dir() -> Path:
    """Where state goes when nobody says."""
    if os.geteuid() == 0:
        return Path("/var/lib/egress")
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "state") / "egress"
