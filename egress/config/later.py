"""Sections of features that this version does not have. They are read so that a file written for a later version is
refused in words, key by key, and never obeyed in part."""

from collections.abc import Mapping
from typing import Annotated, Literal

from egress.config.sections import Section, fixed, later, live
from egress.config.types import Address, Count, FilePath, Many, Mode, Size, Uid, Wait, Wording, read_address

Table = Annotated[Mapping[str, object], Wording("map")]
AutoApprove = Annotated[object, Wording("`off` or map")]
Tables = Annotated[Mapping[str, Mapping[str, object]], Wording("map of maps")]


class PolicyLocal(Section):
    proposals: bool = live(False, "workloads may ask for access")
    scope: Literal["own", "all"] = live("own", "whose policy a workload may read")
    rate: str = live("30/h", "proposals per agent")


class Advisor(Section):
    flush: Wait = live(10.0, "how often denials are summed up")
    l7: bool = live(False, "propose request rules, not only destinations")
    auto_approve: AutoApprove = live("off", "approve without a person, so many a day")


class Shadow(Section):
    file: FilePath = live(..., "policy that is only compared")
    sample: float = live(1.0, "share of requests")


class Providers(Section):
    file: FilePath | None = live(None, "credentials and where they belong")


class TokenGrants(Section):
    workload_api: str | None = fixed(None, "SPIFFE Workload API socket")


class MetadataServer(Section):
    gcp: Literal["auto", "off"] = live("auto", "Google's metadata service, when a provider asks for it")
    listen: Address = live(read_address("127.0.0.1:0"), "where it listens")
    id_tokens: Many[str] = live((), "audiences of identity tokens")
    aws: bool = live(False, "AWS's metadata service")
    azure: bool = live(False, "Azure's metadata service")


class MiddlewareBudgets(Section):
    work: Count = live(32, "requests inside stages")
    waiters: Count = live(64, "requests that wait")
    sessions: Count = live(32, "WebSocket sessions")


class Middleware(Section):
    remote: Many[Table] = live((), "services reached over gRPC")
    mandatory: Tables = live({}, "stages of the operator, for every policy")
    render: Mapping[str, Literal["openshell", "envelope", "mcp"]] = live({}, "shape of refusals, by entry")
    budgets: MiddlewareBudgets = live(MiddlewareBudgets(), "shared capacity")
    max_buffered_bytes: Size = live(128 * 1024 * 1024, "bodies held for stages")
    trust_client_namespace: bool = live(False, "keep middleware fields that a client sends")
    decode_responses: bool = live(False, "stages see decoded replies")


class Plugins(Section):
    enabled: Many[str] = fixed((), "plugins that are loaded")
    allow_distributions: Many[str] = fixed((), "distributions whose plugins may be loaded")
    require_hashes: Mapping[str, str] = fixed({}, "hash of each distribution")
    settings: Tables = live({}, "settings by plugin")
    secrets: Table = live({}, "secret sources by name")


class Redis(Section):
    url: str | None = fixed(None, "server")
    password_file: FilePath | None = fixed(None, "file with the password, mode 0600")
    ca_file: FilePath | None = fixed(None, "certificates trusted for the server")
    prefix: str = fixed("egress", "prefix of all keys")


class Store(Section):
    backend: Literal["sqlite", "redis"] = fixed("sqlite", "where shared state lives")
    redis: Redis = fixed(Redis(), "Redis")


class Metering(Section):
    inject_usage: bool = live(True, "ask streaming backends for token counts")


class Inference(Section):
    routes_file: FilePath | None = live(None, "OpenShell route file; excludes the other keys")
    listen_names: Many[str] = live(("inference.local",), "names that are answered")
    require_policy: bool = live(False, "only agents that are allowed")
    allow: Many[str] = live((), "agents that are")
    serve_in_quarantine: bool = live(False, "keep answering in quarantine")
    error_format: Literal["openshell", "native"] = live("openshell", "shape of errors")
    backends: Tables = live({}, "model servers")
    models: Tables = live({}, "model names")
    routes: Tables = live({}, "which backends serve a model")
    unknown_model: Literal["pin", "reject"] = live("pin", "a model that no route names")
    list_models: Literal["local", "upstream"] = live("local", "who answers a model list")
    metering: Metering = live(Metering(), "counting")
    budgets: Tables = live({}, "spending limits")
    prices: Tables = live({}, "price of tokens")
    virtual_keys: Tables = live({}, "keys of callers")
    on_store_error: Literal["block", "allow"] = live("block", "when spending is unknown")


class AdminUnix(Section):
    path: FilePath | None = fixed(None, "default `/run/egress/admin.sock`; not root: `<state_dir>/admin.sock`")
    mode: Mode = fixed(0o600, "permission bits")
    allow_uids: Many[Uid] = fixed((0,), "user ids beside our own that may connect")


class AdminTcp(Section):
    enabled: bool = fixed(False, "listen on TCP too")
    address: Address = fixed(read_address("127.0.0.1:3129"), "loopback address")


class AdminRole(Section):
    token_file: FilePath | None = live(None, "file with the token, mode 0600")


class AdminRoles(Section):
    viewer: AdminRole = live(AdminRole(), "may look")
    operator: AdminRole = live(AdminRole(), "may change")


class Admin(Section):
    unix: AdminUnix = fixed(AdminUnix(), "operator socket")
    tcp: AdminTcp = later(AdminTcp(), "operator page")
    roles: AdminRoles = later(AdminRoles(), "tokens of the TCP listener")


class AgentGateway(Section):
    sandbox_id: str | None = live(None, "sandbox id")
    token_file: FilePath | None = live(None, "file with the token, mode 0600")


class Gateway(Section):
    mode: Literal["off", "observe", "follow"] = fixed("off", "`follow`: policy comes from the gateway")
    endpoint: str | None = fixed(None, "URL")
    sandbox_id: str | None = fixed(None, "sandbox id")
    sandbox: str | None = fixed(None, "sandbox name")
    token_file: FilePath | None = live(None, "file with the token, mode 0600")
    ca_file: FilePath | None = live(None, "certificates trusted for the gateway")
    cert_file: FilePath | None = live(None, "client certificate")
    key_file: FilePath | None = live(None, "its key, mode 0600")
    server_name: str | None = live(None, "name in the gateway's certificate")
    poll_interval: Wait = live(10.0, "how often it is asked")
    take: Many[str] = live((), "what is taken from it")
    publish: bool = live(False, "send denials and events")
    presence: bool = live(False, "tell it that we run")
    trust_failure_mode: bool = live(False, "let it choose what an invalid policy does")
