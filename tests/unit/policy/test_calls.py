"""Call patterns against a naive reading of the same rules, and the text that arguments have."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.policy.calls import ArgumentMatcher, CallIndex, CallPattern
from egress.policy.globs import Dialect

METHODS = ("tools/call", "tools/list", "ping", "a.b")
TOOLS = ("read", "read.x", "write", "")
GLOBS = ("*", "read*", "*x", "write", "r?ad")

patterns = st.lists(
    st.builds(
        CallPattern,
        method=st.sampled_from((*METHODS, "*", "tools/*")),
        glob=st.just(Dialect.VALUE),
        tool=st.lists(st.sampled_from(GLOBS), max_size=2),
    ),
    max_size=6,
)


@given(patterns, st.sampled_from(METHODS), st.none() | st.sampled_from(TOOLS))
def test_one_pass_equals_rule_by_rule(rules: list[CallPattern], method: str, tool: str | None) -> None:
    expected = [
        number
        for number, rule in enumerate(rules)
        if fnmatchcase(method, rule.method)
        and (not rule.tool or (tool is not None and any(fnmatchcase(tool, glob) for glob in rule.tool)))
    ]
    index = CallIndex(rules)
    assert index.match(method, tool) == expected
    assert index.covering(method) == [n for n, rule in enumerate(rules) if fnmatchcase(method, rule.method)]


def test_literal_methods_hold_no_wildcards() -> None:
    index = CallIndex([CallPattern("a\\*", None), CallPattern("a?", None)])
    assert index.match("a\\*", None) == [0]
    assert index.match("a*", None) == []
    assert index.match("ab", None) == []


@pytest.mark.parametrize(
    ("value", "glob"),
    [
        ("a b", "a b"), ("", ""), ("ünï", "ünï"), (True, "true"), (False, "false"), (0, "0"), (-7, "-7"),
        (10**30, "1" + "0" * 30), (1.0, "1"), (-0.0, "0"), (1.5, "1.5"), (1e22, "1" + "0" * 22), (1e-7, "1e-07"),
    ],
)  # fmt: skip
def test_text_of_scalars(value: object, glob: str) -> None:
    matcher = ArgumentMatcher("x", (glob,))
    assert matcher.accepts({"x": value})
    assert matcher.fires({"x": value})


@pytest.mark.parametrize(("value", "glob"), [(1, "true"), (True, "1"), (0, "false"), ("True", "true"), (1, "1.0")])
def test_scalars_are_not_confused(value: object, glob: str) -> None:
    matcher = ArgumentMatcher("x", (glob,))
    assert not matcher.accepts({"x": value})
    assert not matcher.fires({"x": value})


@pytest.mark.parametrize("arguments", [None, [], "x", {}, {"y": "a"}, {"x": None}, {"x": []}, {"x": {}}])
def test_nothing_to_match(arguments: object) -> None:
    matcher = ArgumentMatcher("x", ("*",))
    assert not matcher.accepts(arguments)
    assert not matcher.fires(arguments)


@pytest.mark.parametrize("value", [{"a": "secret"}, [["secret"]], [{"a": ["b", "secret"]}]])
def test_wrapped_values_are_denied_and_never_allowed(value: object) -> None:
    matcher = ArgumentMatcher("x", ("secret",))
    assert matcher.fires({"x": value})
    assert not matcher.accepts({"x": value})


def test_lists_are_allowed_whole() -> None:
    matcher = ArgumentMatcher("x", ("/data/*",))
    assert matcher.accepts({"x": ["/data/a", "/data/b"]})
    assert not matcher.accepts({"x": ["/data/a", "/etc"]})
    assert not matcher.accepts({"x": ["/data/a", None]})


def test_other_spellings_of_the_name_count_against_the_caller() -> None:
    matcher = ArgumentMatcher("path", ("/data/*",))
    assert not matcher.accepts({"Path": "/data/a"})
    assert not matcher.accepts({"path": "/data/a", "PATH": "/data/a"})
    assert matcher.fires({"PATH": "/data/a"})
    assert matcher.fires({"path": "/", "Path": "/data/a"})


def test_numbers_without_text_are_denied_and_never_allowed() -> None:
    matcher = ArgumentMatcher("x", ("1",))
    assert matcher.fires({"x": 1 << 2000})
    assert not matcher.accepts({"x": 1 << 2000})
