"""Request targets (RFC 9112 section 3.2): origin-form, absolute-form and authority-form."""

import re
from dataclasses import dataclass

from egress.http.path import CanonicalPath, canonical_path
from egress.model.address import Authority, Host, InvalidAddress, Origin, Port, Scheme, parse_authority
from egress.model.message import Malformed
from egress.model.verdict import DenialCode

_ABSOLUTE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)")


@dataclass(frozen=True, slots=True)
class Target:
    """Path and query of a request; `authority` and `scheme` (lower case) only when written in absolute-form."""

    path: CanonicalPath
    query: str | None
    scheme: str | None = None
    authority: Authority | None = None
    raw_path: str | None = None
    """The path as written, where canonicalisation changed it."""


def read_target(target: bytes) -> Target | Malformed:
    """Read origin-form or absolute-form; `*`, authority-form, fragments and bytes beyond ASCII are refused."""
    try:
        text = target.decode("ascii")
    except UnicodeDecodeError:
        return _malformed("request-target must be canonical")
    if "#" in text:
        return _malformed("request-target holds a fragment")
    scheme = authority = None
    if not text.startswith("/"):
        absolute = _ABSOLUTE.match(text)
        if absolute is None:
            return _malformed("request-target must be canonical")
        scheme = absolute[1].lower()
        try:
            authority = parse_authority(absolute[2])
        except InvalidAddress as error:
            return _malformed(str(error))
        text = text[absolute.end() :]
    raw, question, query = text.partition("?")
    path = canonical_path(raw)
    if isinstance(path, Malformed):
        return path
    raw_path = raw if path.text != raw else None
    return Target(path, query if question else None, scheme, authority, raw_path)


def read_connect_target(target: bytes) -> Origin | Malformed:
    """Read the authority-form of CONNECT; the port must be written."""
    try:
        authority = parse_authority(target.decode("ascii"))
    except (UnicodeDecodeError, InvalidAddress) as error:
        reason = "target is not ASCII" if isinstance(error, UnicodeDecodeError) else str(error)
        return Malformed(f"CONNECT target: {reason}", DenialCode.INVALID_CONNECT_TARGET)
    if authority.port is None:
        return Malformed("CONNECT target: port is missing", DenialCode.INVALID_CONNECT_TARGET)
    return connect_origin(authority.host, authority.port)


def connect_origin(host: Host, port: Port) -> Origin:
    """The origin of a CONNECT; the scheme becomes known with the first bytes inside."""
    return Origin(Scheme.TCP, host, port)


def _malformed(reason: str) -> Malformed:
    return Malformed(reason, DenialCode.INVALID_REQUEST_TARGET)
