"""What one allow or deny clause may say under each protocol."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from egress.documents.findings import Findings
from egress.documents.location import KeyPath
from egress.model.verdict import RuleKind
from egress.policy.document import ClauseModel, EndpointModel
from egress.policy.globs import Dialect, GlobError, is_literal, translate
from egress.policy.overlap import Piece, overlaps, path_readings
from egress.policy.templates import unfilled

OPERATION_TYPES = ("query", "mutation", "subscription", "*")
_REST_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "*"))
_WEBSOCKET_METHODS = frozenset(("GET", "WEBSOCKET_TEXT", "WEBSOCKET_BINARY", "*"))
_GRAPHQL_KEYS = ("operation_type", "operation_name", "fields", "over")
_RPC_KEYS = ("tool", "params")
_EVERY_PATH = (("/", Piece.ANY_RUN),)
_GLOB_CHARACTERS = frozenset("*?[]{}")


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause with what is needed to talk about it."""

    kind: RuleKind
    path: KeyPath
    model: ClauseModel
    endpoint: EndpointModel
    findings: Findings

    def error(self, key: str, message: str, hint: str = "") -> None:
        self.findings.error((*self.path, key), message, hint)

    def warning(self, key: str, message: str, hint: str = "") -> None:
        self.findings.warning((*self.path, key), message, hint)

    def missing(self, key: str, hint: str) -> None:
        self.findings.error(self.path, f"the key `{key}` is missing: without it the rule never matches", hint)

    def refuse(self, keys: Iterable[str], *, because: str) -> None:
        for key in self.model.wrote(*keys):
            self.error(key, because, f"remove `{key}`")


def graphql_over_websocket(endpoint: EndpointModel) -> bool:
    """True when client messages of a `websocket` endpoint are read as GraphQL."""
    clauses = [rule.allow for rule in endpoint.rules] + endpoint.deny_rules
    return (
        bool(endpoint.graphql_persisted_queries)
        or endpoint.persisted_queries != "deny"
        or any(clause.wrote("operation_type", "operation_name", "fields") for clause in clauses)
    )


def check_clause(clause: Clause) -> None:
    """Everything that is wrong with one clause."""
    _CHECKS[clause.endpoint.protocol](clause)
    model = clause.model
    for name, globs in model.query.items():
        _values(clause, ("query", name), globs)
    _values(clause, ("operation_name",), (model.operation_name or "",))
    _values(clause, ("fields",), model.fields or ())
    _values(clause, ("tool",), model.tool or ())
    if model.params is not None:
        _values(clause, ("params", "name"), model.params.name or ())
        for name, globs in model.params.arguments.items():
            _values(clause, ("params", "arguments", name), globs)


def _rest(clause: Clause) -> None:
    clause.refuse(_GRAPHQL_KEYS + _RPC_KEYS, because="not a key of `protocol: rest` rules")
    if clause.model.command is not None:
        clause.warning("command", "has no effect on `protocol: rest`", "remove `command`")
    _http(clause, _REST_METHODS)


def _http(clause: Clause, known_methods: frozenset[str]) -> None:
    model = clause.model
    if not model.method:
        clause.missing("method", 'write `method: "*"` to mean every method')
    elif model.method.upper() not in known_methods:
        clause.warning("method", f"`{model.method}` is not a method known here", f"known: {_listed(known_methods)}")
    if not model.path:
        clause.missing("path", 'write `path: "**"` to mean every path')
    else:
        _rule_path(clause, model.path)


def _rule_path(clause: Clause, path: str) -> None:
    dialect = Dialect.COVER if clause.kind is RuleKind.DENY else Dialect.PATH
    try:
        translate(path, dialect)
    except GlobError as problem:
        clause.error("path", f"not a glob: {problem}")
        return
    if unfilled(path):
        says = "holds an unfilled placeholder, which is never expanded"
        (clause.error if clause.kind is RuleKind.DENY else clause.warning)("path", says, "fill the template first")
    elif not path.startswith("/") and not overlaps(path_readings(path), _EVERY_PATH, "/"):
        says = "can match no path, since every path starts with `/`"
        hint = f"write `/{path.lstrip('*')}`, or `**` for every path"
        (clause.error if clause.kind is RuleKind.DENY else clause.warning)("path", says, hint)


def _websocket(clause: Clause) -> None:
    model = clause.model
    clause.refuse(_RPC_KEYS, because="not a key of `protocol: websocket` rules")
    operation = model.wrote("operation_type", "operation_name", "fields")
    if model.command is not None:
        clause.warning("command", "has no effect on `protocol: websocket`", "remove `command`")
    if not operation:
        _http(clause, _WEBSOCKET_METHODS)
        message = (model.method or "").upper() == "WEBSOCKET_TEXT"
        if message and clause.kind is RuleKind.ALLOW and graphql_over_websocket(clause.endpoint):
            says = "would let every message past the GraphQL operation rules of this endpoint"
            clause.error("method", says, "write operation rules instead, and `method: GET` for the handshake")
        return
    if mixed := model.wrote("method", "path", "query"):
        says = f"one rule cannot hold both `{mixed[0]}` and GraphQL members"
        clause.error(mixed[0], says, "write two rules: one for the handshake, one for operations")
    _operation(clause)


def _graphql(clause: Clause) -> None:
    clause.refuse(("method", "path", "query", "command", *_RPC_KEYS), because="not a key of `protocol: graphql` rules")
    if clause.kind is RuleKind.DENY and clause.model.over is not None:
        clause.error("over", "belongs into allow rules", "mutations over GET are denied unless an allow rule says so")
    _operation(clause)


def _operation(clause: Clause) -> None:
    model = clause.model
    if not model.operation_type:
        clause.missing("operation_type", f"write one of {_listed(OPERATION_TYPES)}")
    elif model.operation_type.lower() not in OPERATION_TYPES:
        clause.error("operation_type", "unknown operation type", f"write one of {_listed(OPERATION_TYPES)}")
    if model.fields is not None and (not model.fields or not all(model.fields)):
        clause.error("fields", "must not be empty", "leave the key out to mean any fields")


def _json_rpc(clause: Clause) -> None:
    because = "not a key of `protocol: json-rpc` rules"
    clause.refuse(("path", "query", "command", *_GRAPHQL_KEYS, *_RPC_KEYS), because=because)
    method = clause.model.method
    if not method:
        clause.missing("method", 'write the method name, or `"*"` for every method')
    elif method != "*" and _GLOB_CHARACTERS.intersection(method):
        clause.error("method", "method names are matched literally here", 'list each method, or write `"*"` for all')


def _mcp(clause: Clause) -> None:
    because = "not a key of `protocol: mcp` rules"
    clause.refuse(("path", "query", "command", *_GRAPHQL_KEYS), because=because)
    model = clause.model
    profile = clause.endpoint.mcp_profile
    selector = tool_globs(model)
    if model.tool is not None and model.params is not None and model.params.name is not None:
        clause.error("tool", "`tool` and `params.name` say the same thing", "keep `tool`")
    if model.params is not None and not model.params.name and not model.params.arguments:
        clause.error("params", "must hold `name` or `arguments`")
    if not model.method:
        if not profile and not (clause.kind is RuleKind.DENY and not selector):
            clause.missing("method", "write `tools/call`, or another MCP method")
    elif _GLOB_CHARACTERS.intersection(model.method) and model.method != "*" and not model.method.startswith("tools/"):
        clause.error("method", "only methods under `tools/` may be globs", "list each method")
    else:
        _values(clause, ("method",), (model.method,))
    if (selector or (model.params and model.params.arguments)) and model.method not in (None, "tools/call"):
        clause.error("method", "a tool is only named by `tools/call`", "write `method: tools/call`")
    strict = clause.endpoint.mcp is None or clause.endpoint.mcp.strict_tool_names
    if not strict and any(not is_literal(glob) for glob in selector):
        says = "a wildcard cannot be trusted with `strict_tool_names: false`"
        clause.error("tool", says, "name each tool, or leave `strict_tool_names` at true")


def tool_globs(model: ClauseModel) -> tuple[str, ...]:
    """The tool selector of an MCP clause, in either spelling."""
    if model.tool is not None:
        return model.tool
    return (model.params.name or ()) if model.params is not None else ()


def _sql(clause: Clause) -> None:
    because = "not a key of `protocol: sql` rules"
    clause.refuse(("method", "path", "query", *_GRAPHQL_KEYS, *_RPC_KEYS), because=because)
    if not clause.model.command:
        clause.missing("command", 'write the SQL command, or `"*"`')


def _nothing(_: Clause) -> None:
    """Endpoints without an inspected protocol take no rules; that is said once, about the whole list."""


def _values(clause: Clause, key: KeyPath, globs: Iterable[str]) -> None:
    for glob in globs:
        try:
            translate(glob, Dialect.VALUE)
        except GlobError as problem:
            clause.findings.error((*clause.path, *key), f"not a glob: {problem}")


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in sorted(words))


_CHECKS: dict[str, Callable[[Clause], None]] = {
    "": _nothing,
    "tcp": _nothing,
    "rest": _rest,
    "websocket": _websocket,
    "graphql": _graphql,
    "json-rpc": _json_rpc,
    "mcp": _mcp,
    "sql": _sql,
}
