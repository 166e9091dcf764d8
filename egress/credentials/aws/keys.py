"""The keys of one AWS identity, taken together."""

from dataclasses import dataclass

from egress.model.secret import Secret


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """`token` belongs to temporary keys and is None for lasting ones."""

    access: Secret
    secret: Secret
    token: Secret | None = None
