"""The gate must fail on a missed bar and on a figure nobody measured, and pass just inside the slack."""

import math

import pytest

from benchmarks.goals import GATE_SLACK, GOALS, Gate, Goal, Results, Sense, cpu_ms, gate_failures
from benchmarks.load import LoadResult
from benchmarks.measure import GATE, Sample

PEERS = ("egress", "egress-mitm", "squid", "mitmdump")
GATED = sum(goal.gate is Gate.GATED and goal.first is not None for goal in GOALS)


def window(cpu_seconds: float) -> LoadResult:
    """One request and one gigabyte, so that CPU per request and per GB are both `cpu_seconds`."""
    return LoadResult(1.0, 1, 1_000_000_000, cpu_seconds, 1.0, 1.0, 0, 0)


def results(**cost: float) -> Results:
    samples = [
        Sample(name, {key: window(cost[name.replace("-", "_")]) for key in GATE.windows})
        for name in PEERS
        if name.replace("-", "_") in cost
    ]
    return Results(samples)


def test_gate_passes_when_every_ratio_is_small():
    assert gate_failures(results(egress=0.01, egress_mitm=0.1, squid=1.0, mitmdump=1.0)) == []


def test_gate_names_the_one_ratio_that_is_missed():
    missed = gate_failures(results(egress=0.01, egress_mitm=2.0, squid=1.0, mitmdump=1.0))
    assert [line.split(":")[0] for line in missed] == [
        "mitm lane, HTTP/1 CPU / mitmdump",
        "mitm lane, HTTP/2 CPU / mitmdump",
    ]
    assert "2.000, the bar is <= 0.600 with 1.5x slack" in missed[0]


def test_gate_fails_on_every_bar_when_the_product_did_not_run():
    assert len(gate_failures(results(squid=1.0, mitmdump=1.0))) == GATED


@pytest.mark.parametrize(
    ("value", "met"), [(1.2 * GATE_SLACK, True), (1.2 * GATE_SLACK + 0.001, False), (math.nan, False)]
)
def test_slack_widens_an_upper_bar(value: float, met: bool):
    goal = Goal("any", lambda _: value, 1.2, 0.75)
    assert goal.met(value, 1.2, GATE_SLACK) is met


@pytest.mark.parametrize(("value", "met"), [(0.45, True), (0.449, False), (math.nan, False)])
def test_a_lower_bar(value: float, met: bool):
    goal = Goal("any", lambda _: value, 0.45, 0.5, Gate.SHOWN, Sense.AT_LEAST)
    assert goal.met(value, 0.45, 1) is met


def test_figures_are_medians_over_rounds():
    rounds = Results([Sample("squid", {"keep16": window(cost)}) for cost in (1.0, 9.0, 2.0)])
    assert rounds.window("squid", "keep16", cpu_ms) == 2000.0


def test_an_absent_figure_is_not_a_number():
    assert math.isnan(Results([]).window("squid", "keep16", cpu_ms))
    assert math.isnan(Results([Sample("squid", {})]).whole("squid", lambda s: s.idle_kb))
