"""Identity documents for token endpoints: who the proxy is, in the words of an agent, a file, a command or a key.

A document whose end is known is used again, for the same audience, until half of what was left of it is over.
"""

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from egress.credentials.grant_rules import AssertionSpec, GrantSpec
from egress.model.clock import Clock
from egress.model.limits import LIMITS
from egress.model.secret import Secret
from egress.sdk.secrets import IdentityDocuments, SecretSource, SourceUnavailable

KEY_DOCUMENT_LIFE = 300
"""Seconds that a document signed with our own key is good for."""


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

    async def document(self, spec: GrantSpec, audience: str) -> Secret:
        """Raises `DocumentUnavailable`."""
        now = self._clock.now()
        key = (spec.assertion, spec.base, audience)
        held = self._held.get(key)
        if held is not None and now < held.until:
            return held.document
        try:
            document, expires = await self._fetch(spec.assertion, spec.base, audience)
        except SourceUnavailable as unavailable:
            raise DocumentUnavailable(f"identity document not available: {unavailable.kind}") from None
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
        if spec.scheme in ("file", "command"):
            fetched = await self._make_source({spec.scheme: fields}, base).fetch()
            return Secret(fetched.values[""].reveal().strip()), fetched.expires
        documents = self._identities.get(spec.scheme)
        if documents is None:
            raise DocumentUnavailable(f"no plugin gives identity documents of the scheme `{spec.scheme}`")
        return await documents.fetch(audience)

    async def _signed(self, fields: Mapping[str, object], base: Path, audience: str) -> tuple[Secret, float | None]:
        """A document that we sign ourselves (RFC 7523 section 3)."""
        import jwt  # noqa: PLC0415 - 60 ms, for the few that sign

        source = fields["key"]
        assert isinstance(source, Mapping)
        key = (await self._make_source(source, base).fetch()).values[""]
        now = int(self._clock.now())
        name = str(fields["client_id"])
        claims = {
            "iss": name,
            "sub": name,
            "aud": audience,
            "iat": now,
            "exp": now + KEY_DOCUMENT_LIFE,
            "jti": str(uuid.uuid4()),
        }
        headers = {"kid": str(fields["kid"])} if fields.get("kid") else None
        try:
            text = jwt.encode(claims, key.reveal(), algorithm=str(fields.get("alg", "ES256")), headers=headers)
        except (jwt.PyJWTError, ValueError, TypeError, NotImplementedError):  # messages may quote the key
            raise DocumentUnavailable("identity document could not be signed with the given key") from None
        return Secret(text), None
