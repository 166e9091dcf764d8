"""From a providers file and the policies in force to what the store keeps: sources made, keys placed, handles."""

import asyncio
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from egress.credentials.feeds import Feed, HandleTerms, Intake, Outlet, Presence, Terms
from egress.credentials.handles import KEY_BYTES
from egress.credentials.providers import Provider, ProviderSet, Slot, SourceSpec
from egress.credentials.reading import Reading
from egress.credentials.snapshot import Credential
from egress.credentials.sources.registry import Sources
from egress.documents.diagnostic import Diagnostic, error
from egress.model.errors import DependencyError
from egress.policy.compiled import CompiledPolicy
from egress.sdk.secrets import BadSpec, Secret, SourceUnavailable

_DEFAULT_AGENT = "default"
_GLOB = frozenset("*?[{")
_SPELLED_OUT = frozenset(("literal", "access_key_id", "secret_access_key", "session_token"))
"""Fields that may hold a value itself."""


def intake_of(
    providers: ProviderSet, policies: Iterable[CompiledPolicy], sources: Sources
) -> Intake | tuple[Diagnostic, ...]:
    """Everything to keep, or what is wrong with the specifications of sources. Fetches nothing."""
    reading = _Intake(providers, sources)
    for slot in providers.slots(tuple(policies)):
        reading.place(slot)
    feeds = reading.feeds()
    if reading.found:
        return tuple(reading.found)
    return Intake(feeds, _fixed(providers), providers.retain)


def check_sources(providers: ProviderSet, sources: Sources) -> tuple[Diagnostic, ...]:
    """What is wrong with the specifications of sources, also of keys that no policy binds yet."""
    reading = _Intake(providers, sources)
    if providers.handle_key is not None:
        reading.make(providers.handle_key)
    for one in providers.providers:
        for key, spec in one.values.items():
            reading.check(one, key, spec)
        if one.bundle is not None and reading.is_bundle(one.bundle):
            reading.make(one.bundle)
    return tuple(reading.found)


class _Intake:
    """Collects outlets by the source that feeds them."""

    def __init__(self, providers: ProviderSet, sources: Sources) -> None:
        self._providers = providers
        self._sources = sources
        self._outlets: dict[tuple[str, str], list[Outlet]] = {}
        self._specs: dict[tuple[str, str], SourceSpec] = {}
        self.found: list[Diagnostic] = []

    def place(self, slot: Slot) -> None:
        """Take in one key."""
        provider = self._providers.find(slot.provider)
        if provider is None or slot.scope is None:
            return
        spec, origin = self._origin(provider, slot)
        if spec is None:
            return
        if not origin and not self.is_bundle(spec):
            return
        reading = self._reading(spec)
        if reading is None:
            return
        source = (slot.provider, origin)
        self._specs[source] = spec
        handle = _handle_terms(self._providers, provider, slot, spec) if provider.managed else None
        self._outlets.setdefault(source, []).append(
            Outlet(
                slot.exported, origin or slot.key, slot.scope, reading, slot.placement, slot.shape, handle,
                _presence(provider, slot, origin),
            )
        )  # fmt: skip

    def feeds(self) -> list[Feed]:
        made = []
        for (provider, origin), outlets in self._outlets.items():
            spec = self._specs[provider, origin]
            terms = Terms(spec.refresh, spec.refresh_before, spec.timeout, spec.on_failure)
            source = self.make(spec)
            if source is not None:
                made.append(Feed(provider, spec.scheme, _digest(spec), tuple(outlets), terms, source))
        return made

    def make(self, spec: SourceSpec) -> Any:
        """The source, or None with a finding."""
        try:
            return self._sources.make(spec.scheme, spec.fields)
        except BadSpec as fault:
            self._refuse(spec, fault)
            return None

    def is_bundle(self, spec: SourceSpec) -> bool:
        """Can it give several values?"""
        if spec.json or spec.base64:
            self._refuse(spec, BadSpec("`json` and `base64` mean nothing for a bundle"))
            return False
        return True

    def check(self, provider: Provider, key: str, spec: SourceSpec) -> None:
        found, _ = self._followed(provider, key, spec)
        if found is not None and found is spec and self._reading(spec) is not None:
            self.make(spec)

    def _origin(self, provider: Provider, slot: Slot) -> tuple[SourceSpec | None, str]:
        """The source of a key and the key that names it: empty for a bundle, which has many."""
        if slot.source is None:
            return provider.bundle, ""
        return self._followed(provider, slot.key, slot.source)

    def _followed(self, provider: Provider, key: str, spec: SourceSpec) -> tuple[SourceSpec | None, str]:
        """Where `same_as` leads."""
        at, found = key, spec
        seen = {key}
        while found.scheme == "same_as":
            named = found.fields.get("key") if isinstance(found.fields, Mapping) else found.fields
            if not isinstance(named, str) or named in seen or named not in provider.values:
                self._refuse(found, BadSpec("must name another key of this provider that has a source"))
                return None, ""
            seen.add(named)
            at, found = named, provider.values[named]
        return found, at

    def _reading(self, spec: SourceSpec) -> Reading | None:
        try:
            return Reading(spec.json, spec.base64, spec.strip, spec.expires)
        except BadSpec as fault:
            self._refuse(spec, fault)
            return None

    def _refuse(self, spec: SourceSpec, fault: BadSpec) -> None:
        path = ".".join(map(str, (spec.scheme, *fault.path)))
        finding = error(spec.location, f"{path}: {fault.message}")
        if finding not in self.found:
            self.found.append(finding)


def _handle_terms(providers: ProviderSet, provider: Provider, slot: Slot, spec: SourceSpec) -> HandleTerms:
    attached = provider.model.attach
    alone = len(attached) == 1 and not _GLOB & set(attached[0])
    return HandleTerms(
        providers.sandbox_id,
        _canonical([_without_values({spec.scheme: spec.fields}), spec.json, spec.base64]),
        provider.profile.id,
        provider.model.epoch,
        slot.endpoints,
        attached[0] if alone else _DEFAULT_AGENT,
    )


def _presence(provider: Provider, slot: Slot, origin: str) -> Presence:
    if origin:
        return Presence.ALONE
    return Presence.REQUIRED if provider.profile.keys[slot.key].required else Presence.OPTIONAL


def _without_values(fields: object) -> object:
    """A specification without the secrets that a `literal` in it spells out: a handle says nothing about a value."""
    if isinstance(fields, Mapping):
        return {key: None if key in _SPELLED_OUT else _without_values(value) for key, value in fields.items()}
    return [_without_values(item) for item in fields] if isinstance(fields, list) else fields


def _digest(spec: SourceSpec) -> str:
    """Differs whenever the source or the reading of it does."""
    text = _canonical([spec.scheme, spec.fields, spec.json, spec.base64, spec.strip, spec.expires])
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


async def with_handle_key(intake: Intake, providers: ProviderSet, sources: Sources) -> Intake:
    """The same with the operator's own key of handles, if there is one. Raises `DependencyError`: other handles than
    before would take every placeholder away that is in use."""
    spec = providers.handle_key
    if spec is None:
        return intake
    try:
        async with asyncio.timeout(spec.timeout):
            text = Reading(spec.json, strip=spec.strip).text(await sources.make(spec.scheme, spec.fields).fetch(), "")
    except (BadSpec, SourceUnavailable, TimeoutError) as problem:
        kind = problem.kind if isinstance(problem, SourceUnavailable) else "cannot be had"
        raise DependencyError("handle_key", kind) from None
    if len(text) < KEY_BYTES:
        raise DependencyError("handle_key", f"is shorter than {KEY_BYTES} characters")
    return replace(intake, handle_key=hashlib.sha256(text.encode()).digest())


def _fixed(providers: ProviderSet) -> tuple[Credential, ...]:
    return tuple(
        Credential(one.name, key, Secret(text), None) for one in providers.providers for key, text in one.fixed.items()
    )
