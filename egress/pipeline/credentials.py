"""The credentials of one exchange: what must be held for them, what is placed at the last moment, and what of it may
not come back. Made only where credentials are configured; costs a few substring tests until one is used."""

import codecs
from dataclasses import replace
from enum import Enum

from egress.credentials.aws.chunks import unwrap
from egress.credentials.aws.lookup import aws_keys
from egress.credentials.aws.minting import FormWatch, mint_hold, minting
from egress.credentials.aws.payload import Chunks
from egress.credentials.aws.sign import SigningPlan, opaque_path, plan_signing, sign, strip
from egress.credentials.grant_placement import place_token, refuses_token
from egress.credentials.grant_rules import GrantChoice
from egress.credentials.placeholder import contains_marker, find
from egress.credentials.redact import redact_target
from egress.credentials.rewrite import Failure, denial_of, inject, rewrite_head
from egress.credentials.rewrite_body import rewrite_body, rewrite_text
from egress.credentials.scan import Guard
from egress.credentials.scope import Place
from egress.credentials.scrub import Scrubber, ScrubPlan, accept_encoding, plan_reply
from egress.credentials.snapshot import CredentialSnapshot, Resolver
from egress.events.event import Finding, Notice, Severity
from egress.model.body import FramingKind, of_length
from egress.model.ids import ExchangeId
from egress.model.limits import KIB
from egress.model.message import Malformed, RequestHead, ResponseHead
from egress.model.request import UpstreamRequest
from egress.model.secret import Secret
from egress.model.verdict import Denial, DenialCode, Stage
from egress.pipeline.connection import OpenedConnection
from egress.pipeline.ports import Services
from egress.pipeline.transform import Masked, ReplyTransform
from egress.pipeline.upload import MARKED_BODY, Upload
from egress.policy.compiled import CredentialOptions, Endpoint

SMALL_BODY = 64 * KIB
"""Bodies up to this are held where they are looked at, so that nothing of a refused request leaves."""

_PLAIN = CredentialOptions()
_CHANGED = Denial(
    Stage.CREDENTIALS, DenialCode.CREDENTIAL_GENERATION_CHANGED,
    "a credential of this request was revoked while the request was prepared",
)  # fmt: skip
_MARKED_TEXT = Denial(
    Stage.CREDENTIALS, DenialCode.CREDENTIAL_BODY_DENIED,
    "the message holds a credential placeholder, and this endpoint does not place credentials into messages",
    hints=("write `websocket_credential_rewrite: true` on the endpoint",), surface="websocket-text",
)  # fmt: skip
_UNREAD_BINARY = Denial(
    Stage.CREDENTIALS, DenialCode.CREDENTIAL_BODY_DENIED,
    "binary messages are not read, so none may go where credentials belong",
    hints=("write `allow_uninspected_credentials: true` on the endpoint",), surface="websocket-binary",
)  # fmt: skip


class _Held(Enum):
    """Why a body is held, which decides what is said when it is too large for that."""

    SIGNING = "signing"
    REWRITE = "rewrite"
    LOOK = "look"


_UNMARKED: dict[int, RequestHead] = {}
"""Heads that hold no placeholder, by identity: what clients repeat is interpreted once and is the same object."""
_REMEMBERED = 512


def unmarked(head: RequestHead) -> bool:
    """Nothing in the head looks like a placeholder."""
    if _UNMARKED.get(id(head)) is head:
        return True
    if rewrite_head(head, None, _PLAIN) is not head or redact_target(head.path, head.query) != (head.path, head.query):
        return False
    if len(_UNMARKED) >= _REMEMBERED:
        _UNMARKED.clear()
    _UNMARKED[id(head)] = head
    return True


def redacted(head: RequestHead, *, forward: bool) -> RequestHead | Denial:
    """The head as policy and events see it: placeholders in its target are `[CREDENTIAL]`."""
    shown = redact_target(head.path, head.query)
    if shown is None:
        code = DenialCode.INVALID_CREDENTIAL_PLACEHOLDER if forward else DenialCode.CREDENTIAL_UNAVAILABLE
        return Denial(Stage.CREDENTIALS, code, "the request target holds a malformed credential placeholder")
    if shown == (head.path, head.query):
        return head
    return replace(head, path=shown[0], query=shown[1])


def object_head(head: RequestHead, endpoint: Endpoint) -> RequestHead:
    """The head with its object key as written, where the endpoint takes keys for opaque."""
    signing = endpoint.credentials.signing
    if signing is None or signing.object_keys != "opaque":
        return head
    return replace(head, path=opaque_path(head))


def swept(head: RequestHead) -> RequestHead | Denial:
    """A head on its way out where nothing is configured: a placeholder in it goes nowhere."""
    placed = rewrite_head(head, None, _PLAIN)
    return denial_of(placed) if isinstance(placed, Failure) else placed


class ExchangeCredentials:
    """One exchange's. `plan` and `admit` come before anything leaves, `obtain` waits, `place` runs in the turn of the
    loop in which the request is written, `answered` looks at the reply."""

    __slots__ = (
        "_before", "_connection", "_endpoint", "_grant", "_held", "_message_hits", "_method", "_options", "_place",
        "_plans", "_services", "_signed_bytes", "_signing", "_token",
    )  # fmt: skip

    def __init__(
        self, connection: OpenedConnection, services: Services, endpoint: Endpoint, judged: RequestHead
    ) -> None:
        """`judged` is the head that `redacted` made."""
        self._connection = connection
        self._services = services
        self._before = services.runtime.credentials
        """What was current when the request was admitted."""
        self._endpoint = endpoint
        self._options = endpoint.credentials
        self._method = judged.method
        intent = connection.authorization.intent
        self._place = Place(
            intent.origin.host.name, intent.origin.port, judged.path, judged.method, intent.agent, connection.binaries
        )
        self._grant: GrantChoice | None = services.grants.match(self._place) if services.grants is not None else None
        self._token: Secret | None = None
        self._signing: SigningPlan | None = None
        self._held: _Held | None = None
        self._plans: list[ScrubPlan] = []
        self._message_hits: set[int] = set()
        self._signed_bytes: int | None = None

    @property
    def waits(self) -> bool:
        """`obtain` has to be awaited before `place`."""
        return self._grant is not None

    @property
    def guarded(self) -> bool:
        """What carries no credentials by the endpoint's word must not carry any."""
        return not self._options.allow_uninspected

    @property
    def _credentialed(self) -> bool:
        snapshot = self._services.runtime.credentials
        return snapshot is not None and snapshot.credentialed(self._place.host, self._place.port)

    # before the body ---------------------------------------------------------------------------------------------

    def plan(self, head: RequestHead) -> int | Denial | None:
        """How many bytes of body must be held for the credentials' sake; None: none."""
        options = self._options
        if options.signing is not None:
            planned = plan_signing(head, options)
            if isinstance(planned, Denial):
                return planned
            self._signing = planned
        if options.deny_minting and (refused := minting(head, None, self._service)) is not None and self._credentialed:
            return refused
        if self._signing is not None and self._signing.hold is not None:
            self._held = _Held.SIGNING
            return self._signing.hold
        return None if head.framing.empty else self._look(head)

    def _look(self, head: RequestHead) -> int | None:
        if self._options.body_rewrite:
            self._held = _Held.REWRITE
            return self._options.max_rewrite_body_bytes
        hold = mint_hold(head, self._service) if self._options.deny_minting and self._credentialed else None
        if hold is None and self.guarded and head.framing.kind is FramingKind.LENGTH:
            hold = SMALL_BODY if (head.framing.length or 0) <= SMALL_BODY else None
        if hold is not None:
            self._held = _Held.LOOK
        return hold

    def too_large(self, ceiling: int) -> Denial:
        """What a body larger than `ceiling`, which `plan` gave, is told."""
        if self._held is _Held.SIGNING:
            assert self._signing is not None
            return self._signing.too_large()
        reason = f"a body that is read for credentials may have at most {ceiling} bytes here"
        return Denial(Stage.CREDENTIALS, DenialCode.CREDENTIAL_BODY_TOO_LARGE, reason)

    def admit(self, head: RequestHead, body: bytes) -> Denial | None:
        """Judge a body that was held, for whatever reason."""
        if self._options.deny_minting and self._credentialed:
            refused = minting(head, body, self._service)
            if refused is not None:
                return refused
        if self._options.body_rewrite or not self.guarded:
            return None
        if self._signing is not None and self._signing.payload.chunks is not Chunks.KEEP:
            unwrapped = unwrap(self._signing.payload, body)
            if isinstance(unwrapped, Malformed):
                return Denial(Stage.CREDENTIALS, unwrapped.code, unwrapped.reason)
            body = unwrapped[0]
        return MARKED_BODY if Guard.of(head.fields).finds(body) else None

    @property
    def _service(self) -> str:
        """The AWS service that the endpoint signs for; empty for none."""
        return self._signing.scope.service if self._signing is not None else ""

    async def obtain(self) -> Denial | None:
        """Get the access token that a grant asks for."""
        assert self._grant is not None
        assert self._services.grants is not None
        token = await self._services.grants.token(self._grant)
        if isinstance(token, Denial):
            return token
        self._token = token
        return None

    # the last moment ---------------------------------------------------------------------------------------------

    def place(self, head: RequestHead, body: bytes | None) -> UpstreamRequest | Denial:
        """Values into placeholders, tokens into fields, a signature over it all. Never before everything else said
        yes, and anew for each attempt: what was revoked meanwhile is not placed."""
        now = self._services.runtime.credentials
        placed = self._placed(head, body, now)
        if isinstance(placed, Denial) and now is not self._before:
            before = self._placed(head, body, self._before)
            return placed if isinstance(before, Denial) else _CHANGED
        return placed

    def _placed(
        self, head: RequestHead, body: bytes | None, snapshot: CredentialSnapshot | None
    ) -> UpstreamRequest | Denial:
        resolver = self._resolver(snapshot)
        plan = self._signing
        if plan is not None:
            head = strip(plan, head)
        if self._token is not None:
            assert self._grant is not None
            head = place_token(head, self._grant.spec.placement, self._token)
        placed = rewrite_head(head, resolver, self._options)
        if not isinstance(placed, Failure) and resolver is not None:
            placed = inject(placed, resolver)
        if isinstance(placed, Failure):
            return denial_of(placed)
        head = placed
        if body is not None and self._options.body_rewrite:
            rewritten = rewrite_body(head.fields, body, resolver, self._options)
            if isinstance(rewritten, Denial):
                return rewritten
            fields, body = rewritten
            head = replace(head, fields=fields, framing=of_length(len(body)) if body else head.framing)
        if plan is not None and not plan.passes:
            signed = self._signed(plan, head, body, resolver)
            if isinstance(signed, Denial):
                return signed
            head, body = signed
        else:
            self._remember(resolver)
            head = self._decodable(head)
        return UpstreamRequest(head, body, self._upload(head, body))

    def _signed(
        self, plan: SigningPlan, head: RequestHead, body: bytes | None, resolver: Resolver | None
    ) -> tuple[RequestHead, bytes | None] | Denial:
        keys = aws_keys(resolver, self._options.provider)
        if isinstance(keys, Denial):
            return keys
        self._remember(resolver)
        now = self._services.clock.now() + self._services.skew.seconds(self._place.host)
        self._signed_bytes = len(body) if body is not None else 0
        return sign(plan, self._decodable(head), body, keys, now)

    def _decodable(self, head: RequestHead) -> RequestHead:
        """Where values may come back, ask for no coding that we could not look into."""
        if not self._connection.resolved or self._options.redact_responses not in ("all", "strict"):
            return head
        fields = accept_encoding(head.fields)
        return head if fields is head.fields else replace(head, fields=fields)

    def _resolver(self, snapshot: CredentialSnapshot | None) -> Resolver | None:
        return snapshot.resolver(self._place, self._services.clock.now()) if snapshot is not None else None

    def _remember(self, resolver: Resolver | None) -> None:
        """What was placed must not come back on this connection."""
        if resolver is not None and resolver.used:
            self._connection.resolved.update(dict.fromkeys(resolver.to_scrub()))
        if self._token is not None:
            self._connection.resolved[self._token] = None

    def _upload(self, head: RequestHead, body: bytes | None) -> Upload | None:
        if body is not None or head.framing.empty:
            return None
        chunks = self._signing.stream() if self._signing is not None else None
        guard = Guard.of(head.fields) if self.guarded else None
        watch = FormWatch.of(head) if self._options.deny_minting and self._credentialed else None
        return Upload(chunks, guard, watch) if (chunks, guard, watch) != (None, None, None) else None

    # the reply ---------------------------------------------------------------------------------------------------

    def answered(
        self, response: ResponseHead, transform: ReplyTransform | None
    ) -> tuple[ResponseHead, ReplyTransform | None] | Denial:
        """The reply without what this connection has placed; `transform` changes it before that."""
        self._learn(response)
        if not self._connection.resolved:
            return response, transform
        plan = plan_reply(response, self._method, self._scrubber, self._options.redact_responses)
        if isinstance(plan, Denial):
            return plan
        self._plans.append(plan)
        if plan.transform is None:
            return plan.head, transform
        return plan.head, Masked(plan.transform, transform)

    def hinted(self, response: ResponseHead) -> ResponseHead:
        """An interim reply without what this connection has placed."""
        if self._options.redact_responses == "off":
            return response
        fields = self._scrubber.fields(response.fields, self._message_hits)
        return response if fields is response.fields else replace(response, fields=fields)

    def _learn(self, response: ResponseHead) -> None:
        """What a refusal says of our clock, or of a token that is no longer good."""
        if self._signing is not None:
            self._services.skew.learn(self._place.host, response, self._services.clock.now())
        if self._grant is not None and self._token is not None and refuses_token(response):
            assert self._services.grants is not None
            self._services.grants.evict(self._grant, self._token)

    @property
    def _scrubber(self) -> Scrubber:
        return Scrubber.of(tuple(self._connection.resolved))

    # WebSocket messages ------------------------------------------------------------------------------------------

    def place_message(self, text: str) -> str | Denial:
        """One text message of the client, judged already, as the origin gets it."""
        if not contains_marker(text.encode()):
            return text
        options = self._options
        if not options.websocket_rewrite and not options.websocket_rewrite_compat:
            return _MARKED_TEXT if self._credentialed and self.guarded else text
        resolver = self._resolver(self._services.runtime.credentials)
        placed = rewrite_text(text, resolver)
        if isinstance(placed, Failure):
            return denial_of(placed)
        self._remember(resolver)
        count = sum(found.token is not None for found in find(text.encode()))
        self._notice(f"WEBSOCKET_CREDENTIAL_REWRITE {self._where}", ("replacements", str(count)))
        return placed

    def binary_message(self) -> Denial | None:
        """Binary messages are not read, so none may go where credentials belong unless the endpoint says so."""
        return _UNREAD_BINARY if self._credentialed and self.guarded else None

    def scrub_message(self) -> "MessageScrub | None":
        """For one text message of the origin; None where nothing was placed or the endpoint wants none."""
        if not self._connection.resolved or self._options.redact_responses not in ("all", "strict"):
            return None
        return MessageScrub(self._scrubber, self._message_hits)

    # the end -----------------------------------------------------------------------------------------------------

    def tell(self, exchange: ExchangeId) -> None:
        """What was signed; what came back, once per secret and exchange; which replies could not be looked into."""
        plan = self._signing
        if plan is not None and self._signed_bytes is not None:
            self._notice(
                f"SigV4 re-signed {self._where} "
                f"service={plan.scope.service} region={plan.scope.region} mode={plan.mode}",
                ("payload_bytes", str(self._signed_bytes)), ("derived_region", str(plan.derived_region).lower()),
                exchange=exchange,
            )  # fmt: skip
            self._signed_bytes = None
        hits = len(set(self._message_hits).union(*[plan.hits for plan in self._plans]))
        unread = [reason for plan in self._plans for reason in plan.findings]
        self._plans.clear()
        self._message_hits.clear()
        for _ in range(hits):
            self._find("egress.credential.reflected", "An origin sent a credential back", exchange)
        for reason in unread:
            self._find("egress.credential.unscrubbed", f"A reply could not be looked into: {reason}", exchange)

    @property
    def _where(self) -> str:
        return f"{self._place.host}:{self._place.port}"

    def _notice(self, message: str, *facts: tuple[str, str], exchange: ExchangeId | None = None) -> None:
        now = self._services.clock.now()
        self._services.events.emit(Notice(now, message, self._connection.context, exchange, facts))

    def _find(self, kind: str, title: str, exchange: ExchangeId) -> None:
        context = self._connection.context
        evidence = [("host", self._place.host)]
        if context.entry is not None:
            evidence.insert(0, ("policy", context.entry))
        self._services.events.emit(
            Finding(
                self._services.clock.now(), kind, title, Severity.HIGH, context, blocked=False,
                evidence=tuple(evidence), exchange=exchange,
            )
        )  # fmt: skip


class MessageScrub:
    """One text message of an origin, piece by piece."""

    def __init__(self, scrubber: Scrubber, hits: set[int]) -> None:
        self._stream = scrubber.stream(hits)
        self._text = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, piece: str, *, last: bool) -> str:
        shown = self._stream.feed(piece.encode())
        end = self._stream.finish() if last else b""
        assert isinstance(shown, bytes)  # no coding is undone here
        assert isinstance(end, bytes)
        return self._text.decode(shown + end, last)
