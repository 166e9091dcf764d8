"""The inspection benchmark asks what it says: requests of the stated size that are allowed. Its figures are no test."""

import pytest

from benchmarks.inspection import goals


@pytest.mark.parametrize("name", goals())
def test_every_decision_can_be_made(name: str) -> None:
    assert goals()[name].decide()
