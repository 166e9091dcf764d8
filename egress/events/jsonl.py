"""Event -> one line of JSON.

What repeats is encoded once: the members shared by the events of a connection, and the outcome of allowed exchanges.
A line is then joined from fragments, and equals the encoded record of `mapping`.
"""

from dataclasses import dataclass

import msgspec

from egress.events import ocsf
from egress.events.bus import Numbered
from egress.events.event import ConnectionClosed, ConnectionDecided, ExchangeDecided, FlowContext
from egress.events.mapping import EventIds, Mapper, Part, is_last, milliseconds
from egress.events.ocsf import Members
from egress.events.settings import EventSettings
from egress.model.verdict import Allow, RuleRef

MAX_CONTEXTS = 4096
MAX_OUTCOMES = 1024

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class _Fragment:
    """Encoded members without their braces."""

    members: str
    unmapped: str


@dataclass(frozen=True, slots=True)
class _Connection:
    """`context` is held so that its id() stays its own; `url` completes `http_request.url` after the path."""

    context: FlowContext
    shared: _Fragment
    url: str


@dataclass(frozen=True, slots=True)
class _Outcome:
    """`rule` is held for its id(); `method` opens `http_request` where the method may stand there."""

    rule: RuleRef | None
    fragment: _Fragment
    method: str


type _OutcomeKey = tuple[int, str | None, str, str, int | None, str, str]


class JsonLines:
    """Renders lines; used from one thread."""

    def __init__(self, settings: EventSettings, ids: EventIds) -> None:
        self._mapper = Mapper(settings, ids)
        self._ids = ids
        self._host = _body(self._mapper.host)
        constant = self._mapper.metadata(ocsf.HTTP, "", None)
        del constant["uid"]
        self._metadata = _body(constant)
        self._connections: dict[int, _Connection] = {}
        self._outcomes: dict[_OutcomeKey, _Outcome] = {}

    def render(self, item: Numbered) -> bytes:
        """The record of `item` as compact JSON, with its newline."""
        event = item[1]
        if type(event) is ExchangeDecided and type(event.verdict) is Allow:
            return self._exchange(item[0], event, event.verdict.rule)
        own, context = self._mapper.own(item)
        if context is None:
            return _line((_body(own.members), self._host), (_body(own.unmapped),))
        shared = self._connection(context).shared
        if isinstance(event, ConnectionDecided | ConnectionClosed) and is_last(event):
            self._connections.pop(id(context), None)
        return _line((_body(own.members), shared.members), (_body(own.unmapped), shared.unmapped))

    def _exchange(self, number: int, event: ExchangeDecided, rule: RuleRef | None) -> bytes:
        context, counts = event.context, event.counts
        connection = self._connections.get(id(context)) or self._connection(context)
        key = (id(rule), context.entry, event.method, event.protocol, event.status, event.outcome, event.lane)
        outcome = self._outcomes.get(key) or self._outcome(key, event, rule)
        shared, own = connection.shared, outcome.fragment
        time = int(event.time * 1000)
        line = (
            f'{{"time":{time},"duration":{milliseconds(event.duration)},'
            f'"metadata":{{"uid":"{self._ids.of(time, number)}","correlation_uid":{_text(event.exchange)},'
            f'{self._metadata}}},"http_request":{{{outcome.method}"url":{{"path":{_text(event.path)}{connection.url}}}}},'
            f'"traffic":{{"bytes_in":{counts.received},"bytes_out":{counts.sent}}},'
            f'{own.members},{shared.members},"unmapped":{{{own.unmapped},{shared.unmapped}}}}}\n'
        )
        return line.encode()

    def _connection(self, context: FlowContext) -> _Connection:
        known = self._connections.get(id(context))
        if known is not None:
            return known
        if len(self._connections) >= MAX_CONTEXTS:
            self._connections.pop(next(iter(self._connections)))
        url = ocsf.url(context.origin, "")
        del url["path"]
        rest = _body(url)
        part = self._mapper.shared(context)
        shared = _Fragment(f"{self._host},{_body(part.members)}", _body(part.unmapped))
        made = _Connection(context, shared, f",{rest}" if rest else "")
        self._connections[id(context)] = made
        return made

    def _outcome(self, key: _OutcomeKey, event: ExchangeDecided, rule: RuleRef | None) -> _Outcome:
        # Methods are the client's words: the table must not grow with them.
        if len(self._outcomes) >= MAX_OUTCOMES:
            self._outcomes.clear()
        method = _body(self._mapper.method(event.method))
        made = _Outcome(rule, _fragment(self._mapper.outcome(event)), f"{method}," if method else "")
        self._outcomes[key] = made
        return made


def _fragment(part: Part) -> _Fragment:
    return _Fragment(_body(part.members), _body(part.unmapped))


def _body(members: Members) -> str:
    return encode(members)[1:-1].decode()


def _text(text: str) -> str:
    return encode(text).decode()


def _line(members: tuple[str, ...], unmapped: tuple[str, ...]) -> bytes:
    rest = ",".join(filter(None, unmapped))
    tail = f',"unmapped":{{{rest}}}' if rest else ""
    return f"{{{','.join(filter(None, members))}{tail}}}\n".encode()


def encode(value: object) -> bytes:
    """Compact JSON. Names of files need not be Unicode: what UTF-8 cannot carry is spelled out."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_spelled(value))


def _spelled(value: object) -> object:
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {_spelled(key): _spelled(item) for key, item in value.items()}
        case list() | tuple():
            return [_spelled(item) for item in value]
        case _:
            return value
