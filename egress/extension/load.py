"""Plugins found, allowed and asked once for what they bring. pluggy is used here and in `egress.sdk` only."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pluggy

from egress.documents.diagnostic import Diagnostic, error
from egress.documents.location import Location
from egress.sdk import hookspecs
from egress.sdk.hookspecs import IdentityFactory
from egress.sdk.secrets import SourceFactory

GROUP = "egress.plugins"


@dataclass(frozen=True, slots=True)
class Plugins:
    """What the enabled plugins bring, by scheme, and what was wrong with them."""

    sources: Mapping[str, SourceFactory] = field(default_factory=dict)
    identities: Mapping[str, IdentityFactory] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()


def load_plugins(enabled: Sequence[str], distributions: Sequence[str] = ()) -> Plugins:
    """Import the plugins of these names. `distributions`, when given, are the only ones that may bring any."""
    found: list[Diagnostic] = []
    loaded: dict[str, pluggy.PluginManager] = {}
    installed = {point.name: point for point in entry_points(group=GROUP)} if enabled else {}
    for name in enabled:
        point = installed.get(name)
        problem = _problem(name, point, installed, distributions)
        if point is None or problem:
            found.append(error(Location("plugins.enabled"), problem))
            continue
        manager = pluggy.PluginManager(hookspecs.NAMESPACE)
        manager.add_hookspecs(hookspecs)
        try:
            manager.register(point.load(), name)
            manager.check_pending()
        except Exception as failure:  # whatever a plugin's import raises
            found.append(error(Location("plugins.enabled"), f"the plugin `{name}` cannot be loaded: {_words(failure)}"))
            continue
        loaded[name] = manager
    sources = _gather(loaded, lambda hooks: hooks.egress_secret_sources(), found)
    identities = _gather(loaded, lambda hooks: hooks.egress_identity_documents(), found)
    return Plugins(sources, identities, tuple(found))


def _problem(name: str, point: EntryPoint | None, known: Iterable[str], distributions: Sequence[str]) -> str:
    if point is None:
        return f"no plugin `{name}` is installed; installed are {', '.join(sorted(known)) or 'none'}"
    owner = point.dist.name if point.dist is not None else ""
    if distributions and owner not in distributions:
        return f"the plugin `{name}` belongs to `{owner}`, which `plugins.allow_distributions` does not list"
    return ""


def _gather[T](
    loaded: Mapping[str, pluggy.PluginManager], ask: Callable[[Any], list[Mapping[str, T]]], found: list[Diagnostic]
) -> dict[str, T]:
    """By scheme; two plugins may not claim one."""
    result: dict[str, T] = {}
    owners: dict[str, str] = {}
    for name, manager in loaded.items():
        try:
            brought = ask(manager.hook)
        except Exception as failure:  # a plugin's own code
            found.append(error(Location("plugins.enabled"), f"the plugin `{name}` failed: {_words(failure)}"))
            continue
        for scheme, factory in [item for one in brought for item in one.items()]:
            if scheme in owners:
                message = f"the plugins `{owners[scheme]}` and `{name}` both bring `{scheme}`"
                found.append(error(Location("plugins.enabled"), message))
            owners[scheme], result[scheme] = name, factory
    return result


def _words(failure: Exception) -> str:
    return f"{type(failure).__name__}: {failure}"[:200]
