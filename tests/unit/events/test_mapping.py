"""Every record is valid OCSF 1.8.0 with its profiles, and says what readers rely on."""

import json
from dataclasses import replace

import pytest

from egress.events import ocsf
from egress.events.event import Event, Finding
from egress.events.findings import BY_CODE, finding_of
from egress.events.jsonl import encode
from egress.events.mapping import EventIds, Mapper
from egress.events.settings import Compat
from egress.model.intent import Ingress
from egress.model.outcome import RelayOutcome
from egress.model.verdict import Audited, Denial, DenialCode, ReasonCode, Stage
from tests.support.ocsf import problems, validator, without_compatible_members
from tests.unit.events import samples

IDS = EventIds()
STRICT = Mapper(replace(samples.CONTAINED, compat=Compat.OFF), IDS)
COMPATIBLE = Mapper(samples.CONTAINED, IDS)


@pytest.fixture(scope="module", autouse=True)
def _schemas_loaded() -> None:
    for kind in (ocsf.NETWORK, ocsf.HTTP, ocsf.FINDING, ocsf.CONFIG, ocsf.LIFECYCLE):
        validator(kind.uid, kind.profiles)


def record(event: Event, mapper: Mapper = STRICT) -> dict:
    return json.loads(encode(mapper.record((1, event))))


@pytest.mark.parametrize("name", samples.KINDS)
def test_every_kind_is_valid(name):
    assert problems(record(samples.KINDS[name])) == []


@pytest.mark.parametrize("name", samples.KINDS)
def test_compatible_records_add_nothing_else(name):
    found = without_compatible_members(record(samples.KINDS[name], COMPATIBLE))
    if name == "exchange odd method":
        assert found["http_request"].pop("http_method") == "PROPFIND"
    assert problems(found) == []


def test_the_validator_rejects():
    found = record(samples.exchange())
    assert problems({**found, "container": {"name": "x"}}) != []
    assert (
        problems(
            {key: found[key] for key in found if key != "metadata"}
            | {"metadata": {"profiles": found["metadata"]["profiles"]}}
        )
        != []
    )


@pytest.mark.parametrize("code", DenialCode, ids=lambda code: code.word)
@pytest.mark.parametrize("make", [samples.connection, samples.exchange])
def test_every_denial_code_is_valid(code, make):
    event = make(samples.denial(code, "why", Stage.L7, None))
    found = record(event)
    assert problems(found) == []
    assert found["status_detail"] == code.word
    assert found["status_id"] == 2
    extra = finding_of(event)
    if extra is not None:
        assert problems(record(extra)) == []


@pytest.mark.parametrize("mapper", [STRICT, COMPATIBLE])
def test_type_is_class_and_activity(mapper):
    for event in samples.KINDS.values():
        found = record(event, mapper)
        assert found["type_uid"] == found["class_uid"] * 100 + found["activity_id"]
        assert found["type_name"] == f"{found['class_name']}: {found['activity_name']}"
        assert None not in found.values()


@pytest.mark.parametrize(
    ("method", "activity"),
    [
        ("CONNECT", 1),
        ("DELETE", 2),
        ("GET", 3),
        ("HEAD", 4),
        ("OPTIONS", 5),
        ("POST", 6),
        ("PUT", 7),
        ("TRACE", 8),
        ("PATCH", 9),
        ("PROPFIND", 99),
    ],
)
def test_http_activity_is_the_method(method, activity):
    assert record(samples.exchange(method=method))["activity_id"] == activity


@pytest.mark.parametrize("mapper", [STRICT, COMPATIBLE])
def test_a_method_that_was_not_read_is_left_out(mapper):
    found = record(samples.exchange(samples.denial(), method="-"), mapper)
    assert "http_method" not in found["http_request"]
    assert "http_method" not in found["unmapped"]
    assert found["activity_id"] == 99


def test_an_odd_method_is_never_lost():
    assert record(samples.exchange(method="PROPFIND"))["unmapped"]["http_method"] == "PROPFIND"
    assert record(samples.exchange(method="PROPFIND"), COMPATIBLE)["http_request"]["http_method"] == "PROPFIND"


def test_allowed_exchange():
    found = record(samples.exchange())
    assert found["action"] == found["disposition"] == "Allowed"
    assert (found["severity_id"], found["status"]) == (1, "Success")
    assert found["http_request"] == {
        "http_method": "GET",
        "url": {"scheme": "https", "hostname": "git.example.org", "port": 443, "path": "/v2/items/9"},
    }
    assert found["http_response"] == {"code": 200}
    assert found["traffic"] == {"bytes_in": 4096, "bytes_out": 120}
    assert found["duration"] == 12
    assert found["time"] == 1_777_878_491_312
    assert found["firewall_rule"] == {"name": "git_read", "type": "l7"}
    assert found["src_endpoint"] == {"ip": "127.0.0.1", "port": 40112}
    assert found["dst_endpoint"] == {"domain": "git.example.org", "ip": "203.0.113.9", "port": 443}
    assert found["proxy_endpoint"] == {"ip": "127.0.0.1", "port": 3128}
    assert found["metadata"]["correlation_uid"] == f"{samples.FLOW}.3"
    assert found["unmapped"] == {
        "agent": "default",
        "policy_generation": 7,
        "policy_hash": "9f3c",
        "dial_mode": "public_only",
        "decision_rule": "git_read/endpoints[0]/rules[2]",
        "protocol": "rest",
        "lane": "http1",
        "outcome": "complete",
    }


def test_the_caller_and_its_ancestors():
    process = record(samples.exchange())["actor"]["process"]
    assert (process["name"], process["pid"], process["cmd_line"]) == ("/usr/bin/git", 311, "/srv/app/run.sh")
    assert process["parent_process"]["name"] == "/bin/bash"
    assert process["parent_process"]["parent_process"] == {"name": "/sbin/init", "pid": 1}


def test_an_unknown_caller_is_a_dash():
    assert record(samples.connection(samples.denial(), context=samples.UNKNOWN))["actor"] == {
        "process": {"name": "-", "pid": 0, "cmd_line": "-"}
    }


def test_denied_connection():
    found = record(samples.connection(samples.denial(log_reason="host is not listed", entry=None)))
    assert (found["class_uid"], found["activity_name"]) == (4001, "Open")
    assert (found["action"], found["disposition"], found["severity"]) == ("Denied", "Blocked", "Medium")
    assert (found["status_detail"], found["message"]) == ("policy_denied", "host is not listed")
    assert found["unmapped"]["reason_code"] == "no_matching_policy"
    assert found["metadata"]["correlation_uid"] == samples.FLOW
    assert found["connection_info"]["direction_id"] == 2
    assert found["is_src_dst_assignment_known"] is True


@pytest.mark.parametrize(
    ("code", "stage", "engine", "severity"),
    [
        (DenialCode.POLICY_DENIED, Stage.POLICY, "opa", "Medium"),
        (DenialCode.SSRF_DENIED, Stage.DESTINATION, "ssrf", "Medium"),
        (DenialCode.TLS_TERMINATION_UNAVAILABLE, Stage.TLS, "tls", "High"),
        (DenialCode.REQUEST_AUTHORITY_MISMATCH, Stage.L7, "request-authority", "High"),
        (DenialCode.INTERNAL_ERROR, Stage.L7, "l7", "High"),
        (DenialCode.OVERLOADED, Stage.ACCEPT, "accept", "Low"),
    ],
)
def test_engine_and_severity_of_denials(code, stage, engine, severity):
    found = record(samples.connection(samples.denial(code, "why", stage, None)))
    assert (found["firewall_rule"]["type"], found["severity"], found["action"]) == (engine, severity, "Denied")


@pytest.mark.parametrize(
    ("protocol", "engine"),
    [("rest", "l7"), ("graphql", "l7-graphql"), ("json-rpc", "l7-jsonrpc"), ("mcp", "l7-mcp"), ("l4", "opa")],
)
def test_engine_follows_the_protocol(protocol, engine):
    assert record(samples.exchange(protocol=protocol))["firewall_rule"]["type"] == engine


def test_a_failed_way_out_is_no_denial():
    failed = samples.denial(DenialCode.UPSTREAM_UNREACHABLE, "refused", Stage.UPSTREAM, ReasonCode.CONNECT_REFUSED)
    found = record(samples.connection(failed))
    assert (found["activity_name"], found["severity"], found["status"]) == ("Fail", "Low", "Failure")
    assert "action_id" not in found
    assert "disposition_id" not in found


def test_a_changed_policy_names_no_rule():
    assert "firewall_rule" not in record(samples.exchange(samples.denial(reason_code=ReasonCode.POLICY_CHANGED)))


def test_a_denied_absolute_form_request_is_an_http_event():
    found = record(samples.KINDS["forward denied"])
    assert (found["class_uid"], found["activity_name"]) == (4002, "Post")
    assert found["http_request"]["url"]["path"] == "/in"
    assert record(samples.KINDS["forward unreadable"])["http_request"]["url"] == {"path": "/[INVALID_REQUEST_TARGET]"}
    assert record(samples.KINDS["forward allowed"])["class_uid"] == 4001


def test_audit_counts_as_allowed_and_says_so():
    found = record(samples.exchange(Audited(samples.denial(stage=Stage.L7, rule=samples.RULE))))
    assert (found["action"], found["severity"], found["status"]) == ("Allowed", "Informational", "Success")
    assert found["unmapped"]["audited"] == "policy_denied"
    assert found["unmapped"]["reason_code"] == "no_matching_policy"


@pytest.mark.parametrize("verdict", [lambda denial: denial, Audited])
def test_an_operation_is_named(verdict):
    denial = samples.denial(stage=Stage.L7, operation="tools/call drop")
    assert record(samples.exchange(verdict(denial), protocol="mcp"))["unmapped"]["operation"] == "tools/call drop"
    assert "operation" not in record(samples.exchange(samples.denial(stage=Stage.L7)))["unmapped"]


def test_an_allowed_exchange_that_broke_is_a_failure():
    found = record(samples.exchange(outcome=RelayOutcome.UPSTREAM_GONE))
    assert (found["action"], found["status"], found["status_detail"]) == ("Allowed", "Failure", "upstream_gone")


def test_close_has_bytes_and_duration():
    found = record(samples.closed(outcome=RelayOutcome.CUT, limit="timeouts.keepalive"))
    assert (found["activity_name"], found["duration"]) == ("Close", 12500)
    assert found["traffic"] == {"bytes_in": 65536, "bytes_out": 2048}
    assert (found["status_detail"], found["unmapped"]["limit"]) == ("cut", "timeouts.keepalive")
    assert found["unmapped"]["exchanges"] == 17


def test_finding_uid():
    strict, compatible = record(samples.finding()), record(samples.finding(), COMPATIBLE)
    assert strict["finding_info"]["uid"] == strict["metadata"]["uid"]
    assert strict["finding_info"]["types"] == ["openshell.middleware.failure"]
    assert compatible["finding_info"]["uid"] == "openshell.middleware.failure"
    assert strict["is_alert"] is True
    assert strict["evidences"][0]["dst_endpoint"]["domain"] == "git.example.org"
    assert record(samples.finding(blocked=False))["disposition"] == "Detected"


@pytest.mark.parametrize(
    ("word", "number"), [("loaded", 2), ("disabled", 1), ("REJECTED", 1), ("fail_closed", 99), ("degraded", 99)]
)
def test_state_words(word, number):
    found = record(samples.state(word=word), COMPATIBLE)
    assert (found["state"], found["state_id"]) == (word, number)
    assert found["security_states"] == [{"state_id": 99, "state": word}]
    assert found["unmapped"]["policy_version"] == "7"


def test_container_stands_in_the_device_and_for_old_readers_on_top():
    inside, outside = record(samples.exchange(), COMPATIBLE), record(samples.exchange(), Mapper(samples.SETTINGS, IDS))
    assert inside["device"]["container"] == inside["container"]
    assert inside["container"]["image"]["name"] == "images.test/agent:3"
    assert (inside["device"]["type_id"], outside["device"]["type_id"]) == (6, 1)
    assert "container" not in outside
    assert "container" not in record(samples.exchange())


def test_event_ids_are_uuids_of_version_7_and_differ():
    ids = EventIds()
    made = [ids.of(1_777_878_491_312 + number // 3, number) for number in range(1000)]
    assert len(set(made)) == 1000
    assert made == sorted(made)
    for text in made[:3]:
        assert [len(group) for group in text.split("-")] == [8, 4, 4, 4, 12]
        assert text[14] == "7"
        assert text[19] in "89ab"
        assert int(text.replace("-", "")[:12], 16) == 1_777_878_491_312


@pytest.mark.parametrize("code", BY_CODE)
@pytest.mark.parametrize("make", [samples.connection, samples.exchange])
def test_some_denials_are_findings(code, make):
    found = finding_of(make(samples.denial(code, "why", Stage.L7, None)))
    assert isinstance(found, Finding)
    assert (found.type, found.title, found.severity) == BY_CODE[code]
    assert found.context is samples.CONTEXT
    assert found.exchange == (f"{samples.FLOW}.3" if make is samples.exchange else None)


@pytest.mark.parametrize(
    "event", [samples.connection(), samples.connection(samples.denial()), samples.state(), samples.notice()]
)
def test_most_events_are_not(event):
    assert finding_of(event) is None


def test_forward_findings_keep_the_flow_as_correlation():
    event = samples.connection(
        Denial(Stage.L7, DenialCode.REQUEST_AUTHORITY_MISMATCH, "why"), context=samples.context(ingress=Ingress.FORWARD)
    )
    extra = finding_of(event)
    assert extra is not None
    assert record(extra)["metadata"]["correlation_uid"] == samples.FLOW


def test_a_notice_about_allowed_traffic() -> None:
    found = record(samples.notice())
    assert (found["class_uid"], found["activity_name"], found["disposition"]) == (4001, "Traffic", "Allowed")
    assert found["message"] == "SigV4 re-signed things.test:443 service=s3"
    assert found["unmapped"]["payload_bytes"] == "12"
    assert found["metadata"]["correlation_uid"] == f"{samples.FLOW}.3"
