"""Placeholders in a request head to values: target, field values, Basic, cookies. Everything else fails closed
(credentials.md section 3)."""

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote_plus

from egress.credentials.placeholder import (
    Placeholder,
    contains_marker,
    contains_marker_text,
    find,
    has_raw_marker,
    percent_decoded,
    whole,
)
from egress.credentials.snapshot import Credential, Fault, Resolver
from egress.model.limits import LIMITS
from egress.model.message import FieldLine, RequestHead
from egress.model.secret import Secret
from egress.model.verdict import Denial, DenialCode, Stage
from egress.policy.compiled import CredentialOptions

_PATH_SAFE = "!$&'()*+,;=:@-._~"
_QUERY_SAFE = "-._~"
_UNSAFE_IN_PATH = re.compile(rb"[/\\?#]")
_SLASH = re.compile(rb"[/\\]")
_WORD_AND_TOKEN = re.compile(rb"([^ \t]+)[ \t]+([^ \t]+)\Z")
_COOKIE_OCTETS = re.compile(rb"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*\Z")
"""RFC 6265 section 4.1.1: nothing that ends, quotes or separates a value."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A placeholder that was not replaced, and where it stood."""

    fault: Fault
    where: str


def denial_of(failure: Failure) -> Denial:
    """What the client is told; neither key nor value."""
    if failure.fault is Fault.MISMATCH:
        return Denial(
            Stage.CREDENTIALS, DenialCode.CREDENTIAL_ENDPOINT_MISMATCH,
            "credential is not authorized for this request endpoint",
        )  # fmt: skip
    return Denial(Stage.CREDENTIALS, DenialCode.CREDENTIAL_UNAVAILABLE, "Credential placeholder could not be resolved")


class _Stop(Exception):
    def __init__(self, fault: Fault, where: str) -> None:
        self.failure = Failure(fault, where)


type Encode = Callable[[bytes, int], bytes]
"""How a value is spelled at a position of the text."""


def as_is(value: bytes, _: int) -> bytes:
    return value


def substitute(
    data: bytes, resolver: Resolver | None, encode: Encode, where: str, *, view: bytes | None = None
) -> bytes:
    """Every placeholder in a decoded text replaced; what was put in is not looked at again. Raises `_Stop`.

    Placeholders are looked for in `view`, where that is given: `data` with bytes blanked out that belong to none.
    """
    pieces, position, room = [], 0, LIMITS.placed_bytes
    for found in find(data if view is None else view):
        if found.token is None:
            raise _Stop(Fault.MALFORMED, where)
        if resolver is None:
            raise _Stop(Fault.UNAVAILABLE, where)
        value = resolver.value(found.token)
        if isinstance(value, Fault):
            raise _Stop(value, where)
        placed = encode(value.reveal().encode(), found.start)
        room -= len(placed)
        if room < 0:
            raise _Stop(Fault.UNAVAILABLE, where)
        pieces += [data[position : found.start], placed]
        position = found.end
    result = b"".join([*pieces, data[position:]])
    if has_raw_marker(result):
        raise _Stop(Fault.UNAVAILABLE, where)
    return result


def substituted(
    data: bytes, resolver: Resolver | None, encode: Encode, where: str, *, view: bytes | None = None
) -> bytes | Failure:
    """The same, with its failure as a value."""
    try:
        return substitute(data, resolver, encode, where, view=view)
    except _Stop as stop:
        return stop.failure


def rewrite_head(head: RequestHead, resolver: Resolver | None, options: CredentialOptions) -> RequestHead | Failure:
    """The head with values in place; the same object when there was no placeholder in it.

    Whatever still looks like one afterwards, in any part of the head, is a failure.
    """
    try:
        return _rewritten(head, resolver, options)
    except _Stop as stop:
        return stop.failure


def _rewritten(head: RequestHead, resolver: Resolver | None, options: CredentialOptions) -> RequestHead:
    path, query, raw_path = head.path, head.query, head.raw_path
    if contains_marker_text(path):
        path, raw_path = "/".join([_segment(segment, resolver) for segment in path.split("/")]), None
    if query is not None and contains_marker_text(query):
        query = "&".join([_query_item(item, resolver) for item in query.split("&")])
    fields = _fields(head.fields, resolver, options)
    if path is head.path and query is head.query and fields is head.fields:
        return head
    return replace(head, path=path, query=query, fields=fields, raw_path=raw_path)


def _fields(
    fields: tuple[FieldLine, ...], resolver: Resolver | None, options: CredentialOptions
) -> tuple[FieldLine, ...]:
    """The same object when nothing changed."""
    lines = [b"\n".join(line) for line in fields]
    if not _of_interest(b"\n".join(lines)):
        return fields
    placed = tuple([
        (line[0], _value(*line, resolver, options)) if _of_interest(text) else line
        for line, text in zip(fields, lines, strict=True)
    ])  # fmt: skip
    return fields if placed == fields else placed


def _of_interest(lines: bytes) -> bool:
    """Is there a marker, or a Basic value, which may hide one? Rather yes than no."""
    text = lines.decode("latin-1").lower()
    return "openshell" in text or "\nbasic" in text or ("%" in text and contains_marker(lines))


def _segment(segment: str, resolver: Resolver | None) -> str:
    raw = segment.encode("latin-1", "replace")
    if not contains_marker(raw):
        return segment

    plain = substitute(percent_decoded(raw), resolver, _inside_segment, "path")
    if _has_dots(plain):
        raise _Stop(Fault.UNAVAILABLE, "path")
    return quote(plain, safe=_PATH_SAFE)


def _inside_segment(value: bytes, _: int = 0) -> bytes:
    if _UNSAFE_IN_PATH.search(value) or value == b"..":
        raise _Stop(Fault.UNAVAILABLE, "path")
    return value


def _has_dots(segment: bytes) -> bool:
    """Is there a piece that some server reads as a step up, also behind an encoded slash or before a parameter?"""
    return any(piece.partition(b";")[0] in (b".", b"..") for piece in _SLASH.split(segment))


def _query_item(item: str, resolver: Resolver | None) -> str:
    name, equals, value = item.partition("=")
    if contains_marker_text(name) or not equals:
        if contains_marker_text(item):
            raise _Stop(Fault.UNAVAILABLE, "query_param")
        return item
    raw = value.encode("latin-1", "replace")
    if not contains_marker(raw):
        return item
    # A literal plus means a blank there: it is kept as it was.
    parts = [
        quote(substitute(percent_decoded(part), resolver, as_is, "query_param"), safe=_QUERY_SAFE)
        for part in raw.split(b"+")
    ]
    return f"{name}={'+'.join(parts)}"


def _value(name: bytes, value: bytes, resolver: Resolver | None, options: CredentialOptions) -> bytes:
    if contains_marker(name):
        raise _Stop(Fault.UNAVAILABLE, "header")
    if value[:6].lower() in (b"basic ", b"basic\t"):
        basic = _basic(value, resolver)
        if basic is not None:
            return basic
    if not contains_marker(value):
        return value
    replaced = _placed(name, value, resolver, options)
    if replaced is None or contains_marker(replaced):
        raise _Stop(Fault.UNAVAILABLE, "header")
    return replaced


def _placed(name: bytes, value: bytes, resolver: Resolver | None, options: CredentialOptions) -> bytes | None:
    token = whole(value)
    if token is not None:
        return _resolved(token, resolver)
    match = _WORD_AND_TOKEN.match(value)
    if match is not None and (token := whole(match[2])) is not None and not contains_marker(match[1]):
        return match[1] + b" " + _resolved(token, resolver)
    if options.cookie_rewrite and name.lower() == b"cookie":
        return b";".join([_cookie(pair, resolver) for pair in value.split(b";")])
    if options.header_substring_rewrite:
        return substitute(value, resolver, _octets, "header")
    return None


def _resolved(token: Placeholder, resolver: Resolver | None) -> bytes:
    value = resolver.value(token) if resolver is not None else Fault.UNAVAILABLE
    if isinstance(value, Fault):
        raise _Stop(value, "header")
    return value.reveal().encode()


def _cookie(pair: bytes, resolver: Resolver | None) -> bytes:
    name, equals, value = pair.partition(b"=")
    return name + equals + substitute(value, resolver, _octets, "header")


def _octets(value: bytes, _: int) -> bytes:
    """Inside a longer field value, where a comma or a quote in the value would make something else of the field."""
    if not _COOKIE_OCTETS.match(value):
        raise _Stop(Fault.UNAVAILABLE, "header")
    return value


def _basic(value: bytes, resolver: Resolver | None) -> bytes | None:
    """A Basic credential with a placeholder inside, in the alphabet and padding it came in; None when it holds none."""
    scheme, text = value[:5], value[6:].strip(b" \t")
    url_safe, padded = b"-" in text or b"_" in text, text.endswith(b"=") or len(text) % 4 == 0
    try:
        plain = base64.b64decode(
            text.rstrip(b"=") + b"=" * (-len(text.rstrip(b"=")) % 4), b"-_" if url_safe else None, validate=True
        )
    except (binascii.Error, ValueError):
        return None
    if not contains_marker(plain):
        return None
    if not has_raw_marker(plain):
        raise _Stop(Fault.UNAVAILABLE, "header")
    replaced = substitute(plain, resolver, as_is, "header")
    if contains_marker(replaced):
        raise _Stop(Fault.UNAVAILABLE, "header")
    encoded = base64.urlsafe_b64encode(replaced) if url_safe else base64.b64encode(replaced)
    return scheme + b" " + (encoded if padded else encoded.rstrip(b"="))


# placed without being asked for -----------------------------------------------------------------------------------


def inject(head: RequestHead, resolver: Resolver) -> RequestHead | Failure:
    """The head with what providers place by themselves (`inject`), as their profile says where."""
    try:
        for one in resolver.injections():
            head = _inject(head, one, resolver)
    except _Stop as stop:
        return stop.failure
    return head


def _inject(head: RequestHead, one: Credential, resolver: Resolver) -> RequestHead:
    placement = one.placement
    assert placement is not None
    if placement.when == "if_absent" and _present(head, one):
        return head
    value = resolver.give(one)
    if isinstance(value, Fault):
        raise _Stop(value, "injection")
    if placement.style == "query":
        return replace(head, query=_with_parameter(head.query, placement.query, value))
    if placement.style == "path":
        segment = quote(_inside_segment(value.reveal().encode()), safe=_PATH_SAFE)
        template = placement.path_template.replace("{credential}", segment)
        if any(map(_has_dots, template.encode().split(b"/"))):
            raise _Stop(Fault.UNAVAILABLE, "path")
        return replace(head, path=template + head.path, raw_path=None)
    name = placement.header.encode()
    fields = tuple([line for line in head.fields if line[0].lower() != name.lower()])
    return replace(head, fields=(*fields, (name, _field_value(one, value))))


def _present(head: RequestHead, one: Credential) -> bool:
    placement = one.placement
    assert placement is not None
    if placement.style == "query":
        return any(_names(item, placement.query) for item in (head.query or "").split("&"))
    if placement.style == "path":
        return head.path.startswith(placement.path_template.partition("{credential}")[0])
    name = placement.header.lower().encode()
    return any(line[0].lower() == name for line in head.fields)


def _field_value(one: Credential, value: Secret) -> bytes:
    placement = one.placement
    assert placement is not None
    text = value.reveal()
    if placement.style == "bearer":
        return b"Bearer " + text.encode()
    if placement.style == "basic":
        pair = f"{placement.username}:{text}" if placement.username else text
        return b"Basic " + base64.b64encode(pair.encode())
    return text.encode()


def _with_parameter(query: str | None, name: str, value: Secret) -> str:
    kept = [item for item in (query or "").split("&") if item and not _names(item, name)]
    return "&".join([*kept, f"{quote(name, safe=_QUERY_SAFE)}={quote(value.reveal(), safe=_QUERY_SAFE)}"])


def _names(item: str, name: str) -> bool:
    """Is this the parameter, however the client spelled it?"""
    return unquote_plus(item.partition("=")[0]) == name
