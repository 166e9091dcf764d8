"""The authored policy as pydantic models: names and types of every key, nothing about how keys go together."""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from egress.documents.units import read_duration, read_size

MAX_BODY_BYTES = 4 * 1024 * 1024
DEFAULT_BODY_BYTES = 65536
_SHA256 = re.compile(r"[0-9a-fA-F]{64}\Z", re.ASCII)
_PROTOCOLS = ("tcp", "rest", "websocket", "graphql", "sql", "json-rpc", "mcp")


def _read_globs(value: object) -> tuple[str, ...]:
    """A glob, `{any: [glob, ...]}` or `{glob: ...}`."""
    if isinstance(value, str):
        return (value,)
    hint = "write a glob, or `{any: [glob, ...]}`"
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError(f"must be a glob or one matcher\n{hint}")
    if isinstance(value.get("glob"), str):
        return (value["glob"],)
    globs = value.get("any")
    if not isinstance(globs, list) or not globs or not all(isinstance(glob, str) for glob in globs):
        raise ValueError(f"must be a glob or a matcher with at least one glob\n{hint}")
    return tuple(globs)


def _read_protocol(value: object) -> object:
    """Protocol names are compared in lower case everywhere, so they are lowered before anything looks at them."""
    if isinstance(value, str):
        if value and value.lower() not in _PROTOCOLS:
            raise ValueError(f"unknown protocol\nwrite one of {', '.join(_PROTOCOLS)}, or leave the key out")
        return value.lower()
    return value


def _read_timeout(value: object) -> float | None:
    """Seconds; `off` and 0 wait forever."""
    return None if value == "off" else read_duration(value) or None


def _read_capped_size(value: object) -> int:
    size = read_size(value)
    if not 0 < size <= MAX_BODY_BYTES:
        raise ValueError(f"must be between 1 byte and {MAX_BODY_BYTES} bytes")
    return size


def _read_sha256(value: object) -> str:
    if not isinstance(value, str) or not _SHA256.match(value):
        raise ValueError("must be a SHA-256 digest\nwrite 64 hexadecimal digits in quotes")
    return value.lower()


def _read_expectation(value: object) -> tuple[str, str]:
    """Decision and denial code, from `allow`, `audit`, `deny` or `{deny: CODE}`."""
    if isinstance(value, str) and value in ("allow", "audit", "deny"):
        return value, ""
    if isinstance(value, dict) and list(value) == ["deny"] and isinstance(value["deny"], str):
        return "deny", value["deny"]
    raise ValueError("must be an expected decision\nwrite `allow`, `audit`, `deny`, or `{deny: CODE}`")


type Matcher = Annotated[tuple[str, ...], BeforeValidator(_read_globs)]
type Port = Annotated[int, Field(ge=1, le=65535)]
type BodyLimit = Annotated[int, BeforeValidator(_read_capped_size)]
type Sha256 = Annotated[str, BeforeValidator(_read_sha256)]
type OrderNumber = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]


class Model(BaseModel):
    """Unknown keys are errors, types are exact."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    def wrote(self, *keys: str) -> list[str]:
        """Which of `keys` stand in the document, whatever their value."""
        return [key for key in keys if key in self.model_fields_set]


class ParamsModel(Model):
    name: Matcher | None = None
    arguments: dict[str, Matcher] = Field(default_factory=dict)


class ClauseModel(Model):
    """The members of one allow or deny clause, of all protocols together."""

    method: str | None = None
    path: str | None = None
    query: dict[str, Matcher] = Field(default_factory=dict)
    command: str | None = None
    operation_type: str | None = None
    operation_name: str | None = None
    fields: list[str] | None = None
    over: Literal["get"] | None = None
    tool: Matcher | None = None
    params: ParamsModel | None = None


class RuleModel(Model):
    allow: ClauseModel


class CredentialBindingModel(Model):
    provider: str


class PersistedQueryModel(Model):
    operation_type: str
    operation_name: str = ""
    fields: list[str] | None = None


class JsonRpcModel(Model):
    max_body_bytes: BodyLimit | None = None


class McpModel(Model):
    max_body_bytes: BodyLimit | None = None
    strict_tool_names: bool = True
    allow_all_known_mcp_methods: bool = False
    deny_style: Literal["json-rpc", "http"] = "json-rpc"


class EndpointModel(Model):
    host: str = ""
    port: Port | None = None
    ports: list[Port] = Field(default_factory=list)
    path: str = ""
    protocol: Annotated[str, BeforeValidator(_read_protocol)] = ""
    tls: Literal["auto", "skip", "terminate", "passthrough"] = "auto"
    enforcement: Literal["audit", "enforce"] | None = None
    access: Literal["read-only", "read-write", "full"] | None = None
    rules: list[RuleModel] = Field(default_factory=list)
    deny_rules: list[ClauseModel] = Field(default_factory=list)
    allowed_ips: list[str] = Field(default_factory=list)
    allow_encoded_slash: bool = False
    websocket_credential_rewrite: bool = False
    request_body_credential_rewrite: bool = False
    allow_uninspected_credentials: bool = False
    credential_signing: Literal["sigv4", "sigv4:body", "sigv4:no_body"] | None = None
    signing_service: str = ""
    signing_region: str = ""
    credential_binding: CredentialBindingModel | None = None
    persisted_queries: Literal["deny", "allow_registered"] = "deny"
    graphql_persisted_queries: dict[str, PersistedQueryModel] = Field(default_factory=dict)
    graphql_max_body_bytes: BodyLimit | None = None
    json_rpc: JsonRpcModel | None = None
    mcp: McpModel | None = None
    http2: Literal["auto", "prefer", "off"] | None = None
    allow_upgrade: bool = False
    websocket: Literal["parsed", "raw"] = "parsed"
    path_mode: Literal["rewrite", "reject_noncanonical"] = "rewrite"
    allow_double_escape: bool = False
    allow_backslash: bool = False
    detect_timeout: Annotated[float | None, BeforeValidator(_read_timeout)] = 1.0
    allow_control_plane_port: bool = False
    allow_unimplemented: bool = False
    redact_responses: Literal["all", "headers", "off", "strict"] = "all"
    cookie_credential_rewrite: bool = False
    header_substring_rewrite: bool = False
    websocket_rewrite_compat: bool = False
    max_rewrite_body_bytes: BodyLimit = 256 * 1024
    deny_credential_minting: bool = True
    presigned: Literal["resign", "passthrough", "reject"] = "resign"
    object_keys: Literal["canonical", "opaque"] = "canonical"
    sigv4_oversize: Literal["reject", "unsigned"] = "reject"
    max_sigv4_body_bytes: Annotated[int, BeforeValidator(read_size)] | None = None

    @property
    def effective_ports(self) -> list[int]:
        return list(dict.fromkeys(self.ports)) if self.ports else [self.port] if self.port else []

    @property
    def body_limit(self) -> int:
        """Bytes of a body that inspection may hold; the `mcp` stanza wins over `json_rpc`."""
        limits = [stanza.max_body_bytes for stanza in (self.mcp, self.json_rpc) if stanza is not None]
        return next((limit for limit in (*limits, self.graphql_max_body_bytes) if limit), DEFAULT_BODY_BYTES)

    @property
    def mcp_profile(self) -> bool:
        """True when every known MCP method is allowed unless a rule says otherwise."""
        return self.protocol == "mcp" and self.mcp is not None and self.mcp.allow_all_known_mcp_methods


class BinaryModel(Model):
    path: str
    harness: bool | None = None
    sha256: list[Sha256] | None = None
    direct: bool = False


class EntryModel(Model):
    """Lists hold None where an item was set aside because its own keys are wrong."""

    name: str | None = None
    endpoints: list[EndpointModel | None] = Field(default_factory=list)
    binaries: list[BinaryModel | None] = Field(default_factory=list)


class FilesystemModel(Model):
    include_workdir: bool = False
    read_only: list[str] = Field(default_factory=list)
    read_write: list[str] = Field(default_factory=list)


class LandlockModel(Model):
    compatibility: Literal["best_effort", "hard_requirement"] = "best_effort"


class ProcessModel(Model):
    run_as_user: str | None = None
    run_as_group: str | None = None


class SelectorsModel(Model):
    include: list[str]
    exclude: list[str] = Field(default_factory=list)


class MiddlewareModel(Model):
    name: str | None = None
    middleware: str
    order: OrderNumber = 0
    config: dict[str, Any] = Field(default_factory=dict)
    on_error: Literal["fail_closed", "fail_open"] = "fail_closed"
    endpoints: SelectorsModel


class TestModel(Model):
    name: str
    request: dict[str, Any]
    messages: list[Any] = Field(default_factory=list)
    binary: str = ""
    ancestors: list[str] = Field(default_factory=list)
    agent: str = "default"
    expect: Annotated[tuple[str, str], BeforeValidator(_read_expectation)]


class PolicyModel(Model):
    version: int
    filesystem_policy: FilesystemModel | None = None
    landlock: LandlockModel | None = None
    process: ProcessModel | None = None
    network_policies: dict[str, EntryModel] = Field(default_factory=dict)
    network_middlewares: dict[str, MiddlewareModel] = Field(default_factory=dict)
    tests: list[TestModel] = Field(default_factory=list)


def salvage(data: object) -> PolicyModel:
    """What can be read of a document that has errors, so that the rest of it is checked in the same run.

    Endpoints and binaries that cannot be read are None; other parts that cannot be read are left out.
    """
    sections = data if isinstance(data, dict) else {}
    kept = {"version": 1} | {key: value for key, value in sections.items() if _readable(PolicyModel, key, value)}
    for section, item in (("network_policies", EntryModel), ("network_middlewares", MiddlewareModel)):
        parts = sections.get(section)
        if section not in kept and isinstance(parts, dict):
            shaped = {key: _salvage_entry(part) if item is EntryModel else part for key, part in parts.items()}
            kept[section] = {key: part for key, part in shaped.items() if _valid(item, part)}
    return PolicyModel.model_validate(kept)


def _salvage_entry(entry: object) -> object:
    if not isinstance(entry, dict):
        return entry
    kept = {key: value for key, value in entry.items() if _readable(EntryModel, key, value)}
    for key, item in (("endpoints", EndpointModel), ("binaries", BinaryModel)):
        if key not in kept and isinstance(entry.get(key), list):
            kept[key] = [one if _valid(item, one) else None for one in entry[key]]
    return kept


def _readable(model: type[Model], key: str, value: object) -> bool:
    """Is this one key of the model fine by itself?"""
    required = {"version": 1} if model is PolicyModel else {}
    return _valid(model, {**required, key: value})


def _valid(model: type[Model], data: object) -> bool:
    try:
        model.model_validate(data)
    except ValidationError:
        return False
    return True
