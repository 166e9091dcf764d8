"""Upgrade requests: a proper WebSocket handshake (RFC 6455 section 4.2.1), h2c, or nothing."""

import base64
import binascii
from enum import Enum

from egress.http.fields import list_members
from egress.model.message import FieldLine


class Upgrade(Enum):
    """`NONE` covers every attempt that is no complete handshake: its fields are stripped, the rest is a request."""

    NONE = "none"
    WEBSOCKET = "websocket"
    H2C = "h2c"


def requested_upgrade(method: bytes, lines: tuple[FieldLine, ...], options: list[bytes]) -> Upgrade:
    """What a head with an `Upgrade` or `HTTP2-Settings` field asks for; `options` are its `Connection` members."""
    named: dict[bytes, list[bytes]] = {}
    for name, value in lines:
        named.setdefault(name.lower(), []).append(value)
    protocols = [member for value in named.get(b"upgrade", ()) for member in list_members(value)]
    if b"h2c" in protocols or b"http2-settings" in named:
        return Upgrade.H2C
    handshake = (
        method == b"GET"
        and b"websocket" in protocols
        and b"upgrade" in options
        and not any(option.startswith(b"sec-websocket-") for option in options)
        and named.get(b"sec-websocket-version") == [b"13"]
        and len(keys := named.get(b"sec-websocket-key", [])) == 1
        and _is_key(keys[0])
    )
    return Upgrade.WEBSOCKET if handshake else Upgrade.NONE


def _is_key(value: bytes) -> bool:
    try:
        return len(base64.b64decode(value, validate=True)) == 16
    except binascii.Error:
        return False
