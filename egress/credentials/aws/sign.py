"""AWS Signature Version 4 for requests as they are sent: plan before the body, strip, then sign.

The client's own signature is dropped unread. Nothing here waits.
"""

import re
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from urllib.parse import quote, quote_from_bytes, unquote_to_bytes

from egress.credentials.aws import payload as payloads
from egress.credentials.aws.chunks import ChunkStream, unwrap
from egress.credentials.aws.keys import AwsKeys
from egress.credentials.aws.minting import LOOK_BYTES, QUERY_SERVICES
from egress.credentials.aws.payload import OBJECT_SERVICES, Chunks, Payload, PayloadMode, read_payload, value_of
from egress.credentials.aws.presigned import Presigned, read_presigned, without_signature
from egress.credentials.aws.region import AwsScope, is_scope_part, scope_of
from egress.http.authority import host_field
from egress.http.fields import without
from egress.model.body import CHUNKED, FramingKind, of_length
from egress.model.message import FieldLine, Malformed, RequestHead
from egress.model.verdict import Denial, DenialCode, Stage
from egress.policy.compiled import CredentialOptions, Signing

_DROPPED = frozenset(
    (
        b"authorization", b"x-amz-date", b"x-amz-security-token", b"x-amz-content-sha256", b"x-amz-s3session-token",
        b"date",
    )
)  # fmt: skip
"""The client's signature and what it was made of. `Date` would be signed instead of `x-amz-date`."""

_UNSIGNED = frozenset(
    (
        "accept-encoding", "amz-sdk-invocation-id", "amz-sdk-request", "connection", "expect", "forwarded", "te",
        "traceparent", "tracestate", "user-agent", "via", "x-amzn-trace-id", "x-forwarded-for",
    )
)  # fmt: skip
"""Sent but not signed: a hop on the way may change them."""

_ENCODED_SLASH = re.compile("%2F", re.IGNORECASE)


def _unsupported(reason: str) -> Denial:
    return Denial(Stage.CREDENTIALS, DenialCode.SIGV4_UNSUPPORTED, f"SigV4 signing: {reason}")


_ECDSA = _unsupported("SigV4A (ECDSA) signatures are not supported")
_FORM_UPLOAD = _unsupported("uploads by HTML form carry a signed policy that cannot be renewed")
_QUERY_WEBSOCKET = _unsupported("WebSocket URLs with a signature in the query are not supported")
_NOT_TEXT = Denial(Stage.CREDENTIALS, DenialCode.MALFORMED_REQUEST, "SigV4 signing: a request field is not UTF-8")
_PLUS = Denial(
    Stage.CREDENTIALS, DenialCode.SIGV4_PATH_NOT_REPRESENTABLE,
    "a bare + in an object key is read in two ways",
    hints=("send %2B for a plus sign, %20 for a space",),
)  # fmt: skip
_OTHER_KEY = Denial(
    Stage.CREDENTIALS, DenialCode.SIGV4_PATH_NOT_REPRESENTABLE,
    "the object key holds empty or dot segments or ;, which the canonical path does not",
    hints=("write `object_keys: opaque` on the endpoint to judge and send keys as they are",),
)  # fmt: skip
_NO_SERVICE = Denial(
    Stage.CREDENTIALS, DenialCode.SIGV4_SERVICE_MISSING,
    "SigV4 signing: no AWS service is set and the host name tells none",
    hints=("write `signing_service` on the endpoint",),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SigningPlan:
    """How one request will be signed. `scope` is bound into the signature; `derived_region`: the host told it.

    `hold` is the ceiling in bytes of a body that must be complete before `sign`; None lets it stream.
    """

    scope: AwsScope
    payload: Payload
    presigned: Presigned
    hold: int | None
    derived_region: bool

    @property
    def passes(self) -> bool:
        """The request is somebody else's presigned URL and goes on as it is."""
        return self.presigned is Presigned.FOREIGN

    @property
    def mode(self) -> str:
        """The word for the payload mode in events."""
        return self.payload.mode.value

    def stream(self) -> ChunkStream | None:
        """What a streaming body has to go through; None: nothing."""
        return None if self.hold is not None or self.payload.chunks is Chunks.KEEP else ChunkStream(self.payload)

    def too_large(self) -> Denial:
        """The body went past `hold`."""
        return payloads.too_large(self.hold or 0)


@cache
def load() -> ModuleType:
    """Import the signers, about 0.1 s once; call it while a policy with signed endpoints is prepared."""
    from egress.credentials.aws import signature  # noqa: PLC0415 - botocore

    return signature


def plan_signing(head: RequestHead, options: CredentialOptions) -> SigningPlan | Denial:
    """How to sign the request of `head`, an endpoint's options having `signing`; before any of the body was read."""
    signing = options.signing
    assert signing is not None
    presigned = read_presigned(head, signing)
    if isinstance(presigned, Denial):
        return presigned
    host = head.origin.host.name
    scope = scope_of(host, signing)
    if presigned is Presigned.FOREIGN and head.upgrade is None:
        return SigningPlan(scope, Payload(PayloadMode.UNSIGNED), presigned, None, derived_region=False)
    fault = _unsupported_request(head, presigned, scope) or _scope_fault(host, scope)
    if fault is None and scope.service in OBJECT_SERVICES:
        fault = _key_fault(head, signing)
    if fault is not None:
        return fault
    payload = read_payload(head, signing, scope.service, presigned=presigned is Presigned.OWN)
    if isinstance(payload, Denial):
        return payload
    hold = payload.hold
    if hold is None and options.deny_minting and scope.service in QUERY_SERVICES and not head.framing.empty:
        hold = LOOK_BYTES
    return SigningPlan(scope, payload, presigned, hold, derived_region=not signing.region)


def opaque_path(head: RequestHead) -> str:
    """The object key as the client wrote it, in the spelling of canonical paths but without any normalisation: what
    policy judges on an endpoint with `object_keys: opaque`, and what is sent."""
    raw = head.path if head.raw_path is None else head.raw_path
    return quote_from_bytes(unquote_to_bytes(raw), "/-._~!$&'()*+,;=:@")


def strip(plan: SigningPlan, head: RequestHead) -> RequestHead:
    """`head` without the client's signature, before placeholders are looked for."""
    if plan.passes:
        return head
    query = head.query
    if plan.presigned is Presigned.OWN and query is not None:
        query = without_signature(query)
    return replace(head, fields=without(head.fields, _DROPPED), query=query)


def sign(
    plan: SigningPlan, head: RequestHead, body: bytes | None, keys: AwsKeys, now: float
) -> tuple[RequestHead, bytes | None] | Denial:
    """What to send: a head with exactly the path, query and fields that its signature covers, and the body, when it is
    complete. `head` was stripped, and nothing but framing, `Expect` and proxy fields is added to it afterwards."""
    if plan.passes:
        return head, body
    prepared = _prepare(plan, head, body)
    if isinstance(prepared, Malformed):
        return Denial(Stage.CREDENTIALS, prepared.code, prepared.reason)
    head, body = prepared
    fields = _signed_fields(head.fields)
    if fields is None:
        return _NOT_TEXT
    authority = host_field(head.origin).decode()
    signature = load()
    request = signature.AWSRequest(method=head.method, url=f"https://{authority}{head.target}")
    request.headers["Host"] = authority
    for name, value in fields:
        request.headers[name] = value
    lines = signature.signature_fields(request, plan.payload.mode, body, plan.scope, keys, now)
    return replace(head, fields=(*head.fields, *lines)), body


def _unsupported_request(head: RequestHead, presigned: Presigned, scope: AwsScope) -> Denial | None:
    if head.upgrade is not None and presigned is not Presigned.NO:
        return _QUERY_WEBSOCKET
    claimed = value_of(head, b"authorization") or b""
    if claimed.startswith(b"AWS4-ECDSA") or value_of(head, b"x-amz-region-set") is not None:
        return _ECDSA
    if head.origin.host.name.endswith(".s3-global.amazonaws.com"):
        return _ECDSA  # multi-Region access points take nothing else
    kind = value_of(head, b"content-type") or b""
    if scope.service == "s3" and head.method == "POST" and kind.lower().startswith(b"multipart/form-data"):
        return _FORM_UPLOAD
    return None


def _scope_fault(host: str, scope: AwsScope) -> Denial | None:
    if not is_scope_part(scope.service):
        return _NO_SERVICE
    if is_scope_part(scope.region):
        return None
    return Denial(
        Stage.CREDENTIALS,
        DenialCode.SIGV4_REGION_UNKNOWN,
        f"SigV4 signing: the host name {host} tells no AWS region; set signing_region on the endpoint",
        hints=("write `signing_region` on the endpoint",),
    )


def _key_fault(head: RequestHead, signing: Signing) -> Denial | None:
    """Can the path say which object is meant, and is that the one that was judged?"""
    raw = head.path if head.raw_path is None else head.raw_path
    if "+" in raw:
        return _PLUS
    if signing.object_keys == "opaque" or not raw:
        return None
    return None if unquote_to_bytes(raw) == unquote_to_bytes(head.path) else _OTHER_KEY


def _prepare(plan: SigningPlan, head: RequestHead, body: bytes | None) -> tuple[RequestHead, bytes | None] | Malformed:
    """The request in the spelling in which it is signed and sent."""
    fields, framing = head.fields, head.framing
    if plan.payload.chunks is Chunks.UNWRAP:
        fields = _without_chunks(fields)
        framing = of_length(plan.payload.length or 0)
    elif plan.payload.chunks is Chunks.REWRAP:
        framing = CHUNKED
    if body is not None and plan.payload.chunks is not Chunks.KEEP:
        unwrapped = unwrap(plan.payload, body)
        if isinstance(unwrapped, Malformed):
            return unwrapped
        body, trailers = unwrapped
        if plan.payload.chunks is Chunks.UNWRAP:
            fields = (*without(fields, {b"x-amz-trailer"}), *trailers)
    if body is not None and (body or framing.kind is not FramingKind.NONE):
        framing = of_length(len(body))
    path = _object_path(head.path) if plan.scope.service in OBJECT_SERVICES else _service_path(head.path)
    query = (_query(head.query) if head.query else "") or None
    return replace(head, path=path, query=query, fields=fields, framing=framing), body


def _without_chunks(fields: tuple[FieldLine, ...]) -> tuple[FieldLine, ...]:
    coded = [
        (name, payloads.without_chunk_coding(value)) if name.lower() == b"content-encoding" else (name, value)
        for name, value in without(fields, {b"x-amz-decoded-content-length"})
    ]
    return tuple([line for line in coded if line[1] or line[0].lower() != b"content-encoding"])


def _object_path(path: str) -> str:
    """Object services sign the path of the wire as it is, and expect it encoded in this one way."""
    return quote_from_bytes(unquote_to_bytes(path), "/~")


def _service_path(path: str) -> str:
    """Others encode what they receive once more: all agree on it when nothing is left to choose."""
    return "%2F".join([quote_from_bytes(unquote_to_bytes(piece), "/~") for piece in _ENCODED_SLASH.split(path)])


def _query(query: str) -> str:
    """The query in the one spelling that signers sort without decoding; the order stays."""
    return "&".join([_pair(piece) for piece in query.split("&") if piece])


def _pair(piece: str) -> str:
    name, _, value = piece.partition("=")
    return f"{_word(name)}={_word(value)}"


def _word(text: str) -> str:
    return quote(unquote_to_bytes(text.replace("+", " ")), safe="~")


def _signed_fields(fields: tuple[FieldLine, ...]) -> list[tuple[str, str]] | None:
    """Fields for the signature as text, or None when they are none."""
    try:
        pairs = [(name.decode("ascii").lower(), value.decode("utf-8")) for name, value in fields]
    except UnicodeDecodeError:
        return None
    return [pair for pair in pairs if pair[0] not in _UNSIGNED]
