"""Queries decoded for matchers."""

import pytest

from egress.http.query import decode_query
from egress.model.message import Malformed
from egress.model.verdict import DenialCode


@pytest.mark.parametrize(
    ("query", "pairs"),
    [
        (None, ()),
        ("", ()),
        ("a=1&b=2", (("a", "1"), ("b", "2"))),
        ("a=1&a=2", (("a", "1"), ("a", "2"))),
        ("a", (("a", ""),)),
        ("a=", (("a", ""),)),
        ("=b", (("", "b"),)),
        ("a=b=c", (("a", "b=c"),)),
        ("&&a=1&", (("a", "1"),)),
        ("%61=%62%20c+d", (("a", "b c d"),)),
        ("a=%26%3d", (("a", "&="),)),
        ("a=1;b=2", (("a", "1;b=2"),)),
        ("a=%c3%a9", (("a", "é"),)),
        ("a=?b", (("a", "?b"),)),
    ],
)
def test_pairs_in_order(query: str | None, pairs: tuple[tuple[str, str], ...]) -> None:
    assert decode_query(query) == pairs


def test_deny_rules_split_at_semicolons_too() -> None:
    assert decode_query("a=1;b=2&c=3", separators="&;") == (("a", "1"), ("b", "2"), ("c", "3"))


@pytest.mark.parametrize("query", ["a=%", "a=%2", "a=%zz", "%", "a=%ff", "a=%c3"])
def test_refused(query: str) -> None:
    refused = decode_query(query)
    assert isinstance(refused, Malformed)
    assert refused.code is DenialCode.INVALID_REQUEST_TARGET
    assert query not in refused.reason
