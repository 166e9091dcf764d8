"""The exchange scope: one HTTP request from its head to its end, in stage order.

A lane drives it: `begin`, `admit` when a body must be held, `prepare` while it `waits`, `send`, `respond`, `finish`.
It moves no bytes, and waits for nothing but what `prepare` asks others for.
"""

from dataclasses import replace
from enum import Enum

from egress.events.event import ExchangeDecided, FlowContext
from egress.http.fields import without
from egress.http.head import interpret_tunnelled
from egress.http.replies import Reply, Scene, envelope, refusal, result
from egress.l7.inspect import body_ceiling, inspect, undo_coding
from egress.l7.judge import judge
from egress.l7.select import select
from egress.model.address import Origin
from egress.model.body import of_length
from egress.model.errors import LocalProtocolError
from egress.model.ids import exchange_id
from egress.model.intent import Ingress
from egress.model.message import FieldLine, Malformed, RequestHead, ResponseHead, WireHead
from egress.model.operation import Operation
from egress.model.outcome import ByteCounts, RelayOutcome
from egress.model.process import ProcessEvidence
from egress.model.request import UpstreamRequest
from egress.model.verdict import Allow, Audited, Denial, DenialCode, Stage, Verdict
from egress.pipeline.connection import OpenedConnection
from egress.pipeline.credentials import ExchangeCredentials, object_head, redacted, swept, unmarked
from egress.pipeline.mcp import McpExchange
from egress.pipeline.ports import Services
from egress.pipeline.revalidate import revalidate
from egress.pipeline.session import Session
from egress.pipeline.transform import ReplyTransform
from egress.policy.compiled import Endpoint, Protocol
from egress.websocket.handshake import Deflate, Handshake, check_answer, offered_fields, read_handshake

UNREADABLE_PATH = "/[INVALID_REQUEST_TARGET]"

_H2C = Denial(
    Stage.L7, DenialCode.UNSUPPORTED_L7_PROTOCOL,
    "HTTP/2 cleartext upgrade (h2c) is not supported for L7-inspected endpoints",
)  # fmt: skip
_UNASKED_101 = Denial(Stage.UPSTREAM, DenialCode.UPSTREAM_PROTOCOL_ERROR, "the origin switched protocols unasked")


_OTHER_OBJECT = Denial(
    Stage.CREDENTIALS, DenialCode.SIGV4_PATH_NOT_REPRESENTABLE, "the object key belongs to another endpoint as written"
)  # fmt: skip

_CHANGED_WITH_BODY = frozenset((b"content-encoding", b"content-md5", b"digest", b"content-digest", b"etag"))
"""Response fields that speak of a body we change."""


class State(Enum):
    HEAD = "head"
    BODY = "body"
    ADMITTED = "admitted"
    FORWARDED = "forwarded"
    RESPONSE = "response"
    UPGRADED = "upgraded"
    DONE = "done"


class Exchange:
    """One request on an opened connection. `origin` carries the scheme that the first bytes showed."""

    __slots__ = (
        "_body",
        "_connection",
        "_context",
        "_credentials",
        "_deflate",
        "_forward",
        "_handshake",
        "_mcp",
        "_number",
        "_services",
        "_started",
        "_state",
        "_time",
        "_unmarked",
        "endpoint",
        "head",
        "hold",
        "judged",
        "lane",
        "method",
        "operation",
        "origin",
        "transform",
        "verdict",
    )

    def __init__(
        self, connection: OpenedConnection, services: Services, origin: Origin, lane: str, number: int
    ) -> None:
        self._connection = connection
        self._services = services
        self._context = connection.context
        self._forward = connection.authorization.intent.ingress is Ingress.FORWARD
        self._number = number
        self._started = services.clock.monotonic()
        self._state = State.HEAD
        self.origin = origin
        self.lane = lane
        self.method = "-"
        self.head: RequestHead | None = None
        """As the client sent it, placeholders included."""
        self.judged: RequestHead | None = None
        """As policy and events see it: without placeholders in its target."""
        self.endpoint: Endpoint | None = None
        self.hold: int | None = None
        """Ceiling in bytes of a body that must be complete before `admit`; None lets it stream."""
        self.operation: Operation | None = None
        self._body: bytes | None = None
        self._unmarked = False
        self._handshake: Handshake | None = None
        self._deflate: Deflate | None = None
        self._mcp: McpExchange | None = None
        self._credentials: ExchangeCredentials | None = None
        self.transform: ReplyTransform | None = None
        """How the body of the reply changes on its way; None: not at all."""
        self.verdict: Verdict = Allow()

    def begin(self, wire: WireHead | Malformed | RequestHead) -> RequestHead | Denial:
        """Interpret and judge one head. A `Malformed` is what the lane's lexer made of it; an absolute-form head was
        interpreted for the connection scope already."""
        self._expect(State.HEAD)
        if isinstance(wire, WireHead):
            self.method = wire.method.decode("ascii", "replace")
            wire = interpret_tunnelled(wire, self.origin)
        if isinstance(wire, Malformed):
            return self._deny(_malformed(wire))
        return self._judge(wire)

    def _judge(self, head: RequestHead) -> RequestHead | Denial:
        self.head = head
        self.method = head.method
        self._unmarked = unmarked(head)
        judged = head if self._unmarked else redacted(head, forward=self._forward)
        if isinstance(judged, Denial):
            return self._deny(judged)
        self.judged = judged
        return self._deny_stale() or self._judge_redacted(head, judged)

    def _deny_stale(self) -> Denial | None:
        stale = revalidate(self._connection)
        return None if stale is None else self._deny(stale)

    def _judge_redacted(self, head: RequestHead, judged: RequestHead) -> RequestHead | Denial:
        authorization = self._connection.authorization
        endpoint = select(authorization, judged)
        if isinstance(endpoint, Denial):
            return self._deny(endpoint)
        self.endpoint = endpoint
        spelled = self._spelled(endpoint, head, judged)
        if isinstance(spelled, Denial):
            return self._deny(spelled)
        self.head, self.judged = head, judged = spelled
        self.hold = body_ceiling(endpoint)
        if self.hold is None:
            self.verdict = judge(authorization, endpoint, judged)
            if isinstance(self.verdict, Denial):
                return self._deny(self.verdict)
        denial = self._plan_credentials(endpoint, head, judged)
        if denial is not None:
            return self._deny(denial)
        if self.hold is not None:
            self._state = State.BODY
            return head
        if head.upgrade is not None and endpoint.inspected and self._reads_messages(endpoint):
            self._handshake = read_handshake(head.fields)
        self._state = State.ADMITTED
        return head

    def _spelled(
        self, endpoint: Endpoint, head: RequestHead, judged: RequestHead
    ) -> tuple[RequestHead, RequestHead] | Denial:
        """The request as its endpoint wants it judged and sent: object keys may be opaque, h2c is not offered on."""
        if head.upgrade == "h2c":
            if endpoint.inspected:
                return _H2C
            return replace(head, upgrade=None), replace(judged, upgrade=None)
        spelled = object_head(head, endpoint)
        if spelled is head:
            return head, judged
        shown = redacted(spelled, forward=self._forward)
        if isinstance(shown, Denial):
            return shown
        again = select(self._connection.authorization, shown)
        if isinstance(again, Denial):
            return again
        return (spelled, shown) if again is endpoint else _OTHER_OBJECT

    def _plan_credentials(self, endpoint: Endpoint, head: RequestHead, judged: RequestHead) -> Denial | None:
        """Inspection may hold the body already; credentials then take it as it is."""
        services = self._services
        configured = (services.runtime.credentials, services.grants, endpoint.credentials.signing)
        if configured == (None, None, None):
            return None
        self._credentials = credentials = ExchangeCredentials(self._connection, self._services, endpoint, judged)
        hold = credentials.plan(head)
        if isinstance(hold, Denial):
            return hold
        if self.hold is None:
            self.hold = hold
        return None

    def _reads_messages(self, endpoint: Endpoint) -> bool:
        """Credentials may not travel in messages that nobody reads."""
        guarded = self._credentials is not None and self._credentials.guarded
        return endpoint.websocket == "parsed" or guarded

    def admit(self, body: bytes) -> Denial | None:
        """Judge a request whose whole body had to be held; `body` is payload, without transfer coding."""
        self._expect(State.BODY)
        assert self.head is not None
        assert self.endpoint is not None
        if body_ceiling(self.endpoint) is not None:
            denial = self._inspect(self.endpoint, self.head, body)
            if denial is not None:
                return self._deny(denial)
        else:
            framing = self.head.framing if self.head.framing.empty and not body else of_length(len(body))
            self.head, self._body = replace(self.head, framing=framing, expect_continue=False), body
        if self._credentials is not None:
            assert self._body is not None
            denial = self._credentials.admit(self.head, self._body)
            if denial is not None:
                return self._deny(denial)
        self._state = State.ADMITTED
        return None

    def _inspect(self, endpoint: Endpoint, head: RequestHead, body: bytes) -> Denial | None:
        """What the body asks for, and whether it may."""
        decoded = undo_coding(head, body, endpoint.max_body_bytes)
        if isinstance(decoded, Malformed):
            return _malformed(decoded)
        self.head, self._body = decoded
        assert self.judged is not None
        self.judged = judged = replace(self.head, path=self.judged.path, query=self.judged.query)
        authorization = self._connection.authorization
        operation = inspect(endpoint, judged, self._body)
        if isinstance(operation, Denial):
            return operation
        self.operation = operation
        if endpoint.protocol is Protocol.MCP:
            self._mcp = McpExchange(self._services.mcp_sessions, authorization, endpoint, judged, operation)
            foreign = self._mcp.foreign_session()
            if foreign is not None:
                return foreign
        self.verdict = judge(authorization, endpoint, judged, operation)
        return self.verdict if isinstance(self.verdict, Denial) else None

    def too_large(self) -> Denial:
        """The body went past `hold`."""
        assert self.endpoint is not None
        assert self.hold is not None
        if self._credentials is not None and body_ceiling(self.endpoint) is None:
            return self._deny(self._credentials.too_large(self.hold))
        return self._deny(Denial(Stage.L7, DenialCode.BODY_TOO_LARGE, f"request body is larger than {self.hold} bytes"))

    @property
    def waits(self) -> bool:
        """`prepare` has to be awaited before `send`."""
        return self._credentials is not None and self._credentials.waits

    async def prepare(self) -> Denial | None:
        """Get what the request needs of others: an access token. Never raises."""
        assert self._credentials is not None
        denial = await self._credentials.obtain()
        return None if denial is None else self._deny(denial)

    def send(self) -> UpstreamRequest | Denial:
        """Last look at the generation and the credentials, then what may be written to the origin, in this turn of
        the loop. Asked again for a second attempt on another connection."""
        if self._state is not State.FORWARDED:
            self._expect(State.ADMITTED)
        stale = self._deny_stale()
        if stale is not None:
            return stale
        head = self.head
        assert head is not None
        if self._forward and self._services.via is not None:
            head = replace(head, fields=_with_via(head.fields, self._services.via))
        if self._handshake is not None:
            head = replace(head, fields=offered_fields(head.fields, self._handshake))
        if self._mcp is not None:
            head = replace(head, fields=self._mcp.request_fields(head.fields))
        placed = self._place(head)
        if isinstance(placed, Denial):
            return self._deny(placed)
        self._state = State.FORWARDED
        return placed

    def _place(self, head: RequestHead) -> UpstreamRequest | Denial:
        if self._credentials is not None:
            return self._credentials.place(head, self._body)
        if self._unmarked:
            return UpstreamRequest(head, self._body)
        clean = swept(head)
        return clean if isinstance(clean, Denial) else UpstreamRequest(clean, self._body)

    def respond(self, response: ResponseHead) -> ResponseHead | Denial:
        """Check a final response head, or a 101, before the client sees anything of it."""
        self._expect(State.FORWARDED)
        head = self.head
        assert head is not None
        if response.status == 101:
            if head.upgrade is None:
                return self._deny(_UNASKED_101)
            if self._handshake is not None:
                deflate = check_answer(self._handshake, response.fields)
                if isinstance(deflate, Malformed):
                    return self._deny(Denial(Stage.UPSTREAM, deflate.code, deflate.reason))
                self._deflate = deflate
            self._state = State.UPGRADED
        else:
            if self._mcp is not None:
                transform = self._mcp.answered(response)
                if isinstance(transform, Denial):
                    return self._deny(transform)
                if transform is not None:
                    self.transform = transform
                    response = replace(response, fields=without(response.fields, _CHANGED_WITH_BODY))
            self._state = State.RESPONSE
        return self._scrubbed(response)

    def interim(self, response: ResponseHead) -> ResponseHead:
        """An interim head on its way to the client."""
        if self._credentials is None or not self._connection.resolved:
            return response
        return self._credentials.hinted(response)

    def _scrubbed(self, response: ResponseHead) -> ResponseHead | Denial:
        """Keep what was placed from coming back."""
        if self._credentials is None or not self._connection.resolved:
            return response
        scrubbed = self._credentials.answered(response, self.transform)
        if isinstance(scrubbed, Denial):
            return self._deny(scrubbed)
        response, self.transform = scrubbed
        return response

    @property
    def reads_messages(self) -> bool:
        """The messages of the WebSocket that this exchange opens are judged."""
        return self._handshake is not None

    def session(self) -> Session | None:
        """The messages of an upgraded exchange; None where they are relayed unread."""
        self._expect(State.UPGRADED)
        if self._handshake is None:
            return None
        assert self.head is not None
        assert self.endpoint is not None
        assert self.judged is not None
        return Session(self._connection, self.endpoint, self.judged, self._deflate, self._credentials)

    def refuse(self, denial: Denial) -> Reply:
        """The reply to a denial of any stage of this exchange."""
        self.verdict = denial
        evidence = self._context.evidence
        scene = Scene(
            request_id=exchange_id(self._context.flow, self._number),
            ingress=Ingress.FORWARD if self._forward else None,
            method=self.method,
            origin=self.origin,
            path=self.path,
            binary=evidence.executable if isinstance(evidence, ProcessEvidence) else None,
            protocol=self.protocol,
        )
        if self._mcp is not None:
            body = self._mcp.refusal(denial, envelope(denial, scene))
            if body is not None:
                return result(body)
        return refusal(denial, scene)

    def tell_message(self, method: str, verdict: Audited | Denial) -> None:
        """Tell a refused or audited WebSocket message; the exchange itself was told at its 101."""
        outcome = RelayOutcome.DENIED if isinstance(verdict, Denial) else RelayOutcome.COMPLETE
        self._tell(method, verdict, outcome, None, ByteCounts())

    def finish(self, outcome: RelayOutcome, status: int | None, counts: ByteCounts) -> None:
        """End the exchange and tell; only the first call counts."""
        if self._state is State.DONE:
            return
        self._state = State.DONE
        self._tell(self.method, self.verdict, outcome, status, counts)
        if self._credentials is not None:
            self._credentials.tell(exchange_id(self._context.flow, self._number))

    def _tell(
        self, method: str, verdict: Verdict, outcome: RelayOutcome, status: int | None, counts: ByteCounts
    ) -> None:
        services = self._services
        services.events.emit(
            ExchangeDecided(
                self._context, exchange_id(self._context.flow, self._number), services.clock.now(),
                services.clock.monotonic() - self._started, method, self.path, verdict, self.protocol,
                status, outcome, counts, self.lane,
            )
        )  # fmt: skip

    @property
    def context(self) -> FlowContext:
        return self._context

    @property
    def path(self) -> str:
        return self.judged.path if self.judged is not None else UNREADABLE_PATH

    @property
    def protocol(self) -> str:
        if self.endpoint is None:
            return "rest" if self._connection.authorization.inspected else "l4"
        return self.endpoint.protocol.value

    @property
    def audited(self) -> bool:
        return isinstance(self.verdict, Audited)

    def _deny(self, denial: Denial) -> Denial:
        self.verdict = denial
        return denial

    def _expect(self, state: State) -> None:
        if self._state is not state:
            raise LocalProtocolError(f"exchange is {self._state.value}, not {state.value}")


def _malformed(malformed: Malformed) -> Denial:
    return Denial(Stage.L7, malformed.code, malformed.reason)


def _with_via(fields: tuple[FieldLine, ...], product: bytes) -> tuple[FieldLine, ...]:
    """Append ourselves to the last `Via` (RFC 9110 section 7.6.3): its members stand in the order of the hops."""
    ours = b"1.1 " + product
    for index in reversed(range(len(fields))):
        name, value = fields[index]
        if name.lower() == b"via":
            return (*fields[:index], (name, value + b", " + ours), *fields[index + 1 :])
    return (*fields, (b"Via", ours))
