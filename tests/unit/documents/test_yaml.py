"""The strict reader: what it accepts, what it says about everything else, and where."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.documents.diagnostic import Diagnostic, render
from egress.documents.location import Location
from egress.documents.yaml import MAX_BYTES, MAX_DEPTH, Document, read


def document(text: str) -> Document:
    found = read(text.encode(), "f.yaml")
    assert isinstance(found, Document), render(found)
    return found


def problems(text: str | bytes) -> list[str]:
    found = read(text.encode() if isinstance(text, str) else text, "f.yaml")
    assert isinstance(found, tuple)
    return [str(diagnostic) for diagnostic in found]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("off", "off"),
        ("22:30", "22:30"),
        ("1_000", "1_000"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("12", 12),
        ("+12", 12),
        ("-0", 0),
        ("007", 7),
        ("0o17", 15),
        ("0x1F", 31),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-", ["x"]),
        ("'12'", "12"),
        ('"true"', "true"),
        ("1.2.3.4", "1.2.3.4"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("0x", "0x"),
        ("+", "+"),
        ("2026-01-01", "2026-01-01"),
    ],
)
def test_scalars_follow_the_yaml_1_2_core_schema(text: str, value: object) -> None:
    if text == "-":
        assert document("a:\n- x\n").data == {"a": value}
        return
    data = document(f"a: {text}\n").data
    assert data == {"a": value}
    assert type(data["a"]) is type(value)


def test_keys_are_text_as_written() -> None:
    assert document("443: a\ntrue: b\n~: c\n").data == {"443": "a", "true": "b", "~": "c"}


def test_values_and_keys_are_located() -> None:
    found = document("a:\n  - {b: 1,  c: x}\n  - d\n")
    assert found.locate(("a", 0, "c")) == Location("f.yaml", 2, 16)
    assert found.locate_key(("a", 0, "c")) == Location("f.yaml", 2, 13)
    assert found.locate(("a", 1)) == Location("f.yaml", 3, 5)
    assert found.locate_key(("a", 1)) == Location("f.yaml", 3, 5)
    assert found.locate(("a",)) == Location("f.yaml", 2, 3)


def test_what_is_not_there_is_found_at_the_nearest_value_around_it() -> None:
    found = document("a:\n  b: 1\n")
    assert found.locate(("a", "missing")) == Location("f.yaml", 2, 3)
    assert found.locate_key(("a", "missing")) == Location("f.yaml", 2, 3)
    assert found.locate(("nowhere", 3)) == Location("f.yaml", 1, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["f.yaml: error: the document is empty"]),
        ("# only a comment\n", ["f.yaml: error: the document is empty"]),
        ("~\n", ["f.yaml: error: the document is empty"]),
        ("a: 1\na: 2\n", ["f.yaml:2:1: error: the key `a` is written twice\n    hint: first written on line 1"]),
        ("a: {b: 1, 'b': 2}\n",
         ["f.yaml:1:11: error: the key `b` is written twice\n    hint: first written on line 1"]),
        ("1: a\n'1': b\n", ["f.yaml:2:1: error: the key `1` is written twice\n    hint: first written on line 1"]),
        ("a: &x 1\n", ["f.yaml:1:4: error: anchors are not accepted (`&x`)\n    hint: write the value out instead"]),
        ("a: !!str 1\n",
         ["f.yaml:1:4: error: tags are not accepted\n    hint: leave the tag out; quotes make text of a number"]),
        ("a: 1\n---\nb: 2\n",
         ["f.yaml:2:1: error: a second document starts here\n    hint: keep one document per file"]),
        ("? [a]\n: 1\n", ["f.yaml:1:3: error: a key must be plain text"]),
        ("?\n: 1\n", ["f.yaml:1:2: error: a key is empty"]),
        ("a: [1\n", ["f.yaml:2:1: error: not valid YAML: did not find expected ',' or ']'"]),
        ("a:\n\tb: 1\n", ["f.yaml:2:1: error: not valid YAML: found character that cannot start any token"]),
        (b"a: \xff\n", ["f.yaml:1:1: error: the document is not UTF-8"]),
        (b"a: 1\nb: \xc3\x28\n", ["f.yaml:2:1: error: the document is not UTF-8"]),
        ("a: " + "1" * 41, ["f.yaml:1:4: error: the number is too long\n    hint: put quotes around it if it is text"]),
        ("a: 1e999", ["f.yaml:1:4: error: the number is too large"]),
        ("? " + "k" * 1025 + "\n: 1", ["f.yaml:1:3: error: a key is longer than 1024 characters"]),
    ],
)  # fmt: skip
def test_refusals(text: str | bytes, expected: list[str]) -> None:
    assert problems(text) == expected


def test_every_problem_is_reported_not_the_first() -> None:
    found = problems("a: &x 1\nb: *x\nc: 1\nc: !t 2\n")
    assert [line.split(": error: ")[0] for line in found] == ["f.yaml:1:4", "f.yaml:2:4", "f.yaml:4:4", "f.yaml:4:1"]


def test_a_merge_key_is_an_ordinary_key() -> None:
    assert document("<<: {a: 1}\n").data == {"<<": {"a": 1}}


def test_depth_is_bounded() -> None:
    deepest = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert isinstance(read(deepest.encode(), "f.yaml"), Document)
    assert problems(f"[{deepest}]") == [f"f.yaml:1:{MAX_DEPTH + 1}: error: nested deeper than {MAX_DEPTH} levels"]


def test_a_hostile_depth_ends_at_once() -> None:
    assert len(problems("[" * 1_000_000)) == 1


def test_size_is_bounded() -> None:
    assert problems(b" " * (MAX_BYTES + 1)) == [f"f.yaml: error: the document is larger than {MAX_BYTES} bytes"]


@given(st.binary(max_size=200))
def test_any_bytes_give_a_document_or_located_diagnostics(text: bytes) -> None:
    found = read(text, "f.yaml")
    if isinstance(found, tuple):
        assert found
        assert all(isinstance(diagnostic, Diagnostic) and diagnostic.location.file == "f.yaml" for diagnostic in found)


text = st.text(
    alphabet=st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufeff\ufffe\uffff\x85\u2028\u2029"),
    max_size=12,
)
plain = st.one_of(st.none(), st.booleans(), st.integers(-(10**15), 10**15), text)
nested = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcxyz", min_size=1, max_size=4), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abcxyz", min_size=1, max_size=4), nested, min_size=1))
def test_what_json_says_is_what_is_read(data: dict[str, object]) -> None:
    assert document(json.dumps(data, ensure_ascii=False)).data == data


def test_a_part_remembers_its_places() -> None:
    inner = document("a:\n  - b: 1\n    c: {d: 2}\n").part(("a", 0, "c"))
    assert inner.data == {"d": 2}
    assert inner.locate(("d",)) == Location("f.yaml", 3, 12)
    assert inner.locate_key(("d",)) == Location("f.yaml", 3, 9)
    assert inner.part(("d",)).locate(()) == Location("f.yaml", 3, 12)
