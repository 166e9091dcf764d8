"""Identity documents for token endpoints: who the proxy is, in the words of an agent, a file, a command or a key.

A document whose end is known is used again, for the same audience, until half of what was left of it is over.
"""

import asyncio
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from egress.credentials.grant_rules import AssertionSpec, GrantSpec
from egress.model.clock import Clock
from egress.model.limits import LIMITS
from egress.model.secret import Secret
from egress.sdk.secrets import BadSpec, IdentityDocuments, SecretSource, SourceUnavailable

DOCUMENT_SECONDS = 10.0
"""Time to get a document; the rest of an exchange's time is the token endpoint's."""
KEY_DOCUMENT_LIFE = 300
"""Seconds that a document signed with our own key is good for."""

SOURCES = ("file", "command")
"""Schemes that are value sources as well."""
ALGORITHMS = ("ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "EdDSA")
"""The first is the default. None of them takes a shared secret."""


class DocumentUnavailable(Exception):
    """No identity document; the text is fit for events."""


type MakeSource = Callable[[Mapping[str, object], Path], SecretSource]
"""A value source of a specification such as `{file: {path: token}}`, relative to a directory."""

type _Key = tuple[AssertionSpec, Path, str]


@dataclass(frozen=True, slots=True)
class _Held:
    document: Secret
    until: float


class Assertions:
    """Documents by specification and audience. `identities` are those of plugins, by scheme."""

    def __init__(self, identities: Mapping[str, IdentityDocuments], make_source: MakeSource, clock: Clock) -> None:
        self._identities = identities
        self._make_source = make_source
        self._clock = clock
        self._held: dict[_Key, _Held] = {}

    def fault(self, spec: GrantSpec) -> str | None:
        """Why documents of this grant can never be had, None when they can: for the load of a configuration."""
        assertion = spec.assertion
        try:
            fields = json.loads(assertion.fields)
            if assertion.scheme == "private_key_jwt":
                self._key_source(fields, spec.base)
                _key_fault(fields)
            elif assertion.scheme in SOURCES:
                self._make_source({assertion.scheme: fields}, spec.base)
            elif assertion.scheme not in self._identities:
                return _no_plugin(assertion.scheme)
        except BadSpec as bad:
            return ": ".join(("assertion", *map(str, bad.path), bad.message))
        return None

    async def document(self, spec: GrantSpec, audience: str) -> Secret:
        """Raises `DocumentUnavailable`."""
        now = self._clock.now()
        key = (spec.assertion, spec.base, audience)
        held = self._held.get(key)
        if held is not None and now < held.until:
            return held.document
        try:
            async with asyncio.timeout(DOCUMENT_SECONDS):
                document, expires = await self._fetch(spec.assertion, spec.base, audience)
        except SourceUnavailable as unavailable:
            raise DocumentUnavailable(f"identity document not available: {unavailable.kind}") from None
        except TimeoutError:
            raise DocumentUnavailable("identity document not available: timeout") from None
        if not 0 < len(document.reveal()) <= LIMITS.assertion_bytes:
            raise DocumentUnavailable("identity document is empty or too large")
        self._held = {one: other for one, other in self._held.items() if now < other.until}
        if expires is not None and expires > now:
            self._held[key] = _Held(document, now + (expires - now) / 2)
        return document

    async def _fetch(self, spec: AssertionSpec, base: Path, audience: str) -> tuple[Secret, float | None]:
        fields = json.loads(spec.fields)
        if spec.scheme == "private_key_jwt":
            return await self._signed(fields, base, audience)
        if spec.scheme in SOURCES:
            fetched = await self._make_source({spec.scheme: fields}, base).fetch()
            return Secret(fetched.values[""].reveal().strip()), fetched.expires
        documents = self._identities.get(spec.scheme)
        if documents is None:
            raise DocumentUnavailable(_no_plugin(spec.scheme))
        return await documents.fetch(audience)

    async def _signed(self, fields: Mapping[str, object], base: Path, audience: str) -> tuple[Secret, float | None]:
        """A document that we sign ourselves (RFC 7523 section 3)."""
        import jwt  # noqa: PLC0415 - 60 ms, for the few that sign

        key = (await self._key_source(fields, base).fetch()).values[""]
        now = int(self._clock.now())
        name = fields["client_id"]
        claims = {"iss": name, "sub": name, "aud": audience, "jti": str(uuid.uuid4())}
        times = {"iat": now, "exp": now + KEY_DOCUMENT_LIFE}
        headers = {"kid": fields["kid"]} if fields.get("kid") else None
        algorithm = str(fields.get("alg", ALGORITHMS[0]))
        try:
            text = jwt.encode(claims | times, key.reveal(), algorithm=algorithm, headers=headers)
        except (jwt.PyJWTError, ValueError, TypeError):  # messages may quote the key
            raise DocumentUnavailable("identity document could not be signed with the given key") from None
        return Secret(text), None

    def _key_source(self, fields: Mapping[str, object], base: Path) -> SecretSource:
        key = fields.get("key")
        if not isinstance(key, Mapping):
            raise BadSpec("needs a source, such as `{file: PATH}`", ("key",))
        return self._make_source(key, base)


def _key_fault(fields: Mapping[str, object]) -> None:
    """Raises `BadSpec` for what is no description of our own key."""
    for name in ("client_id", "kid"):
        text = fields.get(name, "")
        if not isinstance(text, str) or (name == "client_id" and not text):
            raise BadSpec("needs text", (name,))
    if fields.get("alg", ALGORITHMS[0]) not in ALGORITHMS:
        raise BadSpec(f"must be one of {', '.join(ALGORITHMS)}", ("alg",))
    unknown = sorted(set(fields) - {"client_id", "kid", "alg", "key"})
    if unknown:
        raise BadSpec("is no field of a key", (unknown[0],))


def _no_plugin(scheme: str) -> str:
    hint = "; install egress-identity-spiffe and list it in `plugins.enabled`" if scheme == "spiffe" else ""
    return f"no plugin gives identity documents of the scheme `{scheme}`{hint}"
