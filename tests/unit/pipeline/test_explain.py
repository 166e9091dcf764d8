"""Offline decisions: the verdict, the stage that gave it, and what is said about it."""

import asyncio
from ipaddress import ip_address
from typing import Any

import pytest
import yaml

from egress.cli.question import HttpRequest, Program, ask_for_connection, ask_for_request
from egress.destination.validate import DestinationSettings
from egress.documents.yaml import Document, read
from egress.generation.generation import AgentTerms, Generation
from egress.model.ids import GenerationNumber
from egress.model.intent import DEFAULT_AGENT
from egress.model.process import IdentityMode
from egress.model.verdict import DenialCode, ReasonCode, Stage
from egress.pipeline.answer import Answer, Decision
from egress.pipeline.explain import Payload, World, explain
from egress.policy.compile import compile_policy

CURL = Program("/usr/bin/curl")
POLICY: dict[str, Any] = {
    "version": 1,
    "network_policies": {
        "api": {
            "endpoints": [
                {
                    "host": "api.test",
                    "port": 443,
                    "protocol": "rest",
                    "rules": [{"allow": {"method": "GET", "path": "/open/**"}}],
                    "deny_rules": [{"method": "GET", "path": "/open/secret"}],
                }
            ],
            "binaries": [{"path": "/usr/bin/curl"}],
        },
        "watched": {
            "endpoints": [{"host": "watched.test", "port": 80, "protocol": "rest", "enforcement": "audit",
                           "rules": [{"allow": {"method": "GET", "path": "/"}}]}],
            "binaries": [{"path": "/**"}],
        },
        "raw": {
            "endpoints": [
                {"host": "raw.test", "ports": [22, 443], "tls": "skip"},
                {"host": "db.test", "port": 5432, "allowed_ips": ["10.1.0.0/16"]},
                {"host": "local.test", "ports": [443, 3128]},
                {"host": "10.9.9.9", "port": 443},
                {"host": "169.254.169.254", "port": 80},
            ],
            "binaries": [{"path": "/**"}],
        },
    },
}  # fmt: skip


def world(identity: IdentityMode = IdentityMode.REQUIRED, **destinations: Any) -> World:
    document = read(yaml.safe_dump(POLICY).encode(), "p.yaml")
    assert isinstance(document, Document)
    compiled = compile_policy([document])
    assert compiled.policy is not None, compiled.diagnostics
    generation = Generation(GenerationNumber(0), {DEFAULT_AGENT: AgentTerms(compiled.policy, identity)}, "0" * 64)
    return World(generation, DestinationSettings(**destinations), frozenset({(ip_address("127.0.0.1"), 3128)}))


WORLD = world()


def request(url: str, method: str = "GET", program: Program = CURL, where: World = WORLD) -> Answer:
    return asyncio.run(explain(ask_for_request(HttpRequest(url, method), DEFAULT_AGENT, program), where))


def connection(
    target: str, payload: Payload = Payload.NOTHING, program: Program = CURL, where: World = WORLD
) -> Answer:
    return asyncio.run(explain(ask_for_connection(target, payload, DEFAULT_AGENT, program), where))


def test_an_allowed_request_names_its_rule() -> None:
    answer = request("https://api.test/open/door")
    assert answer.decision is Decision.ALLOW
    assert answer.rule is not None
    assert answer.rule.id == "api/endpoints[0]/rules[0]"
    assert [step.stage for step in answer.trace] == [Stage.IDENTITY, Stage.POLICY, Stage.DESTINATION, Stage.L7]
    assert answer.reply is None


def test_a_deny_rule_is_named_and_nothing_is_suggested() -> None:
    answer = request("https://api.test/open/secret")
    assert (answer.decision, answer.misses) == (Decision.DENY, ())
    assert answer.rule is not None
    assert answer.rule.id == "api/endpoints[0]/deny_rules[0]"


def test_a_request_that_no_rule_covers_gets_the_proxys_reply() -> None:
    answer = request("https://api.test/open/door", "POST")
    assert answer.decision is Decision.DENY
    assert answer.denial is not None
    assert answer.denial.reason_code is ReasonCode.METHOD_PATH_DENIED
    assert answer.reply is not None
    assert answer.reply.status == 403
    assert b'"rule": "POST /open/door"' in answer.reply.body.replace(b'":"', b'": "')
    assert [miss.rule.id for miss in answer.misses if miss.rule] == ["api/endpoints[0]/rules[0]"]


def test_paths_are_read_as_the_data_path_reads_them() -> None:
    assert request("https://api.test/shut/../open/door").decision is Decision.ALLOW
    answer = request("https://api.test/open/..%2fshut")
    assert answer.denial is not None
    assert answer.denial.code is DenialCode.INVALID_REQUEST_TARGET


def test_audit_passes_and_says_so() -> None:
    answer = request("http://watched.test/other")
    assert answer.decision is Decision.AUDIT
    assert answer.denial is not None
    assert answer.denial.reason_code is ReasonCode.METHOD_PATH_DENIED
    assert "lets it pass" in answer.trace[-1].detail


def test_another_program_is_denied_by_policy() -> None:
    answer = connection("api.test:443", program=Program("/usr/bin/wget"))
    assert answer.decision is Decision.DENY
    assert answer.denial is not None
    assert answer.denial.reason_code is ReasonCode.BINARY_NOT_ALLOWED
    assert [miss.entry for miss in answer.misses] == ["api"]


def test_a_program_left_open_is_undecidable_only_where_it_matters() -> None:
    assert request("https://api.test/open/door", program=Program()).decision is Decision.UNDECIDABLE
    assert request("http://watched.test/", program=Program()).decision is Decision.ALLOW
    answer = connection("other.test:443", program=Program())
    assert (answer.decision, answer.trace[-1].stage) == (Decision.DENY, Stage.POLICY)


def test_with_identity_off_no_program_counts() -> None:
    answer = request("https://api.test/open/door", where=world(IdentityMode.OFF))
    assert answer.decision is Decision.DENY
    assert answer.trace[0].detail == "identity is off for this agent"


def test_a_connection_alone_says_nothing_of_requests() -> None:
    answer = connection("api.test:443")
    assert (answer.decision, answer.trace[-1].stage) == (Decision.ALLOW, Stage.DESTINATION)


def test_raw_bytes_pass_only_where_nothing_is_inspected() -> None:
    assert connection("raw.test:22", Payload.RAW).decision is Decision.ALLOW
    answer = connection("api.test:443", Payload.RAW)
    assert answer.denial is not None
    assert answer.denial.code is DenialCode.UNSUPPORTED_L7_PROTOCOL


def test_requests_under_skipped_tls_are_not_read() -> None:
    answer = request("https://raw.test/anything", "DELETE")
    assert (answer.decision, answer.trace[-1].detail) == (Decision.ALLOW, "`tls: skip`: requests are not read")


def test_addresses_that_are_known_are_judged() -> None:
    assert request("https://10.9.9.9/").decision is Decision.ALLOW
    answer = request("http://169.254.169.254/")
    assert answer.denial is not None
    assert answer.denial.reason_code is ReasonCode.SSRF_METADATA
    aliased = {"aliases": {"local.test": ip_address("127.0.0.1")}}
    answer = connection("local.test:443", where=world(**aliased))
    assert (answer.decision, answer.trace[-1].detail) == (Decision.ALLOW, "alias: 127.0.0.1")


def test_our_own_listeners_are_out_of_reach() -> None:
    answer = connection("local.test:3128", where=world(aliases={"local.test": ip_address("127.0.0.1")}))
    assert answer.denial is not None
    assert answer.denial.reason_code is ReasonCode.OWN_LISTENER


def test_names_are_assumed_to_lead_where_policy_permits() -> None:
    answer = connection("db.test:5432")
    assert answer.decision is Decision.ALLOW
    assert answer.trace[-1].detail == "allowed list: addresses are checked when the name is looked up"


def test_what_the_lexer_refuses_is_refused() -> None:
    for url in ("https://api.test/a b", "http://watched.test/a b"):
        answer = request(url)
        assert answer.decision is Decision.DENY
        assert answer.denial is not None
        assert answer.denial.code is DenialCode.MALFORMED_REQUEST
        assert answer.reply is not None
        assert answer.reply.status == 400


@pytest.mark.parametrize("host", ["inference.local", "policy.local"])
def test_reserved_hosts_are_nobodys(host: str) -> None:
    answer = connection(f"{host}:443")
    assert answer.denial is not None
    assert answer.denial.reason_code is ReasonCode.RESERVED_HOST
