"""Which sources feed which environment keys, and on what terms: what the store is given to keep."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from egress.credentials.reading import Reading
from egress.credentials.scope import Scope
from egress.credentials.snapshot import Credential, Placement
from egress.sdk.secrets import SecretSource


@dataclass(frozen=True, slots=True)
class Terms:
    """When to fetch, in seconds, and what a failure means. `refresh` None: never by itself."""

    refresh: float | None = 900.0
    refresh_before: float = 300.0
    timeout: float = 10.0
    on_failure: tuple[str, float] = ("revoke", 0.0)
    """`revoke`, `keep_until_expiry`, or `keep_for` and its seconds."""


@dataclass(frozen=True, slots=True)
class HandleTerms:
    """What the stable handle of a key stands for, besides the installation and the provider. `specification` is the
    canonical text of where the value comes from; an empty `sandbox` is the installation's own id, and `agent` the
    only one that the provider serves, if there is one."""

    sandbox: str
    specification: str
    profile: str
    epoch: int
    endpoints: tuple[tuple[str, int, str], ...]
    agent: str = "default"


class Presence(Enum):
    """`ALONE`: the source of this key; its one value counts, whatever it is called. The others are parts of a bundle,
    which must have them, or may: not every AWS identity has a session token."""

    ALONE = "alone"
    REQUIRED = "required"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True)
class Outlet:
    """One environment key that a source feeds. `output` names the value among those that it gives, `handle` is None
    for placeholders that name a revision."""

    key: str
    output: str
    scope: Scope
    reading: Reading = field(default=Reading())
    placement: Placement | None = None
    shape: str = ""
    handle: HandleTerms | None = None
    presence: Presence = Presence.ALONE


@dataclass(frozen=True, slots=True)
class Feed:
    """One source with its outlets."""

    provider: str
    scheme: str
    specification: str
    outlets: tuple[Outlet, ...]
    terms: Terms
    source: SecretSource = field(compare=False, repr=False)

    @property
    def identity(self) -> object:
        """Equal for feeds that would be fetched in the same way: a reload keeps their values, whatever became of the
        places where these may be used."""
        outlets = tuple((outlet.key, outlet.output, outlet.reading, outlet.presence) for outlet in self.outlets)
        return self.provider, self.scheme, self.specification, self.terms, outlets


@dataclass(frozen=True, slots=True)
class Intake:
    """Everything that is configured. `fixed` are keys that hold no secret. `retain` is as the snapshot knows it.
    `handle_key` is the operator's own; None: the installation's."""

    feeds: Sequence[Feed] = ()
    fixed: Sequence[Credential] = ()
    retain: str = "current"
    handle_key: bytes | None = field(default=None, repr=False)
