"""What is read of what a source gave: pointers, base64, ends, expiries, and what no value may hold."""

import base64
import json

import pytest

from egress.credentials.reading import VALUE_BYTES, Reading, read_expiry
from egress.sdk.secrets import BadSpec, Fetched, Secret, SourceUnavailable

NOW = 1_800_000_000.0
DOCUMENT = {
    "data": {"token": "t0ken", "a/b": "slash", "m~n": "tilde", "list": ["x", "y"], "n": 5, "": "empty"},
    "ends": "2027-01-15T08:00:00Z",
}


def read(reading: Reading, text: str, expires: float | None = None) -> tuple[str, float | None]:
    secret, ends = reading.read(Fetched.one(text, expires), "", NOW)
    return secret.reveal(), ends


def refusal(reading: Reading, fetched: Fetched, output: str = "") -> str:
    with pytest.raises(SourceUnavailable) as caught:
        reading.read(fetched, output, NOW)
    assert caught.value.__cause__ is None
    return caught.value.kind


@pytest.mark.parametrize(
    ("strip", "text", "value"),
    [
        ("newline", "v\n", "v"),
        ("newline", "v\r\n\n", "v"),
        ("newline", " v \n", " v "),
        ("all", "\t v \r\n", "v"),
        ("none", "v ", "v "),
    ],
)
def test_ends(strip: str, text: str, value: str) -> None:
    assert read(Reading(strip=strip), text) == (value, None)


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/data/token", "t0ken"),
        ("/data/a~1b", "slash"),
        ("/data/m~0n", "tilde"),
        ("/data/list/1", "y"),
        ("/data/", "empty"),
    ],
)
def test_pointers(pointer: str, value: str) -> None:
    assert read(Reading(json=pointer), json.dumps(DOCUMENT)) == (value, None)


@pytest.mark.parametrize(
    ("pointer", "text", "kind"),
    [
        ("/data/none", json.dumps(DOCUMENT), "no_such_field"),
        ("/data/list/2", json.dumps(DOCUMENT), "no_such_field"),
        ("/data/list/-1", json.dumps(DOCUMENT), "no_such_field"),
        ("/data/token/x", json.dumps(DOCUMENT), "no_such_field"),
        ("/data/n", json.dumps(DOCUMENT), "not_text"),
        ("/data", json.dumps(DOCUMENT), "not_text"),
        ("/data", "{secret", "not_json"),
        ("/data", "[" * 100_000, "not_json"),
    ],
)
def test_pointers_that_lead_nowhere(pointer: str, text: str, kind: str) -> None:
    assert refusal(Reading(json=pointer), Fetched.one(text)) == kind


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("value", ["a", "ab", "abc", "~~~???>>>"])
@pytest.mark.parametrize("padded", [True, False])
def test_base64_of_any_kind(encode, value: str, padded: bool) -> None:
    text = encode(value.encode()).decode()
    assert read(Reading(base64=True), f" {text if padded else text.rstrip('=')}\n") == (value, None)


def test_base64_after_a_pointer() -> None:
    text = json.dumps({"v": base64.b64encode(b"inner\n").decode()})
    assert read(Reading(json="/v", base64=True), text) == ("inner", None)


@pytest.mark.parametrize("text", ["&&&", "YQ==YQ==", "/w=="])
def test_base64_that_is_none(text: str) -> None:
    assert refusal(Reading(base64=True), Fetched.one(text)) == "not_base64"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "empty"),
        ("\n\n", "empty"),
        ("a\nb", "unsafe_value"),
        ("a\rb", "unsafe_value"),
        ("a\0", "unsafe_value"),
        ("x" * (VALUE_BYTES + 1), "too_large"),
        ("\u20ac" * VALUE_BYTES, "too_large"),
    ],
)
def test_what_no_value_holds(text: str, kind: str) -> None:
    assert refusal(Reading(), Fetched.one(text)) == kind


def test_the_longest_value() -> None:
    assert read(Reading(), "x" * VALUE_BYTES)[0] == "x" * VALUE_BYTES


def test_several_lines_for_our_own_use() -> None:
    assert Reading().text(Fetched.one("a\nb\n"), "") == "a\nb"


def test_outputs_by_name_and_the_one_without() -> None:
    several = Fetched({"A": Secret("1"), "B": Secret("2")})
    assert Reading().read(several, "B", NOW)[0].reveal() == "2"
    assert Reading().read(Fetched.one("only"), "B", NOW)[0].reveal() == "only"
    assert refusal(Reading(), several, "C") == "no_such_output"


def test_a_pointer_leads_into_the_document() -> None:
    fetched = Fetched({"A": Secret("1")}, document=Secret(json.dumps(DOCUMENT)))
    assert Reading(json="/data/token").read(fetched, "A", NOW)[0].reveal() == "t0ken"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2027-01-15T08:00:00Z", 1_800_000_000.0),
        ("2027-01-15T09:00:00+01:00", 1_800_000_000.0),
        ("2027-01-15T08:00:00.5", 1_800_000_000.5),
        (1_800_000_000, 1_800_000_000.0),
        ("1800000000", 1_800_000_000.0),
        (1_800_000_000_500, 1_800_000_000.5),
        ("1800000000500", 1_800_000_000.5),
    ],
)
def test_expiries(value: object, seconds: float) -> None:
    assert read_expiry(value) == seconds


@pytest.mark.parametrize("value", ["", "soon", True, None, [], "2027-13-01", "1e999", {"a": 1}])
def test_expiries_that_are_none(value: object) -> None:
    with pytest.raises(SourceUnavailable, match="unreadable_expiry"):
        read_expiry(value)


def test_when_a_value_expires() -> None:
    text = json.dumps(DOCUMENT)
    assert read(Reading(json="/data/token", expires="/ends"), text) == ("t0ken", 1_800_000_000.0)
    assert read(Reading(expires="+90m"), "v") == ("v", NOW + 5400)
    assert read(Reading(), "v", NOW + 5) == ("v", NOW + 5)
    assert read(Reading(expires="+1m"), "v", NOW + 5) == ("v", NOW + 60)


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"json": "data"}, "json"),
        ({"json": "/a~2"}, "json"),
        ({"strip": "some"}, "strip"),
        ({"expires": "+soon"}, "expires"),
        ({"expires": "soon"}, "expires"),
    ],
)
def test_readings_that_are_none(fields: dict[str, str], key: str) -> None:
    with pytest.raises(BadSpec) as caught:
        Reading(**fields)
    assert caught.value.path == (key,)
