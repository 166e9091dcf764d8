"""The keys of one AWS identity from the credentials that reach a request, all of them or none."""

from egress.credentials.aws.keys import AwsKeys
from egress.credentials.rewrite import Failure, denial_of
from egress.credentials.snapshot import Fault, Resolver
from egress.model.secret import Secret
from egress.model.verdict import Denial, DenialCode, Stage

ACCESS_KEY = "AWS_ACCESS_KEY_ID"
SECRET_KEY = "AWS_SECRET_ACCESS_KEY"  # noqa: S105
SESSION_TOKEN = "AWS_SESSION_TOKEN"  # noqa: S105

_TEMPORARY = "ASIA"
"""Ids of temporary keys begin so; without their session token they are worth nothing."""

UNAVAILABLE = Denial(
    Stage.CREDENTIALS, DenialCode.SIGV4_CREDENTIALS_UNAVAILABLE,
    "SigV4 signing: the AWS credentials of this endpoint are not available",
)  # fmt: skip


def aws_keys(resolver: Resolver | None, provider: str = "") -> AwsKeys | Denial:
    """The keys of `provider`, or else of the one provider whose scope reaches the request."""
    if resolver is None:
        return UNAVAILABLE
    access = resolver.key(ACCESS_KEY, provider)
    owner = provider or next((one.provider for one in resolver.used if one.secret is access), "")
    secret, token = resolver.key(SECRET_KEY, owner), resolver.key(SESSION_TOKEN, owner)
    if Fault.MISMATCH in (access, secret, token):
        return denial_of(Failure(Fault.MISMATCH, "signature"))
    if not isinstance(access, Secret) or not isinstance(secret, Secret) or isinstance(token, Fault):
        return UNAVAILABLE
    texts = [item.reveal() for item in (access, secret, token) if item is not None]
    if not all(text.isascii() and text.isprintable() for text in texts):
        return UNAVAILABLE
    if token is None and texts[0].startswith(_TEMPORARY):
        return UNAVAILABLE
    return AwsKeys(access, secret, token)
