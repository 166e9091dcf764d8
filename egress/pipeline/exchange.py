"""The exchange scope: one HTTP request from its head to its end, in stage order.

A lane drives it: `begin`, `admit` when a body must be held, `send`, `respond`, `finish`. It waits for nothing and
moves no bytes.
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
        "_deflate",
        "_forward",
        "_handshake",
        "_mcp",
        "_number",
        "_services",
        "_started",
        "_state",
        "_time",
        "endpoint",
        "head",
        "hold",
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
        self.endpoint: Endpoint | None = None
        self.hold: int | None = None
        """Ceiling in bytes of a body that must be complete before `admit`; None lets it stream."""
        self.operation: Operation | None = None
        self._body: bytes | None = None
        self._handshake: Handshake | None = None
        self._deflate: Deflate | None = None
        self._mcp: McpExchange | None = None
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
        stale = revalidate(self._connection)
        if stale is not None:
            return self._deny(stale)
        authorization = self._connection.authorization
        endpoint = select(authorization, head)
        if isinstance(endpoint, Denial):
            return self._deny(endpoint)
        self.endpoint = endpoint
        if head.upgrade == "h2c":
            if endpoint.inspected:
                return self._deny(_H2C)
            self.head = head = replace(head, upgrade=None)
        self.hold = body_ceiling(endpoint)
        if self.hold is not None:
            self._state = State.BODY
            return head
        self.verdict = judge(authorization, endpoint, head)
        if isinstance(self.verdict, Denial):
            return self._deny(self.verdict)
        if head.upgrade is not None and endpoint.inspected and endpoint.websocket == "parsed":
            self._handshake = read_handshake(head.fields)
        self._state = State.ADMITTED
        return head

    def admit(self, body: bytes) -> Denial | None:
        """Judge a request whose whole body had to be held; `body` is payload, without transfer coding."""
        self._expect(State.BODY)
        head, endpoint = self.head, self.endpoint
        assert head is not None
        assert endpoint is not None
        decoded = undo_coding(head, body, endpoint.max_body_bytes)
        if isinstance(decoded, Malformed):
            return self._deny(_malformed(decoded))
        self.head, self._body = decoded
        authorization = self._connection.authorization
        operation = inspect(endpoint, self.head, self._body)
        if isinstance(operation, Denial):
            return self._deny(operation)
        self.operation = operation
        if endpoint.protocol is Protocol.MCP:
            self._mcp = McpExchange(self._services.mcp_sessions, authorization, endpoint, self.head, operation)
            foreign = self._mcp.foreign_session()
            if foreign is not None:
                return self._deny(foreign)
        self.verdict = judge(authorization, endpoint, self.head, operation)
        if isinstance(self.verdict, Denial):
            return self._deny(self.verdict)
        self._state = State.ADMITTED
        return None

    def too_large(self) -> Denial:
        """The body went past `hold`."""
        return self._deny(Denial(Stage.L7, DenialCode.BODY_TOO_LARGE, f"request body is larger than {self.hold} bytes"))

    def send(self) -> UpstreamRequest | Denial:
        """Last look at the generation, then what may be written to the origin."""
        self._expect(State.ADMITTED)
        stale = revalidate(self._connection)
        if stale is not None:
            return self._deny(stale)
        head = self.head
        assert head is not None
        if self._forward and self._services.via is not None:
            head = replace(head, fields=_with_via(head.fields, self._services.via))
        if self._handshake is not None:
            head = replace(head, fields=offered_fields(head.fields, self._handshake))
        if self._mcp is not None:
            head = replace(head, fields=self._mcp.request_fields(head.fields))
        self._state = State.FORWARDED
        return UpstreamRequest(head, self._body)

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
        return Session(self._connection, self.endpoint, self.head, self._deflate)

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
        return self.head.path if self.head is not None else UNREADABLE_PATH

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
