"""Common texts and inclusion of patterns, checked against enumerated texts."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.policy.globs import Dialect, GlobIndex
from egress.policy.hosts import parse_host_pattern
from egress.policy.overlap import covers, host_reading, overlaps, path_readings, selector_reading


def both(left: str, right: str) -> bool:
    return overlaps(path_readings(left), path_readings(right), "/")


def inside(outer: str, inner: str) -> bool:
    return covers(path_readings(outer), path_readings(inner), "/")


@pytest.mark.parametrize(
    ("left", "right", "common", "covered"),
    [
        ("", "/graphql", True, True),
        ("**", "/graphql", True, True),
        ("/**", "/graphql", True, True),
        ("/v*/data", "/v1/*", True, False),
        ("/a/**", "/a", True, True),
        ("/a/**", "/a/b/*", True, True),
        ("/a/*", "/b/*", False, False),
        ("/a/*", "/a/b/c", False, False),
        ("/a/*", "/a/*", True, True),
        ("/**/x", "/a/x", True, True),
        ("/**/x", "/x", True, True),
        ("/a/*", "/a/**", True, False),
        ("/a/{b,c}", "/a/b", True, True),
        ("/a/b", "/a/{b,c}", True, False),
        ("/a/[xy]", "/a/x", True, False),
        ("/a/[xy]", "/a/", False, False),
        ("/a?", "/ab", True, True),
        ("/a?", "/a/", False, False),
        ("/*", "/a/b", False, False),
        ("/graphql", "/graphql/", False, False),
    ],
)
def test_paths(left: str, right: str, common: bool, covered: bool) -> None:
    assert both(left, right) is common
    assert both(right, left) is common
    assert inside(left, right) is covered


def test_too_many_readings_count_as_common_and_not_covered() -> None:
    wide = "/" + "{a,b}" * 8
    assert both(wide, "/z")
    assert not inside(wide, "/aaaaaaaa")
    assert not inside("/**/x", wide)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("*.acme.test", "a-*.acme.test", True),
        ("*.acme.test", "**.acme.test", True),
        ("*.acme.test", "*.b.acme.test", False),
        ("**.acme.test", "*.b.acme.test", True),
        ("a-*.acme.test", "b-*.acme.test", False),
        ("*-a.acme.test", "b-*.acme.test", True),
        ("*.x.acme.test", "*.y.acme.test", False),
        ("*.acme.test", "*.other.test", False),
    ],
)
def test_hosts(left: str, right: str, expected: bool) -> None:
    one, other = (host_reading(parse_host_pattern(text)) for text in (left, right))
    assert overlaps((one,), (other,), ".") is expected
    assert overlaps((other,), (one,), ".") is expected


@pytest.mark.parametrize(
    ("selector", "host", "common", "covered"),
    [
        ("**", "*.acme.test", True, True),
        ("*.acme.test", "api.acme.test", True, True),
        ("api-[0-9].acme.test", "api-1.acme.test", True, False),
        ("a?.acme.test", "ab.acme.test", True, True),
        ("*", "api.acme.test", False, False),
        ("api.acme.test", "*.acme.test", True, False),
    ],
)
def test_selectors(selector: str, host: str, common: bool, covered: bool) -> None:
    chosen, named = (selector_reading(selector),), (host_reading(parse_host_pattern(host)),)
    assert overlaps(chosen, named, ".") is common
    assert covers(chosen, named, ".") is covered


pieces = st.sampled_from(["a", "b", "/", "*", "?", "/**", "{a,b}", "[ab]"])
patterns = st.lists(pieces, max_size=5).map(lambda parts: "/" + "".join(parts))
TEXTS = ["/" + "".join(letters) for size in range(5) for letters in product("ab/", repeat=size)]


def matching(pattern: str) -> set[str]:
    index = GlobIndex([(pattern, Dialect.COVER)])
    return {text for text in TEXTS if index.match(text)}


@given(patterns, patterns)
def test_answers_are_on_the_safe_side_of_every_short_text(left: str, right: str) -> None:
    ours, theirs = matching(left), matching(right)
    if ours & theirs:
        assert both(left, right)
    if not theirs <= ours:
        assert not inside(left, right)
