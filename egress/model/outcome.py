"""How a connection or an exchange ended."""

from dataclasses import dataclass
from enum import StrEnum


class RelayOutcome(StrEnum):
    """`CUT` is our doing (deadline, policy change), `RESET` a peer's."""

    COMPLETE = "complete"
    DENIED = "denied"
    CLIENT_GONE = "client_gone"
    UPSTREAM_GONE = "upstream_gone"
    CUT = "cut"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ByteCounts:
    """Payload bytes: `sent` from the client to the origin, `received` back."""

    sent: int = 0
    received: int = 0
