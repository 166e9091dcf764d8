"""Whatever stands in a document, the answer is a policy or located errors: never an exception, never both."""

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from egress.documents.diagnostic import has_errors, render
from egress.documents.yaml import Document, read
from egress.policy.compile import compile_policy
from tests.unit.policy.test_golden import DIVIDER, GOLDEN

SEEDS = [
    document.data
    for path in sorted(Path(GOLDEN).glob("*.txt"))
    if isinstance(document := read(path.read_text().partition(DIVIDER)[0].encode(), path.name), Document)
]
values = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 70000), st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "*", "**", "/**", "[", "{a,b}", "rest", "mcp", "tcp", "10.0.0.0/8", "${X}", "a.test"]),
    st.lists(st.sampled_from(["a", "/a", "*", ""]), max_size=2),
    st.dictionaries(st.sampled_from(["path", "any", "glob", "x", "host"]), st.sampled_from(["a", "", "["]), max_size=2),
)  # fmt: skip


def spots(data: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(spot for key, value in items for spot in spots(value, (*path, key)))]


def replaced(data: object, path: tuple[object, ...], value: object) -> object:
    if not path:
        return value
    key, *rest = path
    if isinstance(data, dict):
        return {**data, key: replaced(data[key], tuple(rest), value)}
    assert isinstance(data, list)
    assert isinstance(key, int)
    return [*data[:key], replaced(data[key], tuple(rest), value), *data[key + 1 :]]


@settings(max_examples=150)
@given(st.data())
def test_one_value_replaced_by_another(data: st.DataObject) -> None:
    authored = data.draw(st.sampled_from(SEEDS))
    path = data.draw(st.sampled_from(spots(authored)))
    text = json.dumps(replaced(authored, path, data.draw(values)), ensure_ascii=False)
    document = read(text.encode(), "f.yaml")
    if isinstance(document, tuple):
        return
    found = compile_policy([document])
    assert (found.policy is None) is has_errors(found.diagnostics)
    assert all(one.location.file == "f.yaml" and one.location.line == 1 for one in found.diagnostics), render(
        found.diagnostics
    )
