"""Event -> one line for people. Whatever a peer wrote, it stays one line and cannot imitate another piece of it."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import assert_never

from egress.events.bus import Numbered
from egress.events.event import (
    ConnectionClosed,
    ConnectionDecided,
    Event,
    ExchangeDecided,
    Finding,
    FlowContext,
    Lifecycle,
    LifecycleStep,
    Notice,
    Severity,
    StateChange,
)
from egress.events.mapping import (
    INVALID_TARGET,
    NO_RULES,
    OPERATIONAL,
    PRODUCT_NAME,
    allowing_engine,
    denial_text,
    denied_entry,
    engine,
    is_http,
    is_last,
    severity,
)
from egress.model.address import DEFAULT_PORTS, Origin
from egress.model.intent import DEFAULT_AGENT
from egress.model.outcome import RelayOutcome
from egress.model.process import ProcessEvidence
from egress.model.verdict import Allow, Audited, Denial, ReasonCode, RuleRef, Verdict

TAGS = {
    Severity.INFO: "[INFO]",
    Severity.LOW: "[LOW]",
    Severity.MEDIUM: "[MED]",
    Severity.HIGH: "[HIGH]",
    Severity.CRITICAL: "[CRIT]",
}
MAX_REASON = 256
MAX_TITLE = 120
MAX_CONTEXTS = 4096
MAX_ENDINGS = 1024

CONFIG_KEYS = ("auto", "source", "prover_delta", "resolved_from")

# Separators that end a line for some reader are here too: U+0085, U+2028, U+2029; and what UTF-8 cannot carry.
_BREAKING = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
_CONTROL = re.compile(f"[{_BREAKING}]")
_VALUE = re.compile(rf"[\\\[\]\s{_BREAKING}]")
_QUOTED = re.compile(rf'["\\{_BREAKING}]')
_NAMED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


type _AllowedKey = tuple[int, str | None, str, str | None]


def _hexadecimal(found: re.Match[str]) -> str:
    return f"\\u{{{ord(found[0]):x}}}"


def value(text: str) -> str:
    """A word: no blanks, brackets or backslashes of its own."""
    return _VALUE.sub(_hexadecimal, text)


def sentence(text: str) -> str:
    """Free text on one line."""
    return _CONTROL.sub(_hexadecimal, text.replace("\r\n", " ").replace("\n", " ").replace("\r", " "))


def reason(text: str) -> str:
    """Free text, cut at `MAX_REASON` bytes between two characters."""
    one_line = sentence(text)
    encoded = one_line.encode()
    if len(encoded) <= MAX_REASON:
        return one_line
    return encoded[:MAX_REASON].decode(errors="ignore") + "..."


def title(text: str) -> str:
    cut = text if len(text) <= MAX_TITLE else text[:MAX_TITLE] + "..."
    return '"' + _QUOTED.sub(lambda found: _NAMED.get(found[0]) or _hexadecimal(found), cut) + '"'


@dataclass(frozen=True, slots=True)
class _Connection:
    """Pieces shared by the lines of one connection, with their leading blanks; `context` is held for its id()."""

    context: FlowContext
    caller: str
    destination: str
    origin: str


class Shorthand:
    """Renders lines; used from one thread."""

    def __init__(self) -> None:
        self._second = -1
        self._stamp = ""
        self._connections: dict[int, _Connection] = {}
        self._allowed: dict[_AllowedKey, tuple[RuleRef | None, str]] = {}

    def render(self, item: Numbered) -> bytes:
        """The line as it stands in the file, with time and newline."""
        event = item[1]
        return f"{self._time(event.time)} OCSF {self.line(event)}\n".encode()

    def line(self, event: Event) -> str:
        """The line without time and newline."""
        match event:
            case ExchangeDecided():
                return self._exchange(event)
            case ConnectionDecided() | ConnectionClosed():
                line = self._decided(event) if isinstance(event, ConnectionDecided) else self._closed(event)
                if is_last(event):
                    self._connections.pop(id(event.context), None)
                return line
            case Finding():
                return _finding(event)
            case Notice():
                return f"NET:TRAFFIC {TAGS[Severity.INFO]} ALLOWED {sentence(event.message)}"
            case StateChange():
                return _state(event)
            case Lifecycle():
                return _lifecycle(event)
            case _:
                assert_never(event)

    def _exchange(self, event: ExchangeDecided) -> str:
        context, verdict = event.context, event.verdict
        connection = self._connections.get(id(context)) or self._connection(context)
        start = _http(event.method, verdict, connection, event.path)
        if type(verdict) is not Allow:
            return f"{start}{_rule(verdict, context.entry, event.protocol)}{_details(verdict, context.agent)}"
        key = (id(verdict.rule), context.entry, event.protocol, context.agent)
        known = self._allowed.get(key)
        if known is None:
            end = f"{_rule(verdict, context.entry, event.protocol)}{_details(verdict, context.agent)}"
            if len(self._allowed) >= MAX_ENDINGS:
                self._allowed.clear()
            known = self._allowed[key] = (verdict.rule, end)
        return start + known[1]

    def _decided(self, event: ConnectionDecided) -> str:
        context, verdict = event.context, event.verdict
        connection = self._connection(context)
        rule = _rule(verdict, context.entry, NO_RULES)
        if is_http(event):
            start = _http(event.method, verdict, connection, event.path or INVALID_TARGET)
            return f"{start}{rule}{_details(verdict, context.agent)}"
        place = f"{connection.caller}{connection.destination}"
        if not isinstance(verdict, Denial):
            return f"NET:OPEN [INFO] ALLOWED{place}{rule}"
        activity = "FAIL" if verdict.code in OPERATIONAL else "OPEN"
        return f"NET:{activity} {_tag_and_action(verdict)}{place}{rule} [reason:{reason(denial_text(verdict))}]"

    def _closed(self, event: ConnectionClosed) -> str:
        connection = self._connection(event.context)
        tag = "[LOW]" if event.outcome is RelayOutcome.FAILED else "[INFO]"
        return f"NET:CLOSE {tag}{connection.caller}{connection.destination}"

    def _connection(self, context: FlowContext) -> _Connection:
        known = self._connections.get(id(context))
        if known is not None:
            return known
        caller = destination = ""
        if isinstance(context.evidence, ProcessEvidence):
            owner = context.evidence.owners[0]
            caller = f" {value(owner.executable)}({owner.pid}) ->"
        if context.origin is not None:
            destination = f" {sentence(str(context.origin))}"
        if len(self._connections) >= MAX_CONTEXTS:
            self._connections.pop(next(iter(self._connections)))
        made = _Connection(context, caller, destination, _origin(context.origin))
        self._connections[id(context)] = made
        return made

    def _time(self, time: float) -> str:
        second, milliseconds = divmod(int(time * 1000), 1000)
        if second != self._second:
            self._second = second
            self._stamp = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._stamp}.{milliseconds:03d}Z"


def _tag_and_action(verdict: Verdict) -> str:
    if type(verdict) is not Denial:
        return "[INFO] ALLOWED"
    tag = TAGS[severity(verdict)]
    return tag if verdict.code in OPERATIONAL else f"{tag} DENIED"


def _http(method: str, verdict: Verdict, connection: _Connection, path: str) -> str:
    word = method if method.isalpha() and method.isascii() else value(method)
    safe = path if path.isascii() and path.isprintable() and " " not in path else value(path)
    return f"HTTP:{word} {_tag_and_action(verdict)}{connection.caller} {word} {connection.origin}{safe}"


def _origin(origin: Origin | None) -> str:
    """The URL up to its path, with the port unless it is the scheme's own."""
    if origin is None:
        return "http://unknown"
    port = "" if DEFAULT_PORTS.get(origin.scheme) == origin.port else f":{origin.port}"
    return f"{origin.scheme.value}://{sentence(origin.host.bracketed)}{port}"


def _rule(verdict: Verdict, entry: str | None, protocol: str) -> str:
    match verdict:
        case Allow():
            name, kind = entry, allowing_engine(protocol)
        case Audited(denial):
            name, kind = entry, engine(denial, protocol)
        case Denial():
            if verdict.reason_code is ReasonCode.POLICY_CHANGED:
                return ""
            name, kind = denied_entry(verdict, entry), engine(verdict, protocol)
    return f" [policy:{value(name) if name else '-'} engine:{kind}]"


def _details(verdict: Verdict, agent: str | None) -> str:
    """What decided, in key order, then why. The connection's own record has what repeats."""
    words = [] if agent is None or agent == DEFAULT_AGENT else [f"agent:{value(agent)}"]
    denial = verdict.denial if isinstance(verdict, Audited) else verdict
    if isinstance(verdict, Audited):
        words.append(f"audited:{verdict.denial.code.word}")
    if denial.rule is not None:
        words.append(f"decision_rule:{value(_unbracketed(denial.rule.id))}")
    if isinstance(denial, Denial):
        if denial.reason_code is not None:
            words.append(f"reason_code:{denial.reason_code.value}")
        words.append(f"reason:{reason(denial_text(denial))}")
    return f" [{' '.join(words)}]" if words else ""


def _unbracketed(path: str) -> str:
    """`entry/endpoints.0/rules.2`: brackets delimit pieces of the line."""
    return path.replace("[", ".").replace("]", "")


def _finding(event: Finding) -> str:
    word = "BLOCKED" if event.blocked else "DETECTED"
    facts = "".join(f" {value(name)}:{value(text)}" for name, text in event.evidence)
    return f"FINDING:{word} {TAGS[event.severity]} {title(event.title)} [type:{value(event.type)}{facts}]"


def _state(event: StateChange) -> str:
    extra = dict(event.extra)
    words = [f"{key}:{value(extra[key])}" for key in CONFIG_KEYS if key in extra]
    if event.generation is not None:
        words.append(f"version:{event.generation}")
    if event.policy_digest:
        words.append(f"hash:{value(event.policy_digest)}")
    suffix = f" [{' '.join(words)}]" if words else ""
    return f"CONFIG:{value(event.word.upper())} {TAGS[event.severity]} {sentence(event.detail)}{suffix}"


def _lifecycle(event: Lifecycle) -> str:
    tag = "[INFO]" if event.ok else "[HIGH]"
    if event.step is LifecycleStep.LISTEN:
        return f"NET:LISTEN {tag} {sentence(event.address)}"
    status = "Success" if event.ok else "Failure"
    return f"LIFECYCLE:{event.step.value.upper()} {tag} {PRODUCT_NAME} {status}"
