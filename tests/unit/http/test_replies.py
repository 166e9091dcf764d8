"""Every refusal in one envelope: status, fields and keys of each code."""

import json
import re
from typing import Any

import pytest

from egress.http.replies import Reply, Scene, refusal
from egress.model.address import Origin, Port, Scheme, parse_host
from egress.model.intent import Ingress
from egress.model.verdict import Denial, DenialCode, Layer, ReasonCode, RuleKind, RuleRef, Stage

ORIGIN = Origin(Scheme.HTTPS, parse_host("a.test"), Port(443))
TUNNEL = Scene("id-1", None, "GET", ORIGIN, "/x/y", "/usr/bin/curl")
CONNECT = Scene("id-1", Ingress.CONNECT, "CONNECT", ORIGIN)
FORWARD = Scene("id-1", Ingress.FORWARD, "GET", Origin(Scheme.HTTP, parse_host("a.test"), Port(80)), "/x/y")
RULES = Denial(Stage.L7, DenialCode.POLICY_DENIED, "why", ReasonCode.METHOD_PATH_DENIED, entry="e0", hard=False)

CHANGED = Denial(
    Stage.POLICY, DenialCode.POLICY_DENIED, "not permitted because policy changed", ReasonCode.POLICY_CHANGED
)


def told(denial: Denial, scene: Scene) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(refusal(denial, scene).body)
    return body


def parse(wire: bytes) -> tuple[bytes, dict[bytes, bytes], bytes]:
    head, _, body = wire.partition(b"\r\n\r\n")
    line, *fields = head.split(b"\r\n")
    return line, dict(field.split(b": ", 1) for field in fields), body


@pytest.mark.parametrize("code", DenialCode, ids=lambda code: code.word)
@pytest.mark.parametrize("scene", [TUNNEL, CONNECT, FORWARD], ids=["tunnel", "connect", "forward"])
def test_every_code_in_every_place(code: DenialCode, scene: Scene) -> None:
    denial = Denial(Stage.UPSTREAM, code, "the reason", ReasonCode.CONNECT_REFUSED, hints=("do this",))
    reply = refusal(denial, scene)
    line, fields, body = parse(reply.http1())
    status = code.status or 403
    assert re.fullmatch(rb"HTTP/1\.1 %d [A-Z][A-Za-z-]+( [A-Za-z-]+)*" % status, line)
    assert b"Error" not in line or status == 500
    assert fields[b"Content-Type"] == b"application/json"
    assert fields[b"Connection"] == b"close"
    assert int(fields[b"Content-Length"]) == len(body)
    assert (b"Retry-After" in fields) is (status in (429, 503))
    assert fields.get(b"Proxy-Authenticate") == (b'Basic realm="egress"' if status == 407 else None)
    envelope = json.loads(body)
    assert envelope["error"] == code.word
    assert "the reason" in envelope["detail"] or code is DenialCode.POLICY_DENIED
    assert envelope["layer"] == code.layer.value
    assert (envelope["request_id"], envelope["retryable"]) == ("id-1", code.retryable)
    assert (envelope["reason_code"], envelope["hints"]) == ("connect_refused", ["do this"])


def test_optional_keys_are_left_out() -> None:
    envelope = told(Denial(Stage.L7, DenialCode.MALFORMED_REQUEST, "bad"), TUNNEL)
    assert envelope == {
        "error": "malformed_request", "detail": "bad", "layer": "l7", "request_id": "id-1", "retryable": False,
    }  # fmt: skip


def test_codes_are_the_documented_ones() -> None:
    """The words and their statuses are public and never renamed."""
    assert len({code.word for code in DenialCode}) == len(DenialCode)
    assert all(re.fullmatch(r"[a-z0-9_]+", code.word) for code in DenialCode)
    assert DenialCode.SNI_MISMATCH.status == 0
    assert all(400 <= code.status < 600 for code in DenialCode if code is not DenialCode.SNI_MISMATCH)
    assert all(code.retryable for code in DenialCode if code.status in (429, 408, 407))


def test_policy_denied_speaks_for_the_layer_of_its_stage() -> None:
    assert Denial(Stage.POLICY, DenialCode.POLICY_DENIED, "").layer is Layer.L4
    assert Denial(Stage.IDENTITY, DenialCode.POLICY_DENIED, "").layer is Layer.L4
    assert Denial(Stage.L7, DenialCode.POLICY_DENIED, "").layer is Layer.L7


def test_rules_inside_a_tunnel() -> None:
    reply = refusal(RULES, TUNNEL)
    assert dict(reply.fields)[b"X-OpenShell-Policy"] == b"e0"
    location = {"host": "a.test", "port": 443, "binary": "/usr/bin/curl"}
    assert json.loads(reply.body) == {
        "error": "policy_denied", "detail": "why", "policy": "e0", "rule": "GET /x/y", "protocol": "rest",
        "method": "GET", "path": "/x/y", **location,
        "rule_missing": {"type": "rest_allow", "layer": "l7", "method": "GET", "path": "/x/y", **location},
        "next_steps": [], "layer": "l7", "request_id": "id-1", "retryable": False, "reason_code": "method_path_denied",
    }  # fmt: skip


def test_rules_on_the_proxy_port_say_the_same_with_openshells_sentence() -> None:
    envelope = told(RULES, FORWARD)
    assert envelope["detail"] == "GET a.test:80/x/y denied by L7 policy: why"
    assert envelope["rule_missing"] == {
        "type": "rest_allow", "layer": "l7", "method": "GET", "path": "/x/y", "host": "a.test", "port": 80,
    }  # fmt: skip


def test_a_deny_rule_is_named_and_nothing_is_missing() -> None:
    rule = RuleRef("e0", 1, RuleKind.DENY, 2, "policy.yaml:3:1")
    envelope = told(
        Denial(Stage.L7, DenialCode.POLICY_DENIED, "why", ReasonCode.DENY_RULE, entry="e0", rule=rule), TUNNEL
    )
    assert envelope["rule_id"] == "e0/endpoints[1]/deny_rules[2]"
    assert "rule_missing" not in envelope
    assert "policy.yaml" not in json.dumps(envelope)


@pytest.mark.parametrize(
    ("denial", "scene", "detail", "reason"),
    [
        (
            Denial(Stage.POLICY, DenialCode.POLICY_DENIED, "no such host"),
            CONNECT, "CONNECT a.test:443 not permitted by policy", "no such host",
        ),
        (
            Denial(Stage.POLICY, DenialCode.POLICY_DENIED, "no such host"),
            FORWARD, "GET a.test:80/x/y not permitted by policy", None,
        ),
        (
            CHANGED,
            CONNECT, "CONNECT a.test:443 not permitted because policy changed", "not permitted because policy changed",
        ),
        (
            CHANGED,
            TUNNEL, "GET a.test:443/x/y not permitted because policy changed", None,
        ),
        (
            Denial(Stage.L7, DenialCode.POLICY_DENIED, "GET a.test:80/x/y did not match an L7 endpoint path",
                   ReasonCode.NO_ENDPOINT_PATH),
            FORWARD, "GET a.test:80/x/y did not match an L7 endpoint path", None,
        ),
        (
            Denial(Stage.DESTINATION, DenialCode.SSRF_DENIED, "private address"),
            CONNECT, "CONNECT a.test:443 blocked: private address", None,
        ),
        (
            Denial(Stage.DESTINATION, DenialCode.SSRF_DENIED, "private address"),
            FORWARD, "GET a.test:80 blocked: private address", None,
        ),
    ],
)  # fmt: skip
def test_sentences(denial: Denial, scene: Scene, detail: str, reason: str | None) -> None:
    envelope = told(denial, scene)
    assert envelope["detail"] == detail
    assert envelope.get("reason") == reason


def test_an_authority_mismatch_says_message_and_detail() -> None:
    envelope = told(Denial(Stage.L7, DenialCode.REQUEST_AUTHORITY_MISMATCH, "not the tunnel's"), TUNNEL)
    assert envelope["message"] == envelope["detail"] == "not the tunnel's"


@pytest.mark.parametrize("name", ["e\r\nX-Evil: 1", "é", "a\x00b", "\u2028"])
def test_an_entry_name_never_ends_a_field_line(name: str) -> None:
    denial = Denial(Stage.L7, DenialCode.POLICY_DENIED, "why", entry=name)
    wire = refusal(denial, TUNNEL).http1()
    head = wire.partition(b"\r\n\r\n")[0]
    assert b"X-Evil" not in [line.partition(b":")[0] for line in head.split(b"\r\n")]
    assert head.isascii()
    assert told(denial, TUNNEL)["policy"] == name


def test_the_log_reason_stays_in_the_log() -> None:
    denial = Denial(Stage.DESTINATION, DenialCode.SSRF_DENIED, "private address", log_reason="10.1.2.3 of db.internal")
    assert "10.1.2.3" not in json.dumps(told(denial, CONNECT))


def test_kept_connections_are_not_announced_closed() -> None:
    reply = Reply(407, (), b"{}")
    assert b"Connection" not in reply.http1(keep=True)
    assert reply.http1(keep=True).endswith(b"Content-Length: 2\r\n\r\n{}")


def test_what_is_unknown_is_left_out() -> None:
    envelope = told(RULES, Scene("id-1", None))
    assert {"host", "port", "binary"}.isdisjoint(envelope)
    assert {"host", "port", "binary"}.isdisjoint(envelope["rule_missing"])
