"""How the keys of one endpoint go together: what is refused, what is pointed out."""

import ipaddress
from dataclasses import dataclass

from egress.documents.findings import Findings
from egress.documents.location import KeyPath
from egress.model.verdict import RuleKind
from egress.policy.addresses import check_allowed_ips
from egress.policy.clause_rules import Clause, check_clause, graphql_over_websocket, tool_globs
from egress.policy.document import EndpointModel
from egress.policy.globs import Dialect, GlobError, GlobIndex, translate
from egress.policy.hosts import RESERVED_HOSTS, HostPattern, HostPatternError, parse_host_pattern
from egress.policy.templates import unfilled

_HTTP_KEYS = (
    "path", "enforcement", "allow_encoded_slash", "websocket_credential_rewrite", "request_body_credential_rewrite",
    "persisted_queries", "graphql_persisted_queries", "graphql_max_body_bytes", "json_rpc", "mcp", "credential_signing",
    "signing_service", "signing_region", "credential_binding", "http2", "allow_upgrade", "websocket", "path_mode",
    "allow_double_escape", "allow_backslash", "redact_responses", "cookie_credential_rewrite",
    "header_substring_rewrite", "websocket_rewrite_compat", "max_rewrite_body_bytes", "deny_credential_minting",
    "presigned", "object_keys", "sigv4_oversize", "max_sigv4_body_bytes",
)  # fmt: skip
"""Everything that supposes HTTP and so means nothing on `protocol: tcp`."""

_SIGNING_KEYS = (
    "signing_service", "signing_region", "presigned", "object_keys", "sigv4_oversize", "max_sigv4_body_bytes",
)  # fmt: skip
_AWS_DOMAINS = (".amazonaws.com", ".api.aws", ".on.aws", ".amazonaws.com.cn", ".amazonaws.eu")
"""Hosts below these tell the service that a signature is for."""
_GRAPHQL_KEYS = ("persisted_queries", "graphql_persisted_queries", "graphql_max_body_bytes")
_GRAPHQL_PROTOCOLS = ("graphql", "websocket")
_INSPECTED = ("rest", "websocket", "graphql", "json-rpc", "mcp")


@dataclass(frozen=True, slots=True)
class Subject:
    """One endpoint with what is needed to talk about it."""

    model: EndpointModel
    path: KeyPath
    findings: Findings

    def error(self, key: str, message: str, hint: str = "") -> None:
        self.findings.error((*self.path, key), message, hint)

    def warning(self, key: str, message: str, hint: str = "") -> None:
        self.findings.warning((*self.path, key), message, hint)

    def misplaced(self, key: str, where: str) -> None:
        if self.model.wrote(key):
            self.error(key, f"is a key of {where}", f"remove `{key}`")

    def idle(self, key: str, where: str) -> None:
        if self.model.wrote(key):
            self.warning(key, f"has no effect: it is a key of {where}", f"remove `{key}`")


def check_endpoint(subject: Subject, default_enforcement: str) -> HostPattern | None:
    """Say everything that is wrong with an endpoint; gives its host pattern when that is readable."""
    pattern = _host(subject)
    _ports(subject)
    _path(subject)
    _tls(subject)
    check_allowed_ips(subject.findings, (*subject.path, "allowed_ips"), subject.model, pattern)
    protocol = subject.model.protocol
    if protocol == "":
        _layer4(subject)
    elif protocol == "tcp":
        _tcp(subject)
    else:
        _inspected(subject, default_enforcement)
    _credentials(subject)
    _protocol_options(subject)
    return pattern


def _host(subject: Subject) -> HostPattern | None:
    model = subject.model
    if not model.host.strip():
        if model.protocol in ("tcp", "mcp"):
            says = f"`protocol: {model.protocol}` needs a host, `allowed_ips` or not"
            subject.error("host", says, "write the host name")
        elif not model.allowed_ips:
            hint = "write the host name; only an endpoint with `allowed_ips` may leave it out"
            subject.error("host", "the host is empty", hint)
        elif model.credential_binding is not None:
            subject.error("host", "`credential_binding` needs a host", "write the host name")
        return None
    if unfilled(model.host):
        subject.error("host", "holds an unfilled placeholder", "fill the template first; nothing is expanded here")
        return None
    try:
        pattern = parse_host_pattern(model.host)
    except HostPatternError as problem:
        message, _, hint = str(problem).partition("\n")
        subject.error("host", f"`{model.host}`: {message}", hint)
        return None
    if pattern.text in RESERVED_HOSTS:
        subject.warning("host", "is answered by the proxy itself: the endpoint has no effect", "remove the endpoint")
    elif _is_loopback(pattern):
        hint = "vouch for the address under `destinations.aliases` in the settings, and name the alias here"
        subject.warning("host", "loopback addresses are never reachable through policy", hint)
    if model.protocol == "tcp" and (pattern.literal or model.host.strip() != model.host or model.host.endswith(".")):
        subject.error("host", "`protocol: tcp` needs a name that can be resolved", "write a DNS name without end dot")
    return pattern


def _is_loopback(pattern: HostPattern) -> bool:
    if pattern.literal:
        return ipaddress.ip_address(pattern.text).is_loopback
    return pattern.text == "localhost" or pattern.text.endswith(".localhost")


def _ports(subject: Subject) -> None:
    model = subject.model
    if model.wrote("port") and model.wrote("ports"):
        subject.error("port", "`port` and `ports` exclude each other", "list all of them under `ports`")
    elif not model.effective_ports:
        subject.error("port", "the endpoint has no port", "write `port: 443`")


def _path(subject: Subject) -> None:
    path = subject.model.path
    if not path:
        return
    if unfilled(path):
        subject.error("path", "holds an unfilled placeholder", "fill the template first; nothing is expanded here")
    elif not path.startswith("/") and path != "**":
        subject.error("path", "must start with `/`", f"write `/{path}`, or leave the key out to mean every path")
    else:
        try:
            translate(path, Dialect.COVER)
        except GlobError as problem:
            subject.error("path", f"not a glob: {problem}")


def _tls(subject: Subject) -> None:
    model = subject.model
    if model.tls in ("terminate", "passthrough"):
        hint = "remove the key; TLS is recognised by itself, and `tls: skip` leaves it unread"
        subject.warning("tls", f"`{model.tls}` is deprecated and has no effect", hint)
    elif model.tls == "skip" and model.protocol in _INSPECTED:
        says = f"with `tls: skip` nothing inside TLS can be inspected, so `protocol: {model.protocol}` refuses it"
        subject.warning("tls", says, "remove `tls: skip`, or remove `protocol`")


def _layer4(subject: Subject) -> None:
    """Without `protocol` only the connection is judged, so whatever speaks of requests would be silently off."""
    model = subject.model
    hint = "write `protocol: rest` to have requests judged, or remove the key"
    if model.access == "full":
        says = "without `protocol` connections are allowed and requests are not inspected; `access: full` adds nothing"
        subject.findings.note((*subject.path, "access"), says)
    elif model.access is not None:
        subject.error("access", f"`{model.access}` does nothing without `protocol`", hint)
    for key in model.wrote("rules", "deny_rules", "enforcement", "path", "allow_upgrade"):
        subject.error(key, "does nothing without `protocol`", hint)


def _tcp(subject: Subject) -> None:
    model = subject.model
    if unsupported := model.wrote("access", "rules", "deny_rules", *_HTTP_KEYS):
        listed = ", ".join(f"`{key}`" for key in unsupported)
        subject.error(unsupported[0], f"`protocol: tcp` is not inspected and takes no {listed}", "remove them")


def _inspected(subject: Subject, default_enforcement: str) -> None:
    model = subject.model
    for key in ("rules", "deny_rules"):
        if model.wrote(key) and not getattr(model, key):
            subject.error(key, "must not be empty", f"leave `{key}` out, or write a rule")
    _base(subject)
    if model.protocol == "sql":
        _sql(subject, default_enforcement)
    elif model.enforcement is None:
        says = f"no `enforcement` is written, so the default `{default_enforcement}` applies"
        subject.findings.note(subject.path, says)
    subject.misplaced("detect_timeout", "endpoints that are not inspected")
    for index, rule in enumerate(model.rules):
        _clause(subject, Clause(RuleKind.ALLOW, (*subject.path, "rules", index, "allow"), rule.allow, model,
                                subject.findings))  # fmt: skip
    for index, clause in enumerate(model.deny_rules):
        _clause(subject, Clause(RuleKind.DENY, (*subject.path, "deny_rules", index), clause, model, subject.findings))
    _tool_filter(subject)


def _clause(subject: Subject, clause: Clause) -> None:
    if clause.model.model_fields_set:
        check_clause(clause)
        return
    # A list of nothing but empty allow rules is reported once, by `_base`.
    others = any(rule.allow.model_fields_set for rule in subject.model.rules)
    denies = clause.kind is RuleKind.DENY and subject.model.protocol != "mcp"  # there it denies every call
    if denies or (clause.kind is RuleKind.ALLOW and (others or subject.model.mcp_profile)):
        clause.findings.error(clause.path, "an empty rule says nothing", "remove it, or write what it matches")


def _base(subject: Subject) -> None:
    """There must be something that allows: rules, a preset, or the MCP profile."""
    model = subject.model
    protocol = model.protocol
    if model.access is not None and protocol in ("mcp", "json-rpc"):
        subject.error("access", f"presets do not exist for `protocol: {protocol}`", "write `rules`")
    if model.rules and model.access is not None:
        hint = "keep one of them; `deny_rules` takes away from a preset"
        subject.error("access", "`access` and `rules` exclude each other", hint)
    if model.rules and not model.mcp_profile and not any(rule.allow.model_fields_set for rule in model.rules):
        subject.error("rules", "every rule is empty, which would deny all traffic", "say what each rule allows")
    if model.rules or model.access is not None or model.mcp_profile or model.wrote("rules"):
        return
    if protocol == "json-rpc":
        subject.findings.error(subject.path, "`protocol: json-rpc` needs explicit rules", "write `rules`")
    elif protocol == "mcp":
        hint = "write `rules`, or `mcp: {allow_all_known_mcp_methods: true}`"
        subject.findings.error(subject.path, "`protocol: mcp` needs rules", hint)
    else:
        hint = "write `access: read-only`, or list `rules`"
        subject.findings.error(subject.path, f"`protocol: {protocol}` needs `rules` or `access`", hint)


def _sql(subject: Subject, default_enforcement: str) -> None:
    model = subject.model
    if not model.allow_unimplemented:
        says = "`protocol: sql` is not enforced: bytes would pass unread"
        subject.error("protocol", says, "remove `protocol`, or accept that with `allow_unimplemented: true`")
    if (model.enforcement or default_enforcement) == "enforce":
        subject.error("enforcement", "SQL can only be audited", "write `enforcement: audit`")


def _tool_filter(subject: Subject) -> None:
    """A rule for all tools next to rules for single tools would erase the filter."""
    model = subject.model
    if model.protocol != "mcp" or not any(tool_globs(rule.allow) for rule in model.rules):
        return
    clauses = [(("rules", index, "allow"), rule.allow) for index, rule in enumerate(model.rules)]
    clauses += [(("deny_rules", index), clause) for index, clause in enumerate(model.deny_rules)]  # type: ignore[misc]
    for path, clause in clauses:
        if tool_globs(clause) or (clause.params and clause.params.arguments) or not clause.model_fields_set:
            continue
        method = clause.method or "*"
        try:
            broad = bool(GlobIndex([(method, Dialect.VALUE)]).match("tools/call"))
        except GlobError:
            continue  # already reported
        if broad:
            says = "covers every tool and so erases the tool rules beside it"
            subject.findings.error((*subject.path, *path), says, "name the tools, or leave `tools/call` out")


def _credentials(subject: Subject) -> None:
    model = subject.model
    protocol = model.protocol
    if model.credential_binding is not None and not model.credential_binding.provider.strip():
        subject.findings.error((*subject.path, "credential_binding", "provider"), "must not be empty")
    if model.credential_signing is not None:
        if not model.signing_service and not model.host.lower().endswith(_AWS_DOMAINS):
            says = "`credential_signing` needs `signing_service`"
            subject.error("credential_signing", says, "write the AWS service name, such as `signing_service: s3`")
        if model.request_body_credential_rewrite:
            says = "a signed body cannot be rewritten"
            subject.error("request_body_credential_rewrite", says, "keep `credential_signing` or the rewrite")
    else:
        for key in _SIGNING_KEYS:
            subject.misplaced(key, "endpoints with `credential_signing`")
    if protocol not in ("tcp", "rest") and model.request_body_credential_rewrite:
        subject.idle("request_body_credential_rewrite", "`protocol: rest`")
    if protocol not in ("tcp", "rest", "websocket") and model.websocket_credential_rewrite:
        subject.idle("websocket_credential_rewrite", "`protocol: rest` and `protocol: websocket`")
    unread = protocol == "" or model.tls == "skip"
    if model.credential_binding is not None and unread and not model.allow_uninspected_credentials:
        says = "credentials cannot be placed into traffic that is not inspected: connections will be refused"
        subject.warning("credential_binding", says, "write `protocol: rest`, or `allow_uninspected_credentials: true`")


def _protocol_options(subject: Subject) -> None:
    """Options of one protocol that stand on an endpoint of another."""
    model = subject.model
    protocol = model.protocol
    if protocol != "sql":
        subject.misplaced("allow_unimplemented", "`protocol: sql`")
    if protocol == "tcp":
        return
    if protocol not in ("", "rest"):
        subject.misplaced("allow_upgrade", "`protocol: rest`")
    if model.websocket == "raw" and protocol == "rest" and not model.allow_upgrade:
        subject.warning("websocket", "has no effect without `allow_upgrade: true`")
    if protocol != "mcp":
        subject.misplaced("mcp", "`protocol: mcp`")
    if protocol not in ("json-rpc", "mcp"):
        subject.idle("json_rpc", "`protocol: json-rpc`")
    if protocol not in _GRAPHQL_PROTOCOLS:
        for key in _GRAPHQL_KEYS:
            subject.idle(key, "`protocol: graphql` and `protocol: websocket`")
    elif protocol == "websocket" and model.graphql_max_body_bytes is not None and not graphql_over_websocket(model):
        subject.warning("graphql_max_body_bytes", "has no effect without GraphQL rules")
    _persisted(subject)


def _persisted(subject: Subject) -> None:
    model = subject.model
    for name, query in model.graphql_persisted_queries.items():
        path = (*subject.path, "graphql_persisted_queries", name)
        if query.operation_type.lower() not in ("query", "mutation", "subscription"):
            hint = "write `query`, `mutation` or `subscription`"
            subject.findings.error((*path, "operation_type"), "unknown operation type", hint)
        if query.fields is not None and (not query.fields or not all(query.fields)):
            subject.findings.error((*path, "fields"), "must not be empty", "leave the key out to mean any fields")
    if model.graphql_persisted_queries and model.persisted_queries == "deny":
        says = "no registered query is accepted as long as `persisted_queries` is `deny`"
        subject.warning("graphql_persisted_queries", says, "write `persisted_queries: allow_registered`")
