"""The URL of a proxy: each way to write it wrong has a word of its own, and none repeats what was written."""

import pytest

from egress.upstream.address import ProxyAddress, read_proxy_address
from egress.upstream.credential import Fault
from egress.upstream.plan import HopKind, Target
from tests.unit.upstream.routes import place


@pytest.mark.parametrize(
    ("text", "kind", "host", "port", "target"),
    [
        ("http://proxy.corp.example:8080", HopKind.HTTP, "proxy.corp.example", 8080, None),
        ("HTTP://Proxy.Corp.Example.:80/", HopKind.HTTP, "proxy.corp.example", 80, None),
        (" https://10.0.0.1:8443 ", HopKind.HTTPS, "10.0.0.1", 8443, None),
        ("http://[fd00::1]:3128", HopKind.HTTP, "fd00::1", 3128, None),
        ("socks5://bastion:1080", HopKind.SOCKS5, "bastion", 1080, None),
        ("socks5h://bastion:65535", HopKind.SOCKS5, "bastion", 65535, Target.HOSTNAME),
    ],
)
def test_good(text: str, kind: HopKind, host: str, port: int, target: Target | None) -> None:
    assert read_proxy_address(text) == ProxyAddress(kind, place(host, port), target)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty_value"),
        ("  ", "empty_value"),
        ("proxy", "url_no_scheme"),
        ("proxy:8080", "url_no_scheme"),
        ("user:s3cret@proxy:8080", "url_no_scheme"),
        ("http://", "url_unparsable"),
        ("http:///path", "url_unparsable"),
        ("http://proxy:99999", "url_unparsable"),
        ("http://proxy:80x", "url_unparsable"),
        ("http://[fd00::1:80", "url_unparsable"),
        ("http://fd00::1:80", "url_unparsable"),
        ("http://a b:80", "url_unparsable"),
        ("http://a\r\nX: y:80", "url_unparsable"),
        ("http://-_-!:80", "url_unparsable"),
        ("http://127.1:80", "url_unparsable"),
        ("ftp://proxy:8080", "url_bad_scheme"),
        ("socks4://proxy:8080", "url_bad_scheme"),
        ("://proxy:8080", "url_bad_scheme"),
        ("http://user:s3cret@proxy:8080", "url_credentials"),
        ("http://s3cret@proxy:8080", "url_credentials"),
        ("http://@proxy:8080", "url_credentials"),
        ("http://:8080", "url_no_host"),
        ("http://proxy:8080/x", "url_component"),
        ("http://proxy:8080//", "url_component"),
        ("http://proxy:8080?q=s3cret", "url_component"),
        ("http://proxy:8080/?q", "url_component"),
        ("http://proxy:8080#f", "url_component"),
        ("http://proxy", "url_no_port"),
        ("http://proxy/", "url_no_port"),
        ("http://proxy:", "url_no_port"),
        ("http://proxy:0", "url_zero_port"),
        ("http://proxy:00000", "url_zero_port"),
    ],
)
def test_bad(text: str, code: str) -> None:
    fault = read_proxy_address(text)
    assert isinstance(fault, Fault)
    assert fault.code == code
    assert "s3cret" not in fault.text


def test_the_component_is_named() -> None:
    texts = {}
    for tail in ("/x", "/?q", "?q", "#f", "/#f"):
        fault = read_proxy_address(f"http://proxy:80{tail}")
        assert isinstance(fault, Fault)
        texts[tail] = fault.text.split(";")[0]
    assert texts == {
        "/x": "has a path", "/?q": "has a query", "?q": "has a query", "#f": "has a fragment", "/#f": "has a fragment",
    }  # fmt: skip
