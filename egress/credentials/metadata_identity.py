"""Identity tokens of a Google service account, for the audiences that the operator listed. These are real secrets."""

import asyncio
import json
from collections.abc import Callable
from urllib.parse import quote

from egress.credentials.metadata_answers import GOOGLE_KEYS
from egress.credentials.scope import Place
from egress.credentials.snapshot import CredentialSnapshot
from egress.credentials.token_endpoint import is_token68
from egress.model.clock import Clock
from egress.model.limits import LIMITS
from egress.model.secret import Secret
from egress.sdk.http import HttpClient, HttpFailure

HOST = "iamcredentials.googleapis.com"
TIMEOUT = 4.0
"""Seconds for the call; whoever asked waits for five."""
KEPT = 300.0
"""Seconds that a token is handed out again; it is good for an hour."""


class IdentityTokens:
    """Asks Google in the name of the account, with the access token of the current snapshot where that may go."""

    def __init__(
        self,
        http: HttpClient,
        snapshot: Callable[[], CredentialSnapshot],
        account: Callable[[], str],
        clock: Clock,
        agent: str,
    ) -> None:
        self._http = http
        self._snapshot = snapshot
        self._account = account
        self._clock = clock
        self._agent = agent
        self._lock = asyncio.Lock()
        self._kept: dict[tuple[int, str], tuple[Secret, float]] = {}

    async def mint(self, audience: str) -> Secret | None:
        """A token; None when there is no account, nothing to ask with, or no answer."""
        async with self._lock:  # one call at a time: the askers are untrusted
            now = self._clock.monotonic()
            key = (self._snapshot().revision, audience)  # what a revoked credential obtained goes with it
            self._kept = {one: held for one, held in self._kept.items() if one[0] == key[0] and now < held[1]}
            if key in self._kept:
                return self._kept[key][0]
            token = await self._ask(audience)
            if token is not None:
                self._kept[key] = (token, now + KEPT)
            return token

    async def _ask(self, audience: str) -> Secret | None:
        account = self._account()
        path = f"/v1/projects/-/serviceAccounts/{quote(account, safe='@')}:generateIdToken"
        access = self._access_token(path) if account else None
        if access is None:
            return None
        headers = {"Authorization": f"Bearer {access.reveal()}", "Content-Type": "application/json"}
        body = json.dumps({"audience": audience, "includeEmail": True}).encode()
        try:
            reply = await self._http.request(
                "POST", f"https://{HOST}{path}", headers=headers, body=body,
                timeout=TIMEOUT, max_bytes=LIMITS.token_reply_bytes,
            )  # fmt: skip
            token = json.loads(reply.body).get("token") if reply.status == 200 else None
        except (HttpFailure, ValueError, AttributeError, RecursionError):
            return None
        return Secret(token) if isinstance(token, str) and is_token68(token) else None

    def _access_token(self, path: str) -> Secret | None:
        place = Place(HOST, 443, path, "POST", self._agent, ())
        resolver = self._snapshot().resolver(place, self._clock.now())
        found = (resolver.key(key) for key in GOOGLE_KEYS) if resolver is not None else iter(())
        return next((secret for secret in found if isinstance(secret, Secret)), None)
