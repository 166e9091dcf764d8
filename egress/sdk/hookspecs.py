"""The hooks that a plugin may implement, marked with `hookimpl`. Arguments are passed by keyword."""

from collections.abc import Callable, Mapping

import pluggy

from egress.sdk.secrets import IdentityDocuments, SourceContext, SourceFactory

NAMESPACE = "egress"

hookspec = pluggy.HookspecMarker(NAMESPACE)
hookimpl = pluggy.HookimplMarker(NAMESPACE)

type IdentityFactory = Callable[[Mapping[str, object], SourceContext], IdentityDocuments]
"""From the settings of the scheme (`token_grants` of the settings file) to a provider of documents."""


@hookspec
def egress_secret_sources() -> Mapping[str, SourceFactory]:  # type: ignore[empty-body]
    """Factories of secret sources by scheme, the key that names them in `providers.yaml`. Asked at process start."""


@hookspec
def egress_identity_documents() -> Mapping[str, IdentityFactory]:  # type: ignore[empty-body]
    """Factories of identity documents for token grants by scheme. Asked at process start."""
