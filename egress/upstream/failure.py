"""How an attempt through corporate proxies failed, and what that means for the next one."""

from dataclasses import dataclass
from enum import Enum

from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage
from egress.upstream.plan import Hop


class Meaning(Enum):
    """`UNREACHED`: the proxy itself; another address of the destination cannot help, another chain can.
    `SILENT`: reached, but no answer that can be read. `BUSY`: it answered that it cannot (5xx).
    `DECIDED`: it answered no; another proxy must not be asked instead. `REJECTED`: it does not accept us.
    """

    UNREACHED = "unreached"
    SILENT = "silent"
    BUSY = "busy"
    DECIDED = "decided"
    REJECTED = "rejected"

    @property
    def unwell(self) -> bool:
        """True when it speaks of the proxy's health. A refusal is an answer, and says nothing about that."""
        return self in (Meaning.UNREACHED, Meaning.SILENT)

    @property
    def final(self) -> bool:
        """True when no other chain may be tried."""
        return self in (Meaning.DECIDED, Meaning.REJECTED)


@dataclass(frozen=True, slots=True)
class Failure:
    """`text` ends the sentence "the upstream proxy …" and names nobody; `detail` says more to operators.
    `challenges` are those of a 407."""

    reason: ReasonCode
    meaning: Meaning
    text: str
    challenges: tuple[str, ...] = ()
    detail: str = ""

    @property
    def told_operators(self) -> str:
        return f"{self.text}: {self.detail}" if self.detail else self.text


def refused(status: int, text: str) -> Failure:
    """A status other than 200 and 407, in the words of HTTP also where the proxy speaks SOCKS."""
    word = f"proxy_refused_{status}"
    reason = ReasonCode(word) if word in ReasonCode else ReasonCode.PROXY_REFUSED_OTHER
    return Failure(reason, Meaning.BUSY if status >= 500 else Meaning.DECIDED, text)


def malformed(text: str) -> Failure:
    return Failure(ReasonCode.PROXY_MALFORMED_REPLY, Meaning.SILENT, text)


def denial_of(failure: Failure, hop: Hop, attempts: int) -> Denial:
    """The refusal that a client reads; the proxy's name goes into events only."""
    if failure.reason is ReasonCode.DESCRIPTORS:
        return Denial(Stage.UPSTREAM, DenialCode.OVERLOADED, "no free descriptor to dial with", failure.reason)
    late = failure.reason is ReasonCode.PROXY_TIMEOUT
    code = DenialCode.UPSTREAM_TIMEOUT if late else DenialCode.UPSTREAM_UNREACHABLE
    tried = f", {attempts} attempts" if attempts > 1 else ""
    return Denial(
        Stage.UPSTREAM,
        code,
        f"the upstream proxy {failure.text}",
        failure.reason,
        log_reason=f"upstream proxy {hop.name} {failure.told_operators}{tried}",
    )
