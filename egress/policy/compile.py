"""Documents in, `CompiledPolicy` or diagnostics out. Everything that can be worked out before traffic is, here."""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from egress.documents.diagnostic import Diagnostic, error, has_errors
from egress.documents.findings import Findings
from egress.documents.location import KeyPath, path_text
from egress.documents.validate import validate
from egress.documents.yaml import Document
from egress.policy.ambiguity import Site, find_conflicts
from egress.policy.compile_endpoint import EndpointCompiler
from egress.policy.compiled import (
    Binary,
    BinaryIndex,
    CompiledPolicy,
    Endpoint,
    Enforcement,
    Entry,
    FilesystemSection,
    Http2,
    MiddlewareEntry,
    PolicyTest,
    ProcessSection,
    StaticSections,
)
from egress.policy.document import EntryModel, MiddlewareModel, PolicyModel, TestModel, salvage
from egress.policy.globs import Dialect, GlobError, GlobIndex
from egress.policy.hosts import HostPattern, HostTable, parse_host_selector
from egress.policy.middleware_rules import check_middlewares
from egress.policy.rules import Patterns, check_policy

type _Hosted = tuple[HostPattern | None, Endpoint]

type ResolveLink = Callable[[str], str | None]

_STATIC = ("filesystem_policy", "landlock", "process")
_NAMED = ("network_policies", "network_middlewares")


@dataclass(frozen=True, slots=True)
class Compilation:
    """`policy` is None exactly when some diagnostic is an error."""

    policy: CompiledPolicy | None
    diagnostics: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """One document, as far as it could be read."""

    document: Document
    model: PolicyModel
    patterns: Patterns


def compile_policy(
    documents: Sequence[Document],
    *,
    default_enforcement: str = Enforcement.ENFORCE,
    default_http2: str = Http2.AUTO,
    resolve_link: ResolveLink = lambda _: None,
) -> Compilation:
    """Compile documents that together make one policy; no document at all denies everything.

    `resolve_link` says where a literal binary path leads when it is a symbolic link.
    """
    parts: list[_Part] = []
    diagnostics: list[Diagnostic] = []
    for document in documents:
        findings = Findings(document)
        model = _read(document, findings)
        parts.append(_Part(document, model, check_policy(model, findings, default_enforcement)))
        diagnostics += findings.diagnostics
    diagnostics += _defined_twice(parts)
    sites = [site for part in parts for site in _sites(part, default_enforcement, default_http2)]
    diagnostics += find_conflicts(sites)
    diagnostics += check_middlewares([(part.document, part.model) for part in parts], sites)
    if has_errors(diagnostics):
        return Compilation(None, tuple(diagnostics))
    try:
        policy = _build(parts, EndpointCompiler(default_enforcement, default_http2), resolve_link)
    except GlobError as problem:
        diagnostics.append(error(documents[0].locate(()), str(problem), "split the policy, or use fewer wildcards"))
        return Compilation(None, tuple(diagnostics))
    return Compilation(policy, tuple(diagnostics))


def _read(document: Document, findings: Findings) -> PolicyModel:
    model = validate(PolicyModel, document)
    if isinstance(model, PolicyModel):
        return model
    findings.diagnostics.extend(model)
    return salvage(document.data)


def _defined_twice(parts: Sequence[_Part]) -> Iterable[Diagnostic]:
    seen: dict[KeyPath, Document] = {}
    for part in parts:
        places: list[KeyPath] = [(key,) for key in _STATIC if getattr(part.model, key) is not None]
        places += [(section, key) for section in _NAMED for key in getattr(part.model, section)]
        for place in places:
            first = seen.setdefault(place, part.document)
            if first is not part.document:
                says = f"{path_text(place)}: already defined at {first.locate_key(place)}"
                yield error(part.document.locate_key(place), says, "rename one of them, or merge the two")


def _sites(part: _Part, default_enforcement: str, default_http2: str) -> Iterable[Site]:
    for (key, index), pattern in part.patterns.items():
        model = part.model.network_policies[key].endpoints[index]
        if model is not None:
            path: KeyPath = ("network_policies", key, "endpoints", index)
            enforcement = model.enforcement or default_enforcement
            http2 = model.http2 or default_http2
            yield Site(path, part.document.locate(path), model, pattern, enforcement, http2)


def _build(parts: Sequence[_Part], compiler: EndpointCompiler, resolve_link: ResolveLink) -> CompiledPolicy:
    entries: dict[str, Entry] = {}
    hosts: list[_Hosted] = []
    for part in parts:
        for key, model in part.model.network_policies.items():
            entry = _entry(part, key, model, compiler, resolve_link)
            entries[key] = entry
            hosts += [(part.patterns[key, endpoint.index], endpoint) for endpoint in entry.endpoints]
    middlewares = [
        _middleware(part.document, key, model)
        for part in parts
        for key, model in part.model.network_middlewares.items()
    ]
    tests = [_test(part.document, index, model) for part in parts for index, model in enumerate(part.model.tests)]
    return CompiledPolicy(
        entries=dict(sorted(entries.items())),
        digest=_digest(parts, compiler),
        static=_static(parts),
        middlewares=tuple(sorted(middlewares, key=lambda middleware: middleware.order)),
        tests=tuple(tests),
        ports=_ports(hosts),
        hosts=HostTable([(pattern, endpoint) for pattern, endpoint in hosts if pattern is not None]),
        binaries=_binary_index(entries.values()),
    )


def _ports(hosts: Sequence[_Hosted]) -> dict[int, HostTable[Endpoint]]:
    """One table per port; ports that list the same endpoints share one."""
    by_port: dict[int, list[_Hosted]] = {}
    for pattern, endpoint in hosts:
        for port in endpoint.ports:
            by_port.setdefault(port, []).append((pattern, endpoint))
    tables: dict[tuple[int, ...], HostTable[Endpoint]] = {}
    ports: dict[int, HostTable[Endpoint]] = {}
    for port, items in by_port.items():
        members = tuple(id(endpoint) for _, endpoint in items)
        if members not in tables:
            tables[members] = HostTable(items)
        ports[port] = tables[members]
    return ports


def _entry(part: _Part, key: str, model: EntryModel, compiler: EndpointCompiler, resolve_link: ResolveLink) -> Entry:
    endpoints = tuple(
        compiler.endpoint(part.document, key, index, endpoint, part.patterns[key, index])
        for index, endpoint in enumerate(model.endpoints)
        if endpoint is not None
    )
    binaries = tuple(
        Binary(
            path=binary.path,
            sha256=tuple(binary.sha256 or ()),
            direct=binary.direct,
            resolved=None if "*" in binary.path else resolve_link(binary.path),
        )
        for binary in model.binaries
        if binary is not None
    )
    location = str(part.document.locate_key(("network_policies", key)))
    return Entry(key, model.name or key, endpoints, binaries, location)


def _binary_index(entries: Iterable[Entry]) -> BinaryIndex:
    numbers: dict[str, int] = {}
    for entry in entries:
        for binary in entry.binaries:
            for path in (binary.path, binary.resolved):
                if path is not None:
                    numbers.setdefault(path, len(numbers))
    # Without `*` every other wildcard character is literal (policy.md 6).
    return BinaryIndex(GlobIndex([(path, Dialect.PATH if "*" in path else None) for path in numbers]), numbers)


def _static(parts: Sequence[_Part]) -> StaticSections:
    static = StaticSections()
    for part in parts:
        model = part.model
        if (section := model.filesystem_policy) is not None:
            paths = FilesystemSection(section.include_workdir, tuple(section.read_only), tuple(section.read_write))
            static = replace(static, filesystem=paths)
        if model.landlock is not None:
            static = replace(static, landlock=model.landlock.compatibility)
        if model.process is not None:
            process = ProcessSection(model.process.run_as_user, model.process.run_as_group)
            static = replace(static, process=process)
    return static


def _middleware(document: Document, key: str, model: MiddlewareModel) -> MiddlewareEntry:
    return MiddlewareEntry(
        key=key,
        name=model.name or key,
        middleware=model.middleware,
        order=model.order,
        config=model.config,
        on_error=model.on_error,
        include=tuple(parse_host_selector(text) for text in model.endpoints.include),
        exclude=tuple(parse_host_selector(text) for text in model.endpoints.exclude),
        location=str(document.locate_key(("network_middlewares", key))),
    )


def _test(document: Document, index: int, model: TestModel) -> PolicyTest:
    decision, denial = model.expect
    return PolicyTest(
        name=model.name,
        request=model.request,
        binary=model.binary,
        ancestors=tuple(model.ancestors),
        agent=model.agent,
        expect=decision,
        denial=denial,
        messages=tuple(model.messages),
        location=str(document.locate(("tests", index))),
    )


def _digest(parts: Sequence[_Part], compiler: EndpointCompiler) -> str:
    """What the policy means, whichever files it stands in: composition order and comments leave no trace."""
    content: dict[str, object] = {"default_enforcement": compiler.enforcement, "default_http2": compiler.http2}
    for part in parts:
        data = part.document.data
        content |= {key: data[key] for key in _STATIC if key in data}
        for section in _NAMED:
            content[section] = {**content.get(section, {}), **data.get(section, {})}  # type: ignore[dict-item]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
