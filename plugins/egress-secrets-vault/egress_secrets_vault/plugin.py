"""What the plugin offers: values of the scheme `vault`."""

from collections.abc import Mapping

from egress.sdk.hookspecs import hookimpl
from egress.sdk.secrets import SourceFactory
from egress_secrets_vault.source import vault


@hookimpl
def egress_secret_sources() -> Mapping[str, SourceFactory]:
    return {"vault": vault}
