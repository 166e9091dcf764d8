"""What the plugin offers: values of the scheme `aws_secrets_manager`."""

from collections.abc import Mapping

from egress.sdk.hookspecs import hookimpl
from egress.sdk.secrets import SourceFactory
from egress_secrets_aws.source import aws_secrets_manager


@hookimpl
def egress_secret_sources() -> Mapping[str, SourceFactory]:
    return {"aws_secrets_manager": aws_secrets_manager}
