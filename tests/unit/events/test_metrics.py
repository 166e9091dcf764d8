from prometheus_client.parser import text_string_to_metric_families

from egress.events import metrics as module
from egress.events.metrics import Metrics
from egress.events.queued import Tally
from egress.model.outcome import ByteCounts
from egress.model.verdict import Audited, DenialCode
from tests.unit.events import samples


def samples_of(metrics: Metrics) -> dict[tuple[str, frozenset], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def fed(*events, tallies=None) -> Metrics:
    metrics = Metrics("0.1.0", tallies or {})
    for number, event in enumerate(events):
        metrics.offer((number, event))
    return metrics


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return samples_of(metrics).get((name, frozenset(labels.items())))


def test_connections_by_verdict_and_code():
    metrics = fed(samples.connection(), samples.connection(), samples.connection(samples.denial()))
    assert value(metrics, "egress_connections_total", verdict="allowed", code="") == 2
    assert value(metrics, "egress_connections_total", verdict="denied", code="policy_denied") == 1
    assert value(metrics, "egress_connection_decision_seconds_count") == 3
    assert value(metrics, "egress_connection_decision_seconds_bucket", le="0.0025") == 0
    assert value(metrics, "egress_connection_decision_seconds_bucket", le="0.005") == 3


def test_exchanges_by_verdict_code_protocol_lane_and_status():
    refused = samples.exchange(samples.denial(DenialCode.BODY_TOO_LARGE), status=413, protocol="mcp", lane="mitm")
    metrics = fed(
        samples.exchange(), samples.exchange(Audited(samples.denial())), refused, samples.exchange(status=None)
    )
    common = {"protocol": "rest", "lane": "http1"}
    name = "egress_exchanges_total"
    assert value(metrics, name, verdict="allowed", code="", status="2xx", **common) == 1
    assert value(metrics, name, verdict="allowed", code="", status="", **common) == 1
    assert value(metrics, name, verdict="audited", code="policy_denied", status="2xx", **common) == 1
    assert value(metrics, name, verdict="denied", code="body_too_large", status="4xx", protocol="mcp", lane="mitm") == 1


def test_bytes_and_durations():
    metrics = fed(
        samples.exchange(duration=0.02), samples.exchange(duration=500.0, counts=ByteCounts(1, 2)), samples.closed()
    )
    assert value(metrics, "egress_exchange_bytes_total", direction="sent", lane="http1") == 121
    assert value(metrics, "egress_exchange_bytes_total", direction="received", lane="http1") == 4098
    assert value(metrics, "egress_connection_bytes_total", direction="sent") == 2048
    assert value(metrics, "egress_connection_bytes_total", direction="received") == 65536
    assert value(metrics, "egress_connections_closed_total", outcome="complete", lane="http1") == 1
    name = "egress_exchange_duration_seconds"
    assert value(metrics, f"{name}_bucket", lane="http1", le="0.01") == 0
    assert value(metrics, f"{name}_bucket", lane="http1", le="0.025") == 1
    assert value(metrics, f"{name}_bucket", lane="http1", le="+Inf") == 2
    assert value(metrics, f"{name}_sum", lane="http1") == 500.02


def test_findings_states_and_generation():
    metrics = fed(
        samples.finding(),
        samples.state(extra=(("source", "file"),)),
        samples.state(word="invalid", policy_digest=""),
    )
    assert value(metrics, "egress_findings_total", type="openshell.middleware.failure", severity="high") == 1
    assert value(metrics, "egress_state_changes_total", state="loaded") == 1
    assert value(metrics, "egress_generation") == 7
    assert value(metrics, "egress_generation_info", digest="9f3c", source="file") == 1
    assert value(metrics, "egress_build_info", version="0.1.0") == 1


def test_losses_of_other_sinks_and_gauges():
    tally = Tally(dropped_allowed=4, dropped_protected=2, write_errors=3, unrendered=1)
    metrics = fed(samples.lifecycle(), tallies={"jsonl": tally})
    metrics.gauge("egress_connections_active", "Open now.", lambda: 17)
    assert value(metrics, "egress_events_dropped_total", sink="jsonl", **{"class": "allowed"}) == 4
    assert value(metrics, "egress_events_dropped_total", sink="jsonl", **{"class": "protected"}) == 2
    assert value(metrics, "egress_events_dropped_total", sink="jsonl", **{"class": "unrendered"}) == 1
    assert value(metrics, "egress_event_write_errors_total", sink="jsonl") == 3
    assert value(metrics, "egress_connections_active") == 17
    tally.write_errors = 9
    assert value(metrics, "egress_event_write_errors_total", sink="jsonl") == 9


def test_series_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "MAX_SERIES", 3)
    metrics = fed(*(samples.finding(type=f"plugin.{number}") for number in range(10)))
    assert value(metrics, "egress_findings_total", type="other", severity="other") == 7
    assert sum(1 for name, _ in samples_of(metrics) if name == "egress_findings_total") == 4


def test_two_instances_count_apart():
    one, two = fed(samples.connection()), fed()
    assert value(one, "egress_connections_total", verdict="allowed", code="") == 1
    assert value(two, "egress_connections_total", verdict="allowed", code="") is None
