"""Who is meant: `Host`, `:authority` and the tunnel must agree."""

import pytest

from egress.http.authority import agrees, host_field, read_host_field
from egress.model.address import Authority, Origin, Port, Scheme, parse_host
from egress.model.message import Malformed


def origin(scheme: Scheme, host: str, port: int) -> Origin:
    return Origin(scheme, parse_host(host), Port(port))


@pytest.mark.parametrize(
    ("value", "scheme", "host", "port", "same"),
    [
        (b"a.test", Scheme.HTTPS, "a.test", 443, True),
        (b"a.test:443", Scheme.HTTPS, "a.test", 443, True),
        (b"A.Test.", Scheme.HTTPS, "a.test", 443, True),
        (b"a.test:80", Scheme.HTTPS, "a.test", 443, False),
        (b"a.test", Scheme.HTTP, "a.test", 80, True),
        (b"a.test", Scheme.HTTP, "a.test", 443, False),
        (b"a.test", Scheme.HTTPS, "a.test", 8443, False),
        (b"a.test:8443", Scheme.HTTPS, "a.test", 8443, True),
        (b"b.test", Scheme.HTTPS, "a.test", 443, False),
        (b"sub.a.test", Scheme.HTTPS, "a.test", 443, False),
        (b"[::1]:443", Scheme.HTTPS, "::1", 443, True),
        (b"[0:0::1]", Scheme.HTTPS, "::1", 443, True),
        (b"[::ffff:10.0.0.1]", Scheme.HTTP, "10.0.0.1", 80, True),
    ],
)
def test_agreement(value: bytes, scheme: Scheme, host: str, port: int, same: bool) -> None:
    read = read_host_field(value)
    assert isinstance(read, Authority)
    assert agrees(read, origin(scheme, host, port)) is same


@pytest.mark.parametrize(
    "value",
    [b"", b"a.test:", b"a.test:x", b"u@a.test", b"a.test@b.test", b"a.test,b.test", b"a.test b.test", b"a.test/x",
     b"::1", b"[::1", b"a\xc3\xa9.test", b"a.test:0", b"127.1", b"a.test:443:443", b"http://a.test"],
)  # fmt: skip
def test_no_authority(value: bytes) -> None:
    refused = read_host_field(value)
    assert isinstance(refused, Malformed)
    assert not value or value.decode("latin-1") not in refused.reason


@pytest.mark.parametrize(
    ("scheme", "host", "port", "text"),
    [
        (Scheme.HTTPS, "a.test", 443, b"a.test"),
        (Scheme.HTTP, "a.test", 80, b"a.test"),
        (Scheme.HTTP, "a.test", 443, b"a.test:443"),
        (Scheme.HTTPS, "::1", 443, b"[::1]"),
        (Scheme.HTTPS, "::1", 8443, b"[::1]:8443"),
        (Scheme.HTTPS, "10.0.0.1", 80, b"10.0.0.1:80"),
    ],
)
def test_the_field_we_write_agrees_with_its_origin(scheme: Scheme, host: str, port: int, text: bytes) -> None:
    where = origin(scheme, host, port)
    assert host_field(where) == text
    read = read_host_field(text)
    assert isinstance(read, Authority)
    assert agrees(read, where)
