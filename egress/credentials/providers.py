"""`providers.yaml` read and checked: which values there are, where each comes from and belongs, and what the profiles
bring to the policy (credentials.md 12 and 15). Fetches nothing."""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from egress.credentials.document import (
    MODIFIERS,
    CredentialModel,
    DefaultsModel,
    ModifiersModel,
    ProfileModel,
    ProviderModel,
    ProvidersModel,
    read_part,
)
from egress.credentials.grant_entries import grant_entries
from egress.credentials.grant_rules import GrantEntry, GrantTable, ambiguous
from egress.credentials.overlap import hosts_meet
from egress.credentials.placeholder import reserved_key
from egress.credentials.profiles import Catalogue, Profile, lint, read_directory, selectors
from egress.credentials.scope import Scope, Selector
from egress.credentials.snapshot import Placement
from egress.documents.diagnostic import Diagnostic, error, has_errors
from egress.documents.location import KeyPath, Location
from egress.documents.validate import validate
from egress.documents.yaml import Document, read
from egress.policy.compiled import CompiledPolicy, Endpoint
from egress.policy.document import EndpointModel
from egress.policy.globs import GlobError

BUILT_IN = frozenset(
    ("env", "file", "fd", "command", "aws_session", "oauth2", "google_service_account", "literal", "same_as")
)
PLUGINS = {
    "keyring": "egress-secrets-keyring", "vault": "egress-secrets-vault",
    "aws_secrets_manager": "egress-secrets-aws", "gcp_adc": "a plugin of yours",
}  # fmt: skip
FORBIDDEN_KEYS = frozenset(
    ("PATH", "IFS", "ENV", "BASH_ENV", "SHELL", "HOME", "USER", "NODE_OPTIONS", "GIT_SSH_COMMAND")
)
FORBIDDEN_PREFIXES = ("LD_", "DYLD_", "PYTHON", "SSL_CERT_", "OPENSHELL_")
FORBIDDEN_SUFFIXES = ("_PROXY", "_proxy")
PREFIX = "_provider_"


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """Where a value comes from, as written: the factory of `scheme` reads `fields`. The rest says how what it gives is
    read and kept. Times in seconds; `refresh` None is never; `on_failure` is a word and the seconds of `keep_for`."""

    scheme: str
    fields: Any
    location: Location
    json: str = ""
    base64: bool = False
    strip: str = "newline"
    refresh: float | None = 900.0
    expires: str = ""
    refresh_before: float = 300.0
    timeout: float = 10.0
    on_failure: tuple[str, float] = ("revoke", 0.0)


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
    location: Location

    @property
    def endpoints(self) -> list[EndpointModel]:
        """The profile's own, or those of the instance; empty where the policy has to bind it."""
        return list(self.profile.model.endpoints) or list(self.model.endpoints)

    @property
    def keys(self) -> list[str]:
        """Every key that it will have a value for."""
        declared = list(self.profile.keys)
        return declared if self.bundle is not None else [key for key in declared if key in self.values]


@dataclass(frozen=True, slots=True)
class ProviderSet:
    """Everything that a providers file says."""

    providers: tuple[Provider, ...]
    sandbox_id: str
    retain: str
    handle_key: SourceSpec | None
    base: Path
    digest: str
    files: tuple[Path, ...]
    diagnostics: tuple[Diagnostic, ...] = ()
    grants: GrantTable = field(default_factory=lambda: GrantTable(()))

    def find(self, name: str) -> Provider | None:
        return next((one for one in self.providers if one.name == name), None)

    def derived_policy(self, names: Collection[str]) -> Document | None:
        """A policy document with an entry `_provider_<name>` for each named provider that has endpoints; None without
        any.

        Profiles that name no binaries are for every one that the instance names, or all.
        """
        entries = {entry_name(one.name): _derived(one) for one in self.providers if one.name in names and one.endpoints}
        if not entries:
            return None
        text = json.dumps({"version": 1, "network_policies": entries})  # which is YAML too
        found = read(text.encode(), "providers")
        assert isinstance(found, Document)
        return found

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
            for key in one.keys:
                exported = key if key not in taken else f"{key}__{one.name.replace('-', '_').replace('.', '_')}"
                taken.add(exported)
                where = _narrowed(one, key, places[one.name])
                if not where:
                    continue
                credential = one.profile.keys[key]
                found.append(
                    Slot(
                        one.name, key, exported, one.values.get(key), _scope(one, where), _placement(one, credential),
                        credential.placeholder_prefix, tuple((item.host, item.port, item.path) for item in where),
                    )
                )  # fmt: skip
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


def load_providers(file: Path, schemes: AbstractSet[str] = BUILT_IN) -> ProviderSet | tuple[Diagnostic, ...]:
    """Read a providers file and its profiles; a tuple holds all problems. `schemes`: the sources that can be made."""
    try:
        text = file.read_bytes()
    except OSError as problem:
        return (error(Location(str(file)), f"cannot be read: {problem.strerror}"),)
    document = read(text, str(file))
    if not isinstance(document, Document):
        return document
    model = validate(ProvidersModel, document)
    if not isinstance(model, ProvidersModel):
        return model
    return _Reader(file, document, model, schemes).read()


def profile_directories(file: Path) -> list[Path]:
    """Where a providers file keeps profiles of its own; none when it cannot be read."""
    try:
        document = read(file.read_bytes(), str(file))
    except OSError:
        return []
    named = document.data.get("profile_dirs") if isinstance(document, Document) else None
    return [file.parent / text for text in named or () if isinstance(text, str)]


class _Reader:
    """One reading of one file."""

    def __init__(self, file: Path, document: Document, model: ProvidersModel, schemes: AbstractSet[str]) -> None:
        self._document = document
        self._model = model
        self._schemes = schemes
        self._base = file.parent
        self._files = [file]
        self._found: list[Diagnostic] = []

    def read(self) -> ProviderSet | tuple[Diagnostic, ...]:
        catalogue = self._catalogue()
        providers = [
            one for index, model in enumerate(self._model.providers)
            if (one := self._provider(index, model, catalogue)) is not None
        ]  # fmt: skip
        self._named_twice()
        self._same_keys(providers)
        handle_key = None
        if self._model.handle_key is not None:
            handle_key = self._source(self._model.handle_key, ("handle_key",))
        grants = self._grants(providers)
        if has_errors(self._found):
            return tuple(self._found)
        return ProviderSet(
            tuple(providers), self._model.sandbox_id, self._model.defaults.retain, handle_key, self._base,
            self._digest(providers), tuple(self._files), tuple(self._found), GrantTable(grants),
        )  # fmt: skip

    def _digest(self, providers: Sequence[Provider]) -> str:
        read_from = [self._document.data, *(one.profile.document.data for one in providers)]
        return hashlib.sha256(json.dumps(read_from, sort_keys=True, default=str).encode()).hexdigest()

    def _catalogue(self) -> Catalogue:
        own: list[Profile] = []
        for text in self._model.profile_dirs:
            directory = self._base / text
            self._files.append(directory)
            profiles, found = read_directory(directory)
            own += profiles
            self._found += found
        return Catalogue(own)

    def _error(self, path: KeyPath, message: str, hint: str = "") -> None:
        self._found.append(error(self._document.locate(path), message, hint))

    def _named_twice(self) -> None:
        seen: dict[str, int] = {}
        for index, model in enumerate(self._model.providers):
            if entry_name(model.name) in seen:
                self._error(("providers", index, "name"), f"the provider `{model.name}` is named twice")
            seen[entry_name(model.name)] = index

    def _same_keys(self, providers: Sequence[Provider]) -> None:
        """AWS identities may share names, since the signer knows whose it wants; others would shadow each other."""
        owners: dict[str, str] = {}
        for one in providers:
            for key in one.keys:
                owner = owners.setdefault(key, one.name)
                if owner != one.name and not key.startswith("AWS_"):
                    message = f"the providers `{owner}` and `{one.name}` both have the key `{key}`"
                    hint = "use a profile with other `env_vars` for one of them"
                    self._found.append(error(one.location, message, hint))

    # one provider ------------------------------------------------------------------------------------------------

    def _provider(self, index: int, model: ProviderModel, catalogue: Catalogue) -> Provider | None:
        at: KeyPath = ("providers", index)
        profile = self._profile(model, at, catalogue)
        if profile is None:
            return None
        if profile.model.endpoints and model.endpoints:
            self._error((*at, "endpoints"), f"the profile `{profile.id}` has endpoints of its own")
        values = {
            key: spec
            for key, given in model.values.items()
            if (spec := self._value(profile, key, given, (*at, "values", key))) is not None
        }
        bundle = self._source(model.bundle, (*at, "bundle")) if model.bundle is not None else None
        if model.bundle is not None and model.values:
            self._error((*at, "bundle"), "`bundle` and `values` exclude each other")
        for key in model.config:
            if key in profile.keys:
                self._error((*at, "config", key), "is a credential of the profile", "give it under `values`")
        self._limits(model, at)
        self._complete(profile, model, at)
        handle = model.handle or self._model.defaults.handle
        return Provider(
            model.name, model, profile, values, bundle, model.config, handle == "stable", self._document.locate(at)
        )

    def _profile(self, model: ProviderModel, at: KeyPath, catalogue: Catalogue) -> Profile | None:
        if isinstance(model.profile, str):
            found = catalogue.find(model.profile)
            if found is None:
                hint = f"profiles: {', '.join(catalogue.names)}"
                self._error((*at, "profile"), f"there is no profile `{model.profile}`", hint)
            return found
        inline = read_part(ProfileModel, {"id": "inline", "display_name": model.name, **model.profile})
        if not isinstance(inline, ProfileModel):
            for path, message in inline:
                self._error((*at, "profile", *path), message)
            return None
        profile = Profile(inline, self._document, (*at, "profile"))
        problems = tuple(lint(profile))
        self._found += problems
        return None if has_errors(problems) else profile

    def _limits(self, model: ProviderModel, at: KeyPath) -> None:
        try:
            Scope((), tuple(model.binaries), frozenset(), tuple(model.attach))
        except GlobError as problem:
            self._error(at, str(problem))
        for index, endpoint in enumerate(model.endpoints):
            for port in endpoint.effective_ports or [0]:
                try:
                    Selector.of(endpoint.host, port, endpoint.path)
                except ValueError as problem:
                    self._error((*at, "endpoints", index), str(problem))

    def _complete(self, profile: Profile, model: ProviderModel, at: KeyPath) -> None:
        """Required credentials that nothing gives."""
        if model.bundle is not None:
            return
        for one in profile.model.credentials:
            if one.required and one.env_vars and one.token_grant is None and not set(one.env_vars) & set(model.values):
                hint = f"give `{one.env_vars[0]}` under `values`"
                self._error(at, f"the profile `{profile.id}` requires the credential `{one.name}`", hint)

    def _value(self, profile: Profile, key: str, given: Mapping[str, Any], at: KeyPath) -> SourceSpec | None:
        if key not in profile.keys:
            self._error(at, f"the profile `{profile.id}` declares no key `{key}`", f"keys: {', '.join(profile.keys)}")
        if reserved_key(key) or forbidden_key(key):
            self._error(at, f"the key `{key}` may not be set for workloads")
        return self._source(given, at)

    def _source(self, given: Mapping[str, Any], at: KeyPath) -> SourceSpec | None:
        schemes = [key for key in given if key not in MODIFIERS]
        if len(schemes) != 1:
            self._error(at, "needs exactly one source", f"one of {', '.join(sorted(self._schemes))}")
            return None
        scheme = schemes[0]
        if scheme not in self._schemes:
            known = f"sources: {', '.join(sorted(self._schemes))}"
            plugin = PLUGINS.get(scheme)
            hint = f"install {plugin} and list it in `plugins.enabled`" if plugin else known
            self._error((*at, scheme), f"there is no source `{scheme}`", hint)
            return None
        modifiers = read_part(ModifiersModel, {key: given[key] for key in given if key in MODIFIERS})
        if not isinstance(modifiers, ModifiersModel):
            for path, message in modifiers:
                self._error((*at, *path), message)
            return None
        return _spec(scheme, given[scheme], self._document.locate((*at, scheme)), modifiers, self._model.defaults)

    # grants ------------------------------------------------------------------------------------------------------

    def _grants(self, providers: Sequence[Provider]) -> list[GrantEntry]:
        entries = [
            item
            for one in providers
            for item in grant_entries(
                one.name, one.profile.model.credentials, one.endpoints, _scope(one, ()), self._base
            )
        ]
        places = {one.name: one.location for one in providers}
        for one, other in ambiguous(entries):
            mine, rival = one.choice.spec, other.choice.spec
            message = f"token grants `{mine.provider}:{mine.credential}` and `{rival.provider}:{rival.credential}`"
            message += f" both apply to {other.selector.host}:{other.selector.port}{other.selector.path}"
            hint = "give one of them a longer path or host, or attach them to different agents"
            self._found.append(error(places[rival.provider], message, hint))
        return entries


def forbidden_key(key: str) -> bool:
    """Would this variable steer the workload's own programs?"""
    return key in FORBIDDEN_KEYS or key.startswith(FORBIDDEN_PREFIXES) or key.endswith(FORBIDDEN_SUFFIXES)


def _spec(scheme: str, fields: Any, location: Location, given: ModifiersModel, defaults: DefaultsModel) -> SourceSpec:
    refresh = defaults.refresh if given.refresh == "default" else given.refresh
    assert not isinstance(refresh, str)
    return SourceSpec(
        scheme, fields, location, given.json_pointer, given.base64, given.strip, refresh, given.expires,
        given.refresh_before, given.timeout or defaults.timeout, given.on_failure or defaults.on_failure,
    )  # fmt: skip


def _scope(one: Provider, where: tuple[Selector, ...]) -> Scope:
    return Scope(where, tuple(one.model.binaries), frozenset(one.model.methods), tuple(one.model.attach))


def _narrowed(one: Provider, key: str, where: tuple[Selector, ...]) -> tuple[Selector, ...]:
    """`credentials[].endpoints` keeps a key to some endpoints of its profile."""
    indexes = one.profile.keys[key].endpoints
    if indexes is None or not one.profile.model.endpoints:
        return where
    return selectors([one.profile.model.endpoints[index] for index in indexes])


def _placement(one: Provider, credential: CredentialModel) -> Placement | None:
    if not credential.auth_style:
        return None
    header = credential.header_name or "Authorization"
    return Placement(
        credential.auth_style, header, credential.query_param, credential.path_template, one.model.basic_username,
        one.model.inject,
    )  # fmt: skip


def _of_endpoint(endpoint: Endpoint) -> Iterator[Selector]:
    for port in endpoint.ports:
        yield Selector.of(endpoint.host, port, endpoint.path)


def _derived(one: Provider) -> dict[str, object]:
    endpoints = [model.model_dump(exclude_unset=True, exclude={"credential_binding"}) for model in one.endpoints]
    for endpoint in endpoints:
        # Not a list of rules of the workload: what the profile allows.
        endpoint.setdefault("enforcement", "enforce")
    named = [item if isinstance(item, str) else item.path for item in one.profile.model.binaries]
    binaries = one.model.binaries or named or ["/**"]
    return {"endpoints": endpoints, "binaries": [{"path": path} for path in binaries]}
