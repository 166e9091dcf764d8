"""Every question of the decision oracle that our stages can answer today."""

import pytest

from egress.documents.diagnostic import Severity
from egress.model.verdict import DenialCode, ReasonCode
from tests.oracle.rows import ROOT, Answer, Row, answer, compiled, rows

pytestmark = pytest.mark.skipif(not ROOT.exists(), reason="the decision oracle is not beside this checkout")

REQUEST_FAMILIES = ("connect", "rest", "routing", "websocket", "graphql", "jsonrpc", "mcp")
REQUEST_ROWS = [row for family in REQUEST_FAMILIES for row in rows(family)]

OTHER_WORDING = {
    "connect-029-05": "the pattern is an international name, which matches here in its xn-- form",
    "connect-039-00": "same",
    "routing-058-05": "the handshake is refused, so there is no message to name",
    "rest-053-06": "a deny path that ends in /** covers the bare prefix too",
}
"""Parity rows whose decision is the same but whose reason is ours."""


def in_order(row: Row) -> str:
    return row.id


@pytest.mark.parametrize("row", REQUEST_ROWS, ids=in_order)
def test_request_row(row: Row) -> None:
    given = answer(row)
    if not given.judged:
        assert given.decision == "deny"
        assert given.denial is not None
        assert given.denial.code is DenialCode.UNSUPPORTED_L7_PROTOCOL
        assert given.denial.hard
        return
    assert (given.decision, given.entry) == (row.expected["decision"], row.expected.get("policy"))
    if row.reason is not None and not words_it_itself(row, given):
        assert given.denial is not None
        assert given.denial.reason == row.reason


def words_it_itself(row: Row, given: Answer) -> bool:
    """Odd paths and requests outside every endpoint path are refused before rules are asked, with their own words."""
    return row.id in OTHER_WORDING or (
        given.denial is not None
        and (
            given.denial.code is DenialCode.INVALID_REQUEST_TARGET
            or given.denial.reason_code is ReasonCode.NO_ENDPOINT_PATH
        )
    )


@pytest.mark.parametrize("row", rows("load"), ids=in_order)
def test_load_row(row: Row) -> None:
    assert row.expected == {"decision": "load_error"}
    result = compiled(row.policy)
    assert result.policy is None
    assert any(diagnostic.severity is Severity.ERROR for diagnostic in result.diagnostics)


@pytest.mark.parametrize("policy", sorted({row.policy for row in REQUEST_ROWS}))
def test_policies_of_request_rows_load(policy: str) -> None:
    assert compiled(policy).policy is not None


def test_rest_and_connect_rows_are_all_judged() -> None:
    """A row that is answered `unsupported` must not hide in the families that are complete."""
    for row in [*rows("connect"), *rows("rest")]:
        assert answer(row).judged
