import ipaddress

from egress.destination.local import expand_wildcards

LOCAL = frozenset(map(ipaddress.ip_address, ("127.0.0.1", "::1", "10.0.0.5", "2001:db8::5")))


def pairs(*listeners: tuple[str, int]) -> set[tuple[str, int]]:
    expanded = expand_wildcards([(ipaddress.ip_address(host), port) for host, port in listeners], LOCAL)
    return {(str(address), port) for address, port in expanded}


def test_a_plain_listener_is_itself() -> None:
    assert pairs(("127.0.0.1", 3128), ("::ffff:10.0.0.9", 81)) == {("127.0.0.1", 3128), ("10.0.0.9", 81)}


def test_a_wildcard_listens_on_every_address() -> None:
    everywhere = {("127.0.0.1", 80), ("::1", 80), ("10.0.0.5", 80), ("2001:db8::5", 80)}
    assert pairs(("0.0.0.0", 80)) == everywhere | {("0.0.0.0", 80)}
    assert pairs(("::", 80)) == everywhere | {("::", 80)}
