"""The exchange scope: legal calls, stages in order, one event, and what leaves for the origin."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from egress.http.head import interpret_tunnelled
from egress.model.address import Origin, Port, Scheme, parse_host
from egress.model.body import NO_BODY, of_length
from egress.model.errors import LocalProtocolError
from egress.model.intent import Ingress
from egress.model.message import FieldLine, Malformed, RequestHead, ResponseHead, WireHead
from egress.model.outcome import ByteCounts, RelayOutcome
from egress.model.request import UpstreamRequest
from egress.model.verdict import Allow, Audited, Denial, DenialCode, ReasonCode, Stage
from egress.pipeline.exchange import UNREADABLE_PATH, Exchange
from tests.support.opened import HOST, Opened, opened, upgrade_head
from tests.unit.policy.samples import ANY, entries

RULES = "protocol: rest, rules: [{allow: {method: GET, path: /open/**}}]"
L4 = "tls: auto"
OK = ResponseHead(200, b"OK", (), NO_BODY)
SWITCH = ResponseHead(101, b"Switching Protocols", (), NO_BODY)
MALFORMED = Malformed("not a head")


def site(options: str = RULES, *more: str) -> Opened:
    endpoints = ", ".join(f"{{host: {HOST}, port: 443, {option}}}" for option in (options, *more))
    return opened(entries(f"api: {{endpoints: [{endpoints}], {ANY}}}"))


def exchange(ours: Opened, number: int = 1) -> Exchange:
    return Exchange(ours.connection, ours.services, ours.connection.authorization.intent.origin, "http1", number)


def wire(target: str = "/open/x", method: str = "GET", *lines: FieldLine) -> WireHead:
    return WireHead(method.encode(), target.encode(), b"HTTP/1.1", ((b"Host", HOST.encode()), *lines))


def denied(made: Exchange, head: WireHead | Malformed) -> Denial:
    found = made.begin(head)
    assert isinstance(found, Denial), found
    assert made.verdict is found
    return found


def test_a_request_that_passes() -> None:
    ours = site()
    made = exchange(ours)
    head = made.begin(wire("/open/x?q=hidden", "GET", (b"A", b"1")))
    assert isinstance(head, RequestHead)
    sent = made.send()
    assert isinstance(sent, UpstreamRequest)
    assert sent.head == head
    assert sent.head.target == "/open/x?q=hidden"
    assert made.respond(OK) is OK
    made.finish(RelayOutcome.COMPLETE, 200, ByteCounts(1, 2))
    (told,) = ours.recorder.exchanges
    assert (told.method, told.path, told.status, told.counts, told.lane) == (
        "GET",
        "/open/x",
        200,
        ByteCounts(1, 2),
        "http1",
    )
    assert (told.exchange, told.protocol, told.outcome) == ("flow.1", "rest", RelayOutcome.COMPLETE)
    assert isinstance(told.verdict, Allow)
    assert told.verdict.rule is not None
    assert "hidden" not in repr(told)


def test_only_the_first_end_is_told() -> None:
    ours = site()
    made = exchange(ours)
    made.begin(wire())
    made.finish(RelayOutcome.CLIENT_GONE, None, ByteCounts())
    made.finish(RelayOutcome.COMPLETE, 200, ByteCounts())
    assert [told.outcome for told in ours.recorder.exchanges] == [RelayOutcome.CLIENT_GONE]


CALLS: dict[str, Callable[[Exchange], object]] = {
    "begin": lambda made: made.begin(wire()),
    "admit": lambda made: made.admit(b""),
    "send": lambda made: made.send(),
    "respond": lambda made: made.respond(OK),
    "session": lambda made: made.session(),
}


@pytest.mark.parametrize(
    ("done", "legal"),
    [
        ((), {"begin"}),
        (("begin",), {"send"}),
        (("begin", "send"), {"send", "respond"}),
        (("begin", "send", "respond"), set()),
    ],
)
def test_calls_out_of_order_are_bugs_of_the_lane(done: tuple[str, ...], legal: set[str]) -> None:
    made = exchange(site())
    for name in done:
        CALLS[name](made)
    for name in CALLS.keys() - legal:
        with pytest.raises(LocalProtocolError):
            CALLS[name](made)
    made.finish(RelayOutcome.COMPLETE, 200, ByteCounts())
    for call in CALLS.values():
        with pytest.raises(LocalProtocolError):
            call(made)


def test_a_denied_request_can_not_be_sent() -> None:
    made = exchange(site())
    denied(made, wire("/closed"))
    with pytest.raises(LocalProtocolError):
        made.send()


@pytest.mark.parametrize(
    ("head", "code"),
    [
        (MALFORMED, DenialCode.MALFORMED_REQUEST),
        (Malformed("x", DenialCode.HEAD_TOO_LARGE), DenialCode.HEAD_TOO_LARGE),
        (wire("/a#b"), DenialCode.INVALID_REQUEST_TARGET),
        (WireHead(b"GET", b"/", b"HTTP/1.1", ((b"Host", b"evil.test"),)), DenialCode.REQUEST_AUTHORITY_MISMATCH),
    ],
)
def test_heads_without_a_meaning_show_nothing_of_their_path(head: WireHead | Malformed, code: DenialCode) -> None:
    ours = site()
    made = exchange(ours)
    denial = denied(made, head)
    assert (denial.stage, denial.code) == (Stage.L7, code)
    reply = made.refuse(denial)
    made.finish(RelayOutcome.DENIED, reply.status, ByteCounts())
    (told,) = ours.recorder.exchanges
    assert (told.path, told.verdict, told.status) == (UNREADABLE_PATH, denial, reply.status)


@pytest.mark.parametrize(
    ("options", "target", "code", "reason"),
    [
        (RULES, "/closed", DenialCode.POLICY_DENIED, ReasonCode.METHOD_PATH_DENIED),
        (f"{RULES}, path: /open/**", "/elsewhere", DenialCode.POLICY_DENIED, ReasonCode.NO_ENDPOINT_PATH),
        (RULES, "/open/a%2Fb", DenialCode.INVALID_REQUEST_TARGET, None),
        (RULES, "/open/a%252Fb", DenialCode.INVALID_REQUEST_TARGET, None),
        (RULES, "/open/a%5Cb", DenialCode.INVALID_REQUEST_TARGET, None),
        (f"{RULES}, path_mode: reject_noncanonical", "/open/./x", DenialCode.INVALID_REQUEST_TARGET, None),
        (RULES, "/open/x?a=%zz", DenialCode.INVALID_REQUEST_TARGET, None),
        (L4, "/a%2Fb", DenialCode.INVALID_REQUEST_TARGET, None),
    ],
)
def test_requests_that_policy_refuses(options: str, target: str, code: DenialCode, reason: ReasonCode | None) -> None:
    denial = denied(exchange(site(options)), wire(target))
    assert (denial.code, denial.reason_code) == (code, reason)


@pytest.mark.parametrize(
    ("option", "target"),
    [
        ("allow_encoded_slash: true", "/open/a%2Fb"),
        ("allow_double_escape: true", "/open/a%252Fb"),
        ("allow_backslash: true", "/open/a%5Cb"),
    ],
)
def test_oddities_that_the_endpoint_accepts(option: str, target: str) -> None:
    head = exchange(site(f"{RULES}, {option}")).begin(wire(target))
    assert isinstance(head, RequestHead)
    assert head.path == target


def test_audit_lets_pass_what_it_would_deny_and_tells_so() -> None:
    ours = site(f"{RULES}, enforcement: audit")
    made = exchange(ours)
    assert isinstance(made.begin(wire("/closed")), RequestHead)
    assert made.audited
    made.send()
    made.finish(RelayOutcome.COMPLETE, 200, ByteCounts())
    assert isinstance(ours.recorder.exchanges[0].verdict, Audited)


def test_a_policy_that_changes_between_head_and_sending_is_noticed() -> None:
    async def work() -> None:
        ours = site()
        made = exchange(ours)
        made.begin(wire())
        ours.install(None)
        stale = made.send()
        assert isinstance(stale, Denial)
        assert stale.reason_code is ReasonCode.POLICY_CHANGED
        for _ in range(2):
            again = denied(exchange(ours), wire())
            assert again.reason_code is ReasonCode.POLICY_CHANGED

    asyncio.run(work())


def test_h2c_is_refused_where_requests_are_judged_and_stripped_elsewhere() -> None:
    asking = wire("/open/x", "GET", (b"Upgrade", b"h2c"), (b"HTTP2-Settings", b"AA"))
    denial = denied(exchange(site()), asking)
    assert (denial.code, denial.reason) == (
        DenialCode.UNSUPPORTED_L7_PROTOCOL,
        "HTTP/2 cleartext upgrade (h2c) is not supported for L7-inspected endpoints",
    )
    head = exchange(site(L4)).begin(asking)
    assert isinstance(head, RequestHead)
    assert (head.upgrade, head.fields) == (None, ())


def test_an_upgrade_needs_leave() -> None:
    denial = denied(exchange(site()), upgrade_head("/open/ws"))
    assert denial.code is DenialCode.UPGRADE_REFUSED


def test_a_switch_that_nobody_asked_for_is_the_origins_fault() -> None:
    made = exchange(site())
    made.begin(wire())
    made.send()
    denial = made.respond(SWITCH)
    assert isinstance(denial, Denial)
    assert denial.code is DenialCode.UPSTREAM_PROTOCOL_ERROR


def test_an_upgrade_without_inspection_is_relayed_unread() -> None:
    made = exchange(site(L4))
    assert isinstance(made.begin(upgrade_head()), RequestHead)
    made.send()
    assert made.respond(SWITCH) is SWITCH
    assert made.session() is None


def forwarded(ours: Opened, *lines: FieldLine, via: bytes | None = b"egress") -> tuple[FieldLine, ...]:
    """Fields that a request on the proxy port leaves with."""
    authorization = ours.connection.authorization
    clear = Origin(Scheme.HTTP, parse_host(HOST), Port(443))
    ours.connection.authorization = replace(
        authorization, intent=replace(authorization.intent, ingress=Ingress.FORWARD, origin=clear)
    )
    made = Exchange(ours.connection, replace(ours.services, via=via), clear, "http1", 1)
    head = interpret_tunnelled(
        WireHead(b"GET", b"/open/x", b"HTTP/1.1", ((b"Host", f"{HOST}:443".encode()), *lines)), clear
    )
    assert isinstance(head, RequestHead)
    assert made.begin(head) is head
    sent = made.send()
    assert isinstance(sent, UpstreamRequest)
    return sent.head.fields


def test_via_on_the_proxy_port() -> None:
    assert forwarded(site()) == ((b"Via", b"1.1 egress"),)
    assert forwarded(site(), via=None) == ()
    assert forwarded(site(), (b"via", b"1.0 a"), (b"B", b"1")) == ((b"via", b"1.0 a, 1.1 egress"), (b"B", b"1"))
    assert forwarded(site(), (b"Via", b"1.0 a"), (b"VIA", b"1.0 b")) == (
        (b"Via", b"1.0 a"), (b"VIA", b"1.0 b, 1.1 egress"),
    )  # fmt: skip


def test_no_via_inside_a_tunnel() -> None:
    ours = site()
    made = Exchange(
        ours.connection, replace(ours.services, via=b"egress"), ours.connection.authorization.intent.origin, "http1", 1
    )
    made.begin(wire())
    sent = made.send()
    assert isinstance(sent, UpstreamRequest)
    assert sent.head.fields == ()


def test_refusals_carry_the_id_that_the_event_carries() -> None:
    ours = site()
    made = exchange(ours, 7)
    reply = made.refuse(denied(made, wire("/closed")))
    made.finish(RelayOutcome.DENIED, reply.status, ByteCounts())
    assert b'"request_id": "flow.7"' in reply.body
    assert ours.recorder.exchanges[0].exchange == "flow.7"


def test_a_denial_of_a_later_stage_becomes_the_verdict() -> None:
    ours = site()
    made = exchange(ours)
    made.begin(wire("/open/x", "GET", (b"Content-Length", b"3")))
    sent = made.send()
    assert isinstance(sent, UpstreamRequest)
    assert sent.head.framing == of_length(3)
    late = Denial(Stage.UPSTREAM, DenialCode.UPSTREAM_TIMEOUT, "too slow")
    assert made.refuse(late).status == 504
    made.finish(RelayOutcome.DENIED, 504, ByteCounts())
    assert ours.recorder.exchanges[0].verdict == late


def test_several_endpoints_the_path_chooses() -> None:
    ours = site(f"{RULES}, path: /open/**", "protocol: rest, path: /all/**, access: full")
    assert isinstance(exchange(ours).begin(wire("/all/x", "DELETE")), RequestHead)
    assert denied(exchange(ours), wire("/open/x", "DELETE")).reason_code is ReasonCode.METHOD_PATH_DENIED
