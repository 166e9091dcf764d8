"""Every question of the decision oracle, asked of our own stages."""

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
    "routing-001-00": "a deny rule over method and path fires, and is named",
    "routing-001-02": "same",
    "rest-053-06": "a deny path that ends in /** covers the bare prefix too",
}
"""Parity rows whose decision is the same but whose reason is ours."""

UNREADABLE = (
    DenialCode.INVALID_REQUEST_TARGET,
    DenialCode.INVALID_JSONRPC_REQUEST,
    DenialCode.UNSUPPORTED_METHOD,
)

OURS = {
    "websocket-012-06": ("deny", "a message with two `type` keys is refused, since parsers differ on which one counts"),
    "mcp-028-00": ("allow", "decision 32: a notification of `tools/call` is judged like the call that it allows"),
}
"""Parity rows whose decision is ours."""


def in_order(row: Row) -> str:
    return row.id


@pytest.mark.parametrize("row", REQUEST_ROWS, ids=in_order)
def test_request_row(row: Row) -> None:
    given = answer(row)
    if row.id in OURS:
        assert given.decision == OURS[row.id][0] != row.expected["decision"]
        return
    assert (given.decision, given.entry) == (row.expected["decision"], row.expected.get("policy"))
    if row.reason is not None and not words_it_itself(row, given):
        assert given.denial is not None
        assert given.denial.reason == row.reason


def words_it_itself(row: Row, given: Answer) -> bool:
    """What cannot be read, or is outside every endpoint path, is refused before rules are asked, with its own words."""
    return row.id in OTHER_WORDING or (
        given.denial is not None
        and (given.denial.code in UNREADABLE or given.denial.reason_code is ReasonCode.NO_ENDPOINT_PATH)
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
