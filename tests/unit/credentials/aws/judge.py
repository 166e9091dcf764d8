"""An origin that checks signatures: reads the bytes it received and works out the signature from them alone.

Written from AWS's description of the algorithm, without botocore and without code of the proxy.
"""

import hashlib
import hmac
import re
from urllib.parse import quote, unquote_to_bytes

OBJECTS = ("s3", "s3express", "s3-object-lambda", "s3-outposts")


def accepts(wire: bytes, secret: str) -> bool:
    """Is the signature of this whole HTTP/1.1 request right?"""
    head, _, body = wire.partition(b"\r\n\r\n")
    request_line, *lines = head.split(b"\r\n")
    method, target, _ = request_line.decode().split(" ")
    fields: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.decode().partition(":")
        fields.setdefault(name.lower(), []).append(" ".join(value.strip(" ").split()))
    claim = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, "
        r"SignedHeaders=([a-z0-9;_-]+), Signature=([0-9a-f]{64})",
        *fields["authorization"],
    )
    assert claim is not None
    _, day, region, service, names, signature = claim.groups()
    (payload,) = fields.get("x-amz-content-sha256", [hashlib.sha256(body).hexdigest()])
    (time,) = fields["x-amz-date"]
    assert time.startswith(day)
    signed = names.split(";")
    assert signed == sorted(set(signed))
    assert {"host", *(name for name in fields if name.startswith("x-amz-"))} <= set(signed)
    if re.fullmatch("[0-9a-f]{64}", payload) and hashlib.sha256(body).hexdigest() != payload:
        return False
    path, _, query = target.partition("?")
    canonical = "\n".join(
        [
            method,
            _encoded(path, "/") if service not in OBJECTS else _encoded(unquote_to_bytes(path), "/"),
            _canonical_query(query),
            *(f"{name}:{','.join(fields[name])}" for name in signed),
            "",
            names,
            payload,
        ]
    )
    scope = f"{day}/{region}/{service}/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{secret}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.compare_digest(key.hex(), signature)


def _canonical_query(query: str) -> str:
    pairs = [piece.partition("=")[::2] for piece in query.split("&") if piece]
    decoded = [tuple(unquote_to_bytes(part.replace("+", " ")) for part in pair) for pair in pairs]
    encoded = sorted(tuple(_encoded(part, "") for part in pair) for pair in decoded)
    return "&".join("=".join(pair) for pair in encoded)


def _encoded(text: str | bytes, safe: str) -> str:
    return quote(text, safe=safe + "-_.~")
