"""The opening handshake as a relay sees it: what may be offered on, and whether the answer is sound.

RFC 6455 section 4, RFC 7692 section 7. Extensions other than permessage-deflate are not offered to the origin: bytes
behind an extension that we do not speak could not be judged.
"""

import base64
import hashlib
import re
from dataclasses import dataclass

from egress.http.fields import without
from egress.model.message import FieldLine, Malformed
from egress.model.verdict import DenialCode

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_EXTENSIONS = b"sec-websocket-extensions"
_PROTOCOL = b"sec-websocket-protocol"
_WINDOW_BITS = re.compile(r"(?:9|1[0-5])\Z")
_NAME = "permessage-deflate"
_FLAGS = ("client_no_context_takeover", "server_no_context_takeover")
_BITS = ("client_max_window_bits", "server_max_window_bits")


@dataclass(frozen=True, slots=True)
class Deflate:
    """Agreed terms of permessage-deflate, the same on both legs. Window sizes are powers of two."""

    client_takeover: bool = True
    server_takeover: bool = True
    client_bits: int = 15
    server_bits: int = 15


@dataclass(frozen=True, slots=True)
class Handshake:
    """What the client asked for: its key, the subprotocols it offered, and the extension offer that goes on."""

    key: bytes
    subprotocols: tuple[bytes, ...]
    offer: str | None


def read_handshake(fields: tuple[FieldLine, ...]) -> Handshake:
    """Read a request that `egress.http.upgrade` accepted."""
    values: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        values.setdefault(name.lower(), []).append(value)
    subprotocols = [item.strip() for value in values.get(_PROTOCOL, ()) for item in value.split(b",")]
    offers = b",".join(values.get(_EXTENSIONS, ())).decode("latin-1")
    offer = next((kept for item in offers.split(",") if (kept := _kept_offer(item)) is not None), None)
    return Handshake(values[b"sec-websocket-key"][0], tuple(filter(None, subprotocols)), offer)


def offered_fields(fields: tuple[FieldLine, ...], handshake: Handshake) -> tuple[FieldLine, ...]:
    """The request's fields with the extension offer cut down to what we speak."""
    kept = without(fields, frozenset((_EXTENSIONS,)))
    return kept if handshake.offer is None else (*kept, (b"Sec-WebSocket-Extensions", handshake.offer.encode()))


def check_answer(handshake: Handshake, fields: tuple[FieldLine, ...]) -> Deflate | Malformed | None:
    """Check a 101: accept key, subprotocol, extension. The terms of deflate, None without it."""
    values: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        values.setdefault(name.lower(), []).append(value)
    digest = base64.b64encode(hashlib.sha1(handshake.key + _GUID, usedforsecurity=False).digest())
    if values.get(b"sec-websocket-accept") != [digest]:
        return _bad("Sec-WebSocket-Accept is wrong")
    chosen = values.get(_PROTOCOL, [])
    if len(chosen) > 1 or (chosen and chosen[0] not in handshake.subprotocols):
        return _bad("the subprotocol was not offered")
    extensions = values.get(_EXTENSIONS, [])
    if not extensions:
        return None
    if len(extensions) > 1 or handshake.offer is None:
        return _bad("the extension was not offered")
    terms = _agreed(extensions[0].decode("latin-1"), handshake.offer)
    return terms if terms is not None else _bad("the extension's terms were not offered")


def _bad(reason: str) -> Malformed:
    return Malformed(f"the origin's WebSocket answer is invalid: {reason}", DenialCode.UPSTREAM_PROTOCOL_ERROR)


def _parameters(text: str) -> dict[str, str | None] | None:
    """Parameters of one extension item; None when it is another extension, or says one thing twice."""
    name, *items = (part.strip() for part in text.split(";"))
    if name != _NAME:
        return None
    found: dict[str, str | None] = {}
    for item in items:
        key, equals, value = item.partition("=")
        key = key.strip()
        if key in found or key not in (*_FLAGS, *_BITS):
            return None
        found[key] = value.strip().strip('"') if equals else None
    return found


def _kept_offer(text: str) -> str | None:
    """An offer in our words, or None when we could not keep its terms (an 8-bit window among them)."""
    parameters = _parameters(text)
    if parameters is None:
        return None
    words = [_NAME]
    for key, value in parameters.items():
        if (key in _FLAGS and value is None) or (key == "client_max_window_bits" and value is None):
            words.append(key)
        elif key in _BITS and value is not None and _WINDOW_BITS.match(value):
            words.append(f"{key}={value}")
        else:
            return None
    return "; ".join(words)


def _agreed(answer: str, offer: str) -> Deflate | None:
    """The terms of an answer to `offer` (RFC 7692 section 7.1)."""
    parameters, offered = _parameters(answer), _parameters(offer)
    if parameters is None or offered is None:
        return None
    bits = dict.fromkeys(_BITS, 15)
    for key, value in parameters.items():
        if key in _FLAGS:
            if value is not None:
                return None
            continue
        if value is None or not _WINDOW_BITS.match(value):
            return None
        bits[key] = int(value)
    if "client_max_window_bits" in parameters and "client_max_window_bits" not in offered:
        return None
    asked = offered.get("server_max_window_bits")
    if asked is not None and bits["server_max_window_bits"] > int(asked):
        return None
    if "server_no_context_takeover" in offered and "server_no_context_takeover" not in parameters:
        return None
    return Deflate(
        "client_no_context_takeover" not in parameters,
        "server_no_context_takeover" not in parameters,
        bits["client_max_window_bits"],
        bits["server_max_window_bits"],
    )
