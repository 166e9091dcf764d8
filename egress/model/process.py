"""What is known about the process that opened a connection (identity-and-destinations.md 1 to 5)."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Process:
    """One process, pinned by pid and start time (clock ticks since boot). `sha256` is lower-case hex."""

    pid: int
    started: int
    executable: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class ProcessEvidence:
    """Every owner of the socket (lowest pid first), the ancestors of the first (parent first), and the absolute
    paths in their argument vectors, which are shown in denials and grant nothing."""

    owners: tuple[Process, ...]
    ancestors: tuple[Process, ...] = ()
    command_paths: tuple[str, ...] = ()
    uid: int | None = None

    @property
    def executable(self) -> str:
        return self.owners[0].executable


class UnavailableReason(StrEnum):
    """Why there is no evidence. The values are `reason_code`s of denial-codes.md section 2, or `off`."""

    OFF = "off"
    UNAVAILABLE = "identity_unavailable"
    AMBIGUOUS = "identity_ambiguous"
    INCOMPLETE = "identity_incomplete"
    HASH_CHANGED = "identity_hash_changed"
    STORE_FULL = "identity_store_full"


@dataclass(frozen=True, slots=True)
class EvidenceUnavailable:
    """No evidence. `detail` is the reason text of identity-and-destinations.md section 5, safe to show."""

    reason: UnavailableReason
    detail: str


type Evidence = ProcessEvidence | EvidenceUnavailable


class IdentityMode(StrEnum):
    """`required`: no evidence denies; `optional`: only entries for any binary match then; `off`: never looked up."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    OFF = "off"
