"""Events to test with, and Hypothesis strategies for hostile ones."""

import ipaddress
from dataclasses import replace

from hypothesis import strategies as st

from egress.events.event import (
    ConnectionClosed,
    ConnectionDecided,
    ExchangeDecided,
    Finding,
    FlowContext,
    Lifecycle,
    LifecycleStep,
    Notice,
    Severity,
    StateChange,
)
from egress.events.settings import Device, EventSettings
from egress.model.address import Host, Origin, Port, Scheme, parse_host
from egress.model.destination import DialMode
from egress.model.ids import ExchangeId, FlowId, GenerationNumber
from egress.model.intent import AgentName, Ingress, SocketPair
from egress.model.outcome import ByteCounts, RelayOutcome
from egress.model.process import EvidenceUnavailable, Process, ProcessEvidence, UnavailableReason
from egress.model.verdict import (
    Allow,
    Audited,
    Denial,
    DenialCode,
    ReasonCode,
    RuleKind,
    RuleRef,
    Stage,
)

FLOW = FlowId("01f0c3a2-7d40-7abc-9def-0123456789ab")
TIME = 1_777_878_491.312  # 2026-05-04T07:08:11.312Z
PAIR = SocketPair(ipaddress.ip_address("127.0.0.1"), Port(40112), ipaddress.ip_address("127.0.0.1"), Port(3128))
SETTINGS = EventSettings(Device("sandbox-7"), "0.1.0")
CONTAINED = EventSettings(Device("sandbox-7", "build-1", "images.test/agent:3"), "0.1.0")


def evidence(executable: str = "/usr/bin/git", pid: int = 311, sha256: str | None = None) -> ProcessEvidence:
    return ProcessEvidence(
        owners=(Process(pid, 900, executable, sha256),),
        ancestors=(Process(300, 800, "/bin/bash"), Process(1, 1, "/sbin/init")),
        command_paths=("/srv/app/run.sh",),
        uid=1000,
    )


CONTEXT = FlowContext(
    flow=FLOW,
    client=PAIR,
    agent=AgentName("default"),
    ingress=Ingress.CONNECT,
    origin=Origin(Scheme.HTTPS, parse_host("git.example.org"), Port(443)),
    evidence=evidence(),
    entry="git_read",
    generation=GenerationNumber(7),
    policy_digest="9f3c",
    dial_mode=DialMode.PUBLIC_ONLY,
    address=ipaddress.ip_address("203.0.113.9"),
)
UNKNOWN = FlowContext(FLOW, PAIR, None, None, None, EvidenceUnavailable(UnavailableReason.OFF, "identity is off"))

RULE = RuleRef("git_read", 0, RuleKind.ALLOW, 2, "policy.yaml:12:9")


def context(**changes: object) -> FlowContext:
    return replace(CONTEXT, **changes)


def denial(
    code: DenialCode = DenialCode.POLICY_DENIED,
    reason: str = "no matching policy",
    stage: Stage = Stage.POLICY,
    reason_code: ReasonCode | None = ReasonCode.NO_MATCHING_POLICY,
    **more: object,
) -> Denial:
    return Denial(stage, code, reason, reason_code, **more)


def connection(verdict: Allow | Audited | Denial | None = None, **changes: object) -> ConnectionDecided:
    event = ConnectionDecided(CONTEXT, TIME, 0.0042, verdict or Allow(), inspected=True)
    return replace(event, **changes)


def exchange(verdict: Allow | Audited | Denial | None = None, **changes: object) -> ExchangeDecided:
    event = ExchangeDecided(
        context=CONTEXT,
        exchange=ExchangeId(f"{FLOW}.3"),
        time=TIME,
        duration=0.0125,
        method="GET",
        path="/v2/items/9",
        verdict=verdict or Allow(RULE),
        protocol="rest",
        status=200,
        outcome=RelayOutcome.COMPLETE,
        counts=ByteCounts(120, 4096),
        lane="http1",
    )
    return replace(event, **changes)


def closed(**changes: object) -> ConnectionClosed:
    event = ConnectionClosed(CONTEXT, TIME, 12.5, RelayOutcome.COMPLETE, ByteCounts(2048, 65536), "http1", 17)
    return replace(event, **changes)


def finding(**changes: object) -> Finding:
    event = Finding(TIME, "openshell.middleware.failure", "A stage failed", Severity.HIGH, CONTEXT)
    return replace(event, **changes)


def notice(**changes: object) -> Notice:
    facts = (("payload_bytes", "12"),)
    event = Notice(TIME, "SigV4 re-signed things.test:443 service=s3", CONTEXT, ExchangeId(f"{FLOW}.3"), facts)
    return replace(event, **changes)


def state(**changes: object) -> StateChange:
    event = StateChange(TIME, "loaded", "Policy loaded", Severity.INFO, GenerationNumber(7), "9f3c")
    return replace(event, **changes)


def lifecycle(step: LifecycleStep = LifecycleStep.START, **changes: object) -> Lifecycle:
    return replace(Lifecycle(TIME, step), **changes)


LISTENING = lifecycle(LifecycleStep.LISTEN, address="127.0.0.1:3128")

# Every kind of event, allowed, softened and refused, known and unknown.
KINDS = {
    "connection allowed": connection(),
    "connection allowed by rule": connection(Allow(RULE), context=context(evidence=evidence(sha256="ab" * 32))),
    "connection denied": connection(denial()),
    "connection audited": connection(Audited(denial())),
    "connection unknown": connection(
        denial(DenialCode.MALFORMED_REQUEST, "bad head", Stage.ACCEPT, None), context=UNKNOWN
    ),
    "connection policy changed": connection(denial(reason_code=ReasonCode.POLICY_CHANGED)),
    "forward allowed": connection(context=context(ingress=Ingress.FORWARD), method="POST", path="/in"),
    "forward denied": connection(denial(), context=context(ingress=Ingress.FORWARD), method="POST", path="/in"),
    "forward unreadable": connection(denial(), context=replace(UNKNOWN, ingress=Ingress.FORWARD), method="GET"),
    "closed": closed(),
    "closed by us": closed(outcome=RelayOutcome.CUT, limit="timeouts.keepalive", lane=None),
    "exchange allowed": exchange(),
    "exchange layer 4": exchange(Allow(), protocol="l4"),
    "exchange denied": exchange(denial(stage=Stage.L7, rule=RULE), status=403, outcome=RelayOutcome.DENIED),
    "exchange audited": exchange(Audited(denial(stage=Stage.L7, rule=RULE))),
    "exchange broken": exchange(status=None, outcome=RelayOutcome.UPSTREAM_GONE),
    "exchange mcp": exchange(protocol="mcp", method="POST"),
    "exchange odd method": exchange(method="PROPFIND"),
    "exchange to address": exchange(
        context=context(origin=Origin(Scheme.HTTP, Host("2001:db8::1", literal=True), Port(8080)), address=None)
    ),
    "exchange of nobody": exchange(context=context(evidence=None, agent=AgentName("build-1"))),
    "finding": finding(),
    "finding without connection": finding(context=None, severity=Severity.MEDIUM, blocked=False),
    "finding with evidence": finding(evidence=(("header", "host"),), exchange=ExchangeId(f"{FLOW}.3")),
    "state good": state(),
    "state off": state(word="disabled", generation=None, policy_digest=""),
    "state other": state(word="fail_closed", severity=Severity.HIGH, extra=(("source", "file"), ("errors", "3"))),
    "start": lifecycle(),
    "start failed": lifecycle(ok=False),
    "stop": lifecycle(LifecycleStep.STOP),
    "listen": LISTENING,
    "listen v6": lifecycle(LifecycleStep.LISTEN, address="[::1]:3128"),
}

hostile_text = st.text(st.characters(exclude_categories=()), max_size=60) | st.sampled_from(
    [
        "line\nbreak",
        "carriage\r\nreturn",
        'quote " and \\ back',
        "[policy:x engine:y] [reason:z]",
        "separators \x85\u2028\u2029\x1c\x0b",
        "invalid \udcff\udc80 utf-8",
        "x" * 10_000,
        "é" * 5_000,
    ]
)

_rules = st.builds(
    RuleRef, hostile_text, st.integers(0, 9), st.sampled_from(RuleKind), st.integers(0, 99), st.just("p.yaml:1:1")
)
_denials = st.builds(
    Denial,
    st.sampled_from(Stage),
    st.sampled_from(DenialCode),
    hostile_text,
    st.none() | st.sampled_from(ReasonCode),
    st.none() | hostile_text,
    st.none() | _rules,
    st.none() | hostile_text,
)
verdicts = st.builds(Allow, st.none() | _rules) | st.builds(Audited, _denials) | _denials
_names = st.from_regex(r"[a-z0-9_-]{1,20}(\.[a-z]{2,8}){1,2}", fullmatch=True)
_origins = st.builds(
    Origin,
    st.sampled_from([Scheme.HTTP, Scheme.HTTPS]),
    st.builds(Host, _names, st.just(False)) | st.just(Host("2001:db8::1", True)),
    st.integers(1, 65535),
)
_evidence = st.none() | st.builds(evidence, hostile_text, st.integers(1, 99999))
contexts = st.builds(
    FlowContext,
    st.just(FLOW),
    st.just(PAIR),
    st.none() | hostile_text,
    st.none() | st.sampled_from(Ingress),
    st.none() | _origins,
    _evidence,
    st.none() | hostile_text,
    st.none() | st.integers(0, 99),
    st.sampled_from(["", "9f3c"]),
    st.none() | st.sampled_from(DialMode),
)
_seconds = st.floats(0, 1e5)
_times = st.floats(0, 4e9)
_counts = st.builds(ByteCounts, st.integers(0, 2**40), st.integers(0, 2**40))
exchanges = st.builds(
    ExchangeDecided,
    contexts,
    st.builds(lambda number: ExchangeId(f"{FLOW}.{number}"), st.integers(0, 10**6)),
    _times,
    _seconds,
    hostile_text | st.sampled_from(["GET", "POST", "DELETE", "PROPFIND"]),
    hostile_text,
    verdicts,
    st.sampled_from(["rest", "graphql", "mcp", "json-rpc", "websocket", "l4"]),
    st.none() | st.integers(100, 599),
    st.sampled_from(RelayOutcome),
    _counts,
    st.sampled_from(["http1", "mitm"]),
)
events = (
    exchanges
    | st.builds(
        ConnectionDecided, contexts, _times, _seconds, verdicts, st.booleans(), hostile_text, st.none() | hostile_text
    )
    | st.builds(
        ConnectionClosed,
        contexts,
        _times,
        _seconds,
        st.sampled_from(RelayOutcome),
        _counts,
        st.none(),
        st.integers(0, 9),
    )
    | st.builds(
        Finding,
        _times,
        hostile_text,
        hostile_text,
        st.sampled_from(Severity),
        st.none() | contexts,
        st.booleans(),
        st.lists(st.tuples(hostile_text, hostile_text), max_size=3).map(tuple),
    )
    | st.builds(
        StateChange,
        _times,
        hostile_text,
        hostile_text,
        st.sampled_from(Severity),
        st.none() | st.integers(0, 9),
        hostile_text,
        st.lists(st.tuples(st.sampled_from(["source", "auto", "x"]), hostile_text), max_size=3).map(tuple),
    )
    | st.sampled_from([lifecycle(), LISTENING])
)
