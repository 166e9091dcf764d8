"""The `aws_session` source: keys from the chain of the AWS tools, and the keys of a role that they may assume.

The chain (files, SSO, web identity, instance metadata) is botocore's and runs in a worker thread. The role is asked
for by us, signed like any other request, over the client that is handed in.
"""

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode, urlsplit

from egress.credentials.aws.keys import AwsKeys
from egress.credentials.aws.lookup import ACCESS_KEY, SECRET_KEY, SESSION_TOKEN
from egress.credentials.aws.region import domain_of, is_scope_part
from egress.credentials.aws.sign import plan_signing, sign
from egress.documents.units import read_duration
from egress.model.address import DEFAULT_PORTS, InvalidAddress, Origin, Port, Scheme, parse_host
from egress.model.body import of_length
from egress.model.limits import KIB
from egress.model.message import RequestHead
from egress.model.secret import Secret
from egress.model.verdict import Denial
from egress.policy.compiled import CredentialOptions, Signing
from egress.sdk.http import HttpFailure
from egress.sdk.secrets import BadSpec, Fetched, SecretSource, SourceContext, SourceUnavailable

REPLY_BYTES = 64 * KIB
CALL_SECONDS = 20.0
_CONNECT_SECONDS = 5
_READ_SECONDS = 10
_SHORTEST, _LONGEST = 900, 43_200

_ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]{1,512}\Z", re.ASCII)
_NAME = re.compile(r"[\w+=,.@-]{2,64}\Z", re.ASCII)
_EXTERNAL = re.compile(r"[\w+=,.@:/-]{2,1224}\Z", re.ASCII)
_PROFILE = re.compile(r"[^\x00-\x1f\x7f]{1,128}\Z")
_TEXTS = {
    "profile": (_PROFILE, "the name of a profile in the AWS configuration"),
    "role_arn": (_ROLE, "the ARN of a role: `arn:aws:iam::111122223333:role/reader`"),
    "session_name": (_NAME, "2 to 64 letters, digits or `+=,.@_-`"),
    "external_id": (_EXTERNAL, "2 to 1224 letters, digits or `+=,.@:/_-`"),
}
_SOURCE_KEYS = ("access_key_id", "secret_access_key", "session_token")
_KNOWN = frozenset((*_TEXTS, "duration", "region", "endpoint_url"))
_REPLY_PARTS = ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """What to use and which role to take. Without `role_arn` the keys of the chain are the result."""

    profile: str = ""
    role_arn: str = ""
    external_id: str = ""
    session_name: str = "egress"
    duration: int = 3600
    region: str = ""
    endpoint_url: str = ""


@dataclass(frozen=True, slots=True)
class _Found:
    """Keys, when they expire, and the region that the configuration names."""

    keys: AwsKeys
    expires: float | None = None
    region: str = ""


@dataclass(frozen=True, slots=True)
class _Given:
    """The source of a value that the specification holds itself."""

    secret: Secret

    async def fetch(self) -> Fetched:
        return Fetched({"": self.secret})


def aws_session(fields: Mapping[str, object], context: SourceContext) -> SecretSource:
    """The source for `fields`. Raises `BadSpec`."""
    spec = read_spec({key: value for key, value in fields.items() if key not in _SOURCE_KEYS})
    sources = {key: _source(fields[key], key, context) for key in _SOURCE_KEYS if key in fields}
    if sources and not {"access_key_id", "secret_access_key"} <= sources.keys():
        raise BadSpec("`access_key_id` and `secret_access_key` belong together", (next(iter(sources)),))
    if sources and (spec.profile or not spec.role_arn):
        raise BadSpec("keys are for taking a role: write `role_arn`, and no `profile`", ("access_key_id",))
    return AwsSession(spec, sources, context)


def read_spec(fields: Mapping[str, object]) -> SessionSpec:
    """Raises `BadSpec`."""
    for key in fields:
        if key not in _KNOWN:
            raise BadSpec(f"unknown key `{key}`", (key,))
    spec = SessionSpec()
    for key, (pattern, meaning) in _TEXTS.items():
        if key in fields:
            value = fields[key]
            if not isinstance(value, str) or not pattern.match(value):
                raise BadSpec(f"must be {meaning}", (key,))
            spec = replace(spec, **{key: value})  # type: ignore[arg-type]
    if "duration" in fields:
        spec = replace(spec, duration=_duration(fields["duration"]))
    if "region" in fields:
        spec = replace(spec, region=_region(fields["region"], known="endpoint_url" in fields))
    if "endpoint_url" in fields:
        spec = replace(spec, endpoint_url=_endpoint(fields["endpoint_url"]))
    idle = next((key for key in ("external_id", "session_name", "duration") if key in fields), None)
    if idle is not None and not spec.role_arn:
        raise BadSpec("has a meaning only with `role_arn`", (idle,))
    return spec


def _duration(value: object) -> int:
    try:
        seconds = int(read_duration(value))
    except ValueError as error:
        raise BadSpec(str(error), ("duration",)) from None
    if not _SHORTEST <= seconds <= _LONGEST:
        raise BadSpec("must be from 15m to 12h", ("duration",))
    return seconds


def _region(value: object, *, known: bool) -> str:
    if isinstance(value, str) and is_scope_part(value) and (known or domain_of(value)):
        return value
    raise BadSpec("must be an AWS region: `eu-west-1`", ("region",))


def _endpoint(value: object) -> str:
    if isinstance(value, str) and _origin(value) is not None:
        return value
    raise BadSpec("must be the URL of an STS endpoint without a path", ("endpoint_url",))


def _source(value: object, key: str, context: SourceContext) -> SecretSource:
    """A value of its own (`Secret` where other code already checked it), or the specification of a source."""
    if isinstance(value, Secret):
        return _Given(value)
    if not isinstance(value, str):
        return context.source(value)
    if not context.allow_literal:
        raise BadSpec("a secret may not stand in the file: write a source, such as `{env: NAME}`", (key,))
    return _Given(Secret(value))


class AwsSession:
    """Fetches the three keys as one set."""

    def __init__(self, spec: SessionSpec, sources: Mapping[str, SecretSource], context: SourceContext) -> None:
        self._spec = spec
        self._sources = sources
        self._context = context

    async def fetch(self) -> Fetched:
        """Raises `SourceUnavailable`."""
        found = await self._given() if self._sources else await self._context.run_blocking(self._chain)
        if self._spec.role_arn:
            found = await self._assume(found)
        keys = found.keys
        values = {ACCESS_KEY: keys.access, SECRET_KEY: keys.secret}
        if keys.token is not None:
            values[SESSION_TOKEN] = keys.token
        return Fetched(values, found.expires)

    async def _given(self) -> _Found:
        values = {key: (await source.fetch()).values.get("") for key, source in self._sources.items()}
        access, secret, token = (values.get(key) for key in _SOURCE_KEYS)
        if access is None or secret is None:
            raise SourceUnavailable("no_credentials")
        return _Found(AwsKeys(access, secret, token))

    def _chain(self) -> _Found:
        from botocore.config import Config  # type: ignore[import-untyped]  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]  # noqa: PLC0415
        from botocore.session import Session  # type: ignore[import-untyped]  # noqa: PLC0415

        try:
            session = Session(profile=self._spec.profile or None)
            once = Config(connect_timeout=_CONNECT_SECONDS, read_timeout=_READ_SECONDS,
                          retries={"total_max_attempts": 2})  # fmt: skip
            session.set_default_client_config(once)
            credentials = session.get_credentials()
            if credentials is None:
                raise SourceUnavailable("no_credentials")
            return _found(credentials, session.get_config_variable("region") or "")
        except (BotoCoreError, ClientError, OSError, ValueError) as error:
            raise SourceUnavailable(type(error).__name__) from None

    async def _assume(self, found: _Found) -> _Found:
        spec = self._spec
        region = spec.region or found.region or "us-east-1"
        url = spec.endpoint_url or f"https://sts.{region}.{domain_of(region) or 'amazonaws.com'}"
        form = {
            "Action": "AssumeRole", "Version": "2011-06-15", "RoleArn": spec.role_arn,
            "RoleSessionName": spec.session_name, "DurationSeconds": str(spec.duration),
        }  # fmt: skip
        if spec.external_id:
            form["ExternalId"] = spec.external_id
        body = urlencode(form).encode()
        headers = self._signed(url, body, region, found.keys)
        try:
            reply = await self._context.http.request(
                "POST", url.rstrip("/") + "/", headers=headers, body=body, timeout=CALL_SECONDS, max_bytes=REPLY_BYTES
            )
        except HttpFailure:
            raise SourceUnavailable("unreachable") from None
        if reply.status != 200:
            raise SourceUnavailable("rejected")
        return _assumed(reply.body)

    def _signed(self, url: str, body: bytes, region: str, keys: AwsKeys) -> dict[str, str]:
        origin = _origin(url)
        assert origin is not None
        fields = ((b"Content-Type", b"application/x-www-form-urlencoded; charset=utf-8"),)
        head = RequestHead("POST", origin, "/", None, fields, of_length(len(body)))
        plan = plan_signing(head, CredentialOptions(deny_minting=False, signing=Signing("sigv4:body", "sts", region)))
        signed = plan if isinstance(plan, Denial) else sign(plan, head, body, keys, self._context.clock.now())
        if isinstance(signed, Denial):
            raise SourceUnavailable("unsignable")
        return {name.decode(): value.decode() for name, value in signed[0].fields}


def _found(credentials: Any, region: str) -> _Found:
    """One consistent set. When it expires is not public knowledge of botocore's; None where it is not told."""
    frozen = credentials.get_frozen_credentials()
    expires = getattr(credentials, "_expiry_time", None)
    token = Secret(frozen.token) if frozen.token else None
    return _Found(
        AwsKeys(Secret(frozen.access_key), Secret(frozen.secret_key), token),
        expires.timestamp() if isinstance(expires, datetime) else None,
        region,
    )


def _assumed(reply: bytes) -> _Found:
    """The keys in the reply of AssumeRole; four elements without structure inside."""
    text = reply.decode("utf-8", "replace")
    found = [re.search(f"<{part}>([^<>]+)</{part}>", text) for part in _REPLY_PARTS]
    values = [html.unescape(match[1]).strip() for match in found if match is not None]
    try:
        access, secret, token, expiration = values
        expires = datetime.fromisoformat(expiration).timestamp()
    except ValueError:
        raise SourceUnavailable("malformed") from None
    return _Found(AwsKeys(Secret(access), Secret(secret), Secret(token)), expires)


def _origin(url: str) -> Origin | None:
    try:
        parts = urlsplit(url)
        scheme = Scheme(parts.scheme)
        port = Port(parts.port or DEFAULT_PORTS[scheme])
        plain = parts.path in ("", "/") and not parts.query and not parts.fragment and parts.username is None
        return Origin(scheme, parse_host(parts.hostname or ""), port) if plain else None
    except (ValueError, KeyError, InvalidAddress):
        return None
