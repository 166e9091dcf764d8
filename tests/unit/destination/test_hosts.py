import ipaddress

import pytest

from egress.destination.hosts import addresses_of, detect_gateway

HOSTS = """
# 10.9.9.9 db.test
10.0.0.1 db.test  DB2.test # db3.test
not-an-address db.test
10.0.0.1 db.test
::ffff:10.0.0.2 Db.Test.
fe80::1%eth0 db.test
10.0.0.3
\t10.0.0.4\tother.test\tdb.test
"""


def test_rows_of_one_name_in_order_and_once() -> None:
    found = [str(address) for address in addresses_of("db.test", HOSTS)]
    assert found == ["10.0.0.1", "10.0.0.2", "fe80::1", "10.0.0.4"]


@pytest.mark.parametrize("name", ["db3.test", "10.0.0.3", "test", "b.test", ""])
def test_what_is_no_name_of_any_row(name: str) -> None:
    assert addresses_of(name, HOSTS) == ()


def test_names_compare_without_case() -> None:
    assert addresses_of("db2.test", HOSTS) == (ipaddress.ip_address("10.0.0.1"),)


@pytest.mark.parametrize(
    ("hosts", "gateway"),
    [
        ("169.254.1.2 host.openshell.internal", "169.254.1.2"),
        ("169.254.1.2 host.openshell.internal\n169.254.1.3 host.openshell.internal", "169.254.1.2"),
        ("fe80::2 Host.OpenShell.Internal", "fe80::2"),
        ("169.254.169.254 host.openshell.internal", None),
        ("::ffff:169.254.169.254 host.openshell.internal", None),
        ("10.0.0.1 host.openshell.internal\n169.254.1.2 host.openshell.internal", None),
        ("169.254.1.2 host.docker.internal", None),
        ("", None),
    ],
)
def test_gateway_detection(hosts: str, gateway: str | None) -> None:
    assert detect_gateway(hosts) == (None if gateway is None else ipaddress.ip_address(gateway))
