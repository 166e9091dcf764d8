"""What credential helpers print, by the conventions of those who invented them. Pure."""

from collections.abc import Callable, Mapping

from egress.credentials.reading import json_document, read_expiry, texts_of
from egress.sdk.secrets import Fetched, Secret, SourceUnavailable

_AWS = {
    "AccessKeyId": "AWS_ACCESS_KEY_ID",
    "SecretAccessKey": "AWS_SECRET_ACCESS_KEY",
    "SessionToken": "AWS_SESSION_TOKEN",
}


def _text(output: str) -> Fetched:
    return Fetched.one(output)


def _json(output: str) -> Fetched:
    return Fetched(texts_of(json_document(output)), document=Secret(output))


def _exec_credential(output: str) -> Fetched:
    """`ExecCredential` of `client.authentication.k8s.io`."""
    status = _object(_object(json_document(output)).get("status"))
    token = status.get("token")
    if not isinstance(token, str):
        raise SourceUnavailable("no_such_field")
    ends = status.get("expirationTimestamp")
    return Fetched({"": Secret(token)}, read_expiry(ends) if ends is not None else None, document=Secret(output))


def _aws_process(output: str) -> Fetched:
    """What `credential_process` of the AWS tools prints."""
    found = _object(json_document(output))
    values = {_AWS[name]: secret for name, secret in texts_of(found).items() if name in _AWS}
    if found.get("Version") != 1 or not {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} <= values.keys():
        raise SourceUnavailable("no_such_field")
    ends = found.get("Expiration")
    return Fetched(values, read_expiry(ends) if ends is not None else None, document=Secret(output))


def _docker(output: str) -> Fetched:
    """What `docker-credential-* get` prints."""
    values = texts_of(json_document(output))
    if "Secret" not in values:
        raise SourceUnavailable("no_such_field")
    return Fetched({**values, "": values["Secret"]}, document=Secret(output))


def _git(output: str) -> Fetched:
    """What `git credential fill` and its helpers print (gitcredentials(7))."""
    fields = {name: value for name, _, value in (line.partition("=") for line in output.splitlines())}
    if "password" not in fields:
        raise SourceUnavailable("no_such_field")
    ends = fields.get("password_expiry_utc")
    values: dict[str, Secret] = {name: Secret(fields[name]) for name in ("username", "password") if name in fields}
    return Fetched({**values, "": values["password"]}, read_expiry(ends) if ends else None)


def _object(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise SourceUnavailable("no_such_field")
    return value


PARSERS: Mapping[str, Callable[[str], Fetched]] = {
    "text": _text,
    "json": _json,
    "exec_credential": _exec_credential,
    "aws_process": _aws_process,
    "docker": _docker,
    "git": _git,
}
