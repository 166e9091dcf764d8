"""What plugins bring, as factories by scheme. Every problem names the plugin; two that claim one scheme are one."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from egress.documents.diagnostic import Diagnostic, error
from egress.documents.location import Location
from egress.extension.manager import Permissions, Plugin, PluginError, choose, installed, register
from egress.sdk.secrets import BadSpec, IdentityDocuments, SecretSource, SourceContext, SourceFactory

if TYPE_CHECKING:
    import pluggy

type IdentityFactory = Callable[[Mapping[str, object], SourceContext], IdentityDocuments]


@dataclass(frozen=True, slots=True)
class Plugins:
    """What the enabled plugins bring, by scheme, and what was wrong with them."""

    sources: Mapping[str, SourceFactory] = field(default_factory=dict)
    identities: Mapping[str, IdentityFactory] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
    loaded: tuple[Plugin, ...] = ()


def load_plugins(
    enabled: Sequence[str],
    distributions: Sequence[str] = (),
    hashes: Mapping[str, str] | None = None,
    taken: Collection[str] = (),
) -> Plugins:
    """Import the plugins of these names, and all of these distributions. `taken` are schemes that are built in."""
    permissions = Permissions(enabled, distributions, hashes or {})
    if not enabled and not distributions:
        return Plugins()
    plugins, problems = choose(installed(), permissions)
    if problems:  # files that are not those agreed on are not imported either
        return Plugins(diagnostics=tuple(_refusal(problem) for problem in problems))
    return collect(plugins, taken)


def collect(plugins: Sequence[Plugin], taken: Collection[str] = ()) -> Plugins:
    """Import plugins and ask each for what it has."""
    sources, identities = _Claims(frozenset(taken)), _Claims(frozenset())
    problems: list[str] = []
    for plugin in plugins:
        try:
            manager = register(plugin)
            sources.take(plugin, _answers(plugin, manager, "egress_secret_sources"))
            identities.take(plugin, _answers(plugin, manager, "egress_identity_documents"))
        except PluginError as problem:
            problems.append(str(problem))
    return Plugins(
        {scheme: _source_factory(plugin, factory) for scheme, (plugin, factory) in sources.held.items()},
        {scheme: _identity_factory(plugin, factory) for scheme, (plugin, factory) in identities.held.items()},
        tuple(_refusal(problem) for problem in problems),
        tuple(plugins),
    )


class _Claims:
    """Which plugin a scheme belongs to."""

    def __init__(self, taken: frozenset[str]) -> None:
        self.held: dict[str, tuple[Plugin, Any]] = {}
        self._taken = taken

    def take(self, plugin: Plugin, given: Mapping[str, Any]) -> None:
        """Raises `PluginError`."""
        for scheme, factory in given.items():
            if scheme in self._taken:
                raise PluginError(f"the plugin {plugin} claims `{scheme}`, which is built in")
            owner = self.held.setdefault(scheme, (plugin, factory))[0]
            if owner is not plugin:
                raise PluginError(f"two plugins claim `{scheme}`: {owner} and {plugin}")


def _answers(plugin: Plugin, manager: "pluggy.PluginManager", hook: str) -> dict[str, Any]:
    try:
        given = [item for one in getattr(manager.hook, hook)() for item in dict(one).items()]
    except Exception as problem:  # a plugin's own code
        raise PluginError(f"the plugin {plugin} failed in {hook}: {type(problem).__name__}") from None
    if not all(isinstance(scheme, str) and callable(factory) for scheme, factory in given):
        raise PluginError(f"the plugin {plugin} gives no factories by name in {hook}")
    return dict(given)


def _source_factory(plugin: Plugin, factory: SourceFactory) -> SourceFactory:
    def make(fields: Mapping[str, object], context: SourceContext) -> SecretSource:
        try:
            return factory(fields, context)
        except BadSpec:
            raise
        except Exception as problem:  # a plugin's own code, which may quote what it read
            raise BadSpec(f"the plugin {plugin} broke on it: {type(problem).__name__}") from None

    return make


def _identity_factory(plugin: Plugin, factory: IdentityFactory) -> IdentityFactory:
    def make(fields: Mapping[str, object], context: SourceContext) -> IdentityDocuments:
        try:
            return factory(fields, context)
        except BadSpec as problem:
            raise PluginError(f"the plugin {plugin}: {problem}") from None
        except Exception as problem:
            raise PluginError(f"the plugin {plugin} broke: {type(problem).__name__}") from None

    return make


def _refusal(problem: str) -> Diagnostic:
    return error(Location("plugins.enabled"), problem)
