"""Requests that carry their signature in the query: the workload's own are signed again, other people's pass."""

import re
from collections.abc import Mapping
from enum import StrEnum
from urllib.parse import unquote

from egress.model.message import RequestHead
from egress.model.verdict import Denial, DenialCode, Stage
from egress.policy.compiled import Signing

_V4 = frozenset(
    (
        "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires", "x-amz-security-token",
        "x-amz-signature", "x-amz-signedheaders",
    )
)  # fmt: skip
_V2 = frozenset(("awsaccesskeyid", "expires", "signature", "x-amz-security-token"))

_LIVE_KEY = re.compile(r"A(?:KIA|SIA|3T[A-Z0-9])[A-Z2-7]{16}\Z")
"""Access key ids that AWS gives out. A workload's own is a placeholder or any word; the ids of AWS's documentation
end in `EXAMPLE` and are such words."""

_REJECTED = Denial(
    Stage.CREDENTIALS, DenialCode.SIGV4_UNSUPPORTED, "presigned URLs are refused on this endpoint",
    hints=("send the request without a signature; the proxy signs it",),
)  # fmt: skip
_ECDSA = Denial(Stage.CREDENTIALS, DenialCode.SIGV4_UNSUPPORTED, "SigV4A (ECDSA) signatures are not supported")


class Presigned(StrEnum):
    """`OWN`: made with the workload's worthless keys. `FOREIGN`: made by somebody with keys of their own."""

    NO = "no"
    OWN = "own"
    FOREIGN = "foreign"


def read_presigned(head: RequestHead, signing: Signing) -> Presigned | Denial:
    """Whose signature the query holds, and what the endpoint makes of that."""
    if head.query is None:
        return Presigned.NO
    values = _named(head.query)
    names = _signature_names(values)
    if not names:
        return Presigned.NO
    if signing.presigned == "reject":
        return _REJECTED
    if signing.presigned == "passthrough":
        return Presigned.FOREIGN
    key = (values.get("x-amz-credential") or values.get("awsaccesskeyid") or "").partition("/")[0]
    if _LIVE_KEY.match(key) and not key.endswith("EXAMPLE"):
        return Presigned.FOREIGN
    return _ECDSA if "ECDSA" in values.get("x-amz-algorithm", "") else Presigned.OWN


def without_signature(query: str) -> str | None:
    """`query` without the parameters of a signature."""
    names = _signature_names(_named(query))
    kept = [piece for piece in query.split("&") if _name(piece) not in names]
    return "&".join(kept) or None


def _signature_names(values: Mapping[str, str]) -> frozenset[str]:
    if "x-amz-signature" in values or "x-amz-credential" in values or "x-amz-algorithm" in values:
        return _V4
    return _V2 if "awsaccesskeyid" in values and "signature" in values else frozenset()


def _named(query: str) -> dict[str, str]:
    return {_name(piece): unquote(piece.partition("=")[2]) for piece in query.split("&")}


def _name(piece: str) -> str:
    return unquote(piece.partition("=")[0]).lower()
