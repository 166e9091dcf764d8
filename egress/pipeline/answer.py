"""What is said about one decision: the verdict, the stages that led to it, and what the client would get."""

from dataclasses import dataclass
from enum import StrEnum

from egress.http.replies import Reply
from egress.model.verdict import Denial, RuleRef, Stage
from egress.policy.explain import Miss


class Decision(StrEnum):
    ALLOW = "allow"
    AUDIT = "audit"
    DENY = "deny"
    UNDECIDABLE = "undecidable"


@dataclass(frozen=True, slots=True)
class Step:
    """One stage and what came of it, in words."""

    stage: Stage
    outcome: Decision
    detail: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The decision, its trace, and what the client would get: a reply, or the code that closes its WebSocket.
    `misses` came closest to allowing it."""

    decision: Decision
    trace: tuple[Step, ...]
    denial: Denial | None = None
    rule: RuleRef | None = None
    reply: Reply | None = None
    misses: tuple[Miss, ...] = ()
    close: int | None = None
