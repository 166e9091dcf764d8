"""The compiled policy: what evaluation reads. Values compare by authored content, never by compiled matchers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from egress.model.address import Host, IpNetwork
from egress.model.destination import AddressRule, TlsMode
from egress.model.verdict import RuleRef, Verdict
from egress.policy.calls import CallIndex
from egress.policy.globs import GlobIndex
from egress.policy.hosts import HostTable


class Protocol(StrEnum):
    """What an endpoint's traffic is read as. `L4` (no protocol) and `TCP` are not read."""

    L4 = "l4"
    TCP = "tcp"
    REST = "rest"
    WEBSOCKET = "websocket"
    GRAPHQL = "graphql"
    SQL = "sql"
    JSON_RPC = "json-rpc"
    MCP = "mcp"


INSPECTED = frozenset((Protocol.REST, Protocol.WEBSOCKET, Protocol.GRAPHQL, Protocol.JSON_RPC, Protocol.MCP))


class Enforcement(StrEnum):
    ENFORCE = "enforce"
    AUDIT = "audit"


class Http2(StrEnum):
    """Decision 9: HTTP/2 for clients that offer nothing else, for all that offer it, for none."""

    AUTO = "auto"
    PREFER = "prefer"
    OFF = "off"


type QueryPairs = tuple[tuple[str, str], ...]
"""Decoded names and values of a query, in order."""

type ValueGlobs = tuple[str, ...]
"""Any of these globs."""


@dataclass(frozen=True, slots=True)
class QueryMatcher:
    """One named query parameter and what its values may be."""

    name: str
    globs: ValueGlobs
    values: GlobIndex = field(compare=False, repr=False)

    def accepts(self, pairs: QueryPairs) -> bool:
        """As an allow rule reads it: the parameter is there, and all of its values match."""
        values = [value for name, value in pairs if name == self.name]
        return bool(values) and all(self.values.match(value) for value in values)

    def fires(self, pairs: QueryPairs) -> bool:
        """As a deny rule reads it: some value matches."""
        return any(name == self.name and self.values.match(value) for name, value in pairs)


@dataclass(frozen=True, slots=True)
class Rule:
    """One allow or deny clause. Members that the endpoint's protocol does not use are empty.

    `method` is upper case for HTTP methods and `*` for any; JSON-RPC and MCP methods keep their case.
    """

    ref: RuleRef = field(compare=False)
    method: str = ""
    path: str = ""
    query: tuple[QueryMatcher, ...] = ()
    command: str = ""
    operation_type: str = ""
    operation_name: str = ""
    fields: ValueGlobs = ()
    over: str = ""
    tool: ValueGlobs = ()
    arguments: tuple[tuple[str, ValueGlobs], ...] = ()

    def covers_method(self, method: str) -> bool:
        """Does the rule speak of the HTTP method (upper case)? GET covers HEAD, never the other way round."""
        return self.method in ("*", method) or (method == "HEAD" and self.method == "GET")


@dataclass(frozen=True, slots=True)
class Signing:
    """AWS re-signing of an endpoint's requests."""

    mode: str
    service: str
    region: str = ""
    presigned: str = "resign"
    object_keys: str = "canonical"
    oversize: str = "reject"
    max_body_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CredentialOptions:
    """How credentials may be placed into and kept out of an endpoint's traffic."""

    provider: str = ""
    allow_uninspected: bool = False
    websocket_rewrite: bool = False
    body_rewrite: bool = False
    cookie_rewrite: bool = False
    header_substring_rewrite: bool = False
    websocket_rewrite_compat: bool = False
    max_rewrite_body_bytes: int = 256 * 1024
    redact_responses: str = "all"
    deny_minting: bool = True
    signing: Signing | None = None


@dataclass(frozen=True, slots=True)
class PersistedQuery:
    """One registered GraphQL operation."""

    id: str
    operation_type: str
    operation_name: str = ""
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphqlOptions:
    """`over_websocket`: client messages of a `websocket` endpoint are GraphQL and have to be read as such."""

    persisted_queries: str = "deny"
    registered: tuple[PersistedQuery, ...] = ()
    over_websocket: bool = False


@dataclass(frozen=True, slots=True)
class McpOptions:
    strict_tool_names: bool = True
    allow_all_known_methods: bool = False
    deny_style: str = "rpc"


VERDICT_LIMIT = 8192
"""Verdicts remembered per policy; then all are dropped and the next questions fill the memory again."""


@dataclass(frozen=True, slots=True)
class Matchers:
    """Compiled once per generation: the endpoint's own path, its rule paths (allow rules first, then deny), and in
    the same order the calls that RPC rules speak of.

    `verdicts` is shared by all endpoints of one policy and belongs to `egress.l7.judge`.
    """

    route: GlobIndex | None
    paths: GlobIndex
    verdicts: dict[Any, Verdict]
    calls: CallIndex


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint of an entry. Equal when the authored content is.

    `host` is the canonical pattern, empty for a hostless endpoint. `path` is empty for every path.
    `detect_timeout` is seconds, None waits forever. `allowed_ips` is None when not written.
    """

    entry: str
    index: int
    host: str
    ports: tuple[int, ...]
    path: str
    protocol: Protocol
    enforcement: Enforcement
    tls: TlsMode
    http2: Http2
    access: str
    rules: tuple[Rule, ...]
    deny_rules: tuple[Rule, ...]
    allowed_ips: tuple[IpNetwork, ...] | None
    allow_control_plane_port: bool
    allow_upgrade: bool
    websocket: str
    allow_encoded_slash: bool
    reject_noncanonical: bool
    allow_double_escape: bool
    allow_backslash: bool
    detect_timeout: float | None
    max_body_bytes: int
    credentials: CredentialOptions
    graphql: GraphqlOptions
    mcp: McpOptions
    matchers: Matchers = field(compare=False, repr=False)
    location: str = field(compare=False, default="")
    rank: int = field(compare=False, default=0)
    """Number of characters of `path` that are not `*`: the highest rank owns a request."""
    key: int = field(compare=False, default=0, repr=False)

    def __hash__(self) -> int:
        return self.key

    @property
    def inspected(self) -> bool:
        """True when requests are read and judged."""
        return self.protocol in INSPECTED

    @property
    def names_host(self) -> bool:
        """True when the host is written out, without wildcard."""
        return bool(self.host) and "*" not in self.host

    def covers_path(self, path: str) -> bool:
        """Does this endpoint take part in judging requests for the canonical path?"""
        route = self.matchers.route
        return route is None or bool(route.match(path))


@dataclass(frozen=True, slots=True)
class Binary:
    """One program of an entry. `resolved` is where `path` leads when it is a symbolic link.

    `sha256` lists the only images accepted; `direct` refuses a match through a descendant.
    """

    path: str
    sha256: tuple[str, ...] = ()
    direct: bool = False
    resolved: str | None = field(default=None, compare=False)

    @property
    def any(self) -> bool:
        """True when the item stands for every program, known or not."""
        return self.path in ("/**", "**") and not self.sha256


@dataclass(frozen=True, slots=True)
class Entry:
    """One named item of `network_policies`."""

    key: str
    name: str
    endpoints: tuple[Endpoint, ...]
    binaries: tuple[Binary, ...]
    location: str = field(compare=False, default="")


@dataclass(frozen=True, slots=True)
class MiddlewareEntry:
    """One item of `network_middlewares`, not yet resolved to an implementation."""

    key: str
    name: str
    middleware: str
    order: int
    config: Mapping[str, Any]
    on_error: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    location: str = field(compare=False, default="")


@dataclass(frozen=True, slots=True)
class FilesystemSection:
    include_workdir: bool
    read_only: tuple[str, ...]
    read_write: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProcessSection:
    run_as_user: str | None
    run_as_group: str | None


@dataclass(frozen=True, slots=True)
class StaticSections:
    """What whoever launches the workload enforces; the proxy keeps it and checks it."""

    filesystem: FilesystemSection | None = None
    landlock: str | None = None
    process: ProcessSection | None = None


@dataclass(frozen=True, slots=True)
class PolicyTest:
    """One inline test: `request` and the WebSocket `messages` after it as authored, what is expected of them, and where
    it stands."""

    name: str
    request: Mapping[str, Any]
    binary: str
    ancestors: tuple[str, ...]
    agent: str
    expect: str
    denial: str
    messages: tuple[Any, ...] = ()
    location: str = field(compare=False, default="")


@dataclass(frozen=True, slots=True)
class Terms:
    """What one program gets for one host and port: the policy's part of an `Authorization`."""

    entry: str
    endpoints: tuple[Endpoint, ...]
    addresses: AddressRule
    tls: TlsMode


type Image = tuple[str, str | None]
"""Executable path and SHA-256 of one process."""

type Caller = tuple[Image, ...]
"""The owner's image, then its ancestors'. Empty when nothing is known."""


@dataclass(slots=True)
class Memo:
    """Answers worked out before. Bounded by being emptied: the next questions fill it again."""

    terms: dict[tuple[Host, int, Caller], Terms] = field(default_factory=dict)
    binaries: dict[str, frozenset[int]] = field(default_factory=dict)

    LIMIT: ClassVar[int] = 4096


@dataclass(frozen=True, slots=True)
class BinaryIndex:
    """All distinct binary paths of a policy, asked at once. `numbers` maps each path to its number."""

    globs: GlobIndex
    numbers: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class CompiledPolicy:
    """One policy, ready to be asked. `digest` is the SHA-256 of its canonical content, in hex.

    `ports` finds the endpoints of a port by host; `hosts` finds them whatever the port.
    """

    entries: Mapping[str, Entry]
    digest: str
    static: StaticSections
    middlewares: tuple[MiddlewareEntry, ...]
    tests: tuple[PolicyTest, ...]
    ports: Mapping[int, HostTable[Endpoint]]
    hosts: HostTable[Endpoint]
    binaries: BinaryIndex
    memo: Memo = field(default_factory=Memo, repr=False)
