"""Golden lines for each row of the grammar, and one line whatever a peer wrote."""

import pytest
from hypothesis import given, settings

from egress.events.event import LifecycleStep, Severity
from egress.events.mapping import INVALID_TARGET
from egress.events.shorthand import Shorthand, reason, title, value
from egress.model.address import Host, Origin, Port, Scheme, parse_host
from egress.model.intent import AgentName, Ingress
from egress.model.outcome import RelayOutcome
from egress.model.verdict import Allow, Audited, DenialCode, ReasonCode, Stage
from tests.unit.events import samples

LINES = Shorthand()


def origin(name: str, port: int, scheme: Scheme = Scheme.HTTPS) -> Origin:
    return Origin(scheme, parse_host(name), Port(port))


def test_the_line_in_the_file():
    assert LINES.render((1, samples.connection())) == (
        b"2026-05-04T07:08:11.312Z OCSF NET:OPEN [INFO] ALLOWED /usr/bin/git(311) -> git.example.org:443"
        b" [policy:git_read engine:opa]\n"
    )


NODE = samples.evidence("/opt/node/bin/node", 902)
PASTE = samples.context(evidence=NODE, origin=origin("paste.example", 443), entry=None)
ITEMS = samples.context(evidence=None, origin=origin("api.example.org", 443), entry="items_ro")
INTRANET = samples.context(
    evidence=samples.evidence("/usr/bin/curl", 41),
    origin=origin("intranet.example", 8080, Scheme.HTTP),
    entry="intranet",
    ingress=Ingress.FORWARD,
)
V6 = samples.context(origin=Origin(Scheme.HTTPS, Host("2001:db8::1", True), Port(8443)), evidence=None)

GOLDEN = [
    # 4001
    (samples.LISTENING, "NET:LISTEN [INFO] 127.0.0.1:3128"),
    (
        samples.connection(samples.denial(), context=PASTE),
        "NET:OPEN [MED] DENIED /opt/node/bin/node(902) -> paste.example:443 [policy:- engine:opa]"
        " [reason:no matching policy]",
    ),
    (
        samples.connection(
            samples.denial(DenialCode.SSRF_DENIED, "private address", Stage.DESTINATION, ReasonCode.SSRF_PRIVATE)
        ),
        "NET:OPEN [MED] DENIED /usr/bin/git(311) -> git.example.org:443 [policy:git_read engine:ssrf]"
        " [reason:private address]",
    ),
    (
        samples.connection(samples.denial(DenialCode.TLS_TERMINATION_UNAVAILABLE, "no authority", Stage.TLS, None)),
        "NET:OPEN [HIGH] DENIED /usr/bin/git(311) -> git.example.org:443 [policy:git_read engine:tls]"
        " [reason:no authority]",
    ),
    (
        samples.connection(samples.denial(reason="policy changed", reason_code=ReasonCode.POLICY_CHANGED)),
        "NET:OPEN [MED] DENIED /usr/bin/git(311) -> git.example.org:443 [reason:policy changed]",
    ),
    (
        samples.connection(samples.denial(DenialCode.UPSTREAM_UNREACHABLE, "connection refused", Stage.UPSTREAM, None)),
        "NET:FAIL [LOW] /usr/bin/git(311) -> git.example.org:443 [policy:git_read engine:upstream]"
        " [reason:connection refused]",
    ),
    (
        samples.connection(
            samples.denial(DenialCode.MALFORMED_REQUEST, "bad", Stage.ACCEPT, None), context=samples.UNKNOWN
        ),
        "NET:OPEN [MED] DENIED [policy:- engine:accept] [reason:bad]",
    ),
    (samples.connection(context=V6), "NET:OPEN [INFO] ALLOWED [2001:db8::1]:8443 [policy:git_read engine:opa]"),
    (samples.closed(), "NET:CLOSE [INFO] /usr/bin/git(311) -> git.example.org:443"),
    (samples.closed(outcome=RelayOutcome.FAILED), "NET:CLOSE [LOW] /usr/bin/git(311) -> git.example.org:443"),
    # 4002
    (
        samples.exchange(
            samples.denial(stage=Stage.L7, reason="method not allowed", reason_code=ReasonCode.METHOD_PATH_DENIED),
            context=ITEMS,
            method="PUT",
        ),
        "HTTP:PUT [MED] DENIED PUT https://api.example.org/v2/items/9 [policy:items_ro engine:l7]"
        " [reason_code:method_path_denied reason:method not allowed]",
    ),
    (
        samples.exchange(Allow(), context=INTRANET, path="/status", protocol="l4"),
        "HTTP:GET [INFO] ALLOWED /usr/bin/curl(41) -> GET http://intranet.example:8080/status"
        " [policy:intranet engine:opa]",
    ),
    (
        samples.exchange(context=ITEMS),
        "HTTP:GET [INFO] ALLOWED GET https://api.example.org/v2/items/9 [policy:items_ro engine:l7]"
        " [decision_rule:git_read/endpoints.0/rules.2]",
    ),
    (
        samples.exchange(Audited(samples.denial(stage=Stage.L7, rule=samples.RULE)), context=ITEMS, protocol="mcp"),
        "HTTP:GET [INFO] ALLOWED GET https://api.example.org/v2/items/9 [policy:items_ro engine:l7-mcp]"
        " [audited:policy_denied decision_rule:git_read/endpoints.0/rules.2 reason_code:no_matching_policy"
        " reason:no matching policy]",
    ),
    (
        samples.exchange(Allow(), context=samples.context(evidence=None, agent=AgentName("build 1")), protocol="l4"),
        "HTTP:GET [INFO] ALLOWED GET https://git.example.org/v2/items/9 [policy:git_read engine:opa]"
        " [agent:build\\u{20}1]",
    ),
    (
        samples.connection(samples.denial(), context=INTRANET, method="POST", path="/in"),
        "HTTP:POST [MED] DENIED /usr/bin/curl(41) -> POST http://intranet.example:8080/in"
        " [policy:intranet engine:opa] [reason_code:no_matching_policy reason:no matching policy]",
    ),
    (
        samples.connection(
            samples.denial(reason_code=None),
            context=samples.context(ingress=Ingress.FORWARD, origin=None),
            method="GET",
        ),
        f"HTTP:GET [MED] DENIED /usr/bin/git(311) -> GET http://unknown{INVALID_TARGET} [policy:git_read engine:opa]"
        " [reason:no matching policy]",
    ),
    # 2004
    (
        samples.finding(
            type="openshell.provider_credential.endpoint_mismatch",
            title="Provider credential used at an unauthorized endpoint",
        ),
        'FINDING:BLOCKED [HIGH] "Provider credential used at an unauthorized endpoint"'
        " [type:openshell.provider_credential.endpoint_mismatch]",
    ),
    (
        samples.finding(severity=Severity.CRITICAL, blocked=False, evidence=(("count", "3"), ("where", "a b]"))),
        'FINDING:DETECTED [CRIT] "A stage failed" [type:openshell.middleware.failure count:3 where:a\\u{20}b\\u{5d}]',
    ),
    # 5019
    (samples.notice(), "NET:TRAFFIC [INFO] ALLOWED SigV4 re-signed things.test:443 service=s3"),
    (samples.state(), "CONFIG:LOADED [INFO] Policy loaded [version:7 hash:9f3c]"),
    (
        samples.state(word="PROPOSED", generation=None, policy_digest="", extra=(("source", "agent"), ("auto", "no"))),
        "CONFIG:PROPOSED [INFO] Policy loaded [auto:no source:agent]",
    ),
    (
        samples.state(
            word="fail_closed", generation=None, policy_digest="", detail="two\nlines", severity=Severity.HIGH
        ),
        "CONFIG:FAIL_CLOSED [HIGH] two lines",
    ),
    # 6002
    (samples.lifecycle(), "LIFECYCLE:START [INFO] egress Success"),
    (samples.lifecycle(LifecycleStep.STOP, ok=False), "LIFECYCLE:STOP [HIGH] egress Failure"),
]

HOSTILE_EXECUTABLE = "/tmp/x(1) -> evil.test:443 [policy:ok engine:opa]\nNET:OPEN \u2028\x1b[31m\udcff"
HOSTILE_REASON = 'a\r\nb\nc\td\x85e [x] "q" \\ \udc80'

GOLDEN += [
    (
        samples.connection(context=samples.context(evidence=samples.evidence(HOSTILE_EXECUTABLE, 9))),
        "NET:OPEN [INFO] ALLOWED /tmp/x(1)\\u{20}->\\u{20}evil.test:443\\u{20}\\u{5b}policy:ok\\u{20}engine:opa\\u{5d}"
        "\\u{a}NET:OPEN\\u{20}\\u{2028}\\u{1b}\\u{5b}31m\\u{dcff}(9) -> git.example.org:443"
        " [policy:git_read engine:opa]",
    ),
    (
        samples.connection(samples.denial(reason=HOSTILE_REASON)),
        "NET:OPEN [MED] DENIED /usr/bin/git(311) -> git.example.org:443 [policy:git_read engine:opa]"
        ' [reason:a b c\\u{9}d\\u{85}e [x] "q" \\ \\u{dc80}]',
    ),
    (
        samples.exchange(
            context=samples.context(evidence=None, entry="a] b"), method="G\nET", path="/a b\n[x]", protocol="l4"
        ),
        "HTTP:G\\u{a}ET [INFO] ALLOWED G\\u{a}ET https://git.example.org/a\\u{20}b\\u{a}\\u{5b}x\\u{5d}"
        " [policy:a\\u{5d}\\u{20}b engine:opa] [decision_rule:git_read/endpoints.0/rules.2]",
    ),
    (
        samples.finding(title='say "hi"\n\\ \t\x07', type="t y"),
        'FINDING:BLOCKED [HIGH] "say \\"hi\\"\\n\\\\ \\t\\u{7}" [type:t\\u{20}y]',
    ),
    (
        samples.state(word="lo ad", detail="x\x1by", policy_digest="9]\n"),
        "CONFIG:LO\\u{20}AD [INFO] x\\u{1b}y [version:7 hash:9\\u{5d}\\u{a}]",
    ),
]


@pytest.mark.parametrize(("event", "line"), GOLDEN)
def test_golden(event, line):
    assert LINES.line(event) == line


def test_a_reason_is_cut_between_characters():
    assert reason("x" * 256) == "x" * 256
    assert reason("x" * 257) == "x" * 256 + "..."
    assert reason("x" + "é" * 200) == "x" + "é" * 127 + "..."


def test_a_title_is_cut():
    assert title("t" * 120) == '"' + "t" * 120 + '"'
    assert title("t" * 121) == '"' + "t" * 120 + '..."'


def test_a_value_has_no_delimiters():
    assert value("a\\b[c]d e\tf\u00a0g") == "a\\u{5c}b\\u{5b}c\\u{5d}d\\u{20}e\\u{9}f\\u{a0}g"


@settings(max_examples=150, deadline=None)
@given(samples.events)
def test_always_one_line(event):
    text = LINES.render((1, event)).decode()
    assert text.endswith("\n")
    assert len(text.splitlines()) == 1
    assert not any(ord(c) < 32 for c in text[:-1])


def test_milliseconds_and_seconds_are_never_mixed():
    early, late = samples.connection(time=1_777_878_491.9994), samples.connection(time=1_777_878_492.0)
    assert LINES.render((1, early)).startswith(b"2026-05-04T07:08:11.999Z ")
    assert LINES.render((1, late)).startswith(b"2026-05-04T07:08:12.000Z ")
    assert LINES.render((1, early)).startswith(b"2026-05-04T07:08:11.999Z ")


def test_memory_is_bounded():
    lines = Shorthand()
    for number in range(1100):
        lines.line(samples.exchange(Allow(), protocol=f"p{number}"))
    assert len(lines._allowed) <= 1024
    lines.line(samples.closed())
    assert len(lines._connections) == 0
