"""What the plugin offers: values of the scheme `keyring`."""

from collections.abc import Mapping

from egress.sdk.hookspecs import hookimpl
from egress.sdk.secrets import SourceFactory
from egress_secrets_keyring.source import keyring


@hookimpl
def egress_secret_sources() -> Mapping[str, SourceFactory]:
    return {"keyring": keyring}
