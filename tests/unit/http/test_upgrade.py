"""What an `Upgrade` asks for: a whole WebSocket handshake, h2c, or nothing."""

import base64

import pytest

from egress.http.upgrade import Upgrade, requested_upgrade
from egress.model.message import FieldLine

KEY = base64.b64encode(bytes(16))
HANDSHAKE: dict[bytes, bytes] = {
    b"Upgrade": b"websocket",
    b"Connection": b"Upgrade",
    b"Sec-WebSocket-Key": KEY,
    b"Sec-WebSocket-Version": b"13",
}


def asked(
    fields: dict[bytes, bytes], *more: FieldLine, method: bytes = b"GET", options: list[bytes] | None = None
) -> Upgrade:
    return requested_upgrade(method, (*fields.items(), *more), [b"upgrade"] if options is None else options)


def test_a_whole_handshake() -> None:
    assert asked(HANDSHAKE) is Upgrade.WEBSOCKET
    assert asked(HANDSHAKE | {b"Upgrade": b"other, WebSocket"}) is Upgrade.WEBSOCKET


@pytest.mark.parametrize(
    "change",
    [
        {b"Upgrade": b"websockets"}, {b"Upgrade": b""}, {b"Sec-WebSocket-Version": b"8"},
        {b"Sec-WebSocket-Version": b"13, 8"},
        {b"Sec-WebSocket-Key": b""}, {b"Sec-WebSocket-Key": base64.b64encode(bytes(15))},
        {b"Sec-WebSocket-Key": base64.b64encode(bytes(17))}, {b"Sec-WebSocket-Key": KEY.rstrip(b"=")},
        {b"Sec-WebSocket-Key": b"*" * 24}, {b"Sec-WebSocket-Key": KEY[:10] + b" " + KEY[10:]},
        {b"Sec-WebSocket-Key": b"\xff" * 24},
    ],
)  # fmt: skip
def test_an_incomplete_handshake_is_a_plain_request(change: dict[bytes, bytes]) -> None:
    assert asked(HANDSHAKE | change) is Upgrade.NONE


@pytest.mark.parametrize("missing", [b"Upgrade", b"Sec-WebSocket-Key", b"Sec-WebSocket-Version"])
def test_a_handshake_without_one_of_its_fields(missing: bytes) -> None:
    assert asked({name: value for name, value in HANDSHAKE.items() if name != missing}) is Upgrade.NONE


def test_a_handshake_by_another_method_or_without_its_option_or_with_two_keys() -> None:
    assert asked(HANDSHAKE, method=b"POST") is Upgrade.NONE
    assert asked(HANDSHAKE, options=[b"keep-alive"]) is Upgrade.NONE
    assert asked(HANDSHAKE, (b"sec-websocket-key", KEY)) is Upgrade.NONE
    assert asked(HANDSHAKE, (b"Sec-WebSocket-Version", b"13")) is Upgrade.NONE


@pytest.mark.parametrize(
    "fields",
    [{b"Upgrade": b"h2c"}, {b"upgrade": b"H2C"}, {b"Upgrade": b"websocket, h2c"}, {b"HTTP2-Settings": b"AAMA"},
     HANDSHAKE | {b"http2-settings": b""}],
)  # fmt: skip
def test_h2c_in_whatever_company(fields: dict[bytes, bytes]) -> None:
    assert asked(fields) is Upgrade.H2C
    assert asked(fields, method=b"POST", options=[]) is Upgrade.H2C
