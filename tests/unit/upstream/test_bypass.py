"""NO_PROXY items: what each spelling means, and which spellings can mean nothing."""

from ipaddress import ip_address

import pytest

from egress.model.destination import DialMode
from egress.upstream.bypass import DeadItem, matched, read_item, split_list
from tests.unit.upstream.routes import pinned


def hits(item: str, host: str, *addresses: str, port: int = 443, mode: DialMode = DialMode.DECLARED) -> bool:
    return bool(matched((read_item(item),), pinned(host, *addresses, port=port, mode=mode)))


@pytest.mark.parametrize(
    ("item", "yes", "no"),
    [
        ("*", ["a.test", "192.0.2.1", "::1"], []),
        ("corp.example", ["corp.example", "a.corp.example", "a.b.corp.example"],
         ["xcorp.example", "example", "corp.example.org"]),
        (".corp.example", ["corp.example", "a.corp.example"], ["xcorp.example"]),
        ("*.corp.example", ["corp.example", "a.corp.example"], ["xcorp.example"]),
        ("CORP.Example.", ["corp.example", "a.corp.example"], ["corp.test"]),
        ("bücher.example", ["xn--bcher-kva.example"], ["bucher.example"]),
        ("192.0.2.7", ["192.0.2.7"], ["192.0.2.8", "::ffff:192.0.2.8"]),
        ("10.96.0.0/12", ["10.96.0.1", "10.111.255.255"], ["10.112.0.0"]),
        ("10.96.1.2/12", ["10.96.0.1"], ["10.112.0.0"]),
        ("fd00::1", ["fd00::1"], ["fd00::2"]),
        ("[fd00::1]", ["fd00::1"], ["fd00::2"]),
        ("fd00::/8", ["fdff::1"], ["fe80::1"]),
        ("::ffff:10.0.0.0/104", ["10.1.2.3"], ["11.0.0.1"]),
        ("<local>", ["intranet"], ["a.test", "192.0.2.1"]),
    ],
)  # fmt: skip
def test_items_without_port(item: str, yes: list[str], no: list[str]) -> None:
    def hit(host: str) -> bool:
        literal = host.replace(".", "").isdigit() or ":" in host
        return hits(item, host, *(() if literal else ("198.51.100.1",)))

    assert [host for host in yes if not hit(host)] == []
    assert [host for host in no if hit(host)] == []


@pytest.mark.parametrize(
    ("item", "host", "ports"),
    [
        ("corp.example:8443", "a.corp.example", {8443}),
        ("*.corp.example:22", "a.corp.example", {22}),
        ("10.96.0.0/12:6443", "10.96.0.1", {6443}),
        ("192.0.2.7:8443", "192.0.2.7", {8443}),
        ("[fd00::1]:8443", "fd00::1", {8443}),
        ("fd00::/8:6443", "fd00::1", {6443}),
        ("corp.example:8000-8002", "corp.example", {8000, 8001, 8002}),
        ("<local>:80", "intranet", {80}),
    ],
)
def test_ports(item: str, host: str, ports: set[int]) -> None:
    addresses = () if host[0].isdigit() or ":" in host else ("198.51.100.1",)
    tried = {22, 80, 443, 6443, 7999, 8000, 8001, 8002, 8003, 8443}
    assert {port for port in tried if hits(item, host, *addresses, port=port)} == ports


def test_the_gateway_of_the_host_is_known_by_how_it_was_judged() -> None:
    assert hits("host-gateway", "host.docker.internal", "169.254.1.1", mode=DialMode.TRUSTED_GATEWAY)
    assert not hits("host-gateway", "host.docker.internal", "169.254.1.1", mode=DialMode.DECLARED)


@pytest.mark.parametrize(
    "item",
    ["corp.example:99999", "corp.example:", "corp.example:x-", "corp.example:9-8", "*:443", "*corp.example",
     "a.*.example", "*.", ".", "a..b", "-", "127.1", "http://a.test", "a b", "10.0.0.0/33", "a.test/8", "a" * 64],
)  # fmt: skip
def test_items_that_can_never_match(item: str) -> None:
    if item == "-":  # a legal, if odd, label
        assert hits(item, "-", "192.0.2.1")
        return
    with pytest.raises(DeadItem):
        read_item(item)


def covered(items: str, host: str, *addresses: str) -> list[str]:
    list_ = tuple(read_item(text) for _, text in split_list(items))
    return list(map(str, matched(list_, pinned(host, *addresses))))


@pytest.mark.parametrize(
    ("items", "addresses", "expected"),
    [
        ("10.0.0.0/8", ["10.0.0.1", "198.51.100.1"], ["10.0.0.1"]),
        ("10.0.0.0/8", ["198.51.100.1"], []),
        ("10.0.0.2,10.0.0.0/8", ["10.0.0.1", "10.0.0.2", "198.51.100.1"], ["10.0.0.2", "10.0.0.1"]),
        ("10.0.0.0/8,a.test", ["10.0.0.1", "198.51.100.1"], ["10.0.0.1", "198.51.100.1"]),
        ("10.0.0.0/8,*", ["198.51.100.1", "10.0.0.1"], ["198.51.100.1", "10.0.0.1"]),
        ("10.0.0.0/8:80,fd00::/8", ["10.0.0.1", "fd00::1"], ["fd00::1"]),
        (" , ,10.0.0.1 ,", ["10.0.0.1"], ["10.0.0.1"]),
    ],
)
def test_address_items_against_a_name_take_only_the_addresses_inside(
    items: str, addresses: list[str], expected: list[str]
) -> None:
    assert covered(items, "a.test", *addresses) == expected


def test_a_literal_is_covered_whole() -> None:
    assert covered("10.0.0.0/8", "10.0.0.1") == ["10.0.0.1"]
    assert covered("11.0.0.0/8", "10.0.0.1") == []
    assert matched((), pinned("10.0.0.1")) == ()
    assert pinned("10.0.0.1").addresses == (ip_address("10.0.0.1"),)
