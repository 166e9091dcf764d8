"""Yes, no, and why: the values every stage answers with. Codes: denial-codes.md, spelled once here."""

from dataclasses import dataclass
from enum import Enum, StrEnum


class Stage(StrEnum):
    ACCEPT = "accept"
    IDENTITY = "identity"
    POLICY = "policy"
    DESTINATION = "destination"
    TLS = "tls"
    L7 = "l7"
    MIDDLEWARE = "middleware"
    CREDENTIALS = "credentials"
    UPSTREAM = "upstream"


class Layer(StrEnum):
    L3 = "l3"
    L4 = "l4"
    L7 = "l7"


class DenialCode(Enum):
    """Every `error` word of a refusal with its status, layer, and whether trying again can help.

    `policy_denied`'s layer depends on the stage (`Denial.layer`).
    """

    MALFORMED_REQUEST = ("malformed_request", 400, Layer.L7, False)
    HEAD_TOO_LARGE = ("head_too_large", 431, Layer.L7, False)
    REQUEST_TIMEOUT = ("request_timeout", 408, Layer.L7, True)
    INVALID_CONNECT_TARGET = ("invalid_connect_target", 400, Layer.L4, False)
    UNSUPPORTED_PROXY_SCHEME = ("unsupported_proxy_scheme", 400, Layer.L7, False)
    INVALID_REQUEST_TARGET = ("invalid_request_target", 400, Layer.L7, False)
    EXPECTATION_FAILED = ("expectation_failed", 417, Layer.L7, False)
    PROXY_AUTH_REQUIRED = ("proxy_auth_required", 407, Layer.L4, True)
    CLIENT_NOT_ALLOWED = ("client_not_allowed", 403, Layer.L4, False)
    RATE_LIMITED = ("rate_limited", 429, Layer.L4, True)
    OVERLOADED = ("overloaded", 503, Layer.L4, True)
    POLICY_DENIED = ("policy_denied", 403, Layer.L4, False)
    REQUEST_AUTHORITY_MISMATCH = ("request_authority_mismatch", 403, Layer.L7, False)
    SNI_MISMATCH = ("sni_mismatch", 0, Layer.L4, False)
    UPGRADE_REFUSED = ("upgrade_refused", 403, Layer.L7, False)
    UNSUPPORTED_L7_PROTOCOL = ("unsupported_l7_protocol", 403, Layer.L7, False)
    UNSUPPORTED_METHOD = ("unsupported_method", 405, Layer.L7, False)
    UNSUPPORTED_ENCODING = ("unsupported_encoding", 415, Layer.L7, False)
    INVALID_GRAPHQL_REQUEST = ("invalid_graphql_request", 400, Layer.L7, False)
    INVALID_JSONRPC_REQUEST = ("invalid_jsonrpc_request", 400, Layer.L7, False)
    BODY_TOO_LARGE = ("body_too_large", 413, Layer.L7, False)
    SSRF_DENIED = ("ssrf_denied", 403, Layer.L3, False)
    DNS_FAILED = ("dns_failed", 502, Layer.L3, True)
    UPSTREAM_UNREACHABLE = ("upstream_unreachable", 502, Layer.L4, True)
    UPSTREAM_TIMEOUT = ("upstream_timeout", 504, Layer.L4, True)
    UPSTREAM_TLS_FAILED = ("upstream_tls_failed", 502, Layer.L4, False)
    UPSTREAM_PROTOCOL_ERROR = ("upstream_protocol_error", 502, Layer.L7, True)
    TLS_TERMINATION_UNAVAILABLE = ("tls_termination_unavailable", 503, Layer.L4, False)
    UNINSPECTED_CREDENTIALS = ("uninspected_credentials", 403, Layer.L4, False)
    INVALID_CREDENTIAL_PLACEHOLDER = ("invalid_credential_placeholder", 400, Layer.L7, False)
    CREDENTIAL_ENDPOINT_MISMATCH = ("credential_endpoint_mismatch", 403, Layer.L7, False)
    CREDENTIAL_UNAVAILABLE = ("credential_unavailable", 500, Layer.L7, False)
    CREDENTIAL_BODY_DENIED = ("credential_body_denied", 403, Layer.L7, False)
    CREDENTIAL_BODY_INVALID = ("credential_body_invalid", 400, Layer.L7, False)
    CREDENTIAL_BODY_TOO_LARGE = ("credential_body_too_large", 413, Layer.L7, False)
    CREDENTIAL_BODY_UNSUPPORTED = ("credential_body_unsupported", 415, Layer.L7, False)
    CREDENTIAL_GENERATION_CHANGED = ("credential_generation_changed", 503, Layer.L7, True)
    CREDENTIAL_MINTING_DENIED = ("credential_minting_denied", 403, Layer.L7, False)
    TOKEN_GRANT_FAILED = ("token_grant_failed", 502, Layer.L7, True)
    SIGV4_REGION_UNKNOWN = ("sigv4_region_unknown", 502, Layer.L7, False)
    SIGV4_SERVICE_MISSING = ("sigv4_service_missing", 502, Layer.L7, False)
    SIGV4_CREDENTIALS_UNAVAILABLE = ("sigv4_credentials_unavailable", 502, Layer.L7, False)
    SIGV4_BODY_TOO_LARGE = ("sigv4_body_too_large", 413, Layer.L7, False)
    SIGV4_PATH_NOT_REPRESENTABLE = ("sigv4_path_not_representable", 400, Layer.L7, False)
    SIGV4_STREAMING_UNSUPPORTED = ("sigv4_streaming_unsupported", 501, Layer.L7, False)
    SIGV4_UNSUPPORTED = ("sigv4_unsupported", 501, Layer.L7, False)
    INTERNAL_ERROR = ("internal_error", 500, Layer.L7, False)

    def __init__(self, word: str, status: int, layer: Layer, retryable: bool) -> None:
        self.word = word
        self.status = status
        self.layer = layer
        self.retryable = retryable


class ReasonCode(StrEnum):
    """Finer words for programs (denial-codes.md section 2)."""

    NO_MATCHING_POLICY = "no_matching_policy"
    HOST_NOT_LISTED = "host_not_listed"
    PORT_NOT_LISTED = "port_not_listed"
    BINARY_NOT_ALLOWED = "binary_not_allowed"
    METHOD_PATH_DENIED = "method_path_denied"
    DENY_RULE = "deny_rule"
    NO_ENDPOINT_PATH = "no_endpoint_path"
    OPERATION_DENIED = "operation_denied"
    TOOL_DENIED = "tool_denied"
    PERSISTED_QUERY_UNKNOWN = "persisted_query_unknown"
    RESPONSE_FRAME = "response_frame"
    RESERVED_HOST = "reserved_host"
    IDENTITY_UNAVAILABLE = "identity_unavailable"
    IDENTITY_AMBIGUOUS = "identity_ambiguous"
    IDENTITY_INCOMPLETE = "identity_incomplete"
    IDENTITY_HASH_CHANGED = "identity_hash_changed"
    IDENTITY_STORE_FULL = "identity_store_full"
    QUARANTINED = "quarantined"
    POLICY_CHANGED = "policy_changed"
    SSRF_ALWAYS_BLOCKED = "ssrf_always_blocked"
    SSRF_PRIVATE = "ssrf_private"
    SSRF_METADATA = "ssrf_metadata"
    NOT_IN_ALLOWED_IPS = "not_in_allowed_ips"
    CONTROL_PLANE_PORT = "control_plane_port"
    OWN_LISTENER = "own_listener"
    ALIAS_MISMATCH = "alias_mismatch"
    DNS_TIMEOUT = "dns_timeout"
    DNS_NO_ANSWER = "dns_no_answer"
    DNS_ERROR = "dns_error"
    CONNECT_REFUSED = "connect_refused"
    CONNECT_TIMEOUT = "connect_timeout"
    NO_ROUTE = "no_route"
    PROXY_CONNECT_FAILED = "proxy_connect_failed"
    PROXY_TIMEOUT = "proxy_timeout"
    PROXY_TLS_FAILED = "proxy_tls_failed"
    PROXY_MALFORMED_REPLY = "proxy_malformed_reply"
    PROXY_AUTH_REJECTED = "proxy_auth_rejected"
    PROXY_REFUSED_301 = "proxy_refused_301"
    PROXY_REFUSED_302 = "proxy_refused_302"
    PROXY_REFUSED_307 = "proxy_refused_307"
    PROXY_REFUSED_400 = "proxy_refused_400"
    PROXY_REFUSED_403 = "proxy_refused_403"
    PROXY_REFUSED_404 = "proxy_refused_404"
    PROXY_REFUSED_405 = "proxy_refused_405"
    PROXY_REFUSED_429 = "proxy_refused_429"
    PROXY_REFUSED_500 = "proxy_refused_500"
    PROXY_REFUSED_501 = "proxy_refused_501"
    PROXY_REFUSED_502 = "proxy_refused_502"
    PROXY_REFUSED_503 = "proxy_refused_503"
    PROXY_REFUSED_504 = "proxy_refused_504"
    PROXY_REFUSED_OTHER = "proxy_refused_other"
    EXPIRED = "expired"
    NAME_MISMATCH = "name_mismatch"
    UNKNOWN_ISSUER = "unknown_issuer"
    HANDSHAKE_FAILED = "handshake_failed"
    SVID_UNAVAILABLE = "svid_unavailable"
    ENDPOINT_UNREACHABLE = "endpoint_unreachable"
    REJECTED = "rejected"
    MALFORMED_TOKEN = "malformed_token"  # noqa: S105 - a word, not a token
    CONNECTIONS = "connections"
    CALLER_CONNECTIONS = "caller_connections"
    DESCRIPTORS = "descriptors"

    @property
    def at_proxy(self) -> bool:
        """True when a corporate proxy on the way out failed or refused."""
        return self.value.startswith("proxy_")


class RuleKind(StrEnum):
    ALLOW = "allow"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class RuleRef:
    """Which clause decided. `location` is `file:line:column` of its authored text, empty when unknown."""

    entry: str
    endpoint: int
    kind: RuleKind
    index: int
    location: str = ""

    @property
    def id(self) -> str:
        """The path of the rule in the document: `entry/endpoints[0]/rules[2]`."""
        part = "rules" if self.kind is RuleKind.ALLOW else "deny_rules"
        return f"{self.entry}/endpoints[{self.endpoint}]/{part}[{self.index}]"


@dataclass(frozen=True, slots=True)
class Denial:
    """A verdict of no.

    `reason` is for people who may see the caller's reply; `log_reason` (when set) says more and goes to events
    only. Neither holds field values, query strings or secrets. `hard` denials are never softened by audit.
    `operation` names what a body asked for, as far as its protocol has names: never arguments.
    """

    stage: Stage
    code: DenialCode
    reason: str
    reason_code: ReasonCode | None = None
    entry: str | None = None
    rule: RuleRef | None = None
    log_reason: str | None = None
    hints: tuple[str, ...] = ()
    hard: bool = True
    operation: str | None = None
    surface: str | None = None
    """Where a credential was found that may not be there: `http-request-body`, `websocket-text`, `l4`, …"""

    @property
    def layer(self) -> Layer:
        """`policy_denied` speaks for the layer of its stage; every other code has one of its own."""
        if self.code is DenialCode.POLICY_DENIED and self.stage is Stage.L7:
            return Layer.L7
        return self.code.layer


@dataclass(frozen=True, slots=True)
class Allow:
    """A yes; `rule` is None where nothing had to be asked (layer-4 endpoints)."""

    rule: RuleRef | None = None


@dataclass(frozen=True, slots=True)
class Audited:
    """Would be denied; the endpoint is in audit mode and the request passes."""

    denial: Denial


type Verdict = Allow | Audited | Denial
