"""The connection-level yes, with its terms."""

from dataclasses import dataclass, replace

from egress.model.destination import AddressRule, TlsMode
from egress.model.ids import GenerationNumber
from egress.model.intent import EgressIntent
from egress.model.process import Evidence
from egress.policy.compiled import Endpoint


@dataclass(frozen=True, slots=True)
class Authorization:
    """What an admitted connection may do, and under which generation.

    `entry` is the reported policy key (the smallest that matches), `endpoints` all that match host, port and
    executable in (entry, index) order. Endpoints are equal when their authored content is.
    """

    intent: EgressIntent
    evidence: Evidence
    generation: GenerationNumber
    entry: str
    endpoints: tuple[Endpoint, ...]
    addresses: AddressRule
    tls: TlsMode

    @property
    def inspected(self) -> bool:
        """True when some endpoint asks for requests to be judged."""
        return any(endpoint.inspected for endpoint in self.endpoints)

    def same_terms(self, other: "Authorization") -> bool:
        """Equal apart from the generation number (decision 5)."""
        return replace(self, generation=other.generation) == other
