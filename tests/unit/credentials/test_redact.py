"""Targets as policy and logs see them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.credentials.placeholder import contains_marker_text
from egress.credentials.redact import redact_target
from tests.unit.credentials.samples import A, P

KEY = rf"(?:(?!{P})\w)+"
REFERENCE = re.compile(rf"{P}{KEY}|(?<![\w.~-])(?:(?!{A})[\w.~-])+{A}{KEY}(?![\w.~-])", re.ASCII)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/a/b?c=d", "/a/b?c=d"),
        (f"/v1/{P}v9_K/m?token=p-{A}K", "/v1/[CREDENTIAL]/m?token=[CREDENTIAL]"),
        (f"/bot{P}K/sendMessage", "/bot[CREDENTIAL]/sendMessage"),
        (f"/a%2Fbot{P}K", "/a%2Fbot[CREDENTIAL]"),
        (f"/{P}APP{P}APP", "/[CREDENTIAL][CREDENTIAL]"),
        (f"/x%20{P}K%20y/z%7E", "/x%20[CREDENTIAL]%20y/z%7E"),
        (f"/sk-{A}K/x", "/[CREDENTIAL]/x"),
        (f"/?k={P}APP{P}APP&z=%7e", "/?k=[CREDENTIAL]&z=%7e"),
        (f"/?k=before+{P}APP", "/?k=[CREDENTIAL]"),
        ("/?k=openshell%3Aresolve%3aenv%3AAPP", "/?k=[CREDENTIAL]"),
        ("/openshell%3Aresolve%3Aenv%3AK/x", "/[CREDENTIAL]/x"),
        ("/a?", "/a?"),
    ],
)
def test_placeholders_become_the_word(target: str, expected: str) -> None:
    path, mark, query = target.partition("?")
    shown = redact_target(path, query if mark else None)
    assert shown is not None
    assert (shown[0] if shown[1] is None else f"{shown[0]}?{shown[1]}") == expected


@pytest.mark.parametrize(
    "target",
    [f"/{P}/x", f"/{A}K", f"/a-{A}K.json", f"/ok?k={P}", f"/ok?k={A}K", f"/{P}{P}K", f"/ok?a=b&k=x{A}K-",
     f"/{P}K/{P}"],
)  # fmt: skip
def test_malformed_ones_are_no_target(target: str) -> None:
    path, mark, query = target.partition("?")
    assert redact_target(path, query if mark else None) is None


SEGMENT = st.lists(
    st.sampled_from([P, A, "K", "v1_K", "a-", "bot", ".", "%2F", "%20", ":", "openshell"]), max_size=7
).map("".join)


@given(st.lists(SEGMENT, max_size=4))
def test_the_same_as_a_naive_reading(segments: list[str]) -> None:
    path = "/" + "/".join(segments)
    naive = REFERENCE.sub("[CREDENTIAL]", path)
    shown = redact_target(path, None)
    if P in naive or A in naive:
        assert shown is None
    else:
        assert shown == (naive, None)


@given(SEGMENT, st.lists(st.tuples(st.sampled_from(["k", "q"]), SEGMENT), max_size=3))
def test_no_placeholder_is_shown(segment: str, pairs: list[tuple[str, str]]) -> None:
    query = "&".join(f"{name}={value}" for name, value in pairs)
    shown = redact_target("/" + segment, query)
    if shown is None:
        return
    assert not contains_marker_text(shown[0])
    assert shown[1] is not None
    assert not contains_marker_text(shown[1])
    assert redact_target(*shown) == shown
