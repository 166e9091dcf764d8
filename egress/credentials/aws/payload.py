"""How the body of a signed request is covered by its signature (sigv4.md 5), from what the client announced."""

from dataclasses import dataclass
from enum import StrEnum

from egress.http.fields import list_members
from egress.model.address import Scheme
from egress.model.body import FramingKind
from egress.model.limits import MIB
from egress.model.message import RequestHead
from egress.model.verdict import Denial, DenialCode, Stage
from egress.policy.compiled import Signing

BODY_CEILING = 10 * MIB
"""A body that has to be hashed, unless the endpoint says otherwise. Beyond: 413 `sigv4_body_too_large`."""

OBJECT_SERVICES = frozenset(("s3", "s3express", "s3-object-lambda", "s3-outposts"))
"""Services that sign an object key as it is on the wire and take a body without hash."""


class PayloadMode(StrEnum):
    """What `x-amz-content-sha256` says of the body: its digest, nothing, or that checksums follow it."""

    BODY = "sign_body"
    UNSIGNED = "unsigned_payload"
    TRAILER = "streaming_unsigned_trailer"


class Chunks(StrEnum):
    """What is done with the `aws-chunked` coding of a body, whose signatures no one can renew."""

    KEEP = "keep"
    UNWRAP = "unwrap"
    """The payload alone goes on."""
    REWRAP = "rewrap"
    """New chunks without signatures; the checksums behind them stay."""


@dataclass(frozen=True, slots=True)
class Payload:
    """`hold` is the ceiling of a body that must be complete before it can be signed; None lets it stream."""

    mode: PayloadMode
    hold: int | None = None
    chunks: Chunks = Chunks.KEEP
    length: int | None = None
    """Bytes of the payload inside an `aws-chunked` body, as announced."""


_STREAMING = b"STREAMING-"
_UNSIGNED_TRAILER = b"STREAMING-UNSIGNED-PAYLOAD-TRAILER"
_CHUNK_SIGNED = frozenset(
    (
        b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD", b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
        b"STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", b"STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER",
    )
)  # fmt: skip

_NO_LENGTH = Denial(Stage.CREDENTIALS, DenialCode.MALFORMED_REQUEST, "x-amz-decoded-content-length is no length")
_EVENTS = Denial(
    Stage.CREDENTIALS, DenialCode.SIGV4_STREAMING_UNSUPPORTED,
    "SigV4 signing: event streams and unknown streaming modes cannot be signed again",
)  # fmt: skip


def value_of(head: RequestHead, name: bytes) -> bytes | None:
    """The first value of a field, by its lower-case name."""
    return next((value for field, value in head.fields if field.lower() == name), None)


def read_payload(head: RequestHead, signing: Signing, service: str, *, presigned: bool) -> Payload | Denial:
    """How to cover the body of `head`."""
    announced = (value_of(head, b"x-amz-content-sha256") or b"").upper()
    if announced.startswith(_STREAMING) and announced not in _CHUNK_SIGNED and announced != _UNSIGNED_TRAILER:
        return _EVENTS
    match signing.mode:
        case "sigv4:body":
            return _signed_body(head, signing, announced)
        case "sigv4:no_body":
            return _unsigned_body(head, announced)
        case _:
            return _as_announced(head, signing, service, announced, presigned=presigned)


def too_large(limit: int) -> Denial:
    return Denial(
        Stage.CREDENTIALS, DenialCode.SIGV4_BODY_TOO_LARGE, f"SigV4 signing: a body is held up to {limit} bytes"
    )


def _as_announced(
    head: RequestHead, signing: Signing, service: str, announced: bytes, *, presigned: bool
) -> Payload | Denial:
    if announced in _CHUNK_SIGNED:
        return Denial(
            Stage.CREDENTIALS,
            DenialCode.SIGV4_STREAMING_UNSUPPORTED,
            f"SigV4 signing: chunk signatures of {announced.decode().lower()} cannot be renewed; "
            "use credential_signing: sigv4:no_body to stream with UNSIGNED-PAYLOAD instead",
            hints=("write `credential_signing: sigv4:no_body` on the endpoint",),
        )
    if announced == _UNSIGNED_TRAILER:
        return Payload(PayloadMode.TRAILER)
    if announced == b"UNSIGNED-PAYLOAD" or (not announced and _nothing_to_hash(head, service, presigned=presigned)):
        return Payload(PayloadMode.UNSIGNED)
    payload = _signed_body(head, signing, announced)
    if isinstance(payload, Denial) and signing.oversize == "unsigned" and _takes_unsigned(head, service):
        return Payload(PayloadMode.UNSIGNED)
    return payload


def _nothing_to_hash(head: RequestHead, service: str, *, presigned: bool) -> bool:
    """Without a digest from the client: a chunked body streams, and so does what a presigned URL uploads. A request
    without a body gets the digest of nothing, which every service accepts."""
    return head.framing.kind is FramingKind.CHUNKED or (presigned and service in OBJECT_SERVICES)


def _takes_unsigned(head: RequestHead, service: str) -> bool:
    return service in OBJECT_SERVICES and head.origin.scheme is Scheme.HTTPS


def _signed_body(head: RequestHead, signing: Signing, announced: bytes) -> Payload | Denial:
    limit = BODY_CEILING if signing.max_body_bytes is None else signing.max_body_bytes
    if (head.framing.length or 0) > limit:
        return too_large(limit)
    hold = None if head.framing.empty else limit
    if not announced.startswith(_STREAMING) or hold is None:
        return Payload(PayloadMode.BODY, hold)
    length = _payload_length(head)
    return length if isinstance(length, Denial) else Payload(PayloadMode.BODY, hold, Chunks.UNWRAP, length)


def _unsigned_body(head: RequestHead, announced: bytes) -> Payload | Denial:
    """Chunks that stayed in an unsigned body would become part of the object."""
    if head.framing.empty or not announced.startswith(_STREAMING):
        return Payload(PayloadMode.UNSIGNED)
    if announced == _UNSIGNED_TRAILER:
        return Payload(PayloadMode.TRAILER)
    length = _payload_length(head)
    if isinstance(length, Denial):
        return length
    if announced.endswith(b"-TRAILER"):
        return Payload(PayloadMode.TRAILER, chunks=Chunks.REWRAP, length=length)
    return Payload(PayloadMode.UNSIGNED, chunks=Chunks.UNWRAP, length=length)


def _payload_length(head: RequestHead) -> int | Denial:
    text = value_of(head, b"x-amz-decoded-content-length") or b""
    return int(text) if text.isdigit() and len(text) < 19 else _NO_LENGTH


def without_chunk_coding(value: bytes) -> bytes:
    """`Content-Encoding` without `aws-chunked`."""
    return b",".join([member for member in list_members(value) if member != b"aws-chunked"])
