"""Placeholders in whole request bodies and WebSocket texts to values (credentials.md sections 5.1 and 6)."""

import json
import re
from collections.abc import Iterator
from urllib.parse import quote_plus

from egress.credentials.placeholder import contains_marker, has_raw_marker, percent_decoded
from egress.credentials.rewrite import Failure, denial_of, substituted
from egress.credentials.scan import marked
from egress.credentials.snapshot import Fault, Resolver
from egress.http.coding import decode_body, encode_body
from egress.http.fields import list_members
from egress.model.message import FieldLine, Malformed
from egress.model.verdict import Denial, DenialCode, Stage
from egress.policy.compiled import CredentialOptions

_FORM = b"application/x-www-form-urlencoded"
_JSON = frozenset((b"application/json", b"application/x-ndjson", b"application/ndjson", b"application/jsonl"))
_TEXT = frozenset((b"application/xml", b"application/graphql", b"multipart/form-data", b"application/javascript"))
_FORM_SAFE = "-._*"
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_JSON_ESCAPE = re.compile(rb"\\u00([0-7][0-9A-Fa-f])|\\/")


def _denied(code: DenialCode, reason: str) -> Denial:
    return Denial(Stage.CREDENTIALS, code, reason, surface="http-request-body")


_UNSUPPORTED = _denied(
    DenialCode.CREDENTIAL_BODY_UNSUPPORTED, "the body holds a placeholder and is of a type that none is placed into"
)
_NOT_TEXT = _denied(DenialCode.CREDENTIAL_BODY_INVALID, "the body is not UTF-8 text")
_ENCODED = _denied(
    DenialCode.CREDENTIAL_BODY_INVALID, "the body holds an encoded placeholder, which cannot be replaced"
)


def rewrite_body(
    fields: tuple[FieldLine, ...], body: bytes, resolver: Resolver | None, options: CredentialOptions
) -> tuple[tuple[FieldLine, ...], bytes] | Denial:
    """Fields and body with values in place. Without placeholders both come back as they were."""
    ceiling = options.max_rewrite_body_bytes
    codings = [
        member for name, value in fields if name.lower() == b"content-encoding" for member in list_members(value)
    ]
    plain = body
    if codings:
        decoded = decode_body(body, codings, ceiling)
        if isinstance(decoded, Malformed):
            return _denied(DenialCode.CREDENTIAL_BODY_INVALID, decoded.reason)
        plain = decoded
    kind = _media_type(fields)
    rewritten = _rewritten(kind, plain, resolver)
    if isinstance(rewritten, Denial):
        return rewritten
    if rewritten is plain:
        return fields, body
    if codings:
        rewritten = encode_body(rewritten, codings)
    return fields, rewritten


def rewrite_text(text: str, resolver: Resolver | None) -> str | Failure:
    """One text message. In one that is JSON, values are escaped where they stand in a string."""
    data = text.encode()
    looks_json = data.lstrip()[:1] in (b"{", b"[", b'"')
    replaced = (
        _json_text(data, resolver, "websocket") if looks_json else substituted(data, resolver, bytes, "websocket")
    )
    if isinstance(replaced, Failure):
        return replaced
    if contains_marker(replaced):
        return Failure(Fault.UNAVAILABLE, "websocket")
    return replaced.decode()


def _rewritten(kind: bytes, body: bytes, resolver: Resolver | None) -> bytes | Denial:
    if kind == _FORM:
        return _form(body, resolver)
    is_json = kind in _JSON or kind.endswith(b"+json")
    if not is_json and not kind.startswith(b"text/") and kind not in _TEXT and not kind.endswith(b"+xml"):
        return _UNSUPPORTED if marked(body) else body
    if kind != b"multipart/form-data":
        try:
            body.decode()
        except UnicodeDecodeError:
            return _NOT_TEXT
    if not has_raw_marker(body):
        return _ENCODED if _hidden(body, is_json=is_json) else body
    replaced = _json_text(body, resolver, "body") if is_json else substituted(body, resolver, bytes, "body")
    if isinstance(replaced, Failure):
        return denial_of(replaced)
    return _ENCODED if _hidden(replaced, is_json=is_json) else replaced


def _hidden(body: bytes, *, is_json: bool) -> bool:
    """A marker that some decoder at the origin would bring out."""
    if marked(body):
        return True
    if not is_json or b"\\" not in body:
        return False
    plain = _JSON_ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()) if match[1] else b"/", body)
    return has_raw_marker(plain)


def _json_text(body: bytes, resolver: Resolver | None, where: str) -> bytes | Failure:
    """Inside string literals values are escaped, elsewhere they stand as they are."""
    pieces, position = [], 0
    for start, end, quoted in _spans(body):
        piece = substituted(body[start:end], resolver, _json_escaped if quoted else bytes, where)
        if isinstance(piece, Failure):
            return piece
        pieces += [body[position:start], piece]
        position = end
    return b"".join([*pieces, body[position:]])


def _spans(body: bytes) -> Iterator[tuple[int, int, bool]]:
    position = 0
    for match in _STRING.finditer(body):
        yield position, match.start(), False
        yield match.start(), match.end(), True
        position = match.end()
    yield position, len(body), False


def _json_escaped(value: bytes) -> bytes:
    return json.dumps(value.decode("utf-8", "surrogateescape"), ensure_ascii=False)[1:-1].encode(
        "utf-8", "surrogateescape"
    )


def _form(body: bytes, resolver: Resolver | None) -> bytes | Denial:
    try:
        body.decode()
    except UnicodeDecodeError:
        return _NOT_TEXT
    if not marked(body):
        return body
    items = []
    for item in body.split(b"&"):
        name, equals, value = item.partition(b"=")
        if marked(name) or (not equals and marked(item)):
            return _denied(DenialCode.CREDENTIAL_BODY_INVALID, "a placeholder stands in the name of a form field")
        if not contains_marker(value):
            if marked(value):
                return _ENCODED
            items.append(item)
            continue
        plain = substituted(percent_decoded(value.replace(b"+", b" ")), resolver, bytes, "body")
        if isinstance(plain, Failure):
            return denial_of(plain)
        items.append(name + b"=" + quote_plus(plain, safe=_FORM_SAFE).encode())
    return b"&".join(items)


def _media_type(fields: tuple[FieldLine, ...]) -> bytes:
    for name, value in fields:
        if name.lower() == b"content-type":
            return value.partition(b";")[0].strip().lower()
    return b""
