"""One immutable set of everything a decision reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from egress.model.ids import GenerationNumber
from egress.model.intent import AgentName
from egress.model.process import IdentityMode
from egress.policy.compiled import CompiledPolicy, Endpoint


@dataclass(frozen=True, slots=True, eq=False)
class AgentTerms:
    """What one agent brings to a decision. `policy` is None where it has none: everything is denied."""

    policy: CompiledPolicy | None
    identity: IdentityMode
    credentialed: frozenset[Endpoint] = frozenset()
    """Endpoints of the policy whose destinations some credential may reach."""


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """`number` rises by one with each install; `digest` is sha256 hex over all policies.

    `quarantine` holds the reason text while every new decision is denied (decision 3).
    """

    number: GenerationNumber
    agents: Mapping[AgentName, AgentTerms]
    digest: str
    quarantine: str | None = None
    sources: tuple[str, ...] = field(default=())
    """Names of the files it was read from."""
