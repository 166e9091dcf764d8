"""The one redaction stage (EV-1): no placeholder, query, userinfo or known secret reaches a sink.

Upstream stages already hand over redacted text; this is the last line behind them. It costs a few substring tests
per event unless something looks suspicious.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import unquote

from egress.events import ocsf
from egress.events.event import (
    ConnectionClosed,
    ConnectionDecided,
    Event,
    ExchangeDecided,
    Finding,
    FlowContext,
    Lifecycle,
    Notice,
    StateChange,
)
from egress.model.process import Process, ProcessEvidence
from egress.model.verdict import Allow, Audited, Denial, Verdict

CREDENTIAL = "[CREDENTIAL]"
MAX_METHOD = 32
MAX_PATH = 4096
MAX_TEXT = 1024
MAX_SCANNED = 65_536
"""Cutting comes after scrubbing, or half a secret could stay; what is beyond this is never looked at nor kept."""

METHODS = frozenset(ocsf.METHOD_ACTIVITIES)

_PREFIX = "openshell:resolve:env:"
_ALIAS_MARKER = "openshell-resolve-env-"
_PLAIN = re.compile(rf"{_PREFIX}\w*", re.ASCII | re.IGNORECASE)
# Whole tokens are looked at, not "anything before the marker": that would be quadratic on a hostile path.
_TOKEN = re.compile(r"[\w.~-]+", re.ASCII)
# One slash is enough: canonical paths have lost empty segments.
_USERINFO = re.compile(r"(:/{1,2})[^/\s@]*@")
_QUERY = re.compile(r"(?<=\S)\?[^\s\]]+")
MEMO = 4096

type _Pairs = tuple[tuple[str, str], ...]


class Redactor:
    """`patterns` match values of known secrets; a match anywhere in a text is replaced as a placeholder is."""

    def __init__(self, patterns: Sequence[re.Pattern[str]] = ()) -> None:
        self._patterns = tuple(patterns)
        self._clean_context: FlowContext | None = None
        self._replaced: dict[int, tuple[FlowContext, FlowContext]] = {}

    def clean(self, event: Event) -> Event:
        """The event as sinks may see it; the same object when nothing had to change."""
        if isinstance(event, ExchangeDecided):
            return self._exchange(event)
        return self._rare(event)

    def _rare(self, event: ConnectionDecided | ConnectionClosed | Finding | Notice | StateChange | Lifecycle) -> Event:
        match event:
            case ConnectionDecided():
                return self._connection(event)
            case ConnectionClosed():
                context = self._context(event.context)
                self._replaced.pop(id(event.context), None)
                return event if context is event.context else replace(event, context=context)
            case Finding():
                return self._finding(event)
            case Notice():
                context = self._context(event.context)
                return replace(event, message=self.text(event.message), context=context, facts=self._pairs(event.facts))
            case StateChange():
                return replace(event, detail=self.text(event.detail), extra=self._pairs(event.extra))
            case Lifecycle():
                return event

    def _exchange(self, event: ExchangeDecided) -> ExchangeDecided:
        if (
            event.context is self._clean_context
            and type(event.verdict) is Allow
            and event.method in METHODS
            and len(event.path) <= MAX_PATH
            and not self._suspect(event.path)
        ):
            return event
        context, path, verdict = self._context(event.context), self._path(event.path), self._verdict(event.verdict)
        method = self._method(event.method)
        if context is event.context and path is event.path and verdict is event.verdict and method is event.method:
            return event
        return replace(event, context=context, path=path, verdict=verdict, method=method)

    def _connection(self, event: ConnectionDecided) -> ConnectionDecided:
        context, verdict, method = (
            self._context(event.context),
            self._verdict(event.verdict),
            self._method(event.method),
        )
        path = None if event.path is None else self._path(event.path)
        if context is event.context and path is event.path and verdict is event.verdict and method is event.method:
            return event
        return replace(event, context=context, path=path, verdict=verdict, method=method)

    def _finding(self, event: Finding) -> Finding:
        context = None if event.context is None else self._context(event.context)
        return replace(event, context=context, title=self.text(event.title), evidence=self._pairs(event.evidence))

    def _verdict(self, verdict: Verdict) -> Verdict:
        match verdict:
            case Allow():
                return verdict
            case Audited(denial):
                return Audited(self._denial(denial))
            case Denial():
                return self._denial(verdict)

    def _denial(self, denial: Denial) -> Denial:
        said = None if denial.log_reason is None else self.text(denial.log_reason)
        operation = None if denial.operation is None else self.text(denial.operation)
        return replace(denial, reason=self.text(denial.reason), log_reason=said, operation=operation)

    def _pairs(self, pairs: _Pairs) -> _Pairs:
        return tuple((name, self.text(value)) for name, value in pairs)

    def _method(self, method: str) -> str:
        """Any token may stand there (RFC 9110 section 9.1), a key as well."""
        return method if method in METHODS else self._scrub(method[:MAX_SCANNED])[:MAX_METHOD]

    def _path(self, path: str) -> str:
        if len(path) <= MAX_PATH and not self._suspect(path):
            return path
        return self._scrub(path.partition("?")[0][:MAX_SCANNED])[:MAX_PATH]

    def _suspect(self, text: str) -> bool:
        """True when `text` might have to be rewritten. `%` may hide a marker, `:/` begins userinfo."""
        if "?" in text or "%" in text or ":/" in text or "resolve" in text or "RESOLVE" in text:
            return True
        return any(pattern.search(text) for pattern in self._patterns) if self._patterns else False

    def text(self, text: str) -> str:
        """Free text without placeholders, userinfo, queries and secrets, bounded."""
        clean = self._scrub(_QUERY.sub("?[redacted]", text[:MAX_SCANNED]))
        return clean if len(clean) <= MAX_TEXT else clean[:MAX_TEXT] + "..."

    def _scrub(self, text: str) -> str:
        clean = _USERINFO.sub(rf"\1{CREDENTIAL}@", _without_placeholders(text))
        for pattern in self._patterns:
            clean = pattern.sub(CREDENTIAL, clean)
        if "%" in clean:
            decoded = unquote(clean)
            if _without_placeholders(decoded) is not decoded:
                return CREDENTIAL
        return clean

    def _context(self, context: FlowContext) -> FlowContext:
        if context is self._clean_context:
            return context
        known = self._replaced.get(id(context)) if self._replaced else None
        if known is not None:
            return known[1]
        clean = self._rewritten(context)
        if clean is context:
            self._clean_context = context
            return context
        if len(self._replaced) >= MEMO:
            self._replaced.pop(next(iter(self._replaced)))
        # The original is held too: its id() must not be given to another context while the entry lives.
        self._replaced[id(context)] = (context, clean)
        return clean

    def _rewritten(self, context: FlowContext) -> FlowContext:
        origin, evidence = context.origin, context.evidence
        if origin is not None and self._suspect(origin.host.name):
            origin = replace(origin, host=replace(origin.host, name=self._scrub(origin.host.name)))
        if isinstance(evidence, ProcessEvidence) and any(map(self._suspect, _paths(evidence))):
            evidence = self._evidence(evidence)
        if origin is context.origin and evidence is context.evidence:
            return context
        return replace(context, origin=origin, evidence=evidence)

    def _evidence(self, evidence: ProcessEvidence) -> ProcessEvidence:
        def clean(process: Process) -> Process:
            return replace(process, executable=self._scrub(process.executable))

        return replace(
            evidence,
            owners=tuple(map(clean, evidence.owners)),
            ancestors=tuple(map(clean, evidence.ancestors)),
            command_paths=tuple(map(self.text, evidence.command_paths)),
        )


def _without_placeholders(text: str) -> str:
    """`text` itself when it holds none in any case; host names are folded."""
    folded = text.lower()
    if _PREFIX in folded:
        text = _PLAIN.sub(CREDENTIAL, text)
    if _ALIAS_MARKER in folded:
        text = _TOKEN.sub(lambda token: CREDENTIAL if _ALIAS_MARKER in token[0].lower() else token[0], text)
    return text


def _paths(evidence: ProcessEvidence) -> tuple[str, ...]:
    owners = tuple(process.executable for process in evidence.owners)
    return (*owners, *(process.executable for process in evidence.ancestors), *evidence.command_paths)
