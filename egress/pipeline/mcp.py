"""What an MCP exchange does beside being judged: whose session it is, which replies are cut, how refusals are told."""

from collections.abc import Mapping

from egress.http.coding import Decoder, decoder
from egress.http.fields import list_members, without
from egress.l7.mcp import SESSION_FIELD, refusal_as_result, session_of
from egress.l7.mcp_replies import ReplyFilter, SseFilter
from egress.l7.mcp_sessions import SessionTable
from egress.model.limits import LIMITS
from egress.model.message import FieldLine, Malformed, RequestHead, ResponseHead
from egress.model.operation import McpSessionEnd, Operation, RpcMessages
from egress.model.verdict import Denial, DenialCode, Stage
from egress.pipeline.transform import Decoded, ReplyTransform
from egress.policy.authorization import Authorization
from egress.policy.compiled import Endpoint

_JSON, _EVENTS = b"application/json", b"text/event-stream"


class McpExchange:
    """One request on an MCP endpoint, after it was read."""

    def __init__(
        self,
        sessions: SessionTable,
        authorization: Authorization,
        endpoint: Endpoint,
        head: RequestHead,
        operation: Operation,
    ) -> None:
        self._sessions = sessions
        self._authorization = authorization
        self._endpoint = endpoint
        self._head = head
        self._operation = operation
        self._filter = ReplyFilter(authorization, endpoint, head, operation)

    def foreign_session(self) -> Denial | None:
        """A denial when the request names a session that another program opened."""
        return self._sessions.check(self._authorization, self._head)

    def request_fields(self, fields: tuple[FieldLine, ...]) -> tuple[FieldLine, ...]:
        """A reply that must be read is asked for without a coding."""
        if not self._filter.wanted:
            return fields
        return (*without(fields, frozenset((b"accept-encoding",))), (b"Accept-Encoding", b"identity"))

    def answered(self, response: ResponseHead) -> ReplyTransform | Denial | None:
        """Note what the reply says of sessions, and say how its body changes; None: not at all."""
        self._note_session(response)
        if not self._filter.wanted or not 200 <= response.status < 300 or response.framing.empty:
            return None
        inner = self._transform(response)
        if isinstance(inner, Denial):
            return inner
        codings = [item for name, value in response.fields if name.lower() == b"content-encoding"
                   for item in list_members(value)]  # fmt: skip
        if not codings:
            return inner
        undo = decoder(codings, LIMITS.mcp_reply_bytes if inner.ceiling is not None else None)
        return Decoded(inner, undo) if isinstance(undo, Decoder) else _unreadable(undo)

    def refusal(self, denial: Denial, envelope: Mapping[str, object]) -> bytes | None:
        """The refusal as a JSON-RPC error for status 200, where decision 25 wants it so."""
        return refusal_as_result(self._endpoint, denial, self._operation, envelope)

    def _note_session(self, response: ResponseHead) -> None:
        if not 200 <= response.status < 300:
            return
        match self._operation:
            case RpcMessages(calls=calls) if any(call.method == "initialize" for call in calls):
                for name, value in response.fields:
                    if name.lower() == SESSION_FIELD:
                        self._sessions.bind(self._authorization, value)
            case McpSessionEnd():
                session = session_of(self._head)
                if session is not None:
                    self._sessions.end(self._authorization, session)

    def _transform(self, response: ResponseHead) -> ReplyTransform | Denial:
        kind = next((value for name, value in response.fields if name.lower() == b"content-type"), b"")
        kind = kind.partition(b";")[0].strip().lower()
        if kind == _EVENTS:
            return _Events(self._filter.events())
        if kind == _JSON or not kind:
            return _Whole(self._filter)
        return _unreadable(Malformed("list reply is neither JSON nor an event stream"))


def _unreadable(fault: Malformed) -> Denial:
    return Denial(Stage.UPSTREAM, DenialCode.UPSTREAM_PROTOCOL_ERROR, fault.reason)


class _Whole:
    """A JSON reply, cut once it is complete."""

    ceiling: int | None = LIMITS.mcp_reply_bytes

    def __init__(self, reply: ReplyFilter) -> None:
        self._reply = reply

    def feed(self, data: bytes) -> bytes | Malformed:
        return self._reply.filter_json(data)

    def finish(self) -> bytes | Malformed:
        return b""


class _Events:
    """An event stream, cut event by event."""

    ceiling: int | None = None

    def __init__(self, events: SseFilter) -> None:
        self._events = events

    def feed(self, data: bytes) -> bytes | Malformed:
        return self._events.feed(data)

    def finish(self) -> bytes | Malformed:
        return self._events.finish()
