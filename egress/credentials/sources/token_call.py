"""One call to an OAuth2 token endpoint for a value of our own (RFC 6749 sections 4.4, 5 and 6)."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from egress.documents.units import read_duration
from egress.sdk.http import HttpClient, HttpFailure, TlsOptions
from egress.sdk.secrets import BadSpec, Secret, SourceContext, SourceUnavailable
from egress.sdk.spec import Spec

REPLY_BYTES = 64 * 1024
CALL_SECONDS = 30.0
LONGEST_LIFE = 3600.0
_ERRORS = frozenset(
    ("invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type",
     "invalid_scope")
)  # fmt: skip
"""Errors of RFC 6749 section 5.2; any other text of a reply stays unread."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to ask, and the longest life that is believed."""

    url: str
    tls: TlsOptions | None
    longest: float


@dataclass(frozen=True, slots=True)
class Token:
    access: Secret
    life: float
    refresh: Secret | None


def read_endpoint(spec: Spec, context: SourceContext, default: str | None = None) -> Endpoint:
    """`token_url`, `tls: {ca_file, client_cert, client_key}` and `max_lifetime`."""
    longest = LONGEST_LIFE
    if "max_lifetime" in spec:
        try:
            longest = read_duration(spec.raw("max_lifetime"))
        except ValueError as error:
            raise BadSpec(str(error), ("max_lifetime",)) from None
    return Endpoint(spec.url("token_url", default), _tls(spec, context), longest)


def _tls(spec: Spec, context: SourceContext) -> TlsOptions | None:
    if "tls" not in spec:
        return None
    names = ("ca_file", "client_cert", "client_key")
    files = Spec(spec.mapping("tls"), names)
    return TlsOptions(*[context.base / files.text(name) if name in files else None for name in names])


def basic_authorization(user: str, password: str) -> str:
    """`Authorization` of a client (RFC 6749 section 2.3.1: both parts are form-encoded first)."""
    pair = f"{quote(user, safe='')}:{quote(password, safe='')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


async def ask(http: HttpClient, endpoint: Endpoint, form: Mapping[str, str], authorization: str = "") -> Token:
    """Raises `SourceUnavailable`."""
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    if authorization:
        headers["Authorization"] = authorization
    try:
        reply = await http.request(
            "POST",
            endpoint.url,
            headers=headers,
            body=urlencode({name: value for name, value in form.items() if value}).encode(),
            timeout=CALL_SECONDS,
            max_bytes=REPLY_BYTES,
            tls=endpoint.tls,
        )
    except HttpFailure:
        raise SourceUnavailable("unreachable") from None
    return _read(reply.status, reply.body, endpoint.longest)


def _read(status: int, body: bytes, longest: float) -> Token:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    fields: Mapping[str, object] = found if isinstance(found, dict) else {}
    if not 200 <= status < 300:
        word = fields.get("error")
        raise SourceUnavailable(f"http_{status}" + (f":{word}" if word in _ERRORS else ""))
    access, refresh, life = fields.get("access_token"), fields.get("refresh_token"), fields.get("expires_in")
    if not isinstance(access, str) or not access:
        raise SourceUnavailable("malformed_reply")
    rotated = Secret(refresh) if isinstance(refresh, str) and refresh else None
    return Token(Secret(access), min(_seconds(life) or longest, longest), rotated)


def _seconds(life: object) -> float:
    """Zero where the endpoint does not tell."""
    if isinstance(life, str) and life.isascii() and life.isdecimal():
        return float(life[:12])
    return float(life) if isinstance(life, int | float) and not isinstance(life, bool) and life > 0 else 0.0
