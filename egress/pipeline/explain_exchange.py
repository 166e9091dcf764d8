"""What an exchange and its WebSocket messages come to, in words: the data path's own scopes, driven without a lane."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from egress.http.query import decode_query
from egress.l7 import calls, graphql_rules, graphql_ws, websocket
from egress.model.message import Malformed, RequestHead, WireHead
from egress.model.operation import GraphqlOperations, McpStream, Operation, RpcMessages
from egress.model.verdict import Allow, Audited, Denial, DenialCode, RuleRef, Stage, Verdict
from egress.pipeline.answer import Answer, Decision, Step
from egress.pipeline.connection import OpenedConnection
from egress.pipeline.exchange import Exchange
from egress.pipeline.session import Refusal, Session
from egress.policy.compiled import Endpoint
from egress.policy.explain import Miss, nearest_rules

type Message = str | bytes
"""One client message of a WebSocket: text, or binary."""

_NEEDS_BODY = "it depends on the body of the request; give one"
_NO_WEBSOCKET = "no WebSocket is opened there, so no message can be sent"


@dataclass(frozen=True, slots=True)
class Content:
    """What the client sends behind its head. `body` is None when it was left open."""

    body: bytes | None = None
    messages: tuple[Message, ...] = ()


def answer_exchange(
    exchange: Exchange, wire: WireHead | Malformed | RequestHead, content: Content, opened: OpenedConnection
) -> Answer:
    """Judge the request, then its messages while they pass. The trace has the steps of the exchange only."""
    outcome = exchange.begin(wire)
    if not isinstance(outcome, Denial) and exchange.hold is not None:
        if content.body is None and outcome.method == "POST":
            return Answer(Decision.UNDECIDABLE, (Step(Stage.L7, Decision.UNDECIDABLE, _NEEDS_BODY),))
        body = content.body or b""
        denial = exchange.too_large() if len(body) > exchange.hold else exchange.admit(body)
        outcome = denial or outcome
    answer = _answer(exchange, outcome if isinstance(outcome, Denial) else exchange.verdict, opened)
    if not content.messages or answer.decision is Decision.DENY:
        return answer
    return _with_messages(exchange, answer, content.messages, opened)


def _answer(exchange: Exchange, verdict: Verdict, opened: OpenedConnection) -> Answer:
    match verdict:
        case Allow(rule=rule):
            detail = f"rule {rule.id}" if rule else _without_rule(exchange)
            return Answer(Decision.ALLOW, (Step(Stage.L7, Decision.ALLOW, detail),), rule=rule)
        case Audited(denial=denial):
            return _audited(denial, _request_misses(exchange, opened, denial), "")
        case Denial() as denial:
            step = Step(denial.stage, Decision.DENY, _reason(denial))
            misses = _request_misses(exchange, opened, denial)
            return Answer(Decision.DENY, (step,), denial, denial.rule, exchange.refuse(denial), misses)


def _audited(denial: Denial, misses: tuple[Miss, ...], prefix: str) -> Answer:
    step = Step(Stage.L7, Decision.AUDIT, f"{prefix}{_reason(denial)}; `enforcement: audit` lets it pass")
    return Answer(Decision.AUDIT, (step,), denial, denial.rule, None, misses)


def _reason(denial: Denial) -> str:
    reason = denial.log_reason or denial.reason
    return f"{denial.operation}: {reason}" if denial.operation else reason


def _without_rule(exchange: Exchange) -> str:
    """Why a request passes that no rule names."""
    endpoint = exchange.endpoint
    if endpoint is None or not endpoint.inspected:
        return "not inspected: no rules are asked"
    match exchange.operation:
        case RpcMessages(calls=()):
            return "answers to the server: rules bind what a client starts"
        case RpcMessages():
            return "the method profile of the endpoint allows it"
        case McpStream():
            return "the stream that the server talks on: rules bind what a client starts"
        case _:
            return "nothing in it has to be allowed by a rule"


def _request_misses(exchange: Exchange, opened: OpenedConnection, denial: Denial) -> tuple[Miss, ...]:
    """Rules that came closest; none where a rule or something other than rules refused."""
    head, endpoint = exchange.head, exchange.endpoint
    if head is None or denial.rule is not None or denial.code is not DenialCode.POLICY_DENIED:
        return ()
    if endpoint is None:
        return _near_http(opened.authorization.endpoints, head)
    return _near_operation(opened, endpoint, head, exchange.operation)


def _near_operation(
    opened: OpenedConnection, endpoint: Endpoint, head: RequestHead, operation: Operation | None
) -> tuple[Miss, ...]:
    authorization = opened.authorization
    match operation:
        case RpcMessages() if head.method == "POST":
            return calls.misses(authorization, endpoint, head, operation)
        case GraphqlOperations():
            return graphql_rules.misses(authorization, endpoint, head, operation)
        case None:
            alike = [one for one in authorization.endpoints if one.protocol is endpoint.protocol]
            return _near_http(alike, head)
        case _:
            return ()


def _near_http(endpoints: Sequence[Endpoint], head: RequestHead) -> tuple[Miss, ...]:
    pairs = decode_query(head.query)
    return () if isinstance(pairs, Malformed) else nearest_rules(endpoints, head.method, head.path, pairs)


def _with_messages(
    exchange: Exchange, opening: Answer, messages: tuple[Message, ...], opened: OpenedConnection
) -> Answer:
    head, endpoint = exchange.head, exchange.endpoint
    if head is None or endpoint is None or head.upgrade != "websocket":
        step = Step(Stage.L7, Decision.UNDECIDABLE, _NO_WEBSOCKET)
        return Answer(Decision.UNDECIDABLE, (*opening.trace, step))
    if not exchange.reads_messages:
        step = Step(Stage.L7, Decision.ALLOW, "messages are relayed unread")
        return replace(opening, trace=(*opening.trace, step))
    answers = list(_message_answers(Session(opened, endpoint, head, None), endpoint, head, messages, opened))
    trace = (*opening.trace, *(step for answer in answers for step in answer.trace))
    last = answers[-1]
    if last.decision is Decision.DENY:
        return replace(last, trace=trace)
    audited = next((answer for answer in (opening, *answers) if answer.decision is Decision.AUDIT), None)
    return replace(audited or last, trace=trace)


def _message_answers(
    session: Session, endpoint: Endpoint, head: RequestHead, messages: tuple[Message, ...], opened: OpenedConnection
) -> Iterator[Answer]:
    """One answer for each message, up to the first that ends the WebSocket."""
    for number, message in enumerate(messages, 1):
        label = f"message {number}: "
        match session.text(message) if isinstance(message, str) else session.binary():
            case Refusal(denial=denial, code=code):
                misses = _message_misses(opened, endpoint, head, message, denial)
                step = Step(denial.stage, Decision.DENY, f"{label}{_reason(denial)}")
                yield Answer(Decision.DENY, (step,), denial, denial.rule, None, misses, code)
                return
            case Audited(denial=denial):
                yield _audited(denial, _message_misses(opened, endpoint, head, message, denial), label)
            case _:
                rule = _message_rule(opened, endpoint, head, message)
                detail = f"rule {rule.id}" if rule else "nothing in it has to be allowed by a rule"
                step = Step(Stage.L7, Decision.ALLOW, f"{label}{detail}")
                yield Answer(Decision.ALLOW, (step,), rule=rule)


def _message_rule(opened: OpenedConnection, endpoint: Endpoint, head: RequestHead, message: Message) -> RuleRef | None:
    """The rule that let a message pass: sessions answer with what stops one only."""
    if isinstance(message, str):
        verdict = websocket.judge_text(opened.authorization, endpoint, head, message)
    else:
        verdict = websocket.judge_binary(opened.authorization, endpoint, head)
    return verdict.rule if isinstance(verdict, Allow) else None


def _message_misses(
    opened: OpenedConnection, endpoint: Endpoint, head: RequestHead, message: Message, denial: Denial
) -> tuple[Miss, ...]:
    if denial.rule is not None or denial.code is not DenialCode.POLICY_DENIED:
        return ()
    binary = isinstance(message, bytes)
    asked = replace(head, method=websocket.BINARY if binary else websocket.TEXT)
    operation: GraphqlOperations | None = None
    if endpoint.graphql.over_websocket:
        if isinstance(message, bytes):
            return ()
        read = graphql_ws.read_message(endpoint, message)
        operation = read if isinstance(read, GraphqlOperations) else None
    return _near_operation(opened, endpoint, asked, operation)
