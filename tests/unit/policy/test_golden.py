"""Documents and everything that is said about them, side by side in one file each."""

from pathlib import Path

import pytest

from egress.documents.diagnostic import render
from tests.unit.policy.samples import compilation

GOLDEN = Path(__file__).parent / "golden"
DIVIDER = "----- says -----\n"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.txt")), ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    text, _, expected = path.read_text().partition(DIVIDER)
    assert expected, f"{path.name} says nothing"
    found = compilation(text)
    assert render(found.diagnostics) == expected
    assert (found.policy is None) is (": error: " in expected)
