"""JSON that two parsers could read differently is refused, everything else is read as the standard library reads it."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egress.l7.strict_json import MAX_DEPTH, lookalike, read_json, spellings
from egress.model.message import Malformed

INVALID = "invalid JSON"
DUPLICATE = "duplicate JSON key"
RANGE = "JSON number out of range"

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=40)
@given(VALUES)
def test_reads_what_the_standard_library_wrote(value: object) -> None:
    assert read_json(json.dumps(value).encode()) == value


@settings(max_examples=40)
@given(VALUES)
def test_reads_text_that_is_not_escaped(value: object) -> None:
    assert read_json(json.dumps(value, ensure_ascii=False, indent=1).encode()) == value


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a": [1, 2.5, "x", null, true]}', {"a": [1, 2.5, "x", None, True]}),
        (b' \t\r\n{"a":1}\n', {"a": 1}),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'{"a": {"a": 1}, "b": {"a": 2}}', {"a": {"a": 1}, "b": {"a": 2}}),
        (b'{"a": 1, "A": 2}', {"a": 1, "A": 2}),
        (b"1e308", 1e308),
        (b"-0", 0),
        (b"123456789012345678901234567890", 123456789012345678901234567890),
        (b'"a\\u0000b"', "a\0b"),
        (b"false", False),
        (b"null", None),
    ],
)
def test_accepted(data: bytes, value: object) -> None:
    assert read_json(data) == value


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", INVALID),
        (b"   ", INVALID),
        (b"{", INVALID),
        (b'{"a":1', INVALID),
        (b'{"a"}', INVALID),
        (b'{"a":1,}', INVALID),
        (b"[1,]", INVALID),
        (b"{'a':1}", INVALID),
        (b"{a:1}", INVALID),
        (b"{} {}", INVALID),
        (b"{}x", INVALID),
        (b"{}\0", INVALID),
        (b"01", INVALID),
        (b"+1", INVALID),
        (b".5", INVALID),
        (b"1.", INVALID),
        (b"0x10", INVALID),
        (b"// c\n1", INVALID),
        (b"/* c */ 1", INVALID),
        (b"True", INVALID),
        (b"undefined", INVALID),
        (b"NaN", INVALID),
        (b"[Infinity]", INVALID),
        (b'{"a": -Infinity}', INVALID),
        (b"\xef\xbb\xbf{}", INVALID),
        ("{}".encode("utf-16"), INVALID),
        ("{}".encode("utf-16-le"), INVALID),
        ("{}".encode("utf-32"), INVALID),
        (b'"\xff"', INVALID),
        (b'"\xc0\xaf"', INVALID),
        (b'"\xed\xa0\x80"', INVALID),
        (b'"\\ud800"', INVALID),
        (b'"\\udc00\\ud800"', INVALID),
        (b'"\\x41"', INVALID),
        (b'"\n"', INVALID),
        (b'"\x00"', INVALID),
        (b'{"a":1,"a":1}', DUPLICATE),
        (b'{"a":1,"\\u0061":2}', DUPLICATE),
        (b'[{"x":{"k":1,"k":2}}]', DUPLICATE),
        (b'{"":1,"":2}', DUPLICATE),
        (b"1e999", RANGE),
        (b"[-1e999]", RANGE),
        (b'{"a":{"b":[1e400]}}', RANGE),
        (b"9" * 400 + b".0", RANGE),
    ],
)
def test_refused(data: bytes, reason: str) -> None:
    assert read_json(data) == Malformed(reason)


def test_depth() -> None:
    levels = MAX_DEPTH - 1
    nested = read_json(b"[" * levels + b"]" * levels)
    for _ in range(levels - 1):
        assert isinstance(nested, list)
        (nested,) = nested
    assert nested == []
    too_deep = Malformed("JSON is nested deeper than 200 levels")
    assert read_json(b"[" * 300 + b"]" * 300) == too_deep
    assert read_json(b'{"a":' * 300 + b"1" + b"}" * 300) == too_deep
    assert read_json(b"[" * 60_000) == too_deep


def test_a_number_no_integer_needs() -> None:
    assert read_json(b"1" * 5000) == Malformed(INVALID)


def test_reasons_quote_nothing() -> None:
    for data in (b'{"s3cret":1,"s3cret":2}', b'{"a": s3cret}', b'"s3cret'):
        fault = read_json(data)
        assert isinstance(fault, Malformed)
        assert "s3cret" not in fault.reason


def test_finite_values_only() -> None:
    value = read_json(b"[1e308, -1e308, 5e-324]")
    assert isinstance(value, list)
    assert all(math.isfinite(item) for item in value)


NAMES = spellings("query", "operationName", "sha256Hash", "id")


@pytest.mark.parametrize("key", ["Query", "QUERY", "operationname", "OperationName", "ID", "SHA256HASH", "ſha256Hash"])
def test_lookalikes(key: str) -> None:
    assert lookalike({key: 1}, NAMES)
    assert lookalike({"query": 1, key: 2}, NAMES)


@pytest.mark.parametrize("key", ["query", "operationName", "variables", "Variables", "queries", "query ", ""])
def test_other_keys(key: str) -> None:
    assert not lookalike({key: 1}, NAMES)
