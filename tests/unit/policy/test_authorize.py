"""Connections: who gets in, on which terms, and exactly what everybody else is told."""

from ipaddress import ip_network

import pytest

from egress.model.destination import AddressRule, TlsMode
from egress.model.ids import GenerationNumber
from egress.model.process import EvidenceUnavailable, IdentityMode, Process, ProcessEvidence, UnavailableReason
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage
from egress.policy.authorization import Authorization
from egress.policy.authorize import authorize
from egress.policy.compile import compile_policy
from egress.policy.compiled import Memo, Protocol
from tests.unit.policy.samples import ask, compilation, document, entries, evidence, granted, intent, policy, refused

SHA = "ab" * 32
OTHER_SHA = "cd" * 32


def test_a_listed_connection_gets_its_terms() -> None:
    compiled = entries("api: {endpoints: [{host: api.acme.test, port: 443}], binaries: [{path: /usr/bin/curl}]}")
    found = granted(compiled, "api.acme.test")
    assert found.entry == "api"
    assert found.generation == GenerationNumber(7)
    assert [endpoint.index for endpoint in found.endpoints] == [0]
    assert found.addresses == AddressRule(None, declared=True, control_plane_port=False)
    assert found.tls is TlsMode.AUTO
    assert not found.inspected


@pytest.mark.parametrize(
    ("text", "host", "port", "code", "reason"),
    [
        ("{}", "api.acme.test", 443, ReasonCode.NO_MATCHING_POLICY, "network connections not allowed by policy"),
        ("{a: {endpoints: [{host: api.acme.test, port: 443}], binaries: [{path: /**}]}}", "x.acme.test", 443,
         ReasonCode.HOST_NOT_LISTED, "endpoint x.acme.test:443 is not allowed by any policy"),
        ("{a: {endpoints: [{host: api.acme.test, port: 443}], binaries: [{path: /**}]}}", "api.acme.test", 8443,
         ReasonCode.PORT_NOT_LISTED, "endpoint api.acme.test:8443 is not allowed by any policy"),
        ("{a: {endpoints: [{host: '*.acme.test', port: 443}], binaries: [{path: /**}]}}", "api.acme.test", 80,
         ReasonCode.PORT_NOT_LISTED, "endpoint api.acme.test:80 is not allowed by any policy"),
        ("{a: {endpoints: [{port: 443, allowed_ips: [10.0.0.0/24]}], binaries: [{path: /**}]}}", "x.test", 80,
         ReasonCode.HOST_NOT_LISTED, "endpoint x.test:80 is not allowed by any policy"),
        ("{a: {endpoints: [{host: '2001:db8::5', port: 443}], binaries: [{path: /**}]}}", "2001:db8::6", 443,
         ReasonCode.HOST_NOT_LISTED, "endpoint [2001:db8::6]:443 is not allowed by any policy"),
    ],
)  # fmt: skip
def test_what_is_not_listed(text: str, host: str, port: int, code: ReasonCode, reason: str) -> None:
    denial = refused(policy(f"version: 1\nnetwork_policies: {text}\n"), host, port)
    assert denial == Denial(Stage.POLICY, DenialCode.POLICY_DENIED, reason, code)
    assert denial.hard


@pytest.mark.parametrize("host", ["inference.local", "policy.local", "gateway.local"])
def test_reserved_hosts_cannot_be_shadowed(host: str) -> None:
    compiled = entries(f"api: {{endpoints: [{{host: {host}, port: 443}}], binaries: [{{path: /**}}]}}")
    denial = refused(compiled, host)
    assert (denial.reason_code, denial.reason) == (
        ReasonCode.RESERVED_HOST, f"{host} is answered by the proxy itself"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("listed", "executable", "ancestors", "allowed"),
    [
        ("/usr/bin/curl", "/usr/bin/curl", (), True),
        ("/usr/bin/curl", "/usr/bin/curlx", (), False),
        ("/usr/bin/bash", "/usr/bin/curl", ("/usr/bin/make", "/usr/bin/bash"), True),
        ("/usr/bin/*", "/usr/bin/curl", (), True),
        ("/usr/bin/*", "/usr/bin/x/curl", (), False),
        ("**/node", "/opt/n/bin/node", (), True),
        ("**/node", "/opt/n/bin/npm", ("/opt/n/bin/node",), True),
        ("/**", "/anything", (), True),
        ("**", "/anything", (), True),
        ("/usr/bin/[x]", "/usr/bin/[x]", (), True),
        ("/usr/bin/[x]", "/usr/bin/x", (), False),
        ("/usr/bin/a?c", "/usr/bin/abc", (), False),
        ("/usr/bin/{a,b}*", "/usr/bin/bx", (), True),
        ("/usr/bin/Curl", "/usr/bin/curl", (), False),
    ],
)
def test_binaries(listed: str, executable: str, ancestors: tuple[str, ...], allowed: bool) -> None:
    compiled = entries(f"a: {{endpoints: [{{host: a.test, port: 443}}], binaries: [{{path: '{listed}'}}]}}")
    found = ask(compiled, "a.test", by=evidence(executable, *ancestors))
    assert isinstance(found, Authorization) is allowed


def test_arguments_never_grant() -> None:
    compiled = entries("a: {endpoints: [{host: a.test, port: 443}], binaries: [{path: /opt/run.py}]}")
    caller = ProcessEvidence((Process(1, 1, "/usr/bin/python3"),), (), command_paths=("/opt/run.py",))
    denial = refused(compiled, "a.test", by=caller)
    assert denial.reason == (
        "binary '/usr/bin/python3' is not listed for a.test:443 (ancestors: [], cmdline: [/opt/run.py])"
    )


def test_direct_refuses_a_match_through_a_descendant() -> None:
    compiled = entries("a: {endpoints: [{host: a.test, port: 443}], binaries: [{path: /usr/bin/bash, direct: true}]}")
    assert isinstance(ask(compiled, "a.test", by=evidence("/usr/bin/bash")), Authorization)
    assert isinstance(ask(compiled, "a.test", by=evidence("/usr/bin/curl", "/usr/bin/bash")), Denial)


@pytest.mark.parametrize(
    ("digest", "allowed"), [(SHA, True), (OTHER_SHA, False), (None, False)], ids=["listed", "other", "unknown"]
)
@pytest.mark.parametrize("path", ["/usr/bin/curl", "/usr/bin/*", "/**"])
def test_a_pinned_image(path: str, digest: str | None, allowed: bool) -> None:
    compiled = entries(
        f"a: {{endpoints: [{{host: a.test, port: 443}}], binaries: [{{path: '{path}', sha256: ['{SHA.upper()}']}}]}}"
    )
    found = ask(compiled, "a.test", by=evidence("/usr/bin/curl", sha256=digest))
    assert isinstance(found, Authorization) is allowed


def test_a_pinned_ancestor_counts_with_its_own_digest() -> None:
    text = f"a: {{endpoints: [{{host: a.test, port: 443}}], binaries: [{{path: /bin/sh, sha256: ['{'00' * 32}']}}]}}"
    assert isinstance(ask(entries(text), "a.test", by=evidence("/usr/bin/curl", "/bin/sh")), Authorization)
    assert isinstance(ask(entries(text), "a.test", by=evidence("/bin/sh", sha256=SHA)), Denial)


def test_the_target_of_a_symlink_matches_beside_the_link() -> None:
    text = (
        "version: 1\nnetwork_policies:\n"
        "  a: {endpoints: [{host: a.test, port: 443}], binaries: [{path: /usr/bin/python3}, {path: '/opt/*'}]}\n"
    )
    asked: list[str] = []

    def resolve(path: str) -> str | None:
        asked.append(path)
        return {"/usr/bin/python3": "/usr/bin/python3.12"}.get(path)

    compiled = compile_policy([document(text)], resolve_link=resolve).policy
    assert compiled is not None
    assert asked == ["/usr/bin/python3"]
    for executable in ("/usr/bin/python3", "/usr/bin/python3.12"):
        assert isinstance(ask(compiled, "a.test", by=evidence(executable)), Authorization)
    assert isinstance(ask(compiled, "a.test", by=evidence("/usr/bin/python3.13")), Denial)


def test_the_caller_is_not_told_the_names_of_entries() -> None:
    compiled = entries("""
zeta: {endpoints: [{host: a.test, port: 443}], binaries: [{path: /usr/bin/git}]}
alpha: {endpoints: [{host: '*.a.test', port: 443}, {host: a.test, port: 443}], binaries: [{path: /usr/bin/npm}]}
""")
    denial = refused(compiled, "a.test", by=evidence("/usr/bin/curl", "/bin/sh", "/sbin/init"))
    origins = "(ancestors: [/bin/sh -> /sbin/init], cmdline: [])"
    assert denial.reason_code is ReasonCode.BINARY_NOT_ALLOWED
    assert denial.reason == f"binary '/usr/bin/curl' is not listed for a.test:443 {origins}"
    assert denial.log_reason == (
        f"binary '/usr/bin/curl' not allowed in policy 'alpha' {origins}; "
        f"binary '/usr/bin/curl' not allowed in policy 'zeta' {origins}"
    )
    assert denial.hints == ()
    assert denial.entry is None


def test_a_likely_symlink_is_pointed_out() -> None:
    compiled = entries("a: {endpoints: [{host: a.test, port: 443}], binaries: [{path: /usr/bin/python3}]}")
    denial = refused(compiled, "a.test", by=evidence("/usr/bin/python3.12"))
    hint = "SYMLINK HINT: the kernel reports the file a link leads to; list '/usr/bin/python3.12' itself"
    assert denial.hints == (hint,)
    assert denial.reason.endswith(f"cmdline: []). {hint}")


def test_many_entries_are_not_all_named() -> None:
    lines = "\n".join(
        f"e{number:02}: {{endpoints: [{{host: a.test, port: 443}}], binaries: [{{path: /b}}]}}" for number in range(20)
    )
    denial = refused(entries(lines), "a.test")
    assert denial.log_reason is not None
    assert denial.log_reason.count("not allowed in policy") == 8
    assert denial.log_reason.endswith("; and 12 more")


def test_hostile_names_are_escaped_in_reasons() -> None:
    compiled = entries("a: {endpoints: [{host: a.test, port: 443}], binaries: [{path: /b}]}")
    name = b"/tmp/\xff\nx\x1b[31m".decode("utf-8", "surrogateescape")
    denial = refused(compiled, "a.test", by=evidence(name))
    assert denial.reason == (
        "binary '/tmp/\\udcff\\x0ax\\x1b[31m' is not listed for a.test:443 (ancestors: [], cmdline: [])"
    )


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (UnavailableReason.UNAVAILABLE, ReasonCode.IDENTITY_UNAVAILABLE),
        (UnavailableReason.AMBIGUOUS, ReasonCode.IDENTITY_AMBIGUOUS),
        (UnavailableReason.INCOMPLETE, ReasonCode.IDENTITY_INCOMPLETE),
        (UnavailableReason.HASH_CHANGED, ReasonCode.IDENTITY_HASH_CHANGED),
        (UnavailableReason.STORE_FULL, ReasonCode.IDENTITY_STORE_FULL),
        (UnavailableReason.OFF, ReasonCode.IDENTITY_UNAVAILABLE),
    ],
)
def test_required_identity_denies_without_evidence(reason: UnavailableReason, code: ReasonCode) -> None:
    compiled = entries("a: {endpoints: [{host: a.test, port: 443}], binaries: [{path: /**}]}")
    denial = ask(compiled, "a.test", by=EvidenceUnavailable(reason, "why"))
    assert denial == Denial(Stage.IDENTITY, DenialCode.POLICY_DENIED, "why", code)


@pytest.mark.parametrize("mode", [IdentityMode.OPTIONAL, IdentityMode.OFF])
@pytest.mark.parametrize(
    ("binaries", "allowed"),
    [
        ("[{path: /**}]", True),
        ("[{path: '**'}]", True),
        ("[{path: /usr/bin/curl}, {path: /**}]", True),
        ("[{path: /usr/bin/curl}]", False),
        ("[{path: '**/*'}]", False),
        (f"[{{path: /**, sha256: ['{SHA}']}}]", False),
        ("[]", False),
    ],
)
def test_without_evidence_only_entries_for_any_program_match(mode: IdentityMode, binaries: str, allowed: bool) -> None:
    compiled = entries(f"a: {{endpoints: [{{host: a.test, port: 443}}], binaries: {binaries}}}")
    unknown = EvidenceUnavailable(UnavailableReason.OFF, "identity is off for this agent")
    found = ask(compiled, "a.test", by=unknown, identity=mode)
    if allowed:
        assert isinstance(found, Authorization)
        return
    assert isinstance(found, Denial)
    assert found.reason_code is ReasonCode.BINARY_NOT_ALLOWED
    assert found.reason == "the calling process is not known, and no entry for a.test:443 is open to every program"
    assert found.log_reason == f"{found.reason} (policies: 'a'; identity is off for this agent)"


def test_an_empty_binary_list_matches_nobody() -> None:
    compiled = entries("a: {endpoints: [{host: a.test, port: 443}], binaries: []}")
    assert refused(compiled, "a.test").reason_code is ReasonCode.BINARY_NOT_ALLOWED


def test_endpoints_of_all_admitted_entries_come_in_order_of_entry_and_index() -> None:
    compiled = entries("""
zeta: {endpoints: [{host: a.test, port: 443}], binaries: [{path: /usr/bin/curl}]}
beta: {endpoints: [{host: x.test, port: 443}, {host: a.test, ports: [443, 80]}], binaries: [{path: /usr/bin/*}]}
alpha: {endpoints: [{host: a.test, port: 443}], binaries: [{path: /usr/bin/git}]}
""")
    found = granted(compiled, "a.test")
    assert found.entry == "beta"
    assert [(endpoint.entry, endpoint.index) for endpoint in found.endpoints] == [("beta", 1), ("zeta", 0)]


def test_addresses_come_from_the_endpoint_that_lists_them() -> None:
    lan = "[10.0.5.7/24, '::ffff:10.1.0.0/112', 10.2.0.1]"
    compiled = entries(
        f"""
a: {{endpoints: [{{host: a.test, port: 443, allowed_ips: {lan}}}], binaries: [{{path: /**}}]}}
"""
        + """
b: {endpoints: [{port: 80, allowed_ips: [10.0.0.0/24], allow_control_plane_port: true}], binaries: [{path: /**}]}
c: {endpoints: [{host: '*.c.test', port: 443}], binaries: [{path: /**}]}
"""
    )
    networks = tuple(ip_network(text) for text in ("10.0.5.0/24", "10.1.0.0/16", "10.2.0.1/32"))
    assert granted(compiled, "a.test").addresses == AddressRule(networks, declared=True)
    hostless = granted(compiled, "anything.test", 80).addresses
    assert hostless == AddressRule((ip_network("10.0.0.0/24"),), declared=False, control_plane_port=True)
    assert granted(compiled, "x.c.test").addresses == AddressRule(None, declared=False)


def test_tls_skip() -> None:
    compiled = entries("a: {endpoints: [{host: a.test, port: 443, tls: skip}], binaries: [{path: /**}]}")
    assert granted(compiled, "a.test").tls is TlsMode.SKIP


def test_an_inspected_and_a_bare_endpoint_by_program() -> None:
    compiled = entries("""
git: {endpoints: [{host: a.test, port: 443, protocol: rest, access: read-only}], binaries: [{path: /usr/bin/git}]}
pip: {endpoints: [{host: a.test, port: 443}], binaries: [{path: /usr/bin/pip}, {path: /usr/bin/both}]}
all: {endpoints: [{host: a.test, port: 443, protocol: rest, access: read-only}], binaries: [{path: /usr/bin/both}]}
""")
    protocols = {
        name: [endpoint.protocol for endpoint in granted(compiled, "a.test", by=evidence(f"/usr/bin/{name}")).endpoints]
        for name in ("git", "pip", "both")
    }
    assert protocols == {
        "git": [Protocol.REST],
        "pip": [Protocol.L4],
        "both": [Protocol.REST, Protocol.L4],
    }
    assert granted(compiled, "a.test", by=evidence("/usr/bin/both")).inspected


def test_equal_policies_give_equal_terms_whatever_the_generation() -> None:
    text = "a: {endpoints: [{host: a.test, port: 443, protocol: rest, access: full}], binaries: [{path: /**}]}"
    one = authorize(entries(text), intent("a.test"), evidence(), GenerationNumber(1), IdentityMode.REQUIRED)
    two = authorize(
        entries(f"\n{text}\nb: {{}}"), intent("a.test"), evidence(), GenerationNumber(2), IdentityMode.REQUIRED
    )
    assert isinstance(one, Authorization)
    assert isinstance(two, Authorization)
    assert one != two
    assert one.same_terms(two)
    assert {one.endpoints[0]: "same"}[two.endpoints[0]] == "same"


@pytest.mark.parametrize(
    "change", ["enforcement: audit", "allow_upgrade: true", "deny_rules: [{method: GET, path: /x}]"]
)
def test_a_changed_endpoint_is_not_equal(change: str) -> None:
    text = "a: {{endpoints: [{{host: a.test, port: 443, protocol: rest, access: full{}}}], binaries: [{{path: /**}}]}}"
    one = granted(entries(text.format("")), "a.test")
    two = granted(entries(text.format(f", {change}")), "a.test")
    assert not one.same_terms(two)


def test_repeated_questions_are_answered_from_memory_and_memory_is_bounded() -> None:
    compiled = entries("a: {endpoints: [{port: 443, allowed_ips: [10.0.0.0/24]}], binaries: [{path: /usr/bin/*}]}")
    first = granted(compiled, "a.test")
    assert granted(compiled, "a.test").endpoints is first.endpoints
    for number in range(Memo.LIMIT + 10):
        ask(compiled, f"h{number}.test", by=evidence(f"/usr/bin/x{number}"))
    assert len(compiled.memo.terms) <= Memo.LIMIT
    assert len(compiled.memo.binaries) <= Memo.LIMIT
    assert isinstance(ask(compiled, "a.test", by=evidence("/opt/x")), Denial)


def test_a_remembered_yes_is_not_a_yes_for_another_image() -> None:
    compiled = entries(
        f"a: {{endpoints: [{{host: a.test, port: 443}}], binaries: [{{path: /usr/bin/curl, sha256: ['{SHA}']}}]}}"
    )
    assert isinstance(ask(compiled, "a.test", by=evidence(sha256=SHA)), Authorization)
    assert isinstance(ask(compiled, "a.test", by=evidence(sha256=OTHER_SHA)), Denial)
    assert isinstance(ask(compiled, "a.test", by=evidence(sha256=SHA)), Authorization)


def test_wildcards_do_not_reach_literals() -> None:
    found = compilation(
        "version: 1\nnetwork_policies: {a: {endpoints: [{host: '*.a.1.2', port: 80}], binaries: [{path: /**}]}}\n"
    )
    assert found.policy is not None
    assert isinstance(ask(found.policy, "10.1.1.2", 80), Denial)
