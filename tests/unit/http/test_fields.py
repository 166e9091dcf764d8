"""Field grammar and the lists of names."""

import pytest

from egress.http.fields import FORBIDDEN_TRAILERS, is_field_block, is_token, list_members, split_lines, without

TOKEN_BYTES = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
VALUE_BYTES = frozenset([0x09, *range(0x20, 0x7F), *range(0x80, 0x100)])


def test_exactly_the_token_bytes_make_a_token() -> None:
    assert {byte for byte in range(256) if is_token(bytes([byte]))} == TOKEN_BYTES
    assert not is_token(b"")
    assert not is_token(b"a\n")


def test_exactly_the_token_bytes_make_a_name_and_the_value_bytes_a_value() -> None:
    assert {byte for byte in range(256) if is_field_block(bytes([byte]) + b": v\r\n")} == TOKEN_BYTES
    assert {byte for byte in range(256) if is_field_block(b"N: " + bytes([byte]) + b"\r\n")} == VALUE_BYTES


@pytest.mark.parametrize("block", [b"", b"A:\r\n", b"A: \r\n", b"A:b\r\nC:\td \r\n"])
def test_well_formed_blocks(block: bytes) -> None:
    assert is_field_block(block)


@pytest.mark.parametrize(
    "block",
    [
        b"A: b", b"A: b\n", b"A: b\r", b"A : b\r\n", b" A: b\r\n", b"A\r\n", b": b\r\n", b"A: b\r\n c\r\n",
        b"A: b\r\n\r\n", b"A: b\rX: c\r\n", b"A: b\nX: c\r\n", b"A: \x00\r\n", b"\r\n", b"A: b\r\n\tc: d\r\n",
    ],
)  # fmt: skip
def test_malformed_blocks(block: bytes) -> None:
    assert not is_field_block(block)


def test_split_lines_keeps_names_and_inner_blanks() -> None:
    assert split_lines(b"A:  b  c \t\r\nx-Y:\r\nZ::\r\n") == ((b"A", b"b  c"), (b"x-Y", b""), (b"Z", b":"))
    assert split_lines(b"") == ()


def test_list_members_are_lower_case_and_never_empty() -> None:
    assert list_members(b" Close ,\t, KEEP-alive,") == [b"close", b"keep-alive"]
    assert list_members(b"") == []


def test_without_ignores_case_and_keeps_order() -> None:
    lines = ((b"A", b"1"), (b"b", b"2"), (b"a", b"3"), (b"C", b"4"))
    assert without(lines, {b"a"}) == ((b"b", b"2"), (b"C", b"4"))


def test_no_trailer_may_act_as_framing_routing_or_credentials() -> None:
    assert {
        b"content-length", b"transfer-encoding", b"trailer", b"host", b"authorization", b"set-cookie", b"cookie",
        b"connection", b"te", b"content-encoding", b"content-type", b"content-range", b"expect", b"upgrade",
        b"proxy-authorization", b"proxy-authenticate",
    } <= FORBIDDEN_TRAILERS  # fmt: skip
