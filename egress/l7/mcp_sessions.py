"""Which agent and program opened an MCP session. The identifier alone would let whoever learns it speak in another's
name; sessions nobody was seen to open pass.
"""

from dataclasses import dataclass, replace
from hashlib import sha256

from egress.l7.mcp import session_of
from egress.model.address import Host, Port
from egress.model.clock import Clock
from egress.model.intent import AgentName
from egress.model.limits import LIMITS
from egress.model.message import RequestHead
from egress.model.process import ProcessEvidence
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage
from egress.policy.authorization import Authorization

type _Key = tuple[Host, Port, bytes]


@dataclass(frozen=True, slots=True)
class Owner:
    """Who opened a session. `executable` is empty where processes are not identified."""

    agent: AgentName
    executable: str


@dataclass(frozen=True, slots=True)
class _Binding:
    owner: Owner
    used: float


class SessionTable:
    """Bounded memory of session owners, by server; identifiers are kept as digests. Longest unused first."""

    __slots__ = ("_bindings", "_capacity", "_clock", "_lifetime")

    def __init__(
        self, clock: Clock, capacity: int = LIMITS.mcp_sessions, lifetime: float = LIMITS.mcp_session_seconds
    ) -> None:
        self._clock = clock
        self._capacity = capacity
        self._lifetime = lifetime
        self._bindings: dict[_Key, _Binding] = {}

    def __len__(self) -> int:
        return len(self._bindings)

    def bind(self, authorization: Authorization, session: bytes) -> None:
        """The server gave `session` to this caller in its reply to `initialize`."""
        key, owner = _key(authorization, session), owner_of(authorization)
        self._bindings.pop(key, None)
        if len(self._bindings) >= self._capacity:
            self._make_room(owner)
        self._bindings[key] = _Binding(owner, self._clock.monotonic())

    def check(self, authorization: Authorization, head: RequestHead) -> Denial | None:
        """A request that names a session of somebody else is denied, in audit mode too."""
        session = session_of(head)
        if session is None:
            return None
        key = _key(authorization, session)
        binding = self._bindings.get(key)
        if binding is None:
            return None
        now = self._clock.monotonic()
        if now - binding.used >= self._lifetime:
            del self._bindings[key]
            return None
        if binding.owner != owner_of(authorization):
            reason = "the MCP session of this request was opened by another program"
            code = ReasonCode.OPERATION_DENIED
            return Denial(Stage.L7, DenialCode.POLICY_DENIED, reason, code, entry=authorization.entry)
        del self._bindings[key]
        self._bindings[key] = replace(binding, used=now)
        return None

    def end(self, authorization: Authorization, session: bytes) -> None:
        """The server accepted a DELETE of the session."""
        self._bindings.pop(_key(authorization, session), None)

    def _make_room(self, owner: Owner) -> None:
        """A caller that opens sessions without end forgets its own before anybody else's."""
        own = next((key for key, binding in self._bindings.items() if binding.owner == owner), None)
        oldest = next(iter(self._bindings))
        expired = self._clock.monotonic() - self._bindings[oldest].used >= self._lifetime
        del self._bindings[oldest if expired or own is None else own]


def owner_of(authorization: Authorization) -> Owner:
    evidence = authorization.evidence
    return Owner(authorization.intent.agent, evidence.executable if isinstance(evidence, ProcessEvidence) else "")


def _key(authorization: Authorization, session: bytes) -> _Key:
    origin = authorization.intent.origin
    return origin.host, origin.port, sha256(session).digest()
