"""Host patterns: accepted, refused with a reason, and matched label by label."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.model.address import Host, parse_host
from egress.policy.hosts import HostPattern, HostPatternError, HostTable, parse_host_pattern, parse_host_selector


def matches(pattern: str, host: str) -> bool:
    return HostTable([(parse_host_pattern(pattern), "it")]).lookup(parse_host(host)) == ["it"]


@pytest.mark.parametrize(
    ("pattern", "host", "expected"),
    [
        ("api.acme.test", "API.acme.test", True),
        ("API.acme.test", "api.acme.test", True),
        ("api.acme.test", "api.acme.test.", True),
        ("api.acme.test.", "api.acme.test", True),
        ("api.acme.test", "xapi.acme.test", False),
        ("api.acme.test", "api.acme.test.evil.test", False),
        ("*.acme.test", "a.acme.test", True),
        ("*.acme.test", "acme.test", False),
        ("*.acme.test", "a.b.acme.test", False),
        ("*.acme.test", "acme.test.evil.test", False),
        ("*.acme.test", "xacme.test", False),
        ("*.ACME.test", "A.acme.TEST", True),
        ("**.acme.test", "a.acme.test", True),
        ("**.acme.test", "a.b.acme.test", True),
        ("**.acme.test", "acme.test", False),
        ("**.acme.test", "xacme.test", False),
        ("*-svc.acme.test", "eu-svc.acme.test", True),
        ("*-svc.acme.test", "a.eu-svc.acme.test", False),
        ("*-svc.acme.test", "eu-svc-x.acme.test", False),
        ("*.store.*.acme.test", "b.store.eu1.acme.test", True),
        ("*.store.*.acme.test", "b.store.x.eu1.acme.test", False),
        ("a-*.acme.test", "a-.acme.test", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("*.2.3.4", "1.2.3.4", False),
        ("**.3.4", "1.2.3.4", False),
        ("2001:db8::5", "2001:0db8::0005", True),
        ("[2001:DB8::5]", "2001:db8::5", True),
        ("10.1.2.3", "::ffff:10.1.2.3", True),
        ("b\u00fccher.acme.test", "xn--bcher-kva.acme.test", True),
        ("*.b\u00fccher.test", "a.xn--bcher-kva.test", True),
        ("localhost", "localhost", True),
    ],
)
def test_matching(pattern: str, host: str, expected: bool) -> None:
    assert matches(pattern, host) is expected


@pytest.mark.parametrize(
    "pattern",
    [
        "*", "**", "*.test", "**.test", "*.*", "foo.us-*.example.test", "foo.**.example.test", "foo**.example.test",
        "api.acme.*", "*.*.*", "api.*.test", "**a.acme.test", "*.acme..test", ".acme.test", "*..acme.test",
        "http://example.test", "example.test:443", "example.test/path", "user@example.test", "exa mple.test",
        " example.test", "example.test ", "?.acme.test", "a?.acme.test", "[ab].acme.test", "{a,b}.acme.test",
        "*-[ab].acme.test", "*.acme.test:443", "https://*.acme.test", "*.acme.test/x", "1.2.3", "0x7f000001", "127.1",
        "fe80::1%eth0", "a" * 64 + ".acme.test", "*" * 64 + ".acme.test", "stra\u00dfe.test",
        "a\u200db.acme.test", "a\x00b.test",
    ],
)  # fmt: skip
def test_refused_patterns(pattern: str) -> None:
    with pytest.raises(HostPatternError):
        parse_host_pattern(pattern)


@pytest.mark.parametrize("selector", ["**", "*", "*.acme.test", "api-[0-9].acme.test", "a?.test", "x.**.y.test"])
def test_accepted_selectors(selector: str) -> None:
    assert parse_host_selector(selector) == selector


@pytest.mark.parametrize(
    "selector", ["", " a.test", "a b.test", "{a,b}.test", "a..test", "a.test.", "[a.test", "a**.b.test"]
)
def test_refused_selectors(selector: str) -> None:
    with pytest.raises(HostPatternError):
        parse_host_selector(selector)


def test_a_table_gives_exact_wildcard_and_hostless_items() -> None:
    table = HostTable([
        (parse_host_pattern("a.acme.test"), 1),
        (parse_host_pattern("*.acme.test"), 2),
        (None, 3),
        (parse_host_pattern("a.acme.test"), 4),
        (parse_host_pattern("**.acme.test"), 5),
        (parse_host_pattern("b.acme.test"), 6),
    ])  # fmt: skip
    assert sorted(table.lookup(parse_host("a.acme.test"))) == [1, 2, 3, 4, 5]
    assert sorted(table.named(parse_host("a.acme.test"))) == [1, 2, 4, 5]
    assert sorted(table.covering("a.acme.test")) == [2, 5]
    assert table.lookup(parse_host("other.test")) == [3]
    assert table.lookup(parse_host("10.0.0.1")) == [3]


def test_the_tail_of_a_pattern_is_its_last_two_labels() -> None:
    assert parse_host_pattern("*.store.*.acme.test").tail == "acme.test"


labels = st.sampled_from(["a", "b", "ab", "eu-svc", "x1"])
pattern_labels = st.sampled_from(["a", "b", "ab", "*"])
first_labels = st.sampled_from(["a", "*", "**", "*-svc", "a*", "e*c"])
hosts = st.lists(labels, min_size=2, max_size=5).map(lambda parts: ".".join([*parts, "acme", "test"]))
patterns = st.tuples(first_labels, st.lists(pattern_labels, max_size=2)).map(
    lambda parts: ".".join([parts[0], *parts[1], "acme", "test"])
)


@given(patterns, hosts)
def test_matcher_equals_a_naive_reference(pattern: str, host: str) -> None:
    assert matches(pattern, host) is naive(pattern.split("."), host.split("."))


def naive(pattern: list[str], host: list[str]) -> bool:
    if not pattern or not host:
        return not pattern and not host
    if pattern[0] == "**":
        return any(naive(pattern[1:], host[count:]) for count in range(1, len(host) + 1))
    return label(pattern[0], host[0]) and naive(pattern[1:], host[1:])


def label(pattern: str, text: str) -> bool:
    start, star, end = pattern.partition("*")
    if not star:
        return pattern == text
    return len(text) >= len(start) + len(end) and text.startswith(start) and text.endswith(end)


@given(st.lists(patterns, min_size=1, max_size=6), hosts)
def test_asking_together_is_asking_one_by_one(several: list[str], host: str) -> None:
    table = HostTable([(parse_host_pattern(pattern), number) for number, pattern in enumerate(several)])
    alone = [number for number, pattern in enumerate(several) if matches(pattern, host)]
    assert sorted(table.lookup(parse_host(host))) == alone


def test_pattern_values() -> None:
    assert parse_host_pattern("[::FFFF:10.1.2.3]") == HostPattern("10.1.2.3", literal=True)
    assert Host("10.1.2.3", literal=True) == parse_host("10.1.2.3")
