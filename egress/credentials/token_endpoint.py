"""What is said to a token endpoint, and what its reply means (token-grants.md sections 4 and 5). Pure."""

import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import SplitResult, urlencode, urlsplit

from egress.model.secret import Secret
from egress.model.verdict import ReasonCode

DEFAULT_TTL = 270
"""Seconds for a token whose life is not told."""
LONGEST_LIFE = 3600
"""Seconds that are believed of a told life."""
SAFETY = 30
"""Seconds before its end that a token is not used any more."""

ERROR_FIELD_LENGTH = 256

_TOKEN68 = re.compile(r"[A-Za-z0-9\-._~+/]+=*\Z")  # RFC 9110 section 11.2
_REALM = re.compile(r"(.*?/realms/[^/]+)/")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\Z")
_JWT = re.compile(r"eyJ[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)*")
_NUMBER = re.compile(r"[0-9]{1,18}\Z", re.ASCII)

GRANT_TYPES = {
    "client_credentials": "client_credentials",
    "token_exchange": "urn:ietf:params:oauth:grant-type:token-exchange",
    "jwt_bearer": "urn:ietf:params:oauth:grant-type:jwt-bearer",
}
JWT_TOKEN_TYPE = "urn:ietf:params:oauth:token-type:jwt"  # noqa: S105 - a name of a kind of token
CLIENT_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def is_token68(text: str) -> bool:
    """The only shape in which a token goes into a field: nothing in it ends a line, a value or a parameter."""
    return _TOKEN68.match(text) is not None


def endpoint_fault(url: str) -> str | None:
    """Why a token endpoint may not be used, None when it may: `https`, or `http` that stays on this machine or in
    the cluster."""
    parts = _split(url)
    if parts is None or not parts.hostname:
        return "token_endpoint is no absolute URL"
    if parts.username is not None or parts.fragment:
        return "token_endpoint may have neither user information nor a fragment"
    if parts.scheme == "https":
        return None
    if parts.scheme != "http":
        return "token_endpoint must be https"
    if _is_local(parts.hostname.lower()):
        return None
    return "token_endpoint may be http only for loopback or a cluster service name"


def _split(url: str) -> SplitResult | None:
    if not url.isascii() or not url.isprintable() or " " in url:
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for a port that is none
    except ValueError:
        return None
    return parts


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        labels = host.removesuffix(".").split(".")
        in_cluster = labels[2:] in (["svc"], ["svc", "cluster", "local"])
        return in_cluster and all(_LABEL.match(label) for label in labels)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def assertion_audience(endpoint: str, stated: str) -> str:
    """Whom the identity document is for: as stated, else the issuer in an issuer-style URL, else the endpoint."""
    if stated:
        return stated
    realm = _REALM.match(endpoint)
    return realm[1] if realm else endpoint


@dataclass(frozen=True, slots=True)
class Form:
    """One token request, without its identity document."""

    grant: str = "client_credentials"
    client_assertion_type: str = CLIENT_ASSERTION_TYPE
    audience: str = ""
    scopes: tuple[str, ...] = ()
    client_id: str = ""
    resource: str = ""
    requested_token_type: str = ""

    def encode(self, document: Secret) -> bytes:
        """`application/x-www-form-urlencoded`; empty fields are left out."""
        fields = {"grant_type": GRANT_TYPES[self.grant], **self._identity(document.reveal())}
        more = {
            "client_id": self.client_id,
            "audience": self.audience,
            "resource": self.resource,
            "scope": " ".join(self.scopes),
        }
        return urlencode(fields | {name: value for name, value in more.items() if value}).encode()

    def _identity(self, document: str) -> Mapping[str, str]:
        if self.grant == "token_exchange":
            wanted = {"requested_token_type": self.requested_token_type} if self.requested_token_type else {}
            return {"subject_token": document, "subject_token_type": JWT_TOKEN_TYPE, **wanted}
        if self.grant == "jwt_bearer":
            return {"assertion": document}
        kind = self.client_assertion_type or CLIENT_ASSERTION_TYPE
        return {"client_assertion_type": kind, "client_assertion": document}


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token of the right shape. `life` is what the endpoint said, in seconds; 0 when it said nothing of use."""

    secret: Secret
    life: int


@dataclass(frozen=True, slots=True)
class GrantFailure:
    """No token. `reason` is for logs and events: it repeats nothing but a sanitised OAuth error."""

    code: ReasonCode
    reason: str


def read_reply(status: int, body: bytes, document: Secret) -> AccessToken | GrantFailure:
    """The meaning of a reply; a redirect is a failure like any other status that is not 2xx."""
    parsed = _json_object(body)
    if not 200 <= status < 300:
        return GrantFailure(ReasonCode.REJECTED, _rejection(status, parsed or {}, document))
    if parsed is None:
        return GrantFailure(ReasonCode.MALFORMED_TOKEN, "token grant reply is no JSON object")
    life = _life(parsed.get("expires_in", 0))
    token = parsed.get("access_token")
    if life is None or not isinstance(token, str):
        return GrantFailure(ReasonCode.MALFORMED_TOKEN, "token grant reply could not be read")
    kind = parsed.get("token_type", "bearer")
    if not isinstance(kind, str) or kind.lower() not in ("bearer", "n_a"):
        return GrantFailure(ReasonCode.MALFORMED_TOKEN, "token grant returned a token that is no bearer token")
    if not is_token68(token):
        return GrantFailure(ReasonCode.MALFORMED_TOKEN, "token grant returned a malformed access token")
    return AccessToken(Secret(token), life)


def _json_object(body: bytes) -> Mapping[str, object] | None:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _life(value: object) -> int | None:
    """Seconds; numbers written as text are common enough to be read."""
    if isinstance(value, str) and _NUMBER.match(value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return max(0, value)


def _rejection(status: int, parsed: Mapping[str, object], document: Secret) -> str:
    try:
        phrase = f" {HTTPStatus(status).phrase}"
    except ValueError:
        phrase = ""
    text = f"token grant failed with status {status}{phrase}"
    error = _clean(parsed.get("error"), document)
    if not error:
        return text
    description = _clean(parsed.get("error_description"), document)
    return f"{text}: error={error}" + (f"; error_description={description}" if description else "")


def _clean(value: object, document: Secret) -> str:
    """An OAuth error field fit for a log. Endpoints quote what they were sent: no document may come back this way."""
    if not isinstance(value, str):
        return ""
    plain = value.replace(document.reveal(), "[assertion]")
    plain = _JWT.sub("[token]", plain)
    return "".join([char if char.isprintable() else " " for char in plain])[:ERROR_FIELD_LENGTH].strip()


def time_to_live(stated: int, life: int, *, trusted: bool = False) -> int:
    """Seconds to keep a token. `stated` is the profile's own number (0: none); it never outlives the token unless
    the operator `trusted` it to."""
    if stated > 0:
        return stated if trusted or life <= 0 else max(1, min(stated, life - SAFETY))
    if life > 0:
        return max(1, min(life, LONGEST_LIFE) - SAFETY)
    return DEFAULT_TTL
