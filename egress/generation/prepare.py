"""Candidate documents to everything a generation needs, or all diagnostics. Touches nothing live."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from egress.config.files import origin_problems, read_document
from egress.config.load import Loaded, load
from egress.config.overrides import Flags
from egress.config.settings import Settings
from egress.credentials.aws import sign as signer
from egress.documents.diagnostic import Diagnostic, error, has_errors
from egress.documents.location import Location
from egress.documents.yaml import Document, read
from egress.generation.files import files_of, fingerprint, policy_files, secret_files
from egress.generation.generation import AgentTerms, Generation
from egress.generation.providers import (
    attached,
    check_activation,
    derived,
    providers_of,
    reserved_entries,
    stamps,
    withheld,
)
from egress.generation.routes import routes_of
from egress.identity.agents import AgentSpec, AgentTable, read_password
from egress.identity.links import LinkLoop, resolve_in_root
from egress.l7 import graphql
from egress.model.errors import DependencyError
from egress.model.ids import GenerationNumber
from egress.model.intent import DEFAULT_AGENT, AgentName
from egress.model.process import IdentityMode
from egress.policy.compile import compile_policy
from egress.policy.compiled import CompiledPolicy, Protocol
from egress.tls.profile import TlsProfile
from egress.upstream.plan import Routes

if TYPE_CHECKING:
    from egress.credentials.providers import ProviderSet

READ_ATTEMPTS = 5
"""Times the files are read before it is said that they keep changing."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a start or a reload would install. `diagnostics` holds warnings and notes only."""

    settings: Settings
    generation: Generation
    agents: AgentTable
    profile: TlsProfile
    routes: Routes
    providers: "ProviderSet | None"
    """Credentials and where they belong; None where no providers file is named."""
    files: tuple[Path, ...]
    """What it was read from, directories and secret files included."""
    fingerprint: str
    """Of all files, as they were read."""
    secrets: str
    """Fingerprint of the files whose content shows in neither settings nor policies."""
    diagnostics: tuple[Diagnostic, ...]


def prepare(
    flags: Flags, environment: Mapping[str, str], number: GenerationNumber
) -> Candidate | tuple[Diagnostic, ...]:
    """Read settings and every policy, validate all of it, compile. A tuple holds every problem found.

    Read again when a file changed meanwhile, so that no candidate mixes two states of them.
    """
    for _ in range(READ_ATTEMPTS):
        before = _fingerprint(flags, environment)
        candidate = _read_once(flags, environment, number)
        if not isinstance(candidate, Candidate) or candidate.fingerprint == before:
            return candidate
    return (error(Location("files"), "the files keep changing while they are read", "write them in one step"),)


def _fingerprint(flags: Flags, environment: Mapping[str, str]) -> str:
    loaded = load(flags, environment)
    return fingerprint(files_of(loaded.settings, loaded.file)) if isinstance(loaded, Loaded) else ""


def _read_once(
    flags: Flags, environment: Mapping[str, str], number: GenerationNumber
) -> Candidate | tuple[Diagnostic, ...]:
    loaded = load(flags, environment)
    if not isinstance(loaded, Loaded):
        return loaded
    settings = loaded.settings
    found: list[Diagnostic] = list(loaded.warnings)
    providers = providers_of(settings, found, allow_literal=flags.allow_literal_secrets)
    policies, sources = _policies(settings, providers, found, offline=number == 0)
    agents = _agents(settings, found)
    profile = _profile(settings, found)
    routes = routes_of(settings, loaded.locate, found)
    if profile is None or has_errors(found):
        return tuple(found)
    compiled = list(policies.values())
    found += withheld(providers, compiled)
    stamped = stamps(providers, compiled)
    terms = {}
    for name, paths in settings.policy_files.items():
        policy = policies.get((paths, attached(providers, name)))
        terms[name] = AgentTerms(policy, _identity_of(settings, name), stamped(policy))
    generation = Generation(number, terms, _digest(terms), sources=tuple(str(file) for file in sources))
    files = files_of(settings, loaded.file)
    secrets = fingerprint(secret_files(settings))
    return Candidate(
        settings, generation, agents, profile, routes, providers, files, fingerprint(files), secrets, tuple(found)
    )


def _profile(settings: Settings, found: list[Diagnostic]) -> TlsProfile | None:
    try:
        return TlsProfile(settings.tls.upstream_ca_file)
    except DependencyError as problem:
        found.append(error(Location("tls.upstream_ca_file"), problem.reason, "name a file of PEM certificates"))
        return None


type PolicyKey = tuple[tuple[Path, ...], tuple[str, ...]]
"""The files of a policy, and the providers whose entries join it."""


def _policies(
    settings: Settings, providers: "ProviderSet | None", found: list[Diagnostic], *, offline: bool
) -> tuple[dict[PolicyKey, CompiledPolicy], tuple[Path, ...]]:
    """Compile each distinct policy once."""
    policies: dict[PolicyKey, CompiledPolicy] = {}
    documents: dict[tuple[Path, ...], list[Document]] = {}
    files: dict[Path, None] = {}
    for name, paths in settings.policy_files.items():
        key = (paths, attached(providers, name))
        if not paths or key in policies:
            continue
        if paths not in documents:
            documents[paths] = _documents(settings, paths, files, found)
        compilation = compile_policy(
            [*documents[paths], *derived(providers, key[1])],
            default_enforcement=settings.policy.default_enforcement,
            default_http2=settings.http.http2,
            resolve_link=_links(settings),
        )
        found += [one for one in compilation.diagnostics if one not in found]
        if compilation.policy is not None:
            found += _unavailable(compilation.policy)
            unfit = check_activation(compilation.policy, providers, key[1], offline=offline)
            found += [one for one in unfit if one not in found]
            policies[key] = compilation.policy
            _load_parsers(compilation.policy)
    return policies, tuple(files)


def _documents(
    settings: Settings, paths: tuple[Path, ...], files: dict[Path, None], found: list[Diagnostic]
) -> list[Document]:
    documents = []
    uids = frozenset(uid for agent in settings.agents for uid in agent.match.uids or ())
    for file in _expand(paths, found):
        files[file] = None
        if settings.reload.check_origin == "on":
            found += origin_problems(file, uids)
        document = _read(file, found)
        if document is not None:
            found += reserved_entries(document)
            documents.append(document)
    return documents


def _load_parsers(policy: CompiledPolicy) -> None:
    """Import what reads GraphQL and what signs for AWS now: fractions of a second that no request should pay."""
    endpoints = [endpoint for entry in policy.entries.values() for endpoint in entry.endpoints]
    if any(one.credentials.signing is not None for one in endpoints):
        signer.load()
    if any(one.protocol is Protocol.GRAPHQL or one.graphql.over_websocket for one in endpoints):
        graphql.load_parser()


def _unavailable(policy: CompiledPolicy) -> list[Diagnostic]:
    """What a policy asks for and nothing here would do: it is refused, never ignored."""
    found = []
    for entry in policy.middlewares:
        place = Location(entry.location or entry.key)
        found.append(error(place, f"network_middlewares.{entry.key} is not available in this version"))
    return found


def _links(settings: Settings) -> Callable[[str], str | None]:
    """Where a policy's binary leads in the root of the workload."""
    anchor = settings.identity.anchor
    root = Path(f"/proc/{anchor}/root") if isinstance(anchor, int) else Path("/")

    def resolve(path: str) -> str | None:
        try:
            return resolve_in_root(root, path)
        except LinkLoop:
            return None

    return resolve


def _expand(paths: Sequence[Path], found: list[Diagnostic]) -> list[Path]:
    """Files in order."""
    files: list[Path] = []
    for path in paths:
        inside = policy_files(path)
        if not inside:
            found.append(error(Location(str(path)), "the directory holds no policy", "add a file that ends in .yaml"))
        files += inside
    return files


def _read(file: Path, found: list[Diagnostic]) -> Document | None:
    content = read_document(file)
    if isinstance(content, Diagnostic):
        found.append(content)
        return None
    document = read(content, str(file))
    if isinstance(document, Document):
        return document
    found += document
    return None


def _agents(settings: Settings, found: list[Diagnostic]) -> AgentTable:
    specs = [
        AgentSpec(
            AgentName(agent.name),
            frozenset(agent.match.uids or ()),
            tuple(agent.match.cidrs or ()),
            agent.match.proxy_auth.user if agent.match.proxy_auth else None,
            agent.match.proxy_auth.password_file if agent.match.proxy_auth else None,
            identity=_identity_of(settings, AgentName(agent.name)),
        )
        for agent in settings.agents
    ]
    passwords: dict[AgentName, bytes] = {}
    for spec in specs:
        if spec.password_file is not None:
            try:
                passwords[spec.name] = read_password(spec.password_file)
            except ValueError as problem:
                passwords[spec.name] = os.urandom(32)
                found.append(error(Location(str(spec.password_file)), f"the password file {problem}"))
    return AgentTable(specs, passwords)


def _identity_of(settings: Settings, name: AgentName) -> IdentityMode:
    if name != DEFAULT_AGENT or settings.agents:
        for agent in settings.agents:
            if agent.name == name and agent.identity is not None:
                return IdentityMode(agent.identity)
    return IdentityMode(settings.identity.mode)


def _digest(terms: Mapping[AgentName, AgentTerms]) -> str:
    digest = hashlib.sha256()
    for name in sorted(terms):
        policy = terms[name].policy
        digest.update(f"{name}={policy.digest if policy else '-'}:{terms[name].identity}\n".encode())
    return digest.hexdigest()
