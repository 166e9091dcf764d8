"""What the providers file brings to a candidate: entries of the policy, stamps on endpoints, checks across both.

The readers of that file are imported when there is one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from egress.config.files import origin_problems
from egress.config.settings import Settings
from egress.documents.diagnostic import Diagnostic, error, warning
from egress.documents.location import Location
from egress.documents.yaml import Document
from egress.model.clock import SystemClock
from egress.model.intent import AgentName
from egress.policy.compiled import CompiledPolicy, Endpoint
from egress.sdk.http import HttpFailure, HttpReply
from egress.sdk.secrets import Secret, SecretSource, SourceUnavailable

if TYPE_CHECKING:
    from egress.credentials.assertions import Assertions
    from egress.credentials.providers import ProviderSet
    from egress.extension.load import Plugins

PREFIX = "_provider_"
"""Entries of a policy that begin so come from providers."""


def plugins_of(settings: Settings) -> "Plugins":
    """What the plugins that the settings name bring."""
    from egress.credentials.sources.registry import SCHEMES  # noqa: PLC0415
    from egress.extension.load import load_plugins  # noqa: PLC0415

    chosen = settings.plugins
    return load_plugins(chosen.enabled, chosen.allow_distributions, chosen.require_hashes, SCHEMES)


class _NoCalls:
    """The HTTP client of whoever only looks at specifications."""

    async def request(self, *_: object, **__: object) -> HttpReply:
        raise HttpFailure("no calls are made here")


class _NoDocuments:
    """Stands for a plugin whose documents are not asked for."""

    async def fetch(self, audience: str) -> tuple[Secret, float | None]:
        del audience
        raise SourceUnavailable("not_asked")


def providers_of(settings: Settings, found: list[Diagnostic], *, allow_literal: bool) -> "ProviderSet | None":
    """The providers file that the settings name, read and checked."""
    if settings.providers.file is None:
        return None
    from egress.credentials.assertions import Assertions  # noqa: PLC0415
    from egress.credentials.intake import check_sources  # noqa: PLC0415
    from egress.credentials.providers import load_providers, profile_files  # noqa: PLC0415
    from egress.credentials.sources.registry import SCHEMES, Sources, Surroundings  # noqa: PLC0415

    if settings.reload.check_origin == "on":
        # Whoever may write these says which commands run here, and where secrets go.
        uids = frozenset(uid for agent in settings.agents for uid in agent.match.uids or ())
        for file in (settings.providers.file, *profile_files(settings.providers.file)):
            found += [one for one in origin_problems(file, uids) if one not in found]
    plugins = plugins_of(settings)
    found += plugins.diagnostics
    loaded = load_providers(settings.providers.file, SCHEMES | plugins.sources.keys())
    if isinstance(loaded, tuple):
        found += loaded
        return None
    found += loaded.diagnostics
    around = Surroundings(_NoCalls(), SystemClock(), settings.state, allow_literal=allow_literal)
    found += check_sources(loaded, Sources(around, loaded.base, plugins.sources))

    def make(specification: object, base: Path) -> SecretSource:
        return Sources(around, base, plugins.sources).nested(specification)

    identities = dict.fromkeys(plugins.identities, _NoDocuments())
    found += _assertion_faults(loaded, Assertions(identities, make, around.clock))
    return loaded


def _assertion_faults(providers: "ProviderSet", assertions: "Assertions") -> Iterator[Diagnostic]:
    """Token grants whose identity documents can never be had. A plugin may still be installed: a warning."""
    for choice in dict.fromkeys(choice.spec for choice in providers.grants.choices):
        fault = assertions.fault(choice)
        if fault is not None:
            tell = warning if fault.startswith("no plugin") else error
            yield tell(Location(f"{choice.provider}:{choice.credential}"), fault)


def attached(providers: "ProviderSet | None", agent: AgentName) -> tuple[str, ...]:
    """Names of the providers that serve an agent."""
    if providers is None:
        return ()
    return tuple(one.name for one in providers.providers if one.limits.serves(agent))


def derived(providers: "ProviderSet | None", names: Sequence[str]) -> Sequence[Document]:
    """The policy documents of these providers."""
    return providers.derived_policy(names) if providers is not None else ()


def reserved_entries(document: Document) -> Iterator[Diagnostic]:
    """A policy may not speak for a provider."""
    entries = document.data.get("network_policies") if isinstance(document.data, dict) else None
    for key in entries if isinstance(entries, dict) else ():
        if str(key).startswith(PREFIX):
            place = document.locate_key(("network_policies", key))
            yield error(place, f"network_policies.{key}: names that begin with `{PREFIX}` belong to providers")


def check_activation(
    policy: CompiledPolicy, providers: "ProviderSet | None", names: Sequence[str], *, offline: bool
) -> list[Diagnostic]:
    """Bindings and signing endpoints without a source among the named providers. `offline`, a policy may be looked at
    without the providers that it will be served with."""
    endpoints = [endpoint for entry in policy.entries.values() for endpoint in entry.endpoints]
    wanted = [one for one in endpoints if one.credentials.provider or one.credentials.signing is not None]
    if not wanted:
        return []
    if providers is None:
        says = "credentials are asked for, and no providers file is named"
        tell = warning if offline else error
        return [tell(Location(one.location or one.entry), says, "set `providers.file`") for one in wanted]
    from egress.credentials.activation import check_activation as check  # noqa: PLC0415

    return check(policy, providers, names)


def withheld(providers: "ProviderSet | None", policies: Sequence[CompiledPolicy]) -> Iterator[Diagnostic]:
    """Providers that no policy says a place for."""
    if providers is not None:
        from egress.credentials.activation import unbound  # noqa: PLC0415

        yield from unbound(providers, policies)


def stamps(
    providers: "ProviderSet | None", policies: Iterable[CompiledPolicy]
) -> Callable[[CompiledPolicy | None], frozenset[Endpoint]]:
    """A function from a policy to those of its endpoints that credentials may be sent to."""
    if providers is None:
        return lambda _: frozenset()
    places = providers.selectors(policies)

    def stamped(policy: CompiledPolicy | None) -> frozenset[Endpoint]:
        if policy is None:
            return frozenset()
        endpoints = (endpoint for entry in policy.entries.values() for endpoint in entry.endpoints)
        return frozenset(endpoint for endpoint in endpoints if providers.credentialed(endpoint, places))

    return stamped
