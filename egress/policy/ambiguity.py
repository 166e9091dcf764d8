"""Endpoint pairs that could decide one connection or one request in two ways, across all entries and documents.

Pairs are found by port and host, so that the work grows with the endpoints that share a host, not with all pairs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from egress.documents.diagnostic import Diagnostic, error
from egress.documents.location import KeyPath, Location, path_text
from egress.policy.addresses import read_network
from egress.policy.clause_rules import graphql_over_websocket
from egress.policy.compiled import INSPECTED
from egress.policy.document import EndpointModel
from egress.policy.hosts import HostPattern, HostTable
from egress.policy.overlap import Reading, covers, host_reading, overlaps, path_readings

MAX_CONFLICTS = 100

_REQUEST_KEYS = (
    "allow_encoded_slash", "websocket_credential_rewrite", "request_body_credential_rewrite", "credential_signing",
    "signing_service", "signing_region", "allow_upgrade", "websocket", "path_mode", "allow_double_escape",
    "allow_backslash", "redact_responses", "cookie_credential_rewrite", "header_substring_rewrite",
    "websocket_rewrite_compat", "max_rewrite_body_bytes", "deny_credential_minting", "presigned", "object_keys",
    "sigv4_oversize", "max_sigv4_body_bytes", "detect_timeout", "persisted_queries", "body_limit",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Site:
    """One endpoint and where it stands. `pattern` is None for a hostless one."""

    path: KeyPath
    location: Location
    model: EndpointModel
    pattern: HostPattern | None
    enforcement: str
    http2: str

    @property
    def inspected(self) -> bool:
        return self.model.protocol in INSPECTED

    @property
    def rank(self) -> int:
        return path_rank(self.model.path)

    @cached_property
    def readings(self) -> tuple[Reading, ...] | None:
        return path_readings(self.model.path)

    @cached_property
    def connection(self) -> dict[str, object]:
        """What must agree wherever two endpoints share a host and a port."""
        model = self.model
        allowed = frozenset(str(read_network(text)) for text in model.allowed_ips)
        return {"protocol": model.protocol == "tcp", "tls": model.tls == "skip", "allowed_ips": allowed}

    @cached_property
    def request(self) -> dict[str, object]:
        """What must agree between endpoints that may own the same request."""
        model = self.model
        values: dict[str, object] = {key: getattr(model, key) for key in _REQUEST_KEYS}
        values["credential_binding"] = model.credential_binding.provider if model.credential_binding else ""
        values["http2"] = self.http2
        if self.inspected:
            values["enforcement"] = self.enforcement
        values["strict_tool_names"] = model.mcp is None or model.mcp.strict_tool_names
        values["deny_style"] = model.mcp.deny_style if model.mcp else "json-rpc"
        values["GraphQL over WebSocket"] = model.protocol == "websocket" and graphql_over_websocket(model)
        return values

    @cached_property
    def signature(self) -> str:
        """Endpoints with one signature never conflict."""
        return repr((self.model.protocol, self.connection, self.request))


def path_rank(path: str) -> int:
    """Number of characters that are not `*`; the endpoint with the highest rank owns a request."""
    return len(path) - path.count("*")


def find_conflicts(sites: Sequence[Site]) -> tuple[Diagnostic, ...]:
    """One error for each pair that conflicts, up to a bound."""
    found: list[Diagnostic] = []
    seen: set[tuple[int, int]] = set()
    for one, other in _candidates(sites):
        pair = (id(one), id(other))
        if pair in seen or pair[::-1] in seen:
            continue
        seen.add(pair)
        if difference := _difference(one, other):
            found.append(_conflict(one, other, difference))
        if len(found) == MAX_CONFLICTS:
            break
    return tuple(found)


def _conflict(one: Site, other: Site, difference: str) -> Diagnostic:
    says = f"{path_text(other.path)}: conflicts with {path_text(one.path)} ({one.location}): {difference}"
    return error(other.location, says, "make them agree, or tell them apart by host, port or path")


def _candidates(sites: Sequence[Site]) -> Iterator[tuple[Site, Site]]:
    """Pairs that share a port and may share a host, and do not say the same."""
    by_port: dict[int, list[Site]] = {}
    for site in sites:
        for port in site.model.effective_ports:
            by_port.setdefault(port, []).append(site)
    for neighbours in {tuple(id(site) for site in same): same for same in by_port.values()}.values():
        if len({site.signature for site in neighbours}) > 1 or _protocols(neighbours) > 1:
            yield from _on_one_port(neighbours)


def _protocols(sites: Sequence[Site]) -> int:
    return len({site.model.protocol for site in sites})


def _on_one_port(sites: Sequence[Site]) -> Iterator[tuple[Site, Site]]:
    wildcards = [site for site in sites if site.pattern is not None and site.pattern.wildcard]
    hostless = [site for site in sites if site.pattern is None]
    exact: dict[str, list[Site]] = {}
    for site in sites:
        if site.pattern is not None and not site.pattern.wildcard:
            exact.setdefault(site.pattern.text, []).append(site)
    table = HostTable([(site.pattern, site) for site in wildcards])
    for named in exact.values():
        pattern = named[0].pattern
        covering = table.covering(pattern.text) if pattern is not None and not pattern.literal else []
        yield from _different([*named, *covering])
    tails: dict[str, list[Site]] = {}
    for site in wildcards:
        if site.pattern is not None:
            tails.setdefault(site.pattern.tail, []).append(site)
    for alike in tails.values():
        yield from (pair for pair in _different(alike) if _hosts_overlap(*pair))
    for site in hostless:
        yield from ((site, other) for other in sites if other.signature != site.signature)


def _different(sites: Sequence[Site]) -> Iterator[tuple[Site, Site]]:
    groups: dict[str, list[Site]] = {}
    for site in sites:
        groups.setdefault(site.signature, []).append(site)
    for some, others in combinations(groups.values(), 2):
        yield from ((one, other) for one in some for other in others)


def _hosts_overlap(one: Site, other: Site) -> bool:
    if one.pattern is None or other.pattern is None:
        return True
    return overlaps((host_reading(one.pattern),), (host_reading(other.pattern),), ".")


def _difference(one: Site, other: Site) -> str:
    """What the two would decide differently, empty when nothing."""
    if differing := _differing(one.connection, other.connection):
        return f"the same connection, but different {differing}"
    # An endpoint without inspection beside an inspected one only admits the connection (it owns no request).
    if one.inspected != other.inspected or not overlaps(one.readings, other.readings, "/"):
        return ""
    if one.inspected and one.model.protocol != other.model.protocol:
        if _nested(one, other) or _nested(other, one):
            return ""
        return f"the same requests, but `protocol: {one.model.protocol}` and `protocol: {other.model.protocol}`"
    if one.rank == other.rank and (differing := _differing(one.request, other.request)):
        return f"the same requests, but different {differing}"
    return ""


def _nested(outer: Site, inner: Site) -> bool:
    """Is `inner` the special case of `outer`, and does it win there?"""
    return (
        inner.rank > outer.rank
        and covers(outer.readings, inner.readings, "/")
        and not covers(inner.readings, outer.readings, "/")
    )


def _differing(one: dict[str, object], other: dict[str, object]) -> str:
    return ", ".join(f"`{key}`" for key in one if one[key] != other.get(key))
