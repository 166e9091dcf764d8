"""`egress explain`: one decision, its reasons, and what the client would get."""

import json
from collections.abc import Mapping
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
from egress.pipeline.explain import Answer, Decision, Payload, Question

_CODES = {
    Decision.ALLOW: ExitCode.FINE,
    Decision.AUDIT: ExitCode.FINE,
    Decision.DENY: ExitCode.DENY,
    Decision.UNDECIDABLE: ExitCode.UNDECIDABLE,
}


@dataclass(frozen=True, slots=True)
class Inquiry:
    """The command line: `target` is a URL or `host:port`."""

    target: str
    method: str = "GET"
    binary: str | None = None
    ancestors: tuple[str, ...] = ()
    agent: str | None = None


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
        return ask_for_connection(inquiry.target, Payload.NOTHING, agent, program)
    return ask_for_request(HttpRequest(inquiry.target, inquiry.method), agent, program)


def _text(inquiry: Inquiry, agent: AgentName, answer: Answer) -> str:
    what = f"{inquiry.method} {inquiry.target}" if "://" in inquiry.target else f"CONNECT {inquiry.target}"
    lines = [f"{answer.decision.upper()}  {what}  (agent {agent})", ""]
    lines += [f"  {step.stage:<12} {step.outcome:<12} {step.detail}" for step in answer.trace]
    rule, reply = answer.rule, answer.reply
    if rule is not None:
        lines += ["", f"decided by {rule.id} at {rule.location}"]
    if answer.misses:
        lines += ["", "came closest:", *(f"  {miss}" for miss in answer.misses)]
    if reply is not None:
        lines += ["", f"the client gets {reply.status}:", _indented(json.loads(reply.body))]
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
        "rule": {"id": rule.id, "location": rule.location} if rule else None,
        "trace": [{"stage": step.stage, "outcome": step.outcome, "detail": step.detail} for step in answer.trace],
        "closest": [str(miss) for miss in answer.misses],
    }
