"""One signature by botocore's signers. The only module that imports them at its top; import it through `load`.

Every precaution here is about what those signers take as given: sigv4.md 12.
"""

import hashlib
import logging
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from botocore.auth import S3SigV4Auth, SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import ReadOnlyCredentials  # type: ignore[import-untyped]

from egress.credentials.aws.keys import AwsKeys
from egress.credentials.aws.payload import OBJECT_SERVICES, PayloadMode
from egress.credentials.aws.region import AwsScope

# Below this level botocore and its HTTP client print canonical requests and headers: session tokens.
for _name in ("botocore", "urllib3"):
    logging.getLogger(_name).setLevel(logging.WARNING)

_OBJECT_CONFIG: dict[PayloadMode, dict[str, Any]] = {
    PayloadMode.BODY: {"client_config": SimpleNamespace(s3={"payload_signing_enabled": True})},
    PayloadMode.UNSIGNED: {"client_config": SimpleNamespace(s3={"payload_signing_enabled": False})},
    PayloadMode.TRAILER: {"checksum": {"request_algorithm": {"in": "trailer"}}},
}
_SIGNED = ("X-Amz-Date", "X-Amz-Security-Token", "X-Amz-Content-SHA256", "Authorization")


def signature_fields(
    request: AWSRequest, mode: PayloadMode, body: bytes | None, scope: AwsScope, keys: AwsKeys, now: float
) -> list[tuple[bytes, bytes]]:
    """Fields that sign `request`, which holds the head that will be sent and no trace of an earlier signature."""
    token = None if keys.token is None else keys.token.reveal()
    credentials = ReadOnlyCredentials(keys.access.reveal(), keys.secret.reveal(), token)
    if scope.service in OBJECT_SERVICES:
        signer = S3SigV4Auth(credentials, scope.service, scope.region)
        request.context.update(_OBJECT_CONFIG[mode])
        request.data = body if mode is PayloadMode.BODY else None
    else:
        signer = SigV4Auth(credentials, scope.service, scope.region)
        request.headers["X-Amz-Content-SHA256"] = _announced(mode, body)
    _add_auth(signer, request, now)
    return [(name.encode(), request.headers[name].encode()) for name in _SIGNED if name in request.headers]


def _announced(mode: PayloadMode, body: bytes | None) -> str:
    """The payload line of services that take the word of the field for it."""
    match mode:
        case PayloadMode.BODY:
            return hashlib.sha256(body or b"").hexdigest()
        case PayloadMode.UNSIGNED:
            return "UNSIGNED-PAYLOAD"
        case PayloadMode.TRAILER:
            return "STREAMING-UNSIGNED-PAYLOAD-TRAILER"


def _add_auth(signer: Any, request: AWSRequest, now: float) -> None:
    """`add_auth` of the signer with a time of ours; the original takes the clock's and logs what it signs."""
    request.context["timestamp"] = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    signer._modify_request_before_signing(request)
    text = signer.string_to_sign(request, signer.canonical_request(request))
    signer._inject_signature_to_request(request, signer.signature(text, request))
