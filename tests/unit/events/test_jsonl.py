"""A joined line is the encoded record, whatever stands in it, and however often its parts were used before."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings

from egress.events import jsonl
from egress.events.jsonl import JsonLines, encode
from egress.events.mapping import EventIds, Mapper
from egress.model.outcome import RelayOutcome
from egress.model.verdict import Allow, RuleKind, RuleRef
from tests.unit.events import samples

IDS = EventIds()
LINES = JsonLines(samples.CONTAINED, IDS)
MAPPER = Mapper(samples.CONTAINED, IDS)


def expected(item):
    return json.loads(encode(MAPPER.record(item)))


@settings(max_examples=80, deadline=None)
@given(samples.events)
def test_line_equals_record(event):
    for number in (1, 2):
        line = LINES.render((number, event))
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        assert json.loads(line) == expected((number, event))


def test_every_kind_equals_its_record():
    for number, event in enumerate(samples.KINDS.values()):
        assert json.loads(LINES.render((number, event))) == expected((number, event))


def test_equal_numbers_at_one_time_give_equal_ids_everywhere():
    other = JsonLines(samples.SETTINGS, IDS)
    event = samples.exchange()
    first, second = json.loads(LINES.render((5, event))), json.loads(other.render((5, event)))
    assert first["metadata"]["uid"] == second["metadata"]["uid"]
    assert json.loads(LINES.render((6, event)))["metadata"]["uid"] != first["metadata"]["uid"]


def test_contexts_are_told_apart_by_identity():
    """Same values, then other values at what may be the same address in memory."""
    for port in range(1, 300):
        event = samples.exchange(context=samples.context(entry=f"entry_{port}"))
        assert json.loads(LINES.render((1, event)))["firewall_rule"]["name"] == f"entry_{port}"


def test_rules_are_told_apart_by_identity():
    for index in range(300):
        event = samples.exchange(Allow(RuleRef("git_read", 0, RuleKind.ALLOW, index)))
        assert json.loads(LINES.render((1, event)))["unmapped"]["decision_rule"].endswith(f"rules[{index}]")


@pytest.mark.parametrize(
    "change",
    [
        {"method": "POST"},
        {"protocol": "mcp"},
        {"status": 404},
        {"outcome": RelayOutcome.CUT},
        {"lane": "mitm"},
        {"verdict": Allow()},
        {"context": samples.context(entry="other")},
    ],
)
def test_outcomes_are_told_apart(change):
    lines = JsonLines(samples.CONTAINED, IDS)
    for event in (samples.exchange(), replace(samples.exchange(), **change)):
        assert json.loads(lines.render((1, event))) == expected((1, event))


def test_memory_is_bounded_against_methods_and_connections(monkeypatch):
    monkeypatch.setattr(jsonl, "MAX_CONTEXTS", 8)
    monkeypatch.setattr(jsonl, "MAX_OUTCOMES", 8)
    lines = JsonLines(samples.SETTINGS, IDS)
    for number in range(20):
        lines.render((1, samples.exchange(method=f"M{number}")))
    assert len(lines._outcomes) <= 8
    for _ in range(20):
        lines._connection(samples.context())
    assert len(lines._connections) == 8


@pytest.mark.parametrize("last", [samples.closed(outcome=RelayOutcome.CUT), samples.connection(samples.denial())])
def test_an_ended_connection_is_forgotten(last):
    lines = JsonLines(samples.SETTINGS, IDS)
    lines.render((1, samples.connection()))
    lines.render((2, samples.exchange()))
    assert len(lines._connections) == 1
    lines.render((3, last))
    assert len(lines._connections) == 0


def test_file_names_that_are_no_unicode_are_spelled_out():
    event = samples.exchange(context=samples.context(evidence=samples.evidence("/tmp/\udcff")))
    assert json.loads(LINES.render((1, event)))["actor"]["process"]["name"] == "/tmp/\\udcff"
