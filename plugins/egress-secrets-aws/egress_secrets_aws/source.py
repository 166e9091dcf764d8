"""The `aws_secrets_manager` source: one secret, asked for over the proxy's own client and signed with the keys of the
built-in `aws_session` source."""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from egress.sdk.secrets import (
    BadSpec,
    Fetched,
    HttpFailure,
    HttpReply,
    Secret,
    SecretSource,
    SourceContext,
    SourceUnavailable,
)
from egress.sdk.spec import Spec

REPLY_BYTES = 128 * 1024
CALL_SECONDS = 20.0
_SESSION = ("profile", "role_arn", "external_id", "session_name")
_KEYS = ("secret_id", "version_stage", "region", "endpoint_url", *_SESSION)
_REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-[0-9]\Z")
_FROM_ARN = re.compile(r"arn:aws[a-z-]*:secretsmanager:([a-z0-9-]+):")
_KINDS = {
    "ResourceNotFoundException": "not_found",
    "AccessDeniedException": "denied",
    "DecryptionFailure": "denied",
    "UnrecognizedClientException": "denied",
    "InvalidSignatureException": "denied",
    "ExpiredTokenException": "denied",
    "ThrottlingException": "throttled",
}


def aws_secrets_manager(fields: Mapping[str, object], context: SourceContext) -> SecretSource:
    """`{secret_id, version_stage, region, profile, role_arn, external_id, session_name, endpoint_url}`. Raises
    `BadSpec`."""
    spec = Spec(fields, _KEYS)
    secret_id = spec.text("secret_id")
    region = _region(spec, secret_id, context)
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    url = spec.url("endpoint_url", f"https://secretsmanager.{region}.{suffix}")
    session = {"region": region, **{key: spec.raw(key) for key in _SESSION if key in spec}}
    wanted = {"SecretId": secret_id, "VersionStage": spec.text("version_stage", "AWSCURRENT")}
    return _Stored(url, region, wanted, context.bundle({"aws_session": session}), context)


def _region(spec: Spec, secret_id: str, context: SourceContext) -> str:
    """As written, else the one in the secret's ARN, else what the environment of AWS tools says."""
    arn = _FROM_ARN.match(secret_id)
    told = [context.environment.get(name, "") for name in ("AWS_REGION", "AWS_DEFAULT_REGION")]
    region = spec.text("region", "") or (arn[1] if arn else "") or next(filter(None, told), "")
    if not _REGION.match(region):
        raise BadSpec("must be an AWS region: `eu-west-1`", ("region",))
    return region


class _Stored:
    def __init__(
        self, url: str, region: str, wanted: Mapping[str, str], keys: SecretSource, context: SourceContext
    ) -> None:
        self._url = url.rstrip("/") + "/"
        self._region = region
        self._body = json.dumps(wanted).encode()
        self._keys = keys
        self._context = context

    async def fetch(self) -> Fetched:
        """The secret as it is stored, and its members where it is a JSON object. Raises `SourceUnavailable`."""
        keys = (await self._keys.fetch()).values
        headers = await self._context.run_blocking(self._signed, keys)
        try:
            reply = await self._context.http.request(
                "POST", self._url, headers=headers, body=self._body, timeout=CALL_SECONDS, max_bytes=REPLY_BYTES
            )
        except HttpFailure:
            raise SourceUnavailable("unreachable") from None
        return _read(reply)

    def _signed(self, keys: Mapping[str, Secret]) -> dict[str, str]:
        """Signature Version 4 by botocore's own signer, which takes its time from the clock of the machine."""
        from botocore.auth import SigV4Auth  # type: ignore[import-untyped]  # noqa: PLC0415
        from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]  # noqa: PLC0415
        from botocore.credentials import Credentials  # type: ignore[import-untyped]  # noqa: PLC0415

        token = keys.get("AWS_SESSION_TOKEN")
        credentials = Credentials(
            keys["AWS_ACCESS_KEY_ID"].reveal(),
            keys["AWS_SECRET_ACCESS_KEY"].reveal(),
            token.reveal() if token is not None else None,
        )
        headers = {
            "Content-Type": "application/x-amz-json-1.1",
            "X-Amz-Target": "secretsmanager.GetSecretValue",
            "Host": urlsplit(self._url).netloc,
        }
        request = AWSRequest("POST", self._url, data=self._body, headers=headers)
        SigV4Auth(credentials, "secretsmanager", self._region).add_auth(request)
        return {name: value for name, value in request.headers.items() if name.lower() != "host"}


def _read(reply: HttpReply) -> Fetched:
    try:
        found: Any = json.loads(reply.body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise SourceUnavailable(f"http_{reply.status}" if reply.status != 200 else "malformed_reply")
    if reply.status != 200:
        kind = str(found.get("__type", "")).rpartition("#")[2]
        raise SourceUnavailable(_KINDS.get(kind, f"http_{reply.status}"))
    text = _text(found)
    return Fetched({**_members(text), "": Secret(text)}, document=Secret(text))


def _text(found: Mapping[str, object]) -> str:
    text, binary = found.get("SecretString"), found.get("SecretBinary")
    if isinstance(text, str):
        return text
    try:
        return base64.b64decode(str(binary), validate=True).decode()
    except (binascii.Error, ValueError):
        raise SourceUnavailable("not_text") from None


def _members(text: str) -> dict[str, Secret]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: Secret(value) for key, value in found.items() if isinstance(value, str)}
