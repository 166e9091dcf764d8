"""Request targets, inside tunnels and of CONNECT."""

import pytest

from egress.http.path import CanonicalPath
from egress.http.target import Target, read_connect_target, read_target
from egress.model.address import Authority, Origin, Port, Scheme, parse_host
from egress.model.message import Malformed, PathOddity
from egress.model.verdict import DenialCode

ROOT = CanonicalPath("/", PathOddity.CHANGED)


def written(host: str, port: int | None = None) -> Authority:
    return Authority(parse_host(host), None if port is None else Port(port))


@pytest.mark.parametrize(
    ("target", "read"),
    [
        (b"/", Target(CanonicalPath("/"), None)),
        (b"/a?b=c", Target(CanonicalPath("/a"), "b=c")),
        (b"/a?", Target(CanonicalPath("/a"), "")),
        (b"/a?b?c/../d", Target(CanonicalPath("/a"), "b?c/../d")),
        (b"/f/http://h.test", Target(CanonicalPath("/f/http:/h.test", PathOddity.CHANGED), None, raw_path="/f/http://h.test")),
        (b"//evil.test/a", Target(CanonicalPath("/evil.test/a", PathOddity.CHANGED), None, raw_path="//evil.test/a")),
        (b"http://h.test", Target(ROOT, None, "http", written("h.test"), "")),
        (b"HTTP://H.test:81/a/../b?q", Target(CanonicalPath("/b", PathOddity.CHANGED), "q", "http",
        written("h.test", 81), "/a/../b")),
        (b"http://h.test?q", Target(ROOT, "q", "http", written("h.test"), "")),
        (b"ftp://h.test/a", Target(CanonicalPath("/a"), None, "ftp", written("h.test"))),
        (b"http://[::1]:80/", Target(CanonicalPath("/"), None, "http", written("::1", 80))),
    ],
)  # fmt: skip
def test_read(target: bytes, read: Target) -> None:
    assert read_target(target) == read


@pytest.mark.parametrize(
    "target",
    [
        b"*", b"h.test:443", b"a/b", b"/a#b", b"http://h.test/#f", b"http://", b"http:///a", b"http://:80/",
        b"http:/h/a", b"http:h.test/", b"http://u@h.test/", b"http://u:p@h.test/", b"http://h.test:0/",
        b"http://h.test:65536/",
        b"http://h.test:/", b"http://[::1/", b"http://h.test\\@evil.test/", b"http://h\\.test/", b"/\xc3\xa9",
        b"http://h.test:80:80/", b"http://127.1/", b"http://0x7f000001/", b"://h/", b"1http://h/", b"http://h.test;x/",
        b"http://h%2etest/",
    ],
)  # fmt: skip
def test_refused(target: bytes) -> None:
    refused = read_target(target)
    assert isinstance(refused, Malformed)
    assert refused.code is DenialCode.INVALID_REQUEST_TARGET
    assert "evil" not in refused.reason


@pytest.mark.parametrize(
    ("target", "host", "port"),
    [
        (b"h.test:443", "h.test", 443),
        (b"H.TEST.:65535", "h.test", 65535),
        (b"10.0.0.1:1", "10.0.0.1", 1),
        (b"[2001:DB8::1]:443", "2001:db8::1", 443),
        (b"[::ffff:10.0.0.1]:443", "10.0.0.1", 443),
        (b"a_b-c.test:80", "a_b-c.test", 80),
    ],
)
def test_connect(target: bytes, host: str, port: int) -> None:
    assert read_connect_target(target) == Origin(Scheme.TCP, parse_host(host), Port(port))


@pytest.mark.parametrize(
    "target",
    [
        b"h.test", b":443", b"h.test:", b"h.test:0", b"h.test:65536", b"h.test:+443", b"h.test:443 ", b"h.test:4_3",
        b"::1:443", b"[::1]", b"[::1:443", b"[::1]443", b"[10.0.0.1]:443", b"[fe80::1%25eth0]:443", b"u@h.test:443",
        b"http://h.test:443", b"h.test:443/", b"h/a:443", b"h..test:443", b".h.test:443", b"h.test..:443",
        b"h\xc3\xa9.test:443",
        b"127.1:443", b"2130706433:443", b"0x7f000001:443", b"010.0.0.1:443", b"1.2.3.4.5:443", b"256.0.0.1:443",
        b"a" * 64 + b".test:443", b".".join([b"a" * 60] * 5) + b":443", b"h*.test:443", b"h test:443",
        b"h.test:\xd9\xa3",
    ],
)  # fmt: skip
def test_connect_refused(target: bytes) -> None:
    refused = read_connect_target(target)
    assert isinstance(refused, Malformed)
    assert refused.code is DenialCode.INVALID_CONNECT_TARGET
