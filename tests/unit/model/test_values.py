"""Small values that everything else leans on."""

import re
from dataclasses import FrozenInstanceError

import pytest

from egress.model.body import CHUNKED, NO_BODY, UNTIL_CLOSE, of_length
from egress.model.errors import ConfigError, DependencyError, EgressError, LimitExceeded, PeerError, Side
from egress.model.ids import FlowId, exchange_id, new_flow_id, new_id
from egress.model.limits import LIMITS, Limits
from egress.model.process import Process, ProcessEvidence
from egress.model.verdict import Denial, DenialCode, RuleKind, RuleRef, Stage


def test_ids_are_version_7_unique_and_sort_by_time() -> None:
    made = [new_id() for _ in range(2000)]
    assert all(
        re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", one) for one in made
    )
    assert len(set(made)) == 2000
    times = [one[:13] for one in made]
    assert times == sorted(times)


def test_an_exchange_is_named_after_its_flow() -> None:
    flow = new_flow_id()
    assert exchange_id(flow, 3) == f"{flow}.3"
    assert exchange_id(FlowId("f"), 1) != exchange_id(FlowId("f"), 11)


def test_framings_that_are_empty() -> None:
    assert [framing.empty for framing in (NO_BODY, of_length(0), of_length(1), CHUNKED, UNTIL_CLOSE)] == [
        True, True, False, False, False,
    ]  # fmt: skip


def test_rules_are_named_by_their_place() -> None:
    assert RuleRef("api", 0, RuleKind.ALLOW, 2).id == "api/endpoints[0]/rules[2]"
    assert RuleRef("api", 1, RuleKind.DENY, 0).id == "api/endpoints[1]/deny_rules[0]"


def test_values_do_not_change() -> None:
    denial = Denial(Stage.L7, DenialCode.POLICY_DENIED, "no")
    with pytest.raises(FrozenInstanceError):
        denial.reason = "yes"  # type: ignore[misc]


def test_the_first_owner_speaks() -> None:
    owners = (Process(1, 1, "/bin/a"), Process(2, 1, "/bin/b"))
    assert ProcessEvidence(owners).executable == "/bin/a"


def test_every_exception_on_purpose_has_one_root() -> None:
    made = (
        ConfigError(("x",)), PeerError(Side.UPSTREAM, "gone"), DependencyError("names", "down"), LimitExceeded("x"),
    )  # fmt: skip
    assert all(isinstance(error, EgressError) for error in made)
    assert str(made[2]) == "names: down"


def test_every_limit_is_a_positive_number() -> None:
    assert isinstance(LIMITS, Limits)
    values = {name: getattr(LIMITS, name) for name in Limits.__dataclass_fields__}
    assert all(value > 0 for value in values.values()), values
    assert LIMITS.proxy_head_bytes <= LIMITS.tunnel_head_bytes <= LIMITS.stream_buffer
