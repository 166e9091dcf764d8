"""Pydantic errors in an author's words, each at its line."""

from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, field_validator

from egress.documents.diagnostic import render
from egress.documents.validate import validate, validate_known
from egress.documents.yaml import Document, read


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    colour: Literal["red", "blue"] = "red"
    count: int = 0
    ratio: float = 0.0
    on: bool = False
    even: int = 0

    @field_validator("even")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("must be even\nadd one")
        return value


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    items: list[Inner] = []
    table: dict[str, Inner] = {}
    one: Inner | None = None


def rendered(text: str) -> str:
    document = read(text.encode(), "f.yaml")
    assert isinstance(document, Document)
    found = validate(Outer, document)
    return render(found) if isinstance(found, tuple) else "valid"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: a\nitems: [{count: 1}]\n", "valid"),
        ("items: []\n", "f.yaml:1:1: error: the key `name` is missing\n"),
        ("name: a\nitem: []\n", "f.yaml:2:1: error: unknown key `item`\n    hint: did you mean `items`?\n"),
        ("name: a\nzzz: []\n",
         "f.yaml:2:1: error: unknown key `zzz`\n    hint: known keys here: items, name, one, table\n"),
        ("name: a\nitems:\n- {color: red}\n",
         "f.yaml:3:4: error: items[0]: unknown key `color`\n    hint: did you mean `colour`?\n"),
        ("name: a\ntable:\n  x: {cuont: 1}\n",
         "f.yaml:3:7: error: table.x: unknown key `cuont`\n    hint: did you mean `count`?\n"),
        ("name: a\none: {rato: 1}\n",
         "f.yaml:2:7: error: one: unknown key `rato`\n    hint: did you mean `ratio`?\n"),
        ("name: 12\n", "f.yaml:1:7: error: name: must be text, not a number\n    hint: put quotes around it\n"),
        ("name:\n", "f.yaml:1:6: error: name: must be text, not empty\n"),
        ("name: a\none: {count: '3'}\n",
         "f.yaml:2:14: error: one.count: must be a whole number, not text\n    hint: leave the quotes out\n"),
        ("name: a\none: {count: 1.5}\n", "f.yaml:2:14: error: one.count: must be a whole number, not a number\n"),
        ("name: a\none: {on: yes}\n",
         "f.yaml:2:11: error: one.on: must be true or false, not text\n    hint: YAML 1.2 knows only true and false\n"),
        ("name: a\none: {colour: green}\n", "f.yaml:2:15: error: one.colour: must be one of `red` or `blue`\n"),
        ("name: a\none: {even: 3}\n", "f.yaml:2:13: error: one.even: must be even\n    hint: add one\n"),
        ("name: a\nitems: {}\n", "f.yaml:2:8: error: items: must be a list, not a mapping\n"),
        ("name: a\ntable: []\n", "f.yaml:2:8: error: table: must be a mapping, not a list\n"),
        ("name: a\nitems: [1]\n", "f.yaml:2:9: error: items[0]: must be a mapping, not a number\n"),
        ("name: a\nitems:\n",
         "f.yaml:2:7: error: items: must be a list, not empty\n    hint: leave the key out, or give it a value\n"),
        ("- a\n", "f.yaml:1:1: error: must be a mapping, not a list\n"),
    ],
)  # fmt: skip
def test_wording(text: str, expected: str) -> None:
    assert rendered(text) == expected


def test_all_errors_come_in_document_order() -> None:
    text = "items:\n- {count: x}\n- {colour: 1}\nextra: 1\n"
    lines = [line for line in rendered(text).splitlines() if "error" in line]
    assert [line.split(": ")[0] for line in lines] == ["f.yaml:1:1", "f.yaml:2:11", "f.yaml:3:12", "f.yaml:4:1"]


def test_no_value_is_repeated() -> None:
    assert "hunter2" not in rendered("name: a\none: {count: hunter2, on: hunter2, colour: hunter2}\n")


def known(text: str) -> tuple[Outer, str] | str:
    document = read(text.encode(), "f.yaml")
    assert isinstance(document, Document)
    found = validate_known(Outer, document, ("items",))
    if isinstance(found[0], Outer):
        return found[0], render(found[1])
    return render(found)


def test_foreign_keys_are_left_out_with_a_warning() -> None:
    found = known("name: a\nvendor: {x: 1}\none: {colour: red, weight: 3}\n")
    assert found == (
        Outer(name="a", one=Inner(colour="red")),
        "f.yaml:2:1: warning: unknown key `vendor`\n    hint: known keys here: items, name, one, table\n"
        "f.yaml:3:20: warning: one: unknown key `weight`\n"
        "    hint: known keys here: colour, count, even, on, ratio\n",
    )


def test_misspelt_keys_and_those_of_closed_parts_stay_errors() -> None:
    assert known("name: a\none: {colur: red}\n") == (
        "f.yaml:2:7: error: one: unknown key `colur`\n    hint: did you mean `colour`?\n"
    )
    assert known("name: a\nitems: [{weight: 3}]\nvendor: 1\n") == (
        "f.yaml:2:10: error: items[0]: unknown key `weight`\n"
        "    hint: known keys here: colour, count, even, on, ratio\n"
        "f.yaml:3:1: warning: unknown key `vendor`\n    hint: known keys here: items, name, one, table\n"
    )
    assert known("name: a\nitems: [{colour: red}]\n") == (Outer(name="a", items=[Inner()]), "")
