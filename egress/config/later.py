"""Sections of features that this version does not have. They are read so that a file written for a later version is
refused in words, key by key, and never obeyed in part."""

from collections.abc import Mapping
from typing import Annotated, Literal

from egress.config.sections import Section, fixed, live
from egress.config.types import Count, FilePath, Many, Size, Wait, Wording

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
