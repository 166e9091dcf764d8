"""Settings to files: the whole way of an event, with real threads and real files."""

import json
import os
import re
from dataclasses import replace

import pytest

from egress.events.bus import EventBus
from egress.events.redact import Redactor
from egress.events.settings import Standard, StderrMode
from egress.events.sinks import Sinks, build_sinks
from egress.model.clock import SystemClock
from tests.unit.events import samples
from tests.unit.events.test_redact import SECRET, planted_events


def emitted(settings, events, redactor: Redactor | None = None) -> Sinks:
    sinks = build_sinks(settings, SystemClock())
    bus = EventBus(sinks.all, redactor)
    for event in events:
        bus.emit(event)
    bus.close(5)
    assert bus.failures == 0
    return sinks


def names(sinks: Sinks) -> list[str]:
    return [sink.name for sink in sinks.all]


def test_both_files_tell_every_event(tmp_path):
    events = list(samples.KINDS.values())
    sinks = emitted(replace(samples.SETTINGS, directory=tmp_path), events)
    (ocsf,) = tmp_path.glob("egress-ocsf.*.log")
    (short,) = set(tmp_path.glob("egress.*.log"))
    records = [json.loads(line) for line in ocsf.read_text().splitlines()]
    assert len(records) == len(short.read_text().splitlines()) == len(events)
    assert len({record["metadata"]["uid"] for record in records}) == len(events)
    assert all(" OCSF " in line for line in short.read_text().splitlines())
    assert [event for _, event in sinks.ring.newest(1000)] == events
    assert b"egress_connections_total" in sinks.metrics.render()
    assert names(sinks) == ["ring", "metrics", "jsonl", "shorthand"]


def test_one_file_by_name(tmp_path):
    path = tmp_path / "sub" / "audit.jsonl"
    settings = replace(samples.SETTINGS, directory=tmp_path / "unused", jsonl_path=path, shorthand=False)
    sinks = emitted(settings, [samples.exchange()])
    assert json.loads(path.read_text())["class_uid"] == 4002
    assert names(sinks) == ["ring", "metrics", "jsonl"]
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["ring", "metrics"]),
        ({"shorthand": False, "stderr": StderrMode.ON}, ["ring", "metrics"]),
        ({"jsonl": False, "jsonl_path": Standard.STDOUT}, ["ring", "metrics"]),
    ],
)
def test_nothing_is_written_that_was_not_asked_for(changes, expected):
    assert names(emitted(replace(samples.SETTINGS, **changes), [samples.exchange()])) == expected


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        build_sinks(replace(samples.SETTINGS, directory=tmp_path / "file" / "log"), SystemClock())


def test_known_secrets_and_placeholders_reach_no_file(tmp_path):
    redactor = Redactor([re.compile(re.escape(SECRET))])
    planted = [*planted_events(SECRET), *planted_events("openshell:resolve:env:v7_API_TOKEN")]
    emitted(replace(samples.CONTAINED, directory=tmp_path), planted, redactor)
    text = "".join(path.read_text() for path in tmp_path.iterdir())
    assert len(text.splitlines()) == 2 * len(planted)
    assert SECRET not in text
    assert "API_TOKEN" not in text
    assert "[CREDENTIAL]" in text


def test_no_descriptor_is_left_open(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    emitted(replace(samples.SETTINGS, directory=tmp_path), [samples.exchange()])
    assert len(os.listdir("/proc/self/fd")) == before
