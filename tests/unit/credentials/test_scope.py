"""Which requests a credential may reach."""

from dataclasses import replace

import pytest

from egress.credentials.scope import Place, Scope, Selector

PLACE = Place("api.test", 443, "/v1/items", "GET", "build-1", ("/usr/bin/curl", "/bin/bash"))


@pytest.mark.parametrize(
    ("pattern", "host", "expected"),
    [
        ("api.test", "api.test", True),
        ("API.Test.", "api.test", True),
        ("api.test", "x.api.test", False),
        ("*.api.test", "x.api.test", True),
        ("*.api.test", "x.y.api.test", False),
        ("*.api.test", "api.test", False),
        ("*.api.test", ".api.test", False),
        ("**.api.test", "x.y.api.test", True),
        ("**.api.test", "api.test", False),
        ("**.api.test", "x..api.test", False),
        ("s3.*.amazonaws.com", "s3.eu-west-1.amazonaws.com", True),
        ("s3.*.amazonaws.com", "s3.amazonaws.com", False),
        ("*-eu.api.test", "desk-eu.api.test", True),
        ("*-eu.api.test", "a.b-eu.api.test", False),
        ("a?.api.test", "ab.api.test", True),
        ("a?.api.test", "a.api.test", False),
        ("[a-c]1.api.test", "b1.api.test", True),
        ("[!a-c]1.api.test", "b1.api.test", False),
        ("[!a-c]1.api.test", "z1.api.test", True),
        ("x[!a]y.test", "x.y.test", False),  # a negated class crosses no dot
        ("a.test", "axtest", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("*.0.0.1", "10.0.0.1", False),  # an address has to be written out
        ("**", "10.0.0.1", False),
        ("**", "api.test", True),
        ("[2001:DB8::1]", "2001:db8::1", True),
        ("2001:db8:0::1", "2001:db8::1", True),
        ("**", "2001:db8::1", False),
    ],
)
def test_hosts(pattern: str, host: str, expected: bool) -> None:
    assert Selector.of(pattern, 443).covers_authority(host, 443) is expected


@pytest.mark.parametrize(
    "pattern",
    ["", ".", "a b.test", "{a,b}.test", "a..test", "*..test", "a**.test", "x[a.test", "x[c-a].test", "x[].test",
     "https://api.test", "api.test:443", "127.1", "*.exa\u043cple.test"],
)  # fmt: skip
def test_what_is_no_host_pattern(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Selector.of(pattern, 443)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_what_is_no_port(port: int) -> None:
    with pytest.raises(ValueError, match="is no port"):
        Selector.of("api.test", port)


def test_the_port_is_exact() -> None:
    assert Selector.of("*.test", 443).covers_authority("api.test", 443)
    assert not Selector.of("*.test", 443).covers_authority("api.test", 8443)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("", "/any/where", True),
        ("**", "/", True),
        ("/**", "/any/where", True),
        ("/v1/**", "/v1", True),
        ("/v1/**", "/v1/a/b", True),
        ("/v1/**", "/v10", False),
        ("/v1/*", "/v1/a", True),
        ("/v1/*", "/v1/a/b", False),  # `*` stays inside a segment
        ("/v1/items", "/v1/items", True),
        ("/v1/items", "/v1/items/", False),
        ("/bot[CREDENTIAL]/sendMessage", "/bot[CREDENTIAL]/sendMessage", True),
        ("/bot[CREDENTIAL]/**", "/bot[CREDENTIAL]/send", True),
        ("/bot[CREDENTIAL]/**", "/botC/send", False),  # the word, not one of its letters
        ("/bot*/send", "/bot[CREDENTIAL]/send", True),
    ],
)
def test_paths(pattern: str, path: str, expected: bool) -> None:
    assert Selector.of("api.test", 443, pattern).covers("api.test", 443, path) is expected
    assert not Selector.of("api.test", 443, pattern).covers("other.test", 443, path)


def test_a_broken_path_pattern_is_refused() -> None:
    with pytest.raises(ValueError, match="never closed"):
        Selector.of("api.test", 443, "/a[b")


def test_equal_selectors_are_equal() -> None:
    assert Selector.of("*.Test.", 443, "/**") == Selector.of("*.test", 443)
    assert hash(Selector.of("*.test", 443, "/a/*")) == hash(Selector.of("*.test", 443, "/a/*"))


def scope(**limits: object) -> Scope:
    return Scope((Selector.of("api.test", 443, "/v1/**"), Selector.of("*.files.test", 8443)), **limits)  # type: ignore[arg-type]


def test_one_selector_is_enough() -> None:
    assert scope().reaches(PLACE)
    assert scope().reaches(replace(PLACE, host="eu.files.test", port=8443, path="/"))
    assert not scope().reaches(replace(PLACE, port=8443))
    assert not scope().reaches(replace(PLACE, path="/v2"))
    assert not Scope(()).reaches(PLACE)


def test_any_executable_of_the_chain_is_enough() -> None:
    assert scope(binaries=("/bin/*",)).reaches(PLACE)
    assert not scope(binaries=("/opt/**",)).reaches(PLACE)
    assert not scope(binaries=("/bin/*",)).reaches(replace(PLACE, binaries=()))
    assert scope().reaches(replace(PLACE, binaries=()))


def test_methods_and_agents() -> None:
    assert scope(methods=frozenset(("GET",))).reaches(PLACE)
    assert not scope(methods=frozenset(("POST",))).reaches(PLACE)
    assert scope(agents=("build-*",)).reaches(PLACE)
    assert not scope(agents=("build-*",)).reaches(replace(PLACE, agent="desk"))
    assert not scope(agents=("default",)).serves("build-1")


def test_a_pattern_full_of_wildcards_costs_no_more() -> None:
    """A matcher that tries one reading after the other would need longer than the universe has."""
    pattern = Selector.of("*a" * 20 + ".test", 443)
    assert not pattern.covers_authority("a" * 62 + "b.test", 443)
