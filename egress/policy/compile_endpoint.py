"""One endpoint model into one `Endpoint`: presets expanded, defaults filled in, matchers compiled."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from egress.documents.location import KeyPath
from egress.documents.yaml import Document
from egress.model.destination import TlsMode
from egress.model.verdict import RuleKind, RuleRef, Verdict
from egress.policy.addresses import read_network
from egress.policy.ambiguity import path_rank
from egress.policy.calls import ArgumentMatcher, CallIndex, CallPattern
from egress.policy.clause_rules import graphql_over_websocket, tool_globs
from egress.policy.compiled import (
    CredentialOptions,
    Endpoint,
    Enforcement,
    GraphqlOptions,
    Http2,
    Matchers,
    McpOptions,
    PersistedQuery,
    Protocol,
    QueryMatcher,
    Rule,
    Signing,
    ValueGlobs,
)
from egress.policy.document import ClauseModel, EndpointModel
from egress.policy.globs import Dialect, GlobIndex, matches_everything
from egress.policy.hosts import HostPattern
from egress.policy.presets import MCP_PROFILE, PRESETS

_HTTP_METHODS = frozenset((Protocol.REST, Protocol.WEBSOCKET))
_RPC = frozenset((Protocol.JSON_RPC, Protocol.MCP))
_NO_CALLS = CallIndex(())

type _PathGlobs = tuple[tuple[str, Dialect], ...]


@dataclass(slots=True)
class EndpointCompiler:
    """Compiles the endpoints of one policy; equal lists of globs share one matcher."""

    enforcement: str
    http2: str
    _indexes: dict[_PathGlobs, GlobIndex] = field(default_factory=dict)
    _verdicts: dict[Any, Verdict] = field(default_factory=dict)

    def endpoint(
        self, document: Document, entry: str, index: int, model: EndpointModel, pattern: HostPattern | None
    ) -> Endpoint:
        path: KeyPath = ("network_policies", entry, "endpoints", index)
        protocol = Protocol(model.protocol or "l4")
        host = pattern.text if pattern is not None else ""
        ports = tuple(sorted(model.effective_ports))
        rules = self._rules(document, path, model, RuleKind.ALLOW)
        deny_rules = self._rules(document, path, model, RuleKind.DENY)
        return Endpoint(
            entry=entry,
            index=index,
            host=host,
            ports=ports,
            path=model.path,
            protocol=protocol,
            enforcement=Enforcement(model.enforcement or self.enforcement),
            tls=TlsMode.SKIP if model.tls == "skip" else TlsMode.AUTO,
            http2=Http2(model.http2 or self.http2),
            access=model.access or "",
            rules=rules,
            deny_rules=deny_rules,
            allowed_ips=tuple(read_network(text) for text in model.allowed_ips) or None,
            allow_control_plane_port=model.allow_control_plane_port,
            allow_upgrade=model.allow_upgrade,
            websocket=model.websocket,
            allow_encoded_slash=model.allow_encoded_slash,
            reject_noncanonical=model.path_mode == "reject_noncanonical",
            allow_double_escape=model.allow_double_escape,
            allow_backslash=model.allow_backslash,
            detect_timeout=model.detect_timeout,
            max_body_bytes=model.body_limit,
            credentials=_credentials(model),
            graphql=_graphql(model),
            mcp=_mcp(model),
            matchers=self._matchers(model.path, protocol, rules, deny_rules),
            location=str(document.locate(path)),
            rank=path_rank(model.path),
            key=hash((entry, index, host, ports, model.path, protocol)),
        )

    def _rules(self, document: Document, path: KeyPath, model: EndpointModel, kind: RuleKind) -> tuple[Rule, ...]:
        entry, index = str(path[1]), int(path[3])
        rules = []
        for position, (place, clause) in enumerate(_clauses(path, model, kind)):
            ref = RuleRef(entry, index, kind, position, str(document.locate(place)))
            rules.append(_rule(ref, Protocol(model.protocol or "l4"), clause))
        return tuple(rules)

    def _matchers(self, path: str, protocol: Protocol, rules: Sequence[Rule], deny_rules: Sequence[Rule]) -> Matchers:
        everywhere = not path or matches_everything(path, Dialect.COVER)
        route = None if everywhere else self._index(((path, Dialect.COVER),))
        globs = [(rule.path, Dialect.PATH) for rule in rules] + [(rule.path, Dialect.COVER) for rule in deny_rules]
        calls = _NO_CALLS
        if protocol in _RPC:
            calls = CallIndex([_call(protocol, rule) for rule in (*rules, *deny_rules)])
        return Matchers(route, self._index(tuple(globs)), self._verdicts, calls)

    def _index(self, globs: _PathGlobs) -> GlobIndex:
        found = self._indexes.get(globs)
        if found is None:
            found = self._indexes[globs] = GlobIndex(globs)
        return found


def _clauses(path: KeyPath, model: EndpointModel, kind: RuleKind) -> list[tuple[KeyPath, ClauseModel]]:
    """The clauses of one kind and where each was written; those of a preset stand where its word does."""
    if kind is RuleKind.DENY:
        return [((*path, "deny_rules", index), clause) for index, clause in enumerate(model.deny_rules)]
    if model.access is not None:
        return [((*path, "access"), clause) for clause in PRESETS.get((model.protocol, model.access), ())]
    if model.mcp_profile and not model.rules:
        return [((*path, "mcp"), clause) for clause in MCP_PROFILE]
    return [((*path, "rules", index), rule.allow) for index, rule in enumerate(model.rules)]


def _rule(ref: RuleRef, protocol: Protocol, clause: ClauseModel) -> Rule:
    tool = tool_globs(clause)
    arguments = clause.params.arguments if clause.params is not None else {}
    method = clause.method or ""
    if protocol in _HTTP_METHODS:
        method = method.upper()
    elif protocol is Protocol.MCP and not method:
        method = "tools/call" if tool or arguments else "*"
    return Rule(
        ref=ref,
        method=method,
        path=clause.path or "",
        query=tuple(
            QueryMatcher(name, globs, GlobIndex([(glob, Dialect.VALUE) for glob in globs]))
            for name, globs in clause.query.items()
        ),
        command=(clause.command or "").upper(),
        operation_type=(clause.operation_type or "").lower(),
        operation_name=clause.operation_name or "",
        fields=tuple(clause.fields or ()),
        over=clause.over or "",
        tool=tool,
        arguments=_sorted(arguments),
    )


def _call(protocol: Protocol, rule: Rule) -> CallPattern:
    """Method names are literal, but for `*` and, in MCP, globs below `tools/`."""
    pattern = rule.method == "*" or (protocol is Protocol.MCP and rule.method.startswith("tools/"))
    arguments = tuple(ArgumentMatcher(name, globs) for name, globs in rule.arguments)
    return CallPattern(rule.method, Dialect.VALUE if pattern else None, rule.tool, arguments)


def _sorted(arguments: dict[str, ValueGlobs]) -> tuple[tuple[str, ValueGlobs], ...]:
    return tuple(sorted(arguments.items()))


def _credentials(model: EndpointModel) -> CredentialOptions:
    signing = None
    if model.credential_signing is not None:
        signing = Signing(
            mode=model.credential_signing,
            service=model.signing_service,
            region=model.signing_region,
            presigned=model.presigned,
            object_keys=model.object_keys,
            oversize=model.sigv4_oversize,
            max_body_bytes=model.max_sigv4_body_bytes,
        )
    return CredentialOptions(
        provider=model.credential_binding.provider if model.credential_binding is not None else "",
        allow_uninspected=model.allow_uninspected_credentials,
        websocket_rewrite=model.websocket_credential_rewrite,
        body_rewrite=model.request_body_credential_rewrite,
        cookie_rewrite=model.cookie_credential_rewrite,
        header_substring_rewrite=model.header_substring_rewrite,
        websocket_rewrite_compat=model.websocket_rewrite_compat,
        max_rewrite_body_bytes=model.max_rewrite_body_bytes,
        redact_responses=model.redact_responses,
        deny_minting=model.deny_credential_minting,
        signing=signing,
    )


def _graphql(model: EndpointModel) -> GraphqlOptions:
    registered = tuple(
        PersistedQuery(name, query.operation_type.lower(), query.operation_name, tuple(query.fields or ()))
        for name, query in sorted(model.graphql_persisted_queries.items())
    )
    over_websocket = model.protocol == "websocket" and graphql_over_websocket(model)
    return GraphqlOptions(model.persisted_queries, registered, over_websocket)


def _mcp(model: EndpointModel) -> McpOptions:
    if model.mcp is None:
        return McpOptions()
    return McpOptions(model.mcp.strict_tool_names, model.mcp.allow_all_known_mcp_methods, model.mcp.deny_style)
