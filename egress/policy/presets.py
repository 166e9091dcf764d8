"""Access presets, as the rules they stand for. Expanded after validation; the word stays on the endpoint."""

from egress.policy.document import ClauseModel


def _methods(*methods: str) -> tuple[ClauseModel, ...]:
    return tuple(ClauseModel(method=method, path="**") for method in methods)


def _operations(*kinds: str) -> tuple[ClauseModel, ...]:
    return tuple(ClauseModel(operation_type=kind) for kind in kinds)


_READ = ("GET", "HEAD", "OPTIONS")

PRESETS: dict[tuple[str, str], tuple[ClauseModel, ...]] = {
    ("rest", "read-only"): _methods(*_READ),
    ("rest", "read-write"): _methods(*_READ, "POST", "PUT", "PATCH"),
    ("rest", "full"): _methods("*"),
    ("websocket", "read-only"): _methods("GET"),
    ("websocket", "read-write"): _methods("GET", "WEBSOCKET_TEXT"),
    ("websocket", "full"): _methods("*"),
    ("graphql", "read-only"): _operations("query"),
    ("graphql", "read-write"): _operations("query", "mutation"),
    ("graphql", "full"): _operations("*"),
    ("sql", "read-only"): _methods(*_READ),
    ("sql", "read-write"): _methods(*_READ, "POST", "PUT", "PATCH"),
    ("sql", "full"): _methods("*"),
}
"""`read-write` deliberately lacks DELETE, TRACE, CONNECT and extension methods."""

MCP_PROFILE = (ClauseModel(method="*"),)
"""What `allow_all_known_mcp_methods` stands for when no rules are written."""
