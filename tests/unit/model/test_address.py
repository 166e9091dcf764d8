"""One canonical spelling per name."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.model.address import (
    Authority,
    Host,
    InvalidAddress,
    Origin,
    Port,
    Scheme,
    parse_authority,
    parse_host,
    parse_port,
)


@pytest.mark.parametrize(
    ("text", "name", "literal"),
    [
        ("a.test", "a.test", False),
        ("A.Test.", "a.test", False),
        ("localhost", "localhost", False),
        ("xn--bcher-kva.test", "xn--bcher-kva.test", False),
        ("_srv.a-b.test", "_srv.a-b.test", False),
        ("a" * 63 + ".test", "a" * 63 + ".test", False),
        ("1password.test", "1password.test", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1.", "10.0.0.1", True),
        ("::1", "::1", True),
        ("[::1]", "::1", True),
        ("2001:0DB8::0001", "2001:db8::1", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("[::ffff:a00:1]", "10.0.0.1", True),
    ],
)
def test_hosts(text: str, name: str, literal: bool) -> None:
    assert parse_host(text) == Host(name, literal)


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "..", "a..b", ".a", "a.test..", "a b", "a\tb", "a/b", "a@b", "a:b", "a%b", "a*b", "a\\b", "é.test",
        "a.test\n", "a.test\x00", "a" * 64, ".".join(["a" * 49] * 6), "[::1", "::1]", "[]", "[a.test]", "[10.0.0.1]",
        "fe80::1%eth0", "[fe80::1%25eth0]", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1",
        "010.0.0.1", "1.2.3.4.5", "256.0.0.1", "1.2.3", "0", "0x", "１２７.0.0.1", "1.2.3.4\u3002", ":::", "1::2::3",
    ],
)  # fmt: skip
def test_no_hosts(text: str) -> None:
    with pytest.raises(InvalidAddress) as refused:
        parse_host(text)
    assert len(text) < 3 or text not in str(refused.value)


@given(st.from_regex(r"[a-zA-Z0-9_-]{1,12}(\.[a-zA-Z0-9_-]{1,12}){0,3}\.?", fullmatch=True))
def test_parsing_a_canonical_host_changes_nothing(text: str) -> None:
    try:
        host = parse_host(text)
    except InvalidAddress:
        return
    assert parse_host(host.name) == host
    assert parse_host(host.bracketed) == host


@given(st.ip_addresses())
def test_every_address_has_one_spelling(address: object) -> None:
    host = parse_host(str(address))
    assert host.literal
    assert parse_host(host.bracketed) == host
    mapped = getattr(address, "ipv4_mapped", None)
    assert host.address == (mapped or address)


def test_properties() -> None:
    assert (parse_host("a.test").bracketed, parse_host("a.test").address) == ("a.test", None)
    assert (parse_host("::1").bracketed, parse_host("::1").address) == ("[::1]", ip_address("::1"))
    assert str(Origin(Scheme.TCP, parse_host("::1"), Port(443))) == "[::1]:443"


@pytest.mark.parametrize(("text", "port"), [("1", 1), ("443", 443), ("65535", 65535), ("00080", 80)])
def test_ports(text: str, port: int) -> None:
    assert parse_port(text) == port


@pytest.mark.parametrize("text", ["", "0", "65536", "000000", "-1", "+1", " 1", "1 ", "0x50", "1_0", "８０", "1\n"])
def test_no_ports(text: str) -> None:
    with pytest.raises(InvalidAddress):
        parse_port(text)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("a.test", "a.test", None),
        ("a.test:443", "a.test", 443),
        ("[::1]", "::1", None),
        ("[::1]:443", "::1", 443),
        ("10.0.0.1:80", "10.0.0.1", 80),
    ],
)
def test_authorities(text: str, host: str, port: int | None) -> None:
    assert parse_authority(text) == Authority(parse_host(host), None if port is None else Port(port))


@pytest.mark.parametrize(
    "text",
    ["", ":", ":80", "a.test:", "a.test:x", "u@a.test", "u:p@a.test:80", "a.test:80:80", "::1", "::1:80", "[::1",
     "[::1]80",
     "[::1]:", "[a.test]:80", "a.test:80/", "a.test, b.test"],
)  # fmt: skip
def test_no_authorities(text: str) -> None:
    with pytest.raises(InvalidAddress):
        parse_authority(text)
