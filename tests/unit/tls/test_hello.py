"""The ClientHello reader against OpenSSL's own hellos, hand-built ones, and hostile bytes."""

import ssl
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egress.tls.hello import BadHello, ClientHello, NeedMore, NotTls, read_hello


def openssl_hello(server_name: str | None, alpn: tuple[str, ...] = ()) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols(list(alpn))
    outgoing = ssl.MemoryBIO()
    connection = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=server_name)
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


def extension(kind: int, content: bytes) -> bytes:
    return struct.pack(">HH", kind, len(content)) + content


def server_names(*names: tuple[int, bytes]) -> bytes:
    entries = b"".join(struct.pack(">BH", kind, len(name)) + name for kind, name in names)
    return extension(0, struct.pack(">H", len(entries)) + entries)


def body(extensions: bytes | None, session: bytes = b"") -> bytes:
    start = b"\x03\x03" + bytes(32) + bytes([len(session)]) + session + b"\x00\x02\x13\x01" + b"\x01\x00"
    return start if extensions is None else start + struct.pack(">H", len(extensions)) + extensions


def message(content: bytes, kind: int = 1) -> bytes:
    return bytes([kind]) + len(content).to_bytes(3) + content


def records(data: bytes, size: int = 16384, kind: int = 22) -> bytes:
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    return b"".join(struct.pack(">BHH", kind, 0x0301, len(piece)) + piece for piece in pieces)


HELLO = openssl_hello("api.example.test", ("h2", "http/1.1"))
EXPECTED = ClientHello("api.example.test", (b"h2", b"http/1.1"))


def test_reads_what_openssl_writes() -> None:
    assert read_hello(HELLO) == EXPECTED


def test_a_missing_name_and_protocol_list_are_nothing() -> None:
    assert read_hello(openssl_hello(None)) == ClientHello(None, ())


def test_ignores_what_follows() -> None:
    assert read_hello(HELLO + b"\x14\x03\x03\x00\x01\x01" + b"GET /") == EXPECTED


def test_every_proper_prefix_needs_more() -> None:
    assert {read_hello(HELLO[:length]) for length in range(len(HELLO))} == {NeedMore()}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, 511])
def test_puts_fragments_together(size: int) -> None:
    assert read_hello(records(HELLO[5:], size)) == EXPECTED


def test_every_proper_prefix_of_fragments_needs_more() -> None:
    data = records(HELLO[5:], 37)
    assert {read_hello(data[:length]) for length in range(len(data))} == {NeedMore()}


@pytest.mark.parametrize(
    "data", [b"G", b"GET / HTTP/1.1\r\n", b"\x16\x04", b"\x16\x03\x05", b"\x80\x2e\x01\x03", b"\x17"]
)
def test_other_first_bytes_are_not_tls(data: bytes) -> None:
    assert read_hello(data) == NotTls()


def test_a_hello_without_extensions_is_legal() -> None:
    assert read_hello(records(message(body(None)))) == ClientHello(None, ())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (records(message(b"", kind=2)), "first handshake message is no ClientHello"),
        (records(message(b"")), "a length in the ClientHello is out of range"),
        (records(message(bytes(16384))), "ClientHello is longer than 16384 bytes"),
        (b"\x16\x03\x01\x00\x00", "record length is out of range"),
        (b"\x16\x03\x01\x40\x01", "record length is out of range"),
        (records(HELLO[5:105]) + records(b"\x01", kind=20), "another record interrupts the ClientHello"),
        (records(message(body(b"", session=bytes(33)))), "session id is too long"),
        (records(message(body(b"") + b"x")), "bytes follow the extensions"),
        (records(message(body(server_names((0, b"a")) * 2))), "an extension is repeated"),
        (records(message(body(server_names()))), "a length in the ClientHello is out of range"),
        (records(message(body(server_names((0, b""))))), "server name is not exactly one host name"),
        (records(message(body(server_names((1, b"a"))))), "server name is not exactly one host name"),
        (records(message(body(server_names((0, b"a"), (0, b"b"))))), "server name is not exactly one host name"),
        (records(message(body(server_names((0, b"a\x00b"))))), "server name is not printable ASCII"),
        (records(message(body(server_names((0, b"\xc3\xa4"))))), "server name is not printable ASCII"),
        (records(message(body(extension(16, b"\x00\x00")))), "ALPN list is empty or holds an empty name"),
        (records(message(body(extension(16, b"\x00\x01\x00")))), "ALPN list is empty or holds an empty name"),
        (records(message(body(extension(16, b"\x00\x05\x02h2")))), "a length in the ClientHello is out of range"),
    ],
)
def test_refuses_what_says_two_things_or_nothing(data: bytes, reason: str) -> None:
    assert read_hello(data) == BadHello(reason)


def test_record_overhead_is_bounded_too() -> None:
    """One byte per record would make six bytes of buffer out of each byte of hello."""
    data = records(message(body(extension(21, bytes(8000)))), 1)
    assert read_hello(data) == BadHello("ClientHello takes more than 16384 bytes of records")
    assert read_hello(data[:1000]) == NeedMore()


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_never_raises_on_bytes(data: bytes) -> None:
    assert isinstance(read_hello(b"\x16\x03\x01" + data), ClientHello | NeedMore | BadHello)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(HELLO) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_never_raises_on_a_damaged_hello(damage: list[tuple[int, int]]) -> None:
    data = bytearray(HELLO)
    for position, value in damage:
        data[position] = value
    assert isinstance(read_hello(bytes(data)), ClientHello | NeedMore | NotTls | BadHello)
