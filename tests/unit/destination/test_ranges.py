import ipaddress

import pytest

from egress.destination.ranges import RANGES, AddressClass, Reach, classify, embedded_ipv4, normalize

CLASSES = {
    AddressClass.PUBLIC: """
        1.1.1.1 8.8.8.8 93.184.216.34 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0
        169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.0.3.0 192.167.255.255 192.169.0.0
        198.17.255.255 198.20.0.0 198.51.99.255 203.0.114.0 223.255.255.255 168.63.129.15 168.63.129.17
        2606:4700::1111 2001:4860:4860::8888 2000:: 3ffe::1 3fff:1000:: 2001:db9:: 2002:808:808::
        64:ff9b::808:808 ::ffff:8.8.8.8 2001:0:808:808::f7f7:f7f7 2620:4f:8000::1""",
    AddressClass.PRIVATE: """
        10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255 ::ffff:10.1.2.3
        64:ff9b::a01:203 2002:a01:203:: 2002:c0a8:1::""",
    AddressClass.CARRIER_NAT: "100.64.0.0 100.127.255.255 100.100.100.199 ::ffff:100.64.0.1",
    AddressClass.PROTOCOL: "192.0.0.0 192.0.0.191 192.0.0.193 192.0.0.255",
    AddressClass.DOCUMENTATION: """
        192.0.2.0 192.0.2.255 198.51.100.0 198.51.100.255 203.0.113.0 203.0.113.255 2001:db8:: 2001:db8:ffff::
        3fff:: 3fff:fff::""",
    AddressClass.BENCHMARKING: "198.18.0.0 198.19.255.255 2001:2::1",
    AddressClass.BROADCAST: "255.255.255.255 ::ffff:255.255.255.255",
    AddressClass.UNIQUE_LOCAL: "fc00:: fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff fd00:ec2::253 fd00::1",
    AddressClass.SITE_LOCAL: "fec0::1 feff:ffff::1",
    AddressClass.DISCARD: "100::1",
    AddressClass.RESERVED: """
        240.0.0.0 255.255.255.254 2001:10::1 2001:20::1 4000::1 5f00::1 e000::1 ::808:808 ::ffff:0:808:808
        64:ff9b:1::808:808 64:ff9b:2::1 100:0:0:2::1""",
    AddressClass.LOOPBACK: """
        127.0.0.0 127.0.0.1 127.255.255.255 ::1 ::ffff:127.0.0.1 ::7f00:1 64:ff9b::7f00:1 2002:7f00:1::
        2001:0:7f00:1:: ::ffff:0:7f00:1 64:ff9b:1:7f00:0:100:: 64:ff9b:1:0:7f:0:100:0""",
    AddressClass.LINK_LOCAL: """
        169.254.0.0 169.254.255.255 169.254.169.253 fe80:: febf:ffff:: ::ffff:169.254.1.2 fe80::1%eth0""",
    AddressClass.UNSPECIFIED: "0.0.0.0 :: ::ffff:0.0.0.0 64:ff9b::",
    AddressClass.THIS_NETWORK: "0.0.0.1 0.255.255.255 ::2 64:ff9b::1",
    AddressClass.MULTICAST: "224.0.0.0 239.255.255.255 ff00:: ff02::1 ff05::2 ::ffff:224.0.0.1 2002:e000:1::",
    AddressClass.METADATA: """
        169.254.169.254 169.254.170.2 168.63.129.16 100.100.100.200 192.0.0.192 fd00:ec2::254 fd20:ce::254 fd00:42::42
        ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe:: ::a9fe:a9fe 64:ff9b:1:a9fe:a9:fe00::
        64:ff9b::a83f:8110 2001:0:a9fe:a9fe:: 2001:0:808:808::5601:5601""",
}


@pytest.mark.parametrize(("text", "kind"), [(text, kind) for kind, texts in CLASSES.items() for text in texts.split()])
def test_class(text: str, kind: AddressClass) -> None:
    assert classify(ipaddress.ip_address(text)) is kind


def test_every_class_and_every_range_is_covered_above() -> None:
    assert set(CLASSES) == set(AddressClass)
    listed = [ipaddress.ip_address(text) for texts in CLASSES.values() for text in texts.split()]
    for entry in RANGES:
        assert any(address in entry.network for address in listed), entry


def test_what_policy_can_reach() -> None:
    assert {kind.word for kind in AddressClass if kind.blocked} == {
        "loopback", "link_local", "unspecified", "this_network", "multicast", "metadata",
    }  # fmt: skip
    assert [kind for kind in AddressClass if not kind.internal] == [AddressClass.PUBLIC]
    assert all(kind.blocked is (kind.reach is Reach.BLOCKED) for kind in AddressClass)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("64:ff9b::102:304", ["1.2.3.4"]),
        ("2002:102:304::5", ["1.2.3.4"]),
        ("2001:0:102:304::fbfa:f9f8", ["1.2.3.4", "4.5.6.7"]),
        ("::102:304", ["1.2.3.4"]),
        ("64:ff9b:1:102:3:400::", ["1.2.3.4", "2.3.4.0"]),
        ("64:ff9b:1:1:2:304::", ["2.3.4.0", "1.2.3.4"]),
        ("64:ff9b:1:0:1:203:400:0", ["4.0.0.0", "1.2.3.4"]),
        ("::1", []),
        ("::", []),
        ("2606:4700::1", []),
        ("10.0.0.1", []),
    ],
)
def test_embedded_ipv4(text: str, expected: list[str]) -> None:
    found = [str(address) for address in embedded_ipv4(ipaddress.ip_address(text))]
    assert [address for address in expected if address not in found] == []


def test_normalize() -> None:
    assert str(normalize(ipaddress.ip_address("::ffff:10.1.2.3"))) == "10.1.2.3"
    assert str(normalize(ipaddress.ip_address("fe80::1%eth0"))) == "fe80::1"
    assert str(normalize(ipaddress.ip_address("2001:db8::1"))) == "2001:db8::1"
