"""`providers.yaml` and provider profiles as pydantic models: names and types of every key (credentials.md 12, 13, 15;
token-grants.md 2, 7.1). How keys go together is said in `profiles` and `providers`."""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from egress.documents.units import read_duration
from egress.policy.document import BinaryModel, EndpointModel

_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")
_ENV_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?\Z")
_METHOD = re.compile(r"[A-Z][A-Z-]{0,31}\Z")
_CATEGORIES = ("other", "inference", "agent", "source_control", "messaging", "data", "knowledge")
MAX_KEY = 256
MAX_CREDENTIALS = 32
MAX_CONFIG = 64


def _read_id(value: object) -> str:
    if not isinstance(value, str) or not _ID.match(value):
        raise ValueError("must be lower-case words joined by `-`\nsuch as `my-service`")
    return value


def _read_name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.match(value):
        raise ValueError("must be letters, digits, `.`, `_` and `-`, at most 64")
    return value


def is_key(text: str) -> bool:
    """May it be the name of an environment variable?"""
    return _ENV_KEY.match(text) is not None and len(text) <= MAX_KEY


def _read_key(value: object) -> str:
    if not isinstance(value, str) or not is_key(value):
        raise ValueError("must be the name of an environment variable\nletters, digits and `_`, no digit first")
    return value


def _read_category(value: object) -> str:
    text = value.lower().replace("-", "_") if isinstance(value, str) else ""
    if text not in _CATEGORIES:
        raise ValueError(f"must be one of {', '.join(_CATEGORIES)}")
    return text


def _read_method(value: object) -> str:
    if not isinstance(value, str) or not _METHOD.match(value):
        raise ValueError("must be a request method\nsuch as `GET`, in upper case")
    return value


def _read_period(value: object) -> float | None:
    """Seconds; `never` is None."""
    return None if value == "never" else read_duration(value)


def _read_on_failure(value: object) -> tuple[str, float]:
    """The word and, for `keep_for`, its seconds."""
    if value in ("revoke", "keep_until_expiry"):
        return (str(value), 0.0)
    if isinstance(value, dict) and set(value) == {"keep_for"}:
        return ("keep_for", read_duration(value["keep_for"]))
    raise ValueError("must be `revoke`, `keep_until_expiry` or `{keep_for: DURATION}`")


def _read_strip(value: object) -> str:
    if value not in ("newline", "all", "none"):
        raise ValueError("must be one of newline, all, none")
    return str(value)


type Id = Annotated[str, BeforeValidator(_read_id)]
type Name = Annotated[str, BeforeValidator(_read_name)]
type EnvKey = Annotated[str, BeforeValidator(_read_key)]
type Method = Annotated[str, BeforeValidator(_read_method)]
type Period = Annotated[float | None, BeforeValidator(_read_period)]
type Seconds = Annotated[float, BeforeValidator(read_duration)]
type OnFailure = Annotated[tuple[str, float], BeforeValidator(_read_on_failure)]


class Model(BaseModel):
    """Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class MaterialModel(Model):
    name: str
    description: str = ""
    required: bool = False
    secret: bool = False


class OutputModel(Model):
    output: str
    credential: str


class RefreshModel(Model):
    strategy: Literal[
        "static", "external", "oauth2_refresh_token", "oauth2_client_credentials", "google_service_account_jwt",
        "aws_sts_assume_role",
    ]  # fmt: skip
    token_url: str = ""
    scopes: list[str] = Field(default_factory=list)
    refresh_before_seconds: Annotated[int, Field(ge=0)] = 300
    max_lifetime_seconds: Annotated[int, Field(gt=0)] = 3600
    material: list[MaterialModel] = Field(default_factory=list)
    additional_outputs: list[OutputModel] = Field(default_factory=list)


class AudienceOverrideModel(Model):
    host: str = ""
    port: int = 0
    path: str = ""
    audience: str
    scopes: list[str] = Field(default_factory=list)


class GrantTlsModel(Model):
    ca_file: str = ""
    client_cert: str = ""
    client_key: str = ""


class TokenGrantModel(Model):
    token_endpoint: str
    audience: str = ""
    jwt_svid_audience: str = ""
    client_assertion_type: str = ""
    scopes: list[str] = Field(default_factory=list)
    cache_ttl_seconds: Annotated[int, Field(ge=0)] = 0
    cache_ttl_trust: bool = False
    audience_overrides: list[AudienceOverrideModel] = Field(default_factory=list)
    grant: Literal["client_credentials", "token_exchange", "jwt_bearer"] = "client_credentials"
    assertion: dict[str, Any] = Field(default_factory=lambda: {"spiffe": {}})
    client_id: str = ""
    resource: str = ""
    requested_token_type: str = ""
    token_endpoint_bound: bool = False
    """The token endpoint may be on a host that the grant is for."""
    tls: GrantTlsModel = GrantTlsModel()


class CredentialModel(Model):
    name: str
    description: str = ""
    required: bool = False
    env_vars: list[EnvKey] = Field(default_factory=list)
    auth_style: Literal["", "basic", "bearer", "header", "query", "path"] = ""
    header_name: str = ""
    query_param: str = ""
    path_template: str = ""
    placeholder_prefix: str = ""
    endpoints: list[int] | None = None
    refresh: RefreshModel | None = None
    token_grant: TokenGrantModel | None = None


class DiscoveryModel(Model):
    credentials: list[str] = Field(default_factory=list)


class ProfileModel(Model):
    id: Id
    display_name: str
    description: str = ""
    category: Annotated[str, BeforeValidator(_read_category)] = "other"
    annotations: dict[str, Any] = Field(default_factory=dict)
    resource_version: int = 0
    source: str = ""
    scope: str = ""
    inference_capable: bool = False
    strict: bool = False
    facts: list[str] = Field(default_factory=list)
    """What the `config` of an instance may say, where that is told by the proxy itself and not by placeholders."""
    credentials: Annotated[list[CredentialModel], Field(max_length=MAX_CREDENTIALS)] = Field(default_factory=list)
    discovery: DiscoveryModel = DiscoveryModel()
    endpoints: list[EndpointModel] = Field(default_factory=list)
    binaries: list[str | BinaryModel] = Field(default_factory=list)


class DefaultsModel(Model):
    refresh: Period = 900.0
    timeout: Seconds = 10.0
    on_failure: OnFailure = ("revoke", 0.0)
    handle: Literal["stable", "revision"] = "stable"
    retain: Literal["current", "generations"] = "current"


MODIFIERS = frozenset(("json", "base64", "strip", "refresh", "expires", "refresh_before", "timeout", "on_failure"))
"""Keys of a value that say how it is read and kept, whatever its source."""


class ModifiersModel(Model):
    """What stands beside the source of a value. What is not written there is the file's default."""

    json_pointer: str = Field("", alias="json")
    base64: bool = False
    strip: Annotated[str, BeforeValidator(_read_strip)] = "newline"
    refresh: Period = None
    expires: str = ""
    refresh_before: Seconds = 300.0
    timeout: Seconds | None = None
    on_failure: OnFailure | None = None


class ProviderModel(Model):
    name: Name
    profile: str | dict[str, Any]
    values: dict[EnvKey, dict[str, Any]] = Field(default_factory=dict)
    bundle: dict[str, Any] | None = None
    endpoints: list[EndpointModel] = Field(default_factory=list)
    binaries: list[str] = Field(default_factory=list)
    methods: list[Method] = Field(default_factory=list)
    attach: list[str] = Field(default_factory=list)
    inject: Literal["never", "if_absent", "always"] = "never"
    basic_username: str = ""
    epoch: int = 0
    config: Annotated[dict[str, str], Field(max_length=MAX_CONFIG)] = Field(default_factory=dict)
    handle: Literal["stable", "revision"] | None = None


class ProvidersModel(Model):
    version: Literal[1]
    sandbox_id: Annotated[str, Field(max_length=128)] = ""
    profile_dirs: list[str] = Field(default_factory=list)
    defaults: DefaultsModel = DefaultsModel()
    handle_key: dict[str, Any] | None = None
    providers: list[ProviderModel] = Field(default_factory=list)
