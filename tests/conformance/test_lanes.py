"""The corpus in every lane: verdict, reply, upstream bytes and event of each case, whichever lane carries it.

All selected cases of a lane are played once, in order, against one proxy; each test then looks at its own trace.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.corpus import ANY, NOTHING, Case, Stage, Trace, joined_chunks, load
from tests.support.authorities import OriginAuthority
from tests.support.ocsf import problems, without_compatible_members
from tests.support.origins import Origin, OriginLoop
from tests.support.proxy import LANES, EgressProcess
from tests.support.raw import client_context

pytestmark = pytest.mark.timeout(300)  # the first test of the module plays all 2,600 runs

HOSTS = ("origin.test", "rules.test", "loose.test", "exact.test", "l4.test", "audit.test")

ALWAYS_BLOCKED = (
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "169.254.169.254", "169.254.7.7", "224.0.0.1", "::1", "::",
    "64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1", "2002:7f00:1::", "fe80::1", "ff02::1", "localhost",
)  # fmt: skip

RUNS = [(lane, case, mode) for lane in LANES for case in load() for mode in case.modes]


def policy(ports: list[int]) -> str:
    """Every host of the corpus on both origin ports, each with the one trait its cases are about."""
    full = {"protocol": "rest", "enforcement": "enforce", "access": "full"}
    rules = {
        "protocol": "rest",
        "enforcement": "enforce",
        "rules": [
            {"allow": {"method": "GET", "path": "/public/**"}},
            {"allow": {"method": "HEAD", "path": "/public/**"}},
            {"allow": {"method": "POST", "path": "/upload"}},
        ],
        "deny_rules": [
            {"method": "GET", "path": "/public/forbidden"},
            {"method": "*", "path": "/public/admin/**"},
        ],
    }
    traits: dict[str, dict[str, Any]] = {
        "origin.test": full,
        "rules.test": rules,
        "loose.test": {**full, "allow_encoded_slash": True, "allow_double_escape": True, "allow_backslash": True},
        "exact.test": {**full, "path_mode": "reject_noncanonical"},
        "l4.test": {},
        "audit.test": {**rules, "enforcement": "audit"},
    }
    entries = {
        host.partition(".")[0]: {
            "endpoints": [{"host": host, "ports": ports, **trait}],
            "binaries": [{"path": "/**"}],
        }
        for host, trait in traits.items()
    }
    entries["blocked"] = {
        "endpoints": [{"host": host, "port": 8443} for host in ALWAYS_BLOCKED],
        "binaries": [{"path": "/**"}],
    }
    return json.dumps({"version": 1, "network_policies": entries})


@pytest.fixture(scope="module")
def traces(
    request: pytest.FixtureRequest, origin_loop: OriginLoop, authority: OriginAuthority
) -> Iterator[dict[tuple[str, str, str], Trace]]:
    """Every selected run, played: by lane, case and mode."""
    wanted = {_parameters(item).get("run") for item in request.session.items}
    tls_origin = Origin(origin_loop, authority.server_context(*HOSTS))
    plain_origin = Origin(origin_loop)
    played: dict[tuple[str, str, str], Trace] = {}
    for lane, settings in LANES.items():
        runs = [(case, mode) for name, case, mode in RUNS if name == lane and (lane, case.id, mode) in wanted]
        if runs:
            played |= play_all(lane, settings, runs, authority, tls_origin, plain_origin)
    yield played
    tls_origin.stop()
    plain_origin.stop()


def _parameters(item: pytest.Item) -> dict[str, Any]:
    callspec = getattr(item, "callspec", None)
    return callspec.params if callspec else {}


def play_all(
    lane: str,
    settings: dict[str, Any],
    runs: list[tuple[Case, str]],
    authority: OriginAuthority,
    tls_origin: Origin,
    plain_origin: Origin,
) -> dict[tuple[str, str, str], Trace]:
    ports = [tls_origin.port, plain_origin.port]
    aliases = dict.fromkeys((*HOSTS, "other.test"), "127.0.0.1")
    with EgressProcess(policy(ports), aliases=aliases, trust=authority.ca_file, settings=settings) as proxy:
        stage = Stage(proxy.port, client_context(proxy.ca), tls_origin, plain_origin)
        traces = [stage.play(case, mode) for case, mode in runs]
        after_all = stage.play(Case("probe", ["GET <base>/probe HTTP/1.1\r\nHost: <authority>\r\n\r\n"]), "forward")
        proxy.stop()
        give_events([*traces, after_all], proxy.events())
    for trace, following in zip(traces, [*traces[1:], after_all], strict=True):
        trace.late, following.late = following.late, b""
    return {(lane, case.id, mode): trace for (case, mode), trace in zip(runs, traces, strict=True)}


def give_events(traces: list[Trace], events: list[dict[str, Any]]) -> None:
    """Each event to the latest run that used its client port before it happened."""
    by_port: dict[int, list[Trace]] = {}
    for trace in traces:
        by_port.setdefault(trace.client_port, []).append(trace)
    for event in events:
        port = event.get("src_endpoint", {}).get("port")
        began = [trace for trace in by_port.get(port, ()) if int(trace.began * 1000) <= event["time"]]
        if began:
            began[-1].events.append(event)


@pytest.fixture
def trace(run: tuple[str, str, str], traces: dict[tuple[str, str, str], Trace]) -> Trace:
    return traces[run]


def identify(run: tuple[str, Case, str]) -> str:
    lane, case, mode = run
    return f"{lane}-{case.file}-{case.id}-{mode}"


@pytest.mark.parametrize("run", [(lane, case.id, mode) for lane, case, mode in RUNS], ids=map(identify, RUNS))
def test_case(run: tuple[str, str, str], trace: Trace) -> None:
    case = trace.case
    assert trace.fault == "", told(trace)
    assert tuple(reply.status for reply in trace.replies) == case.statuses, told(trace)
    check_refusal(trace)
    check_reply(trace)
    check_upstream(trace)
    check_events(trace, lane=run[0])


def told(trace: Trace) -> str:
    """What happened, for the reader of a failure."""
    replies = [(reply.head, reply.body[:300]) for reply in trace.replies]
    return f"{trace.case.about}\nreplies: {replies}\nupstream: {trace.upstream[:600]!r}\nfault: {trace.fault}"


def check_refusal(trace: Trace) -> None:
    """The one envelope for every refusal, told as the last thing on the connection."""
    case, last = trace.case, trace.replies[-1]
    assert last.error == case.error, told(trace)
    if case.error is None:
        return
    envelope = last.json()
    assert {"error", "detail", "layer", "request_id", "retryable"} <= set(envelope)
    assert envelope.get("reason_code") == case.reason_code or case.reason_code is None
    assert last.value("content-type") == "application/json"
    assert last.value("connection") == "close"
    assert last.complete
    if case.error == "request_authority_mismatch":
        assert envelope["message"] == envelope["detail"]


def check_reply(trace: Trace) -> None:
    case, last = trace.case, trace.replies[-1]
    if case.interim != ANY:
        assert tuple(reply.status for reply in last.interim) == case.interim
    for name, value in case.reply.items():
        assert last.value(name) == value, name
    if case.reply_head is not None:
        assert trace.replies[0].head == trace.place.octets(case.reply_head)
    if case.body is not None:
        assert last.body == trace.place.octets(case.body)
    if case.trailers is not None:
        assert dict(last.trailers) == case.trailers
    assert last.complete == case.complete
    if case.closes:
        assert trace.closed is True


def check_upstream(trace: Trace) -> None:
    """Exactly the bytes that the case allows arrived at the origin, and none after the run."""
    case, place = trace.case, trace.place
    if case.upstream_never is not None:
        assert place.octets(case.upstream_never) not in trace.upstream + trace.late
    elif case.upstream_starts is not None:
        assert trace.upstream.startswith(place.octets(case.upstream_starts))
    elif case.upstream != ANY:
        expected = b"" if case.upstream == NOTHING else place.join(case.upstream)
        assert joined_chunks(trace.upstream) == joined_chunks(expected), told(trace)
        assert trace.late == b""


def check_events(trace: Trace, lane: str) -> None:
    """One decision event per refusal, under the request id the client was told; one per relayed request otherwise."""
    case = trace.case
    decisions = [event for event in trace.events if event["class_uid"] == 4002 or event.get("activity_name") == "Open"]
    if case.error is not None:
        request_id = trace.replies[-1].json()["request_id"]
        refused = [event for event in trace.events if event["metadata"].get("correlation_uid") == request_id]
        words = [event.get("status_detail") for event in refused if event.get("status") == "Failure"]
        assert words.count(case.error) == 1, words
        decided = next(event for event in refused if event.get("status_detail") == case.error)
        if case.reason_code is not None:
            assert decided["unmapped"]["reason_code"] == case.reason_code
    relayed = 0 if case.raw else sum(reply.status >= 200 and reply.error is None for reply in trace.replies)
    if trace.place.mode != "proxy":
        allowed = [event for event in decisions if event["class_uid"] == 4002 and event.get("action") == "Allowed"]
        assert len(allowed) == relayed
        assert {event["unmapped"]["lane"] for event in allowed} <= {lane}
        assert ["audited" in event["unmapped"] for event in allowed] == [case.audited] * relayed
    assert "token=hidden" not in json.dumps(trace.events)


def gist(event: dict[str, Any]) -> tuple[Any, ...]:
    """What an event says, without its ids, times, ports and the lane. Who of both sides was first to leave a finished
    connection is a race, so its end says only that it ended."""
    if event.get("activity_name") == "Close":
        return (event["type_name"], event["traffic"])
    unmapped = event.get("unmapped", {})
    request = event.get("http_request", {})
    return (
        event["type_name"],
        *(event.get(name) for name in ("action", "disposition", "status", "status_detail", "severity", "message")),
        request.get("http_method"),
        request.get("url", {}).get("path"),
        event.get("http_response", {}).get("code"),
        event.get("firewall_rule", {}).get("name"),
        event.get("firewall_rule", {}).get("type"),
        *(unmapped.get(name) for name in ("reason_code", "decision_rule", "audited", "protocol", "outcome", "limit")),
        event.get("traffic"),
    )


def test_lanes_tell_the_same(traces: dict[tuple[str, str, str], Trace]) -> None:
    differences = []
    for (lane, case, mode), first in traces.items():
        second = traces.get(("mitm", case, mode))
        if lane != "http1" or second is None or first.case.upstream_never or first.case.upstream_starts:
            continue
        told = [
            re.sub(rf"\b{trace.place.port}\b", "PORT", repr(sorted(map(gist, trace.events), key=repr)))
            for trace in (first, second)
        ]
        if told[0] != told[1]:
            differences.append((case, mode, *told))
    assert differences == [], "\n".join(map(str, differences))


def test_events_are_valid(traces: dict[tuple[str, str, str], Trace]) -> None:
    """One event of every shape that the corpus brought about, against the schema of OCSF 1.8.0."""
    shapes: dict[str, dict[str, Any]] = {}
    for trace in traces.values():
        for event in trace.events:
            own = (event["type_uid"], event["severity"], event.get("status_detail"), sorted(event["unmapped"]))
            if event["activity_name"] == "Other":  # OCSF knows nine methods; readers of OpenShell's logs want all
                event["http_request"].pop("http_method", None)
            shapes.setdefault(repr((*own, sorted(event))), event)
    faults = {shape: problems(without_compatible_members(event)) for shape, event in shapes.items()}
    assert {shape: found for shape, found in faults.items() if found} == {}
