"""What a placeholder is by its looks, and what hides none."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.credentials.placeholder import (
    ALIAS,
    MARKER_BYTES,
    PREFIX,
    Form,
    Placeholder,
    alias,
    contains_marker,
    contains_marker_text,
    find,
    has_raw_marker,
    percent_decoded,
    reserved_key,
    spell,
    whole,
)
from tests.unit.credentials.samples import A, P

HEX = "0123456789abcdef" * 4

PIECES = st.lists(
    st.sampled_from([
        P, A, "openshell", ":resolve:env:", "KEY", "v7_", f"s{HEX}_", "x", "-", ".", "~", " ", "%", "%6", "%6f", "%3A",
        "/", "\\", "\n", "é", "OPENSHELL", "-RESOLVE-ENV-", "%2d",
    ]),
    max_size=12,
).map(lambda parts: "".join(parts).encode())  # fmt: skip


def test_both_markers_have_the_length_that_the_guard_counts_on() -> None:
    assert len(PREFIX) == len(ALIAS) == MARKER_BYTES == 22


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("KEY", Placeholder("KEY", Form.PLAIN)),
        ("7", Placeholder("7", Form.PLAIN)),
        ("v7_KEY", Placeholder("KEY", Form.REVISIONED, revision=7)),
        ("v0_KEY", Placeholder("KEY", Form.REVISIONED, revision=0)),
        ("v18446744073709551615_K", Placeholder("K", Form.REVISIONED, revision=2**64 - 1)),
        ("v18446744073709551616_K", Placeholder("v18446744073709551616_K", Form.PLAIN)),
        ("v05_KEY", Placeholder("v05_KEY", Form.PLAIN)),  # never issued, so nothing that a number could match
        ("v_TOKEN", Placeholder("v_TOKEN", Form.PLAIN)),
        ("v10_", Placeholder("v10_", Form.PLAIN)),
        ("V7_KEY", Placeholder("V7_KEY", Form.PLAIN)),
        ("sshort_TOKEN", Placeholder("sshort_TOKEN", Form.PLAIN)),
        (f"s{HEX}_KEY", Placeholder("KEY", Form.STABLE, handle=HEX)),
        (f"s{HEX.upper()}_KEY", Placeholder(f"s{HEX.upper()}_KEY", Form.PLAIN)),
        (f"s{HEX}_v7_KEY", Placeholder("v7_KEY", Form.STABLE, handle=HEX)),
        ("v7_v8_KEY", Placeholder("v8_KEY", Form.REVISIONED, revision=7)),
    ],
)
def test_forms(inner: str, expected: Placeholder) -> None:
    assert whole((P + inner).encode()) == expected
    shaped = Placeholder(expected.key, expected.form, True, expected.revision, expected.handle)
    assert whole(f"sk-{A}{inner}".encode()) == shaped


@pytest.mark.parametrize(
    "text",
    ["", P, A, A + "KEY", P + "KEY ", " " + P + "KEY", P + "KEY-x", "x" + P + "KEY", P.upper() + "KEY",
     f"sk-{A}", f"sk-{A}-K", f"a b-{A}K", f"sk-{A}K.json", f"{P}A{P}B", P.replace(":", "%3A") + "KEY"],
)  # fmt: skip
def test_what_is_no_whole_placeholder(text: str) -> None:
    assert whole(text.encode()) is None


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (f"{P}A{P}B", [(0, 23, "A"), (23, 46, "B")]),
        (f"<{P}A>{P}B.", [(1, 24, "A"), (25, 48, "B")]),
        (f"bot{P}A", [(3, 26, "A")]),
        (f"{P}openshell", [(0, 31, "openshell")]),
        (f"{P}{P}A", [(0, 22, None), (22, 45, "A")]),
        (f"{P}-A", [(0, 22, None)]),
        (f"key=sk-{A}K;", [(4, 30, "K")]),
        (f"{A}K", [(0, 23, None)]),
        (f"a-{A}K.txt", [(0, 25, None)]),
        (f"{P}Ask-{A}K", [(0, 25, "Ask"), (25, 49, None)]),
        (f"a-{A}K{P}B", [(0, 25, None), (25, 48, "B")]),
        (f"{P}KEY_x", [(0, 27, "KEY_x")]),
    ],
)
def test_placeholders_in_a_text(text: str, tokens: list[tuple[int, int, str | None]]) -> None:
    found = [(one.start, one.end, one.token.key if one.token else None) for one in find(text.encode())]
    assert found == tokens


@given(PIECES)
def test_found_placeholders_lie_in_order_and_no_marker_lies_between(data: bytes) -> None:
    found = list(find(data))
    assert all(before.end <= after.start for before, after in pairwise(found))
    edges = [0, *[edge for one in found for edge in (one.start, one.end)], len(data)]
    assert not any(has_raw_marker(data[start:end]) for start, end in zip(edges[::2], edges[1::2], strict=True))
    assert bool(found) is has_raw_marker(data)


@given(PIECES)
def test_a_marker_is_seen_exactly_where_one_lenient_decode_shows_it(data: bytes) -> None:
    naive = re.sub(rb"%([0-9A-Fa-f]{2})", lambda match: bytes.fromhex(match[1].decode()), data)
    assert percent_decoded(data) == naive
    expected = any(marker in text for marker in (PREFIX, ALIAS) for text in (data, naive))
    assert contains_marker(data) is expected
    assert contains_marker_text(data.decode("latin-1")) is expected


@given(
    st.sampled_from([PREFIX, ALIAS]),
    st.lists(st.sampled_from(["raw", "%{:02x}", "%{:02X}"]), min_size=22, max_size=22),
    st.sampled_from([b"", b"%", b"%2", b"%%", b"a%4"]),
)
def test_any_byte_of_a_marker_may_be_encoded(marker: bytes, spellings: list[str], before: bytes) -> None:
    spelled = [
        bytes([byte]) if how == "raw" else how.format(byte).encode()
        for byte, how in zip(marker, spellings, strict=True)
    ]
    assert contains_marker(before + b"".join(spelled) + b"K")


@pytest.mark.parametrize(
    "text", [b"%+apenshell:resolve:env:K", b"%256fpenshell:resolve:env:K", b"openshell:resolve:env"]
)
def test_what_hides_no_marker(text: bytes) -> None:
    assert not contains_marker(text)


@pytest.mark.parametrize(
    ("key", "expected"),
    [("v7_KEY", True), ("v05_K", True), (f"s{HEX}_K", True), ("v_KEY", False), ("sabc_KEY", False), ("KEY", False)],
)
def test_keys_that_would_be_read_as_something_else(key: str, expected: bool) -> None:
    assert reserved_key(key) is expected


def test_spelling_and_reading_agree() -> None:
    assert whole(spell("K").encode()) == Placeholder("K", Form.PLAIN)
    assert whole(spell("K", revision=12).encode()) == Placeholder("K", Form.REVISIONED, revision=12)
    stable = spell("K", handle=HEX)
    assert whole(stable.encode()) == Placeholder("K", Form.STABLE, handle=HEX)
    shaped = alias(stable, "sk-ant-")
    assert shaped.startswith("sk-ant-")
    assert whole(shaped.encode()) == Placeholder("K", Form.STABLE, True, handle=HEX)


def test_a_crowd_of_placeholders_of_one_kind_is_read_once() -> None:
    """Looking for the other marker anew after each would read the text to its end thirty thousand times."""
    text = f"a-{A}K ".encode() * 30_000
    assert sum(found.token is not None for found in find(text)) == 30_000
