"""Domain event -> OCSF record.

A record is made of parts so that a sink can keep what repeats: members shared by all events of a connection, those
of an exchange's outcome, and the few that only one event has.
"""

import os
from dataclasses import dataclass
from typing import assert_never

from egress.events import ocsf
from egress.events.bus import Numbered
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
from egress.events.ocsf import EventClass, Members
from egress.events.settings import Compat, EventSettings
from egress.model.intent import Ingress
from egress.model.outcome import RelayOutcome
from egress.model.process import ProcessEvidence
from egress.model.verdict import Allow, Audited, Denial, DenialCode, ReasonCode, Stage, Verdict

LOG_NAME = "egress"
PRODUCT_NAME = "egress"
UNREAD_METHOD = "-"
INVALID_TARGET = "/[INVALID_REQUEST_TARGET]"

# Nobody refused these: the way out failed. They carry no action, so that a count of denials stays one.
OPERATIONAL = frozenset(
    {
        DenialCode.DNS_FAILED,
        DenialCode.UPSTREAM_UNREACHABLE,
        DenialCode.UPSTREAM_TIMEOUT,
        DenialCode.UPSTREAM_PROTOCOL_ERROR,
    }
)
SEVERE = frozenset(
    {
        DenialCode.REQUEST_AUTHORITY_MISMATCH,
        DenialCode.SNI_MISMATCH,
        DenialCode.TLS_TERMINATION_UNAVAILABLE,
        DenialCode.INTERNAL_ERROR,
    }
)
MINOR = OPERATIONAL | {DenialCode.REQUEST_TIMEOUT, DenialCode.OVERLOADED}

ENGINES = {
    Stage.ACCEPT: "accept",
    Stage.IDENTITY: "opa",
    Stage.POLICY: "opa",
    Stage.DESTINATION: "ssrf",
    Stage.TLS: "tls",
    Stage.L7: "l7",
    Stage.MIDDLEWARE: "middleware",
    Stage.CREDENTIALS: "credentials",
    Stage.UPSTREAM: "upstream",
}
L7_ENGINES = {"graphql": "l7-graphql", "json-rpc": "l7-jsonrpc", "mcp": "l7-mcp", "websocket": "l7-websocket"}
NO_RULES = "l4"

GOOD_WORDS = frozenset({"loaded", "updated", "enabled", "validated", "enriched", "default", "APPROVED", "approved"})
OFF_WORDS = frozenset({"disabled", "REJECTED"})
ENABLED, DISABLED = 2, 1


class EventIds:
    """UUIDv7 event ids: the event's own time, bits of this process, and the event's number (RFC 9562 section 6.2)."""

    def __init__(self) -> None:
        bits = os.urandom(6).hex()
        self._process = f"-7{bits[:3]}-{'89ab'[int(bits[3], 16) & 3]}{bits[4:7]}-{bits[7:11]}"
        self._last = (-1, "")

    def of(self, milliseconds: int, number: int) -> str:
        last, start = self._last
        if milliseconds != last:
            stamp = f"{milliseconds:012x}"
            start = f"{stamp[:8]}-{stamp[8:12]}{self._process}"
            self._last = (milliseconds, start)
        return f"{start}{number & 0xFFFFFFFF:08x}"


def engine(denial: Denial, protocol: str) -> str:
    """The word under which the refusing part of the product reports."""
    if denial.code is DenialCode.REQUEST_AUTHORITY_MISMATCH:
        return "request-authority"
    if denial.stage is Stage.L7:
        return L7_ENGINES.get(protocol, "l7")
    return ENGINES[denial.stage]


def allowing_engine(protocol: str) -> str:
    return "opa" if protocol == NO_RULES else L7_ENGINES.get(protocol, "l7")


def severity(denial: Denial) -> Severity:
    if denial.code in SEVERE:
        return Severity.HIGH
    return Severity.LOW if denial.code in MINOR else Severity.MEDIUM


def denial_text(denial: Denial) -> str:
    return denial.log_reason or denial.reason


def milliseconds(seconds: float) -> int:
    return max(0, int(seconds * 1000))


def is_http(event: ConnectionDecided) -> bool:
    """A refused absolute-form request is told as the request it was; there is no other event for it."""
    return event.context.ingress is Ingress.FORWARD and isinstance(event.verdict, Denial)


def is_last(event: ConnectionDecided | ConnectionClosed) -> bool:
    """True when a connection is not heard of again, as a rule; a renderer may forget it."""
    return isinstance(event, ConnectionClosed) or isinstance(event.verdict, Denial)


@dataclass(frozen=True, slots=True)
class Part:
    """Some members of a record, and some of its `unmapped` object."""

    members: Members
    unmapped: Members


class Mapper:
    """Records in one shape, under one set of event ids. `host` is what every record repeats."""

    def __init__(self, settings: EventSettings, ids: EventIds) -> None:
        self._ids = ids
        self._compat = settings.compat is Compat.OPENSHELL
        self._product: Members = {"name": PRODUCT_NAME, "vendor_name": PRODUCT_NAME, "version": settings.version}
        self.host: Members = {"device": ocsf.device(settings.device)}
        container = ocsf.container_of(settings.device)
        if container and self._compat:
            self.host["container"] = container

    def record(self, item: Numbered) -> Members:
        """The whole record of an event."""
        own, context = self.own(item)
        shared = self.shared(context) if context else Part({}, {})
        members = {**own.members, **self.host, **shared.members}
        unmapped = {**own.unmapped, **shared.unmapped}
        return {**members, "unmapped": unmapped} if unmapped else members

    def shared(self, context: FlowContext) -> Part:
        """What every event of a connection repeats."""
        members = {**ocsf.endpoints(context), "actor": ocsf.actor(context.evidence)}
        unmapped: Members = {"agent": context.agent or "-"}
        if context.generation is not None:
            unmapped["policy_generation"] = context.generation
        if context.policy_digest:
            unmapped["policy_hash"] = context.policy_digest
        if context.dial_mode is not None:
            unmapped["dial_mode"] = context.dial_mode.value
        if context.proxies is not None:
            unmapped["proxy_id"] = context.proxies
        if context.connect_seconds is not None:
            unmapped["connect_ms"] = round(context.connect_seconds * 1000, 3)
            unmapped["attempts"] = context.attempts
        return Part(members, unmapped)

    def own(self, item: Numbered) -> tuple[Part, FlowContext | None]:
        """What only this event says, and the connection whose shared members belong beside it."""
        number, event = item
        uid = self._ids.of(int(event.time * 1000), number)
        match event:
            case ExchangeDecided():
                outcome = self.outcome(event)
                return Part(outcome.members | self._exchange(event, uid), outcome.unmapped), event.context
            case ConnectionDecided():
                return self._decided(event, uid), event.context
            case ConnectionClosed():
                return self._closed(event, uid), event.context
            case Finding():
                return self._finding(event, uid), None
            case Notice():
                return self._notice(event, uid), event.context
            case StateChange():
                return self._state(event, uid), None
            case Lifecycle():
                return self._lifecycle(event, uid), None
            case _:
                assert_never(event)

    def metadata(self, kind: EventClass, uid: str, correlation: str | None) -> Members:
        members: Members = {
            "uid": uid,
            "version": ocsf.SCHEMA_VERSION,
            "product": self._product,
            "profiles": kind.profiles,
            "log_name": LOG_NAME,
        }
        return {**members, "correlation_uid": correlation} if correlation else members

    def _exchange(self, event: ExchangeDecided, uid: str) -> Members:
        """The members of one exchange that `outcome` has not."""
        context = event.context
        return {
            "time": int(event.time * 1000),
            "duration": milliseconds(event.duration),
            "metadata": self.metadata(ocsf.HTTP, uid, event.exchange),
            "http_request": {**self.method(event.method), "url": ocsf.url(context.origin, event.path)},
            "traffic": {"bytes_in": event.counts.received, "bytes_out": event.counts.sent},
        }

    def outcome(self, event: ExchangeDecided) -> Part:
        """What came of an exchange: equal for all exchanges with the same rule, method, reply code and ending."""
        decided = _judged(event.verdict, event.context.entry, event.protocol)
        activity = ocsf.METHOD_ACTIVITIES.get(event.method, ocsf.OTHER)
        members = ocsf.classified(ocsf.HTTP, activity, _severity(event.verdict)) | decided.members
        if event.status is not None:
            members["http_response"] = {"code": event.status}
        if not isinstance(event.verdict, Denial) and event.outcome is not RelayOutcome.COMPLETE:
            members |= {**ocsf.FAILURE, "status_detail": event.outcome.value}
        members["observation_point_id"] = 2
        unmapped = decided.unmapped | {"protocol": event.protocol, "lane": event.lane, "outcome": event.outcome.value}
        return Part(members, unmapped | self._odd_method(event.method))

    def _decided(self, event: ConnectionDecided, uid: str) -> Part:
        context, verdict = event.context, event.verdict
        decided = _judged(verdict, context.entry, NO_RULES)
        common = {
            **decided.members,
            "time": int(event.time * 1000),
            "duration": milliseconds(event.duration),
            "observation_point_id": 2,
        }
        if is_http(event):
            kind = ocsf.HTTP
            activity = ocsf.METHOD_ACTIVITIES.get(event.method, ocsf.OTHER)
            target = ocsf.url(context.origin, event.path or INVALID_TARGET)
            common["http_request"] = {**self.method(event.method), "url": target}
            decided = Part(decided.members, decided.unmapped | self._odd_method(event.method))
        else:
            kind = ocsf.NETWORK
            failed = isinstance(verdict, Denial) and verdict.code in OPERATIONAL
            activity = ocsf.FAIL if failed else ocsf.OPEN
            common |= {"is_src_dst_assignment_known": True, "connection_info": ocsf.OUTBOUND}
            if not isinstance(verdict, Denial):
                common["message"] = f"{'CONNECT_L7' if event.inspected else 'CONNECT'} allowed {context.origin}"
        common["metadata"] = self.metadata(kind, uid, context.flow)
        members = ocsf.classified(kind, activity, _severity(verdict)) | common
        return Part(members, decided.unmapped | _digests(context))

    def _closed(self, event: ConnectionClosed, uid: str) -> Part:
        ended_well = event.outcome in {RelayOutcome.COMPLETE, RelayOutcome.CLIENT_GONE}
        level = Severity.LOW if event.outcome is RelayOutcome.FAILED else Severity.INFO
        members: Members = {
            **ocsf.classified(ocsf.NETWORK, ocsf.CLOSE, level),
            **(ocsf.SUCCESS if ended_well else {**ocsf.FAILURE, "status_detail": event.outcome.value}),
            "time": int(event.time * 1000),
            "duration": milliseconds(event.duration),
            "metadata": self.metadata(ocsf.NETWORK, uid, event.context.flow),
            "traffic": {"bytes_in": event.counts.received, "bytes_out": event.counts.sent},
            "is_src_dst_assignment_known": True,
            "connection_info": ocsf.OUTBOUND,
            "observation_point_id": 2,
        }
        unmapped: Members = {"outcome": event.outcome.value, "exchanges": event.exchanges}
        if event.lane is not None:
            unmapped["lane"] = event.lane
        if event.limit is not None:
            unmapped["limit"] = event.limit
        return Part(members, unmapped)

    def _notice(self, event: Notice, uid: str) -> Part:
        members: Members = {
            **ocsf.classified(ocsf.NETWORK, ocsf.TRAFFIC, Severity.INFO),
            **ocsf.ALLOWED,
            **ocsf.SUCCESS,
            "time": int(event.time * 1000),
            "metadata": self.metadata(ocsf.NETWORK, uid, event.exchange or event.context.flow),
            "message": event.message,
            "is_src_dst_assignment_known": True,
            "connection_info": ocsf.OUTBOUND,
            "observation_point_id": 2,
        }
        return Part(members, dict(event.facts))

    def _finding(self, event: Finding, uid: str) -> Part:
        context = event.context
        evidence: Members = {"data": dict(event.evidence)} if event.evidence else {}
        correlation: str | None = event.exchange
        unmapped: Members = {}
        if context is not None:
            evidence |= ocsf.endpoints(context) | {"actor": ocsf.actor(context.evidence)}
            evidence.pop("proxy_endpoint")
            correlation = correlation or context.flow
            unmapped = self.shared(context).unmapped
        members: Members = {
            **ocsf.classified(ocsf.FINDING, ocsf.CREATE, event.severity),
            **(ocsf.BLOCKED if event.blocked else ocsf.DETECTED),
            "time": int(event.time * 1000),
            "metadata": self.metadata(ocsf.FINDING, uid, correlation),
            "finding_info": {
                "uid": event.type if self._compat else uid,
                "title": event.title,
                "types": [event.type],
            },
            "is_alert": event.severity in {Severity.HIGH, Severity.CRITICAL},
            "message": event.title,
        }
        if evidence:
            members["evidences"] = [evidence]
        return Part(members, unmapped)

    def _state(self, event: StateChange, uid: str) -> Part:
        unmapped: Members = {"state": event.word, **dict(event.extra)}
        if event.generation is not None:
            unmapped["policy_version"] = str(event.generation)
        if event.policy_digest:
            unmapped["policy_hash"] = event.policy_digest
        members: Members = {
            **ocsf.classified(ocsf.CONFIG, ocsf.LOG, event.severity),
            **ocsf.SUCCESS,
            "time": int(event.time * 1000),
            "metadata": self.metadata(ocsf.CONFIG, uid, None),
            "message": event.detail,
            "security_states": [{"state_id": ocsf.OTHER, "state": event.word}],
        }
        if self._compat:
            members |= {"state_id": _state_id(event.word), "state": event.word}
        return Part(members, unmapped)

    def _lifecycle(self, event: Lifecycle, uid: str) -> Part:
        level = Severity.INFO if event.ok else Severity.HIGH
        common: Members = {"time": int(event.time * 1000), **(ocsf.SUCCESS if event.ok else ocsf.FAILURE)}
        if event.step is LifecycleStep.LISTEN:
            host, _, port = event.address.rpartition(":")
            place: Members = {"ip": host.strip("[]"), "port": int(port)}
            common |= {
                "dst_endpoint": place,
                "proxy_endpoint": place,
                "metadata": self.metadata(ocsf.NETWORK, uid, None),
                "observation_point_id": 2,
            }
            return Part(ocsf.classified(ocsf.NETWORK, ocsf.LISTEN, level) | common, {})
        activity = ocsf.START if event.step is LifecycleStep.START else ocsf.STOP
        common |= {"app": self._product, "metadata": self.metadata(ocsf.LIFECYCLE, uid, None)}
        return Part(ocsf.classified(ocsf.LIFECYCLE, activity, level) | common, {})

    def method(self, method: str) -> Members:
        """OCSF knows nine methods; another one stays in place only for readers that expect it there."""
        if method in ocsf.METHOD_ACTIVITIES or (self._compat and method != UNREAD_METHOD):
            return {"http_method": method}
        return {}

    def _odd_method(self, method: str) -> Members:
        return {} if method in ocsf.METHOD_ACTIVITIES or method == UNREAD_METHOD else {"http_method": method}


def _severity(verdict: Verdict) -> Severity:
    return severity(verdict) if isinstance(verdict, Denial) else Severity.INFO


def _judged(verdict: Verdict, entry: str | None, protocol: str) -> Part:
    """Action, status, rule and reason of a verdict."""
    match verdict:
        case Allow(rule):
            members = {**ocsf.ALLOWED, **ocsf.SUCCESS, "firewall_rule": _rule(entry, allowing_engine(protocol))}
            return Part(members, {"decision_rule": rule.id} if rule else {})
        case Audited(denial):
            members = {
                **ocsf.ALLOWED,
                **ocsf.SUCCESS,
                "firewall_rule": _rule(entry, engine(denial, protocol)),
                "message": f"audit: {denial_text(denial)}",
            }
            return Part(members, {"audited": denial.code.word, **_why(denial)})
        case Denial():
            operational = verdict.code in OPERATIONAL
            members = {
                **({} if operational else ocsf.BLOCKED),
                **ocsf.FAILURE,
                "message": denial_text(verdict),
                "status_detail": verdict.code.word,
            }
            # What a superseded policy said names no rule of the current one.
            if verdict.reason_code is not ReasonCode.POLICY_CHANGED:
                members["firewall_rule"] = _rule(denied_entry(verdict, entry), engine(verdict, protocol))
            return Part(members, _why(verdict))


def denied_entry(denial: Denial, entry: str | None) -> str | None:
    """The policy key a denial is reported under: the one it names, else the connection's."""
    if denial.entry is None and denial.rule is not None:
        return denial.rule.entry
    return denial.entry or entry


def _rule(entry: str | None, kind: str) -> Members:
    return {"name": entry or "-", "type": kind}


def _why(denial: Denial) -> Members:
    members: Members = {}
    if denial.reason_code is not None:
        members["reason_code"] = denial.reason_code.value
    if denial.rule is not None:
        members["decision_rule"] = denial.rule.id
    if denial.operation is not None:
        members["operation"] = denial.operation
    return members


def _digests(context: FlowContext) -> Members:
    if isinstance(context.evidence, ProcessEvidence) and context.evidence.owners[0].sha256:
        return {"executable_sha256": context.evidence.owners[0].sha256}
    return {}


def _state_id(word: str) -> int:
    if word in GOOD_WORDS:
        return ENABLED
    return DISABLED if word in OFF_WORDS else ocsf.OTHER
