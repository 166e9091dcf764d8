"""Access tokens for a Google service account: a short-lived JWT of its key, exchanged at Google's token endpoint
(RFC 7523 section 2.1)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from egress.credentials.sources.oauth2 import fetch_one, read_scopes
from egress.credentials.sources.token_call import Endpoint, ask, read_endpoint
from egress.sdk.secrets import BadSpec, Fetched, Secret, SecretSource, SourceContext, SourceUnavailable
from egress.sdk.spec import Spec

TOKEN_URL = "https://oauth2.googleapis.com/token"  # noqa: S105 - where tokens are, not one
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ASSERTION_SECONDS = 3600
_KEYS = ("key", "client_email", "private_key", "subject", "sub", "scopes", "token_url", "max_lifetime", "tls")


@dataclass(frozen=True, slots=True)
class _Account:
    email: str
    key: Secret
    key_id: str


def google_service_account(fields: Mapping[str, object], context: SourceContext) -> SecretSource:
    """`{key | client_email and private_key, scopes, subject, token_url, max_lifetime}`: `key` is a source of the JSON
    file that Google gives out, `private_key` one of the PEM text alone."""
    spec = Spec(fields, _KEYS)
    if ("key" in spec) == ("private_key" in spec):
        raise BadSpec("write either `key` or `client_email` and `private_key`", ("key",))
    scopes = read_scopes(spec)
    if not scopes:
        raise BadSpec("must not be empty", ("scopes",))
    email = spec.text("client_email") if "private_key" in spec else ""
    source = spec.source("private_key" if email else "key", context)
    subject = spec.text("subject", spec.text("sub", ""))
    return _ServiceAccount(email, source, scopes, subject, read_endpoint(spec, context, TOKEN_URL), context)


class _ServiceAccount:
    def __init__(
        self, email: str, source: SecretSource, scopes: str, subject: str, endpoint: Endpoint, context: SourceContext
    ) -> None:
        self._email = email
        self._source = source
        self._scopes = scopes
        self._subject = subject
        self._endpoint = endpoint
        self._context = context

    async def fetch(self) -> Fetched:
        """Raises `SourceUnavailable`."""
        text = await fetch_one(self._source)
        account = _Account(self._email, Secret(text), "") if self._email else _account(text)
        assertion = await self._context.run_blocking(self._assertion, account)
        token = await ask(self._context.http, self._endpoint, {"grant_type": GRANT, "assertion": assertion})
        return Fetched({"": token.access}, self._context.clock.now() + token.life)

    def _assertion(self, account: _Account) -> str:
        import jwt  # noqa: PLC0415 - only where such a source is used

        now = int(self._context.clock.now())
        claims = {
            "iss": account.email,
            "scope": self._scopes,
            "aud": self._endpoint.url,
            "iat": now,
            "exp": now + ASSERTION_SECONDS,
        }
        if self._subject:
            claims["sub"] = self._subject
        headers = {"kid": account.key_id} if account.key_id else None
        try:
            return jwt.encode(claims, account.key.reveal(), algorithm="RS256", headers=headers)
        except (ValueError, TypeError, jwt.PyJWTError):
            raise SourceUnavailable("unusable_key") from None


def _account(text: str) -> _Account:
    try:
        found = json.loads(text)
        return _Account(str(found["client_email"]), Secret(found["private_key"]), str(found.get("private_key_id", "")))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise SourceUnavailable("unusable_key") from None
