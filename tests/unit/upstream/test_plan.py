"""Which way a destination takes."""

import pytest

from egress.model.intent import Ingress
from egress.model.verdict import Denial
from egress.upstream.plan import ALL_DIRECT, NO_ROUTES, Direct, Hops, Routes, Target, plan
from tests.unit.upstream.routes import pinned, routes

CONNECT, FORWARD = Ingress.CONNECT, Ingress.FORWARD
CORP = {"proxies": {"corp": {"url": "http://corp.test:3128"}}}
TWO = {"proxies": {"corp": {"url": "http://corp.test:3128"}, "lab": {"url": "socks5h://lab.test:1080"}}}


def way(made: Routes, host: str, *addresses: str, port: int = 443, ingress: Ingress = CONNECT) -> str:
    """In words: `direct`, `direct ADDRESSES`, `NAMES target`, with `absolute` at its end, or `denied`."""
    match plan(made, pinned(host, *addresses, port=port), ingress):
        case Denial():
            return "denied"
        case Direct(None):
            return "direct"
        case Direct(narrowed):
            return f"direct {' '.join(map(str, narrowed or ()))}"
        case Hops(chains, _, target, absolute):
            names = "|".join(">".join(hop.name for hop in chain) for chain in chains)
            return f"{names} {target}{' absolute' if absolute else ''}"


def test_without_proxies_everything_is_direct() -> None:
    assert plan(NO_ROUTES, pinned("a.test", "198.51.100.1"), CONNECT) is ALL_DIRECT


@pytest.mark.parametrize(
    ("host", "addresses", "expected"),
    [
        ("127.0.0.1", [], "direct"),
        ("127.8.8.8", [], "direct"),
        ("::1", [], "direct"),
        ("localhost", ["127.0.0.1", "::1"], "direct"),
        ("localhost", ["127.0.0.1", "198.51.100.1"], "corp ip"),
        ("localhost", ["198.51.100.1"], "corp ip"),
        ("spoofed.test", ["127.0.0.1"], "corp ip"),
        ("a.localhost", ["127.0.0.1"], "corp ip"),
        ("198.51.100.1", [], "corp ip"),
    ],
)
def test_loopback(host: str, addresses: list[str], expected: str) -> None:
    assert way(routes(CORP), host, *addresses) == expected


@pytest.mark.parametrize(
    ("section", "host", "addresses", "expected"),
    [
        ({**CORP, "no_proxy": "a.test"}, "b.a.test", ["198.51.100.1"], "direct"),
        ({**CORP, "no_proxy": "a.test:80"}, "a.test", ["198.51.100.1"], "corp ip"),
        ({**CORP, "no_proxy": "10.0.0.0/8"}, "a.test", ["10.0.0.1", "198.51.100.1"], "direct 10.0.0.1"),
        ({**CORP, "no_proxy": "10.0.0.0/8"}, "a.test", ["198.51.100.1"], "corp ip"),
        ({**CORP, "target": "hostname"}, "a.test", ["198.51.100.1"], "corp hostname"),
        ({**TWO, "rules": [{"match": ["a.test"], "via": "lab"}, {"match": ["*"], "via": "corp"}]},
         "a.test", ["198.51.100.1"], "lab hostname"),
        ({**TWO, "rules": [{"match": ["a.test"], "via": "lab", "target": "ip"}, {"match": ["*"], "via": "corp"}]},
         "a.test", ["198.51.100.1"], "lab ip"),
        ({**TWO, "rules": [{"match": ["a.test"], "via": "lab"}, {"match": ["*"], "via": "corp"}]},
         "b.test", ["198.51.100.1"], "corp ip"),
        ({**TWO, "rules": [{"match": ["10.0.0.0/8"], "via": "direct"}, {"match": ["*"], "via": "corp"}]},
         "a.test", ["10.0.0.1", "198.51.100.1"], "direct 10.0.0.1"),
        ({**TWO, "rules": [{"match": ["*"], "via": "direct"}], "no_proxy": "x.test"}, "a.test", ["10.0.0.1"], "direct"),
        ({**TWO, "chains": {"default": ["corp", "lab"]}}, "a.test", ["198.51.100.1"], "corp>lab hostname"),
        ({**TWO, "chains": {"default": {"any_of": [["corp"], ["lab"]]}}, "target": "hostname"},
         "a.test", ["198.51.100.1"], "corp|lab hostname"),
    ],
)  # fmt: skip
def test_rules(section: dict, host: str, addresses: list[str], expected: str) -> None:
    assert way(routes(section), host, *addresses) == expected


@pytest.mark.parametrize(
    ("plain", "connect", "forward"),
    [
        ("direct", "corp ip", "direct"),
        ("absolute-form", "corp ip", "corp ip absolute"),
        ("connect", "corp ip", "corp ip"),
        ("deny", "corp ip", "denied"),
    ],
)
def test_plain_requests(plain: str, connect: str, forward: str) -> None:
    made = routes({**CORP, "plain_http": plain})
    assert way(made, "a.test", "198.51.100.1") == connect
    assert way(made, "a.test", "198.51.100.1", ingress=FORWARD) == forward


def test_plain_requests_may_be_denied_without_any_proxy() -> None:
    made = routes({"plain_http": "deny"})
    assert way(made, "a.test", "198.51.100.1", ingress=FORWARD) == "denied"
    assert way(made, "a.test", "198.51.100.1") == "direct"


def test_a_rule_narrows_addresses_for_the_proxy_too() -> None:
    made = routes({**CORP, "rules": [{"match": ["10.0.0.0/8", "*"], "via": "corp"}]})
    whole = plan(made, pinned("a.test", "10.0.0.1", "198.51.100.1"), CONNECT)
    assert isinstance(whole, Hops)
    assert (len(whole.addresses), whole.target) == (2, Target.IP)
