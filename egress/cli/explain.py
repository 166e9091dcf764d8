"""`egress explain`: one decision, its reasons, and what the client would get."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from egress.cli.candidate import prepare_offline
from egress.cli.question import (
    HttpRequest,
    Program,
    Unanswerable,
    as_the_kernel_sees,
    ask_for_connection,
    ask_for_request,
)
from egress.cli.terminal import ExitCode, fail, refuse, show, show_json
from egress.cli.world import agent_of, ask, world_of
from egress.generation.prepare import Candidate
from egress.model.intent import AgentName
from egress.pipeline.answer import Answer, Decision
from egress.pipeline.explain import Payload, Question
from egress.pipeline.explain_exchange import Message

_CODES = {
    Decision.ALLOW: ExitCode.FINE,
    Decision.AUDIT: ExitCode.FINE,
    Decision.DENY: ExitCode.DENY,
    Decision.UNDECIDABLE: ExitCode.UNDECIDABLE,
}


@dataclass(frozen=True, slots=True)
class Inquiry:
    """The command line: `target` is a URL or `host:port`; a body or message that begins with `@` names a file."""

    target: str
    method: str | None = None
    binary: str | None = None
    ancestors: tuple[str, ...] = ()
    agent: str | None = None
    headers: tuple[str, ...] = ()
    body: str | None = None
    messages: tuple[str, ...] = ()
    binary_messages: tuple[str, ...] = ()

    @property
    def verb(self) -> str:
        """POST when there is a body and nothing else was said."""
        return self.method or ("GET" if self.body is None else "POST")


def explain(inquiry: Inquiry, policy: tuple[Path, ...], config: Path | None, *, as_json: bool) -> ExitCode:
    """Decide and tell."""
    candidate = prepare_offline(config, policy)
    if not isinstance(candidate, Candidate):
        refuse(candidate)
    agent = agent_of(candidate, inquiry.agent)
    try:
        question = _question(inquiry, agent)
    except Unanswerable as error:
        fail(str(error), ExitCode.INVALID)
    answer = ask(question, world_of(candidate))
    if as_json:
        show_json(answer_as_json(answer))
    else:
        show(_text(inquiry, agent, answer))
    return _CODES[answer.decision]


def _question(inquiry: Inquiry, agent: AgentName) -> Question:
    own, *ancestors = as_the_kernel_sees((inquiry.binary or "", *inquiry.ancestors))
    program = Program(own if inquiry.binary else "", tuple(ancestors))
    if "://" not in inquiry.target:
        if inquiry.body is not None or inquiry.headers or inquiry.messages or inquiry.binary_messages:
            raise Unanswerable("a connection alone has no headers, body or messages: ask for a URL")
        return ask_for_connection(inquiry.target, Payload.NOTHING, agent, program)
    body = None if inquiry.body is None else _content(inquiry.body)
    request = HttpRequest(inquiry.target, inquiry.verb, _headers(inquiry.headers), body, tuple(_messages(inquiry)))
    return ask_for_request(request, agent, program)


def _headers(lines: tuple[str, ...]) -> Mapping[str, str]:
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise Unanswerable(f"`{name}` is no header: write `Name: value`")
        fields[name.strip()] = value.strip()
    return fields


def _messages(inquiry: Inquiry) -> Iterator[Message]:
    for text in inquiry.messages:
        try:
            yield _content(text).decode()
        except UnicodeDecodeError:
            raise Unanswerable("a text message is not UTF-8; use --binary-message") from None
    yield from map(_content, inquiry.binary_messages)


def _content(text: str) -> bytes:
    """Text, or `@FILE`."""
    if not text.startswith("@"):
        return text.encode()
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise Unanswerable(f"`{text[1:]}` cannot be read: {error.strerror}") from None


def _text(inquiry: Inquiry, agent: AgentName, answer: Answer) -> str:
    what = f"{inquiry.verb} {inquiry.target}" if "://" in inquiry.target else f"CONNECT {inquiry.target}"
    lines = [f"{answer.decision.upper()}  {what}  (agent {agent})", ""]
    lines += [f"  {step.stage:<12} {step.outcome:<12} {step.detail}" for step in answer.trace]
    rule, reply = answer.rule, answer.reply
    if rule is not None:
        lines += ["", f"decided by {rule.id} at {rule.location}"]
    if answer.misses:
        lines += ["", "came closest:", *(f"  {miss}" for miss in answer.misses)]
    if reply is not None:
        lines += ["", f"the client gets {reply.status}:", _indented(json.loads(reply.body))]
    if answer.close is not None:
        lines += ["", f"the client's WebSocket is closed with code {answer.close}"]
    return "\n".join(lines) + "\n"


def _indented(body: object) -> str:
    return "\n".join(f"  {line}" for line in json.dumps(body, indent=2).splitlines())


def answer_as_json(answer: Answer) -> Mapping[str, Any]:
    """The answer for a program."""
    denial, rule, reply = answer.denial, answer.rule, answer.reply
    return {
        "decision": answer.decision.value,
        "stage": answer.trace[-1].stage.value,
        "code": denial.code.word if denial else None,
        "reason_code": denial.reason_code.value if denial and denial.reason_code else None,
        "reason": denial.reason if denial else None,
        "status": reply.status if reply else None,
        "body": json.loads(reply.body) if reply else None,
        "close": answer.close,
        "rule": {"id": rule.id, "location": rule.location} if rule else None,
        "trace": [{"stage": step.stage, "outcome": step.outcome, "detail": step.detail} for step in answer.trace],
        "closest": [str(miss) for miss in answer.misses],
    }
