"""Placeholders in whole request bodies and WebSocket texts to values (credentials.md sections 5.1 and 6)."""

import json
import re
from collections.abc import Callable
from urllib.parse import quote_plus

from egress.credentials.placeholder import ALIAS, contains_marker, has_raw_marker, percent_decoded
from egress.credentials.rewrite import Failure, as_is, denial_of, substituted
from egress.credentials.scan import marked
from egress.credentials.snapshot import Fault, Resolver
from egress.http.coding import decode_body, encode_body
from egress.http.fields import list_members
from egress.model.message import FieldLine, Malformed
from egress.model.verdict import Denial, DenialCode, Stage
from egress.policy.compiled import CredentialOptions

_FORM = b"application/x-www-form-urlencoded"
_JSON = frozenset((b"application/json", b"application/x-ndjson", b"application/ndjson", b"application/jsonl"))
_TEXT = frozenset((b"application/xml", b"application/graphql", b"application/javascript"))
_MULTIPART = b"multipart/form-data"
_FORM_SAFE = "-._*"
# Possessive, and the end of the text closes what nothing else does: a body full of quotes is read once.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_JSON_ESCAPE = re.compile(rb"\\u00([0-7][0-9A-Fa-f])|\\/")
_ANY_ESCAPE = re.compile(rb"\\(?:u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_BOUNDARY = re.compile(rb""";[ \t]*boundary=("?)([0-9A-Za-z'()+_,./:=?-]{1,70})\1[ \t]*(?:;|\Z)""", re.IGNORECASE)
_PART_FIELD = re.compile(rb"\r\n(content-[a-z-]+):[ \t]*([^\r\n]*)", re.IGNORECASE)
_PLAIN_TRANSFER = frozenset((b"", b"7bit", b"8bit", b"binary"))


def _denied(code: DenialCode, reason: str) -> Denial:
    return Denial(Stage.CREDENTIALS, code, reason, surface="http-request-body")


_UNSUPPORTED = _denied(
    DenialCode.CREDENTIAL_BODY_UNSUPPORTED, "the body holds a placeholder and is of a type that none is placed into"
)
_NOT_TEXT = _denied(DenialCode.CREDENTIAL_BODY_INVALID, "the body is not UTF-8 text")
_ENCODED = _denied(
    DenialCode.CREDENTIAL_BODY_INVALID, "the body holds an encoded placeholder, which cannot be replaced"
)


_UNDECODED = {
    DenialCode.BODY_TOO_LARGE: DenialCode.CREDENTIAL_BODY_TOO_LARGE,
    DenialCode.UNSUPPORTED_ENCODING: DenialCode.CREDENTIAL_BODY_UNSUPPORTED,
}
"""What a content coding that cannot be undone is called here; all else is invalid."""


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
            code = _UNDECODED.get(decoded.code, DenialCode.CREDENTIAL_BODY_INVALID)
            return _denied(code, decoded.reason)
        plain = decoded
    kind = next((value for name, value in fields if name.lower() == b"content-type"), b"")
    if _media_type(kind) == _MULTIPART:
        rewritten = _multipart(kind, plain, resolver)
    else:
        rewritten = _rewritten(_media_type(kind), plain, resolver)
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
        _json_text(data, resolver, "websocket") if looks_json else substituted(data, resolver, as_is, "websocket")
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
    try:
        body.decode()
    except UnicodeDecodeError:
        return _NOT_TEXT
    if not has_raw_marker(body):
        return _ENCODED if _hidden(body, is_json=is_json) else body
    replaced = _json_text(body, resolver, "body") if is_json else substituted(body, resolver, as_is, "body")
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
    quoted = _quoted(body)

    def encode(value: bytes, start: int) -> bytes:
        return _json_escaped(value) if quoted(start) else value

    view = None
    if ALIAS in body and b"\\" in body:
        # The letter of an escape is no part of the alias behind it.
        view = _ANY_ESCAPE.sub(lambda match: bytes(len(match[0])), body)
    return substituted(body, resolver, encode, where, view=view)


def _quoted(body: bytes) -> Callable[[int], bool]:
    """Does a position lie inside a string literal? To be asked from front to back."""
    literals = _STRING.finditer(body)
    literal = next(literals, None)

    def inside(position: int) -> bool:
        nonlocal literal
        while literal is not None and literal.end() <= position:
            literal = next(literals, None)
        return literal is not None and literal.start() < position

    return inside


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
        plain = substituted(percent_decoded(value.replace(b"+", b" ")), resolver, as_is, "body")
        if isinstance(plain, Failure):
            return denial_of(plain)
        items.append(name + b"=" + quote_plus(plain, safe=_FORM_SAFE).replace("~", "%7E").encode())
    return b"&".join(items)


def _multipart(kind: bytes, body: bytes, resolver: Resolver | None) -> bytes | Denial:
    """Parts of text are treated as bodies of their type; no placeholder may stand anywhere else (RFC 7578)."""
    if not marked(body):
        return body
    boundary = _BOUNDARY.search(kind)
    if boundary is None:
        return _denied(DenialCode.CREDENTIAL_BODY_INVALID, "a multipart body without a plain boundary")
    delimiter = b"\r\n--" + boundary[2]
    pieces = []
    for number, piece in enumerate((b"\r\n" + body).split(delimiter)):
        placed = _part(piece, resolver) if number and marked(piece) else piece
        if isinstance(placed, Denial):
            return placed
        pieces.append(placed)
    if marked(pieces[0]):
        return _UNSUPPORTED
    return delimiter.join(pieces)[2:]


def _part(piece: bytes, resolver: Resolver | None) -> bytes | Denial:
    head, end, content = piece.partition(b"\r\n\r\n")
    fields = {name.lower(): value.strip().lower() for name, value in _PART_FIELD.findall(head)}
    kind = _media_type(fields.get(b"content-type", b"text/plain"))
    encoding = fields.get(b"content-transfer-encoding", b"")
    if not end or marked(head) or encoding not in _PLAIN_TRANSFER:
        return _UNSUPPORTED
    placed = _rewritten(kind, content, resolver)
    return placed if isinstance(placed, Denial) else head + end + placed


def _media_type(value: bytes) -> bytes:
    return value.partition(b";")[0].strip().lower()
