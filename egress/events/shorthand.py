"""Event -> one line for people. Whatever a peer wrote, it stays one line and cannot imitate another piece of it."""

import re
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
    severity,
)
from egress.model.address import DEFAULT_PORTS, Origin
from egress.model.intent import DEFAULT_AGENT
from egress.model.outcome import RelayOutcome
from egress.model.process import ProcessEvidence
from egress.model.verdict import Allow, Audited, Denial, ReasonCode, Verdict

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

CONFIG_KEYS = ("auto", "source", "prover_delta", "resolved_from")

# Separators that end a line for some reader are here too: U+0085, U+2028, U+2029; and what UTF-8 cannot carry.
_BREAKING = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
_CONTROL = re.compile(f"[{_BREAKING}]")
_VALUE = re.compile(rf"[\\\[\]\s{_BREAKING}]")
_QUOTED = re.compile(rf'["\\{_BREAKING}]')
_NAMED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


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


class Shorthand:
    """Renders lines; used from one thread."""

    def __init__(self) -> None:
        self._second = -1
        self._stamp = ""
        self._callers: dict[int, tuple[FlowContext, str, str]] = {}

    def render(self, item: Numbered) -> bytes:
        """The line as it stands in the file, with time and newline."""
        event = item[1]
        return f"{self._time(event.time)} OCSF {self.line(event)}\n".encode()

    def line(self, event: Event) -> str:
        match event:
            case ExchangeDecided():
                return self._exchange(event)
            case ConnectionDecided():
                return self._decided(event)
            case ConnectionClosed():
                caller, destination = self._caller(event.context)
                self._callers.pop(id(event.context), None)
                tag = "[LOW]" if event.outcome is RelayOutcome.FAILED else "[INFO]"
                return f"NET:CLOSE {tag}{caller}{destination}"
            case Finding():
                return _finding(event)
            case StateChange():
                return _state(event)
            case Lifecycle():
                return _lifecycle(event)
            case _:
                assert_never(event)

    def _exchange(self, event: ExchangeDecided) -> str:
        context, verdict = event.context, event.verdict
        caller, _ = self._caller(context)
        start = _http(event.method, verdict, caller, context.origin, event.path)
        return f"{start}{_rule(verdict, context.entry, event.protocol)}{_details(verdict, context.agent)}"

    def _decided(self, event: ConnectionDecided) -> str:
        context, verdict = event.context, event.verdict
        caller, destination = self._caller(context)
        rule = _rule(verdict, context.entry, NO_RULES)
        if is_http(event):
            start = _http(event.method, verdict, caller, context.origin, event.path or INVALID_TARGET)
            return f"{start}{rule}{_details(verdict, context.agent)}"
        if not isinstance(verdict, Denial):
            return f"NET:OPEN [INFO] ALLOWED{caller}{destination}{rule}"
        activity = "FAIL" if verdict.code in OPERATIONAL else "OPEN"
        why = f" [reason:{reason(denial_text(verdict))}]"
        return f"NET:{activity} {_tag_and_action(verdict)}{caller}{destination}{rule}{why}"

    def _caller(self, context: FlowContext) -> tuple[str, str]:
        """The process with its arrow, and host and port; each with a leading blank, or empty."""
        known = self._callers.get(id(context))
        if known is not None:
            return known[1], known[2]
        caller = destination = ""
        if isinstance(context.evidence, ProcessEvidence):
            owner = context.evidence.owners[0]
            caller = f" {value(owner.executable)}({owner.pid}) ->"
        if context.origin is not None:
            destination = f" {sentence(str(context.origin))}"
        if len(self._callers) >= MAX_CONTEXTS:
            self._callers.pop(next(iter(self._callers)))
        self._callers[id(context)] = (context, caller, destination)
        return caller, destination

    def _time(self, time: float) -> str:
        second, milliseconds = divmod(int(time * 1000), 1000)
        if second != self._second:
            self._second = second
            self._stamp = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._stamp}.{milliseconds:03d}Z"


def _tag_and_action(verdict: Verdict) -> str:
    if not isinstance(verdict, Denial):
        return "[INFO] ALLOWED"
    tag = TAGS[severity(verdict)]
    return tag if verdict.code in OPERATIONAL else f"{tag} DENIED"


def _http(method: str, verdict: Verdict, caller: str, origin: Origin | None, path: str) -> str:
    word = value(method)
    return f"HTTP:{word} {_tag_and_action(verdict)}{caller} {word} {url(origin, path)}"


def url(origin: Origin | None, path: str) -> str:
    """With the port unless it is the scheme's own."""
    safe = path if path.isascii() and path.isprintable() and " " not in path else value(path)
    if origin is None:
        return f"http://unknown{safe}"
    port = "" if DEFAULT_PORTS.get(origin.scheme) == origin.port else f":{origin.port}"
    return f"{origin.scheme.value}://{sentence(origin.host.bracketed)}{port}{safe}"


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
    return f"CONFIG:{value(event.word).upper()} {TAGS[event.severity]} {sentence(event.detail)}{suffix}"


def _lifecycle(event: Lifecycle) -> str:
    tag = "[INFO]" if event.ok else "[HIGH]"
    if event.step is LifecycleStep.LISTEN:
        return f"NET:LISTEN {tag} {sentence(event.address)}"
    status = "Success" if event.ok else "Failure"
    return f"LIFECYCLE:{event.step.value.upper()} {tag} {PRODUCT_NAME} {status}"
