"""Access tokens of token grants: obtained once for all who wait, kept, renewed before they end, forgotten.

An identity document goes to a token endpoint; what comes back goes into requests (token-grants.md sections 4, 5, 7).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from egress.credentials.assertions import Assertions, DocumentUnavailable
from egress.credentials.grant_rules import GrantChoice
from egress.credentials.token_endpoint import (
    AccessToken,
    Form,
    GrantFailure,
    assertion_audience,
    endpoint_fault,
    read_reply,
    time_to_live,
)
from egress.model.clock import Clock
from egress.model.limits import LIMITS
from egress.model.secret import Secret
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage
from egress.sdk.http import HttpClient, HttpFailure

TIMEOUT = 30.0
"""Seconds for one exchange, identity document included."""
RENEW_AT = 0.8
"""Part of its time after which a token that is asked for is renewed in the background."""
FIRST_BACKOFF = 1.0
LONGEST_BACKOFF = 30.0
YOUNG = 10.0
"""Seconds in which an origin's refusal does not cost a token its place: another one would fare no better, and each
refusal would become a request to the token endpoint."""

_HEADERS = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}


@dataclass(frozen=True, slots=True)
class GrantExchanged:
    """One exchange ended, for events. `reason` is empty on success; `key` names the grant, on one line."""

    key: str
    endpoint: str
    """`host:port` of the token endpoint."""
    code: ReasonCode | None = None
    reason: str = ""


@dataclass(slots=True)
class _Entry:
    """What is known of one choice: a token with its times, or a failure and when to try again. Times are monotonic."""

    token: Secret | None = None
    obtained: float = 0.0
    ends: float = 0.0
    renews: float = 0.0
    failure: GrantFailure | None = None
    again: float = 0.0
    backoff: float = 0.0
    task: "asyncio.Task[None] | None" = None


class GrantStore:
    """One per process, in memory."""

    def __init__(
        self,
        http: HttpClient,
        assertions: Assertions,
        clock: Clock,
        observe: Callable[[GrantExchanged], None] = lambda _: None,
    ) -> None:
        self._http = http
        self._assertions = assertions
        self._clock = clock
        self._observe = observe
        self._entries: OrderedDict[GrantChoice, _Entry] = OrderedDict()

    async def token(self, choice: GrantChoice) -> Secret | Denial:
        """A token that is good now. Everybody who asks while one is being obtained waits for the same exchange; a
        failure is repeated to those who ask before its back-off is over."""
        entry = self._entry(choice)
        now = self._clock.monotonic()
        if entry.token is not None and now < entry.ends:
            if now >= entry.renews and now >= entry.again:
                self._start(choice, entry)
            return entry.token
        if entry.failure is None or now >= entry.again or entry.task is not None:
            await asyncio.wait((self._start(choice, entry),))  # not its own end: others may wait for it
        if entry.token is not None and self._clock.monotonic() < entry.ends:
            return entry.token
        return _denial(choice, entry.failure or GrantFailure(ReasonCode.REJECTED, "token grant ended before its use"))

    def evict(self, choice: GrantChoice, used: Secret) -> None:
        """The origin refused the token `used`; the next request gets another one. Nothing is sent again."""
        entry = self._entries.get(choice)
        if entry is None or entry.token != used or self._clock.monotonic() - entry.obtained < YOUNG:
            return
        entry.token = None

    def purge(self, keep: Iterable[GrantChoice] = ()) -> None:
        """Forget every token but those of `keep`: providers were detached or changed."""
        kept = frozenset(keep)
        for choice in [choice for choice in self._entries if choice not in kept]:
            self._forget(choice)

    async def close(self) -> None:
        """End exchanges that are under way."""
        tasks = [entry.task for entry in self._entries.values() if entry.task is not None]
        self.purge()
        if tasks:
            await asyncio.wait(tasks)

    def _entry(self, choice: GrantChoice) -> _Entry:
        entry = self._entries.get(choice)
        if entry is None:
            entry = self._entries[choice] = _Entry()
            while len(self._entries) > LIMITS.granted_tokens:
                self._forget(next(iter(self._entries)))
        self._entries.move_to_end(choice)
        return entry

    def _forget(self, choice: GrantChoice) -> None:
        entry = self._entries.pop(choice)
        if entry.task is not None:
            entry.task.cancel()

    def _start(self, choice: GrantChoice, entry: _Entry) -> "asyncio.Task[None]":
        if entry.task is None:
            entry.task = asyncio.create_task(self._renew(choice, entry))
        return entry.task

    async def _renew(self, choice: GrantChoice, entry: _Entry) -> None:
        try:
            found = await self._exchange(choice)
        finally:
            entry.task = None
        now = self._clock.monotonic()
        if isinstance(found, GrantFailure):
            entry.failure = found
            entry.backoff = min(LONGEST_BACKOFF, entry.backoff * 2 or FIRST_BACKOFF)
            entry.again = now + entry.backoff
        else:
            seconds = time_to_live(choice.spec.cache_ttl, found.life, trusted=choice.spec.cache_ttl_trust)
            entry.token, entry.failure, entry.backoff, entry.again = found.secret, None, 0.0, 0.0
            entry.obtained, entry.ends, entry.renews = now, now + seconds, now + seconds * RENEW_AT
        self._observe(_event(choice, found))

    async def _exchange(self, choice: GrantChoice) -> AccessToken | GrantFailure:
        """One round trip. Nothing it raises would say more than that it failed, and might say too much."""
        try:
            async with asyncio.timeout(TIMEOUT):
                return await self._ask(choice)
        except TimeoutError:
            return GrantFailure(ReasonCode.ENDPOINT_UNREACHABLE, "token grant took too long")
        except DocumentUnavailable as unavailable:
            return GrantFailure(ReasonCode.SVID_UNAVAILABLE, str(unavailable))
        except HttpFailure as failure:
            return GrantFailure(ReasonCode.ENDPOINT_UNREACHABLE, f"token endpoint not reached: {failure.reason}")
        except Exception as error:  # a bug is one refused request too
            return GrantFailure(ReasonCode.REJECTED, f"token grant broke: {type(error).__name__}")

    async def _ask(self, choice: GrantChoice) -> AccessToken | GrantFailure:
        spec = choice.spec
        fault = endpoint_fault(spec.token_endpoint)
        if fault is not None:
            return GrantFailure(ReasonCode.ENDPOINT_UNREACHABLE, fault)
        audience = assertion_audience(spec.token_endpoint, spec.jwt_svid_audience)
        document = await self._assertions.document(spec, audience)
        reply = await self._http.request(
            "POST",
            spec.token_endpoint,
            headers=_HEADERS,
            body=_form(choice).encode(document),
            timeout=TIMEOUT,
            max_bytes=LIMITS.token_reply_bytes,
            tls=spec.tls,
        )
        return read_reply(reply.status, reply.body, document)


def _form(choice: GrantChoice) -> Form:
    spec = choice.spec
    return Form(
        grant=spec.grant,
        client_assertion_type=spec.client_assertion_type,
        audience=choice.audience,
        scopes=choice.scopes,
        client_id=spec.client_id,
        resource=spec.resource,
        requested_token_type=spec.requested_token_type,
    )


def _denial(choice: GrantChoice, failure: GrantFailure) -> Denial:
    return Denial(
        Stage.CREDENTIALS,
        DenialCode.TOKEN_GRANT_FAILED,
        "dynamic token grant failed",
        reason_code=failure.code,
        log_reason=f"token grant {_shown(choice.key)}: {failure.reason}",
    )


def _event(choice: GrantChoice, found: AccessToken | GrantFailure) -> GrantExchanged:
    parts = urlsplit(choice.spec.token_endpoint)
    endpoint = f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
    if isinstance(found, GrantFailure):
        return GrantExchanged(_shown(choice.key), endpoint, found.code, found.reason)
    return GrantExchanged(_shown(choice.key), endpoint)


def _shown(key: str) -> str:
    """A key with its TABs as `_`: events stay one line."""
    return "".join([char if char.isprintable() else "_" for char in key])
