"""`providers.yaml` read and checked: which values there are, where each comes from and belongs, and what the profiles
bring to the policy (credentials.md 12 and 15). Fetches nothing."""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

from egress.config.files import read_document
from egress.credentials.document import CredentialModel, ProviderModel, ProvidersModel
from egress.credentials.grant_entries import grant_entries
from egress.credentials.grant_rules import GrantEntry, GrantTable, ambiguous
from egress.credentials.overlap import agents_meet, hosts_meet, selectors_meet
from egress.credentials.profiles import (
    Catalogue,
    Profile,
    entry_document,
    lint,
    profile_of,
    profile_paths,
    read_directory,
    selectors,
)
from egress.credentials.provider_rules import Instance
from egress.credentials.scope import Scope, Selector
from egress.credentials.snapshot import SCRUBBED_BYTES, Placement, namespaced
from egress.credentials.source_specs import BUILT_IN, SourceSpec, read_source
from egress.documents.diagnostic import Diagnostic, error, has_errors, warning
from egress.documents.findings import Findings
from egress.documents.location import KeyPath, Location
from egress.documents.validate import validate
from egress.documents.yaml import Document, read
from egress.policy.compiled import CompiledPolicy, Endpoint
from egress.policy.document import EndpointModel

__all__ = ["PREFIX", "Provider", "ProviderSet", "Slot", "SourceSpec", "entry_name", "load_providers"]

PREFIX = "_provider_"
_AWS_KEYS = "AWS_"


@dataclass(frozen=True, slots=True)
class Slot:
    """One key of one provider: where its value comes from and goes. `source` is None where a bundle gives it.

    `exported` is the key as workloads know it: with two providers of one key, the later one's is `KEY__provider`.
    """

    provider: str
    key: str
    exported: str
    source: SourceSpec | None
    scope: Scope | None
    placement: Placement | None
    shape: str
    endpoints: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True, slots=True)
class Provider:
    """One instance, its profile applied."""

    name: str
    model: ProviderModel
    profile: Profile
    values: Mapping[str, SourceSpec]
    bundle: SourceSpec | None
    config: Mapping[str, str]
    managed: bool
    """Placeholders are stable handles."""
    place: Document
    """Its part of the providers file."""

    @property
    def location(self) -> Location:
        return self.place.locate(())

    @property
    def endpoints(self) -> list[EndpointModel]:
        """The profile's own, or those of the instance; empty where the policy has to bind it."""
        return list(self.profile.model.endpoints) or list(self.model.endpoints)

    @property
    def keys(self) -> list[str]:
        """Every key that it will have a value for."""
        declared = list(self.profile.keys)
        return declared if self.bundle is not None else [key for key in declared if key in self.values]

    @property
    def fixed(self) -> dict[str, str]:
        """Keys of its `config` that workloads get placeholders for. What is a fact to the proxy itself is none."""
        return {key: text for key, text in self.config.items() if key not in self.profile.model.facts}

    @property
    def limits(self) -> Scope:
        """Who may use it, and how; it leads nowhere."""
        return self.scope(())

    def scope(self, where: tuple[Selector, ...]) -> Scope:
        model = self.model
        return Scope(where, tuple(model.binaries), frozenset(model.methods), tuple(model.attach))

    def entry(self) -> Document:
        """Its entry of the policy, as a document that remembers where the endpoints were written."""
        written = self.profile.document if self.profile.model.endpoints else self.place
        binaries = self.profile.binaries or self.model.binaries
        return entry_document(entry_name(self.name), written.part(("endpoints",)), binaries)


@dataclass(frozen=True, slots=True)
class ProviderSet:
    """Everything that a providers file says."""

    providers: tuple[Provider, ...]
    sandbox_id: str
    retain: str
    handle_key: SourceSpec | None
    base: Path
    digest: str
    """Of the file and of every profile that it uses."""
    files: tuple[Path, ...]
    diagnostics: tuple[Diagnostic, ...] = ()
    grants: GrantTable = field(default_factory=lambda: GrantTable(()))

    def find(self, name: str) -> Provider | None:
        return next((one for one in self.providers if one.name == name), None)

    def made_of(self, file: str) -> bool:
        """Is it the providers file, a profile, or something in a directory of profiles?"""
        path = Path(file)
        return path in self.files or path.parent in self.files

    def derived_policy(self, names: Collection[str]) -> tuple[Document, ...]:
        """A policy document with the entry `_provider_<name>` for each named provider that has endpoints. Its programs
        are those of the profile, or else those of the instance, or all."""
        return tuple(one.entry() for one in self.providers if one.name in names and one.endpoints)

    def selectors(self, policies: Iterable[CompiledPolicy]) -> Mapping[str, tuple[Selector, ...]]:
        """Provider to where its credentials may go: its own endpoints, or those of the policies that bind it."""
        bound: dict[str, list[Selector]] = {}
        for policy in policies:
            for entry_ in policy.entries.values():
                for endpoint in entry_.endpoints:
                    if endpoint.credentials.provider:
                        bound.setdefault(endpoint.credentials.provider, []).extend(_of_endpoint(endpoint))
        return {
            one.name: selectors(one.endpoints) if one.endpoints else tuple(dict.fromkeys(bound.get(one.name, ())))
            for one in self.providers
        }

    def slots(self, policies: Iterable[CompiledPolicy]) -> tuple[Slot, ...]:
        """Every key and where it belongs under these policies. Keys of a provider that nothing binds are withheld."""
        places = self.selectors(policies)
        taken: set[str] = set()
        found: list[Slot] = []
        for one in self.providers:
            placed: set[str] = set()
            for key in one.keys:
                exported = key if key not in taken else namespaced(key, one.name)
                taken.add(exported)
                where = _narrowed(one, key, places[one.name])
                if where:
                    found.append(_slot(one, key, exported, where, placed))
        return tuple(found)

    def credentialed(self, endpoint: Endpoint, places: Mapping[str, tuple[Selector, ...]]) -> bool:
        """May some credential go where this endpoint of a policy leads? Paths do not count (credentials.md 12.1)."""
        if not endpoint.host:
            return False
        mine = {one.name for one in self.providers if one.profile.credentialed}
        return any(
            selector.port in endpoint.ports and hosts_meet(selector.host, endpoint.host)
            for name, where in places.items()
            if name in mine
            for selector in where
        )


def entry_name(provider: str) -> str:
    """The policy entry of a provider."""
    text = "".join(one if one.isascii() and (one.isalnum() or one == "_") else "_" for one in provider.lower())
    return PREFIX + (text.strip("_") or "unnamed")


def load_providers(file: Path, schemes: Collection[str] = BUILT_IN) -> ProviderSet | tuple[Diagnostic, ...]:
    """Read a providers file and its profiles; a tuple holds all problems. `schemes`: the sources that can be made."""
    text = read_document(file)
    if isinstance(text, Diagnostic):
        return (text,)
    document = read(text, str(file))
    if not isinstance(document, Document):
        return document
    model = validate(ProvidersModel, document)
    if not isinstance(model, ProvidersModel):
        return model
    return _Reader(file, document, model, schemes).read()


def profile_directories(file: Path) -> list[Path]:
    """Where a providers file keeps profiles of its own; none when it cannot be read."""
    text = read_document(file)
    document = read(text, str(file)) if isinstance(text, bytes) else None
    data = document.data if isinstance(document, Document) else None
    named = data.get("profile_dirs") if isinstance(data, dict) else None
    return [file.parent / text for text in named if isinstance(text, str)] if isinstance(named, list) else []


def profile_files(file: Path) -> list[Path]:
    """What a providers file refers to: directories of profiles, since one may be added, and the profiles in them."""
    return [path for directory in profile_directories(file) for path in (directory, *profile_paths(directory))]


class _Reader:
    """One reading of one file."""

    def __init__(self, file: Path, document: Document, model: ProvidersModel, schemes: Collection[str]) -> None:
        self._document = document
        self._model = model
        self._schemes = schemes
        self._base = file.parent
        self._files = [file]
        self._findings = Findings(document)
        self._unread = False  # some own profile could not be read: it may be the one that is missed

    def read(self) -> ProviderSet | tuple[Diagnostic, ...]:
        catalogue = self._catalogue()
        read = [self._provider(index, model, catalogue) for index, model in enumerate(self._model.providers)]
        providers = [one for one in read if one is not None]
        self._named_twice()
        for one, other in combinations(providers, 2):
            self._shared_keys(one, other)
        handle_key = self._source(("handle_key",), None) if self._model.handle_key is not None else None
        grants = self._grants(providers)
        found = tuple(self._findings.diagnostics)
        if has_errors(found):
            return found
        return ProviderSet(
            tuple(providers), self._model.sandbox_id, self._model.defaults.retain, handle_key, self._base,
            self._digest(providers), tuple(self._files), found, GrantTable(grants),
        )  # fmt: skip

    def _digest(self, providers: Iterable[Provider]) -> str:
        content = [self._document.data, *[one.profile.document.data for one in providers]]
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()

    def _catalogue(self) -> Catalogue:
        own: dict[str, Profile] = {}
        for index, text in enumerate(self._model.profile_dirs):
            directory = self._base / text
            self._files += (directory, *profile_paths(directory))
            profiles, found = read_directory(directory)
            self._findings.diagnostics.extend(found)
            self._unread = self._unread or has_errors(found)
            for profile in profiles:
                first = own.setdefault(profile.id, profile)
                if first is not profile:
                    says = f"`{profile.id}` in {profile.document.name} is defined in {first.document.name} already"
                    self._findings.error(("profile_dirs", index), says)
        return Catalogue(list(own.values()))

    def _named_twice(self) -> None:
        seen: dict[str, str] = {}
        for index, model in enumerate(self._model.providers):
            first = seen.setdefault(entry_name(model.name), model.name)
            if model.name in [one.name for one in self._model.providers[:index]]:
                self._findings.error(("providers", index, "name"), f"`{model.name}` is named twice")
            elif first != model.name:
                self._findings.error(("providers", index, "name"), f"`{model.name}` is too much like `{first}`")

    def _shared_keys(self, one: Provider, other: Provider) -> None:
        """An agent has one value of a key. AWS identities may share names, since the signer goes by the endpoint."""
        shared = [key for key in one.keys if key in other.keys]
        if shared and agents_meet(one.model.attach, other.model.attach):
            if any(not key.startswith(_AWS_KEYS) for key in shared):
                message = f"the providers `{one.name}` and `{other.name}` both have the key `{shared[0]}`"
                hint = "attach them to different agents, or use a profile with other `env_vars`"
                self._tell(other.location, message, hint)
            elif _meet(one.endpoints, other.endpoints):
                message = f"the providers `{one.name}` and `{other.name}` would both sign for the same endpoints"
                hint = "give them different `endpoints`, or attach them to different agents"
                self._tell(other.location, message, hint)
        fixed = [key for key in one.fixed if key in other.fixed or key in other.keys]
        fixed += [key for key in other.fixed if key in one.keys]
        if fixed:
            message = f"the providers `{one.name}` and `{other.name}` both have the key `{fixed[0]}`"
            self._tell(other.location, message, "leave it out of one `config`")

    def _tell(self, place: Location, message: str, hint: str) -> None:
        self._findings.diagnostics.append(error(place, message, hint))

    # one provider ------------------------------------------------------------------------------------------------

    def _provider(self, index: int, model: ProviderModel, catalogue: Catalogue) -> Provider | None:
        """None when something is wrong with it: then it is not held against the others."""
        at: KeyPath = ("providers", index)
        before = len(self._findings.diagnostics)
        profile = self._profile(model, at, catalogue)
        if profile is None:
            return None
        Instance(model, at, profile, self._findings).check()
        values = {
            key: spec
            for key in model.values
            if (spec := self._source((*at, "values", key), profile.keys.get(key))) is not None
        }
        bundle = self._source((*at, "bundle"), None) if model.bundle is not None else None
        if has_errors(self._findings.diagnostics[before:]):
            return None
        managed = (model.handle or self._model.defaults.handle) == "stable"
        place = self._document.part(at)
        return Provider(model.name, model, profile, values, bundle, model.config, managed, place)

    def _profile(self, model: ProviderModel, at: KeyPath, catalogue: Catalogue) -> Profile | None:
        path = (*at, "profile")
        if isinstance(model.profile, str):
            found = catalogue.find(model.profile)
            if found is None and not self._unread:
                hint = f"profiles: {', '.join(catalogue.names)}"
                self._findings.error(path, f"there is no profile `{model.profile}`", hint)
            return found
        written = self._document.part(path)
        named = {"id": "inline", "display_name": model.name}
        inline = profile_of(replace(written, data=named | written.data))
        if isinstance(inline, Profile):
            self._findings.diagnostics.extend(lint(inline))
            return inline
        self._findings.diagnostics.extend(inline)
        return None

    def _source(self, path: KeyPath, credential: CredentialModel | None) -> SourceSpec | None:
        given = self._document.part(path)
        refresh = credential.refresh if credential is not None else None
        spec = read_source(given, self._schemes, self._model.defaults, self._findings, refresh)
        if spec is not None and spec.scheme == "literal":
            text = spec.fields.get("text", "") if isinstance(spec.fields, dict) else spec.fields
            if len(str(text).encode()) < SCRUBBED_BYTES:
                says = f"is shorter than {SCRUBBED_BYTES} bytes: replies are not searched for it"
                self._findings.diagnostics.append(warning(spec.location, says))
        return spec

    # grants ------------------------------------------------------------------------------------------------------

    def _grants(self, providers: Sequence[Provider]) -> list[GrantEntry]:
        entries = [
            item
            for one in providers
            for item in grant_entries(one.name, one.profile.model.credentials, one.endpoints, one.limits, self._base)
        ]
        places = {one.name: one.location for one in providers}
        for one, other in ambiguous(entries):
            mine, rival = one.choice.spec, other.choice.spec
            message = f"token grants `{mine.provider}:{mine.credential}` and `{rival.provider}:{rival.credential}`"
            message += f" both apply to {other.selector.host}:{other.selector.port}{other.selector.path}"
            hint = "give one of them a longer path or host, or attach them to different agents"
            self._tell(places[rival.provider], message, hint)
        return entries


def _slot(one: Provider, key: str, exported: str, where: tuple[Selector, ...], placed: set[str]) -> Slot:
    """`placed`: credentials that stand in a request already; one that has several keys stands there once."""
    credential = one.profile.keys[key]
    when = one.model.inject if credential.name not in placed else "never"
    placed.add(credential.name)
    endpoints = tuple((item.host, item.port, item.path) for item in where)
    return Slot(
        one.name, key, exported, one.values.get(key), one.scope(where), _placement(one, credential, when),
        credential.placeholder_prefix, endpoints,
    )  # fmt: skip


def _placement(one: Provider, credential: CredentialModel, when: str) -> Placement | None:
    if not credential.auth_style:
        return None
    header = credential.header_name or "Authorization"
    return Placement(
        credential.auth_style, header, credential.query_param, credential.path_template, one.model.basic_username, when
    )


def _narrowed(one: Provider, key: str, where: tuple[Selector, ...]) -> tuple[Selector, ...]:
    """`credentials[].endpoints` keeps a key to some endpoints of its profile."""
    indexes = one.profile.keys[key].endpoints
    if indexes is None or not one.profile.model.endpoints:
        return where
    return selectors([one.profile.model.endpoints[index] for index in indexes])


def _meet(one: Iterable[EndpointModel], other: Iterable[EndpointModel]) -> bool:
    theirs = selectors(other)
    return any(selectors_meet(selector, rival) for selector in selectors(one) for rival in theirs)


def _of_endpoint(endpoint: Endpoint) -> Iterator[Selector]:
    for port in endpoint.ports:
        yield Selector.of(endpoint.host, port, endpoint.path)
