"""What the plugin offers: identity documents of the scheme `spiffe`."""

from collections.abc import Mapping

from egress.sdk.hookspecs import IdentityFactory, hookimpl
from egress.sdk.secrets import BadSpec, IdentityDocuments, Secret, SourceContext, SourceUnavailable

VARIABLES = ("OPENSHELL_PROVIDER_SPIFFE_WORKLOAD_API_SOCKET", "SPIFFE_ENDPOINT_SOCKET")


class NoAgent:
    """No Workload API is named: grants that need one fail, everything else works."""

    async def fetch(self, audience: str) -> tuple[Secret, float | None]:  # noqa: ARG002
        raise SourceUnavailable("not_configured")


def make(settings: Mapping[str, object], context: SourceContext) -> IdentityDocuments:
    """Documents of the agent at `workload_api`, else at what the environment names."""
    named = (settings.get("workload_api"), *(context.environment.get(name) for name in VARIABLES))
    endpoint = next((text for text in named if isinstance(text, str) and text.strip()), None)
    if endpoint is None:
        return NoAgent()
    from egress_identity_spiffe.documents import SpiffeDocuments  # noqa: PLC0415 - gRPC, where it is used

    try:
        return SpiffeDocuments(endpoint, context.run_blocking)
    except ValueError as error:
        raise BadSpec(str(error), ("workload_api",)) from None


@hookimpl
def egress_identity_documents() -> Mapping[str, IdentityFactory]:
    return {"spiffe": make}
