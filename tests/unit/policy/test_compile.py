"""Documents into one policy: composition, defaults, digest, presets, sections."""

import pytest

from egress.documents.diagnostic import Severity, render
from egress.model.address import parse_host
from egress.model.verdict import RuleKind
from egress.policy.compile import compile_policy
from egress.policy.compiled import (
    Enforcement,
    FilesystemSection,
    Http2,
    PolicyTest,
    ProcessSection,
    Protocol,
    StaticSections,
)
from egress.policy.globs import GlobIndex
from tests.unit.policy.samples import ask, compilation, document, entries, granted, policy

ONE = "version: 1\nnetwork_policies:\n  a: {endpoints: [{host: a.test, port: 443}], binaries: [{path: /**}]}\n"
TWO = "version: 1\nnetwork_policies:\n  b: {endpoints: [{host: b.test, port: 443}], binaries: [{path: /**}]}\n"


def errors(*texts: str) -> list[str]:
    documents = [document(text, f"{number}.yaml") for number, text in enumerate(texts)]
    found = compile_policy(documents)
    assert found.policy is None
    return [str(one) for one in found.diagnostics if one.severity is Severity.ERROR]


def test_no_document_denies_everything() -> None:
    found = compile_policy([])
    assert found.policy is not None
    assert found.diagnostics == ()
    assert found.policy.entries == {}


def test_documents_compose() -> None:
    found = compile_policy([document(TWO), document(ONE)]).policy
    assert found is not None
    assert list(found.entries) == ["a", "b"]
    assert granted(found, "b.test").entry == "b"


def test_an_entry_defined_twice_names_both_places() -> None:
    assert errors(ONE, TWO, "version: 1\nnetwork_policies:\n\n  a: {}\n") == [
        "2.yaml:4:3: error: network_policies.a: already defined at 0.yaml:3:3\n"
        "    hint: rename one of them, or merge the two"
    ]


def test_a_section_defined_twice_names_both_places() -> None:
    text = "version: 1\nlandlock: {}\n"
    assert errors(text, text) == [
        "1.yaml:2:1: error: landlock: already defined at 0.yaml:2:1\n    hint: rename one of them, or merge the two"
    ]


def test_endpoints_of_different_documents_may_conflict() -> None:
    rest = (
        "version: 1\nnetwork_policies:\n  {}: {{endpoints: [{{host: a.test, port: 443, protocol: rest, access: full, "
    )
    rest += "enforcement: {}}}], binaries: [{{path: /**}}]}}\n"
    assert errors(rest.format("a", "audit"), rest.format("b", "enforce")) == [
        "1.yaml:3:19: error: network_policies.b.endpoints[0]: conflicts with network_policies.a.endpoints[0] "
        "(0.yaml:3:19): the same requests, but different `enforcement`\n"
        "    hint: make them agree, or tell them apart by host, port or path"
    ]


def test_the_digest_is_the_meaning_not_the_files() -> None:
    together = "version: 1\nnetwork_policies:\n" + TWO.splitlines()[2] + "\n" + ONE.splitlines()[2] + " # comment\n"
    split = compile_policy([document(ONE), document(TWO)]).policy
    assert split is not None
    assert split.digest == policy(together).digest
    assert len(split.digest) == 64
    assert split.digest != policy(ONE).digest
    assert policy(ONE).digest != policy(ONE, default_enforcement="audit").digest
    assert policy(ONE).digest != policy(ONE, default_http2="off").digest


def test_defaults_and_what_is_written() -> None:
    compiled = entries(
        """
a: {endpoints: [{host: a.test, port: 443, protocol: rest, access: full}], binaries: [{path: /**}]}
b: {endpoints: [{host: b.test, port: 443, protocol: rest, access: full, enforcement: enforce}], binaries: []}
c: {endpoints: [{host: c.test, port: 443, protocol: rest, access: full, http2: prefer}], binaries: []}
d: {endpoints: [{host: d.test, port: 443, detect_timeout: off}, {host: e.test, port: 443, detect_timeout: 5s}]}
f: {endpoints: [{host: f.test, port: 443, detect_timeout: 0}]}
g: {endpoints: [{host: g.test, port: 443, protocol: rest, access: full, path_mode: reject_noncanonical}]}
""",
        default_enforcement="audit",
        default_http2="off",
    )
    found = {key: entry.endpoints for key, entry in compiled.entries.items()}
    assert (found["a"][0].enforcement, found["a"][0].http2) == (Enforcement.AUDIT, Http2.OFF)
    assert found["b"][0].enforcement is Enforcement.ENFORCE
    assert found["c"][0].http2 is Http2.PREFER
    assert [endpoint.detect_timeout for endpoint in found["d"]] == [None, 5.0]
    assert found["f"][0].detect_timeout is None
    assert found["a"][0].detect_timeout == 1.0
    assert (found["g"][0].reject_noncanonical, found["a"][0].reject_noncanonical) == (True, False)
    assert (found["a"][0].max_body_bytes, found["a"][0].access) == (65536, "full")
    assert not found["a"][0].allow_upgrade
    assert found["a"][0].websocket == "parsed"


def test_each_endpoint_that_relies_on_the_default_enforcement_is_named() -> None:
    text = "version: 1\nnetwork_policies: {a: {endpoints: [{host: a.test, port: 443, protocol: rest, access: full}]}}\n"
    notes = [one for one in compilation(text, default_enforcement="audit").diagnostics if one.severity is Severity.NOTE]
    assert [(note.location.line, note.message) for note in notes] == [
        (2, "network_policies.a.endpoints[0]: no `enforcement` is written, so the default `audit` applies")
    ]


@pytest.mark.parametrize(
    ("protocol", "access", "expected"),
    [
        ("rest", "read-only", ["GET", "HEAD", "OPTIONS"]),
        ("rest", "read-write", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH"]),
        ("rest", "full", ["*"]),
        ("websocket", "read-only", ["GET"]),
        ("websocket", "read-write", ["GET", "WEBSOCKET_TEXT"]),
        ("websocket", "full", ["*"]),
    ],
)
def test_http_presets(protocol: str, access: str, expected: list[str]) -> None:
    compiled = entries(f"a: {{endpoints: [{{host: a.test, port: 443, protocol: {protocol}, access: {access}}}]}}")
    endpoint = compiled.entries["a"].endpoints[0]
    assert [(rule.method, rule.path) for rule in endpoint.rules] == [(method, "**") for method in expected]
    assert {rule.ref.location for rule in endpoint.rules} == {
        "policy.yaml:3:69" if protocol == "rest" else endpoint.rules[0].ref.location
    }


@pytest.mark.parametrize(
    ("access", "expected"),
    [("read-only", ["query"]), ("read-write", ["query", "mutation"]), ("full", ["*"])],
)
def test_graphql_presets(access: str, expected: list[str]) -> None:
    compiled = entries(f"a: {{endpoints: [{{host: a.test, port: 443, protocol: graphql, access: {access}}}]}}")
    assert [rule.operation_type for rule in compiled.entries["a"].endpoints[0].rules] == expected


def test_mcp_rules_are_completed() -> None:
    profile = "mcp: {allow_all_known_mcp_methods: true}"
    listed = "rules: [{allow: {tool: x}}, {allow: {method: initialize}}], deny_rules: [{tool: {any: [y, 'z*']}}]"
    call = "rules: [{allow: {method: tools/call, params: {name: n, arguments: {repo: 'acme/*'}}}}]"
    compiled = entries(f"""
a: {{endpoints: [{{host: a.test, port: 443, protocol: MCP, {profile}}}]}}
b: {{endpoints: [{{host: b.test, port: 443, protocol: mcp, {profile}, {listed}}}]}}
c: {{endpoints: [{{host: c.test, port: 443, protocol: mcp, mcp: {{max_body_bytes: 64KiB}}, {call}}}]}}
""")
    a, b, c = (entry.endpoints[0] for entry in compiled.entries.values())
    assert a.protocol is Protocol.MCP
    assert [rule.method for rule in a.rules] == ["*"]
    assert [(rule.method, rule.tool) for rule in b.rules] == [("tools/call", ("x",)), ("initialize", ())]
    assert [(rule.method, rule.tool) for rule in b.deny_rules] == [("tools/call", ("y", "z*"))]
    assert [(rule.tool, rule.arguments) for rule in c.rules] == [(("n",), (("repo", ("acme/*",)),))]
    assert c.max_body_bytes == 65536


def test_rules_know_where_they_stand() -> None:
    compiled = policy("""version: 1
network_policies:
  a:
    endpoints:
      - host: a.test
        port: 443
        protocol: rest
        rules:
          - allow: {method: get, path: /a}
          - allow: {method: POST, path: /b}
        deny_rules:
          - {method: "*", path: /c}
""")
    endpoint = compiled.entries["a"].endpoints[0]
    assert [(rule.ref.id, rule.ref.location) for rule in (*endpoint.rules, *endpoint.deny_rules)] == [
        ("a/endpoints[0]/rules[0]", "policy.yaml:9:13"),
        ("a/endpoints[0]/rules[1]", "policy.yaml:10:13"),
        ("a/endpoints[0]/deny_rules[0]", "policy.yaml:12:13"),
    ]
    assert endpoint.location == "policy.yaml:5:9"
    assert endpoint.rules[0].method == "GET"
    assert endpoint.deny_rules[0].ref.kind is RuleKind.DENY


def test_equal_lists_of_globs_share_one_matcher() -> None:
    rule = "protocol: rest, rules: [{allow: {method: GET, path: '/v1/*'}}]"
    compiled = entries(f"""
a: {{endpoints: [{{host: a.test, port: 443, {rule}}}, {{host: b.test, port: 443, {rule}}}]}}
""")
    one, two = compiled.entries["a"].endpoints
    assert isinstance(one.matchers.paths, GlobIndex)
    assert one.matchers.paths is two.matchers.paths


def test_static_sections_are_kept() -> None:
    compiled = policy("""version: 1
filesystem_policy: {read_only: [/usr], read_write: [/tmp]}
landlock: {compatibility: hard_requirement}
process: {run_as_user: sandbox, run_as_group: "1000"}
""")
    assert compiled.static == StaticSections(
        FilesystemSection(include_workdir=False, read_only=("/usr",), read_write=("/tmp",)),
        "hard_requirement",
        ProcessSection("sandbox", "1000"),
    )


def test_middlewares_are_kept_in_order() -> None:
    compiled = policy("""version: 1
network_middlewares:
  second:
    middleware: openshell/regex
    order: 2
    endpoints: {include: ["*.A.test"], exclude: [x.a.test]}
    config: {a: [1]}
  first: {name: shown, middleware: x/y, order: -1, on_error: fail_open, endpoints: {include: ["**"]}}
""")
    assert [(one.key, one.name, one.order, one.on_error, one.include, one.exclude) for one in compiled.middlewares] == [
        ("first", "shown", -1, "fail_open", ("**",), ()),
        ("second", "second", 2, "fail_closed", ("*.a.test",), ("x.a.test",)),
    ]
    assert compiled.middlewares[1].config == {"a": [1]}


def test_inline_tests_are_kept() -> None:
    compiled = policy("""version: 1
tests:
  - {name: reads, request: {method: GET, url: "https://a.test/"}, binary: /usr/bin/gh, expect: allow}
  - {name: deletes, request: {method: DELETE, url: "https://a.test/"}, expect: {deny: method_path_denied}}
""")
    assert compiled.tests == (
        PolicyTest("reads", {"method": "GET", "url": "https://a.test/"}, "/usr/bin/gh", (), "default", "allow", ""),
        PolicyTest("deletes", {"method": "DELETE", "url": "https://a.test/"}, "", (), "default", "deny",
                   "method_path_denied"),
    )  # fmt: skip


def test_credential_and_protocol_options_are_kept() -> None:
    compiled = policy("""version: 1
network_policies:
  a:
    endpoints:
      - host: s3.test
        port: 443
        protocol: rest
        access: full
        credential_signing: sigv4:body
        signing_service: s3
        signing_region: eu-1
        presigned: reject
        object_keys: opaque
        sigv4_oversize: unsigned
        max_sigv4_body_bytes: 1MiB
        credential_binding: {provider: aws}
        redact_responses: headers
        deny_credential_minting: false
  b:
    endpoints:
      - host: b.test
        port: 443
        protocol: graphql
        access: full
        persisted_queries: allow_registered
        graphql_persisted_queries: {abc: {operation_type: Query, fields: [viewer]}}
""")
    options = compiled.entries["a"].endpoints[0].credentials
    assert options.provider == "aws"
    assert options.signing is not None
    assert (options.signing.mode, options.signing.service, options.signing.region) == ("sigv4:body", "s3", "eu-1")
    assert (options.signing.presigned, options.signing.object_keys, options.signing.oversize) == (
        "reject", "opaque", "unsigned",
    )  # fmt: skip
    assert options.signing.max_body_bytes == 1048576
    assert (options.redact_responses, options.deny_minting) == ("headers", False)
    graphql = compiled.entries["b"].endpoints[0].graphql
    assert graphql.persisted_queries == "allow_registered"
    assert [(one.id, one.operation_type, one.fields) for one in graphql.registered] == [("abc", "query", ("viewer",))]


def test_work_does_not_grow_with_endpoints_on_other_hosts() -> None:
    """One lookup, one set per port: the candidates are those of the host, not of the policy."""
    lines = [
        f"e{n}: {{endpoints: [{{host: h{n}.acme.test, port: 443}}], binaries: [{{path: /b{n}}}]}}" for n in range(50)
    ]
    lines += [
        f"w{n}: {{endpoints: [{{host: '*.w{n}.acme.test', port: 443}}], binaries: [{{path: /b{n}}}]}}"
        for n in range(50)
    ]
    compiled = entries("\n".join(lines))
    table = compiled.ports[443]
    assert len(compiled.ports) == 1
    assert [endpoint.entry for endpoint in table.lookup(parse_host("h7.acme.test"))] == ["e7"]
    assert [endpoint.entry for endpoint in table.lookup(parse_host("x.w9.acme.test"))] == ["w9"]
    assert ask(compiled, "x.acme.test").reason_code is not None  # type: ignore[union-attr]


def test_findings_are_rendered_in_document_order() -> None:
    found = compilation("version: 1\nnetwork_policies:\n  b: {}\n  a: {}\n")
    lines = [line.split(": ")[0] for line in render(found.diagnostics).splitlines() if "hint" not in line]
    assert lines == ["policy.yaml:3:6", "policy.yaml:3:6", "policy.yaml:4:6", "policy.yaml:4:6"]
