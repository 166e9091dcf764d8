"""What `egress doctor` looks at: one finding each."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; `hint` says what to do when it is not well."""

    name: str
    state: State
    detail: str
    hint: str = ""
