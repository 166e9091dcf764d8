"""Which plugins are installed and which of them may be imported: those that the settings name, and no other."""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from egress.model.errors import EgressError

if TYPE_CHECKING:
    import pluggy

GROUP = "egress.plugins"


class PluginError(EgressError):
    """A plugin that cannot be used; the text names it."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """An installed plugin by the name of its entry point. `record` is the SHA-256 of its distribution's list of files,
    empty where there is none."""

    name: str
    distribution: str
    version: str
    record: str
    entry_point: EntryPoint = field(repr=False)

    def __str__(self) -> str:
        return f"`{self.name}` of {self.distribution} {self.version}"


@dataclass(frozen=True, slots=True)
class Permissions:
    """The settings `plugins.*`: names of plugins (or of distributions), distributions all of whose plugins are wanted,
    and the records that distributions must have."""

    enabled: Collection[str] = ()
    allow_distributions: Collection[str] = ()
    require_hashes: Mapping[str, str] = field(default_factory=dict)

    def allow(self, plugin: Plugin) -> bool:
        named = {_normal(name) for name in (*self.allow_distributions, *self.enabled)}
        return plugin.name in self.enabled or _normal(plugin.distribution) in named

    def mismatch(self, plugin: Plugin) -> bool:
        """Are its files others than those that were agreed on?"""
        required = {_normal(name): digest for name, digest in self.require_hashes.items()}
        digest = required.get(_normal(plugin.distribution))
        return digest is not None and digest.removeprefix("sha256:") != plugin.record


def installed(found: Iterable[EntryPoint] | None = None) -> list[Plugin]:
    """Every plugin of this environment, unimported, in the order of names."""
    plugins = []
    for entry_point in entry_points(group=GROUP) if found is None else found:
        owner = entry_point.dist
        if owner is None:
            continue
        record = owner.read_text("RECORD") or ""
        digest = hashlib.sha256(record.encode()).hexdigest() if record else ""
        plugins.append(Plugin(entry_point.name, owner.name, owner.version, digest, entry_point))
    return sorted(plugins, key=lambda plugin: (plugin.name, plugin.distribution))


def choose(plugins: Collection[Plugin], permissions: Permissions) -> tuple[list[Plugin], list[str]]:
    """Those that may be imported, and what is wrong with what the settings say."""
    allowed = [plugin for plugin in plugins if permissions.allow(plugin)]
    problems = [
        f"no plugin `{wanted}` is installed; installed are {', '.join(plugin.name for plugin in plugins) or 'none'}"
        for wanted in permissions.enabled
        if not any(wanted == plugin.name or _normal(wanted) == _normal(plugin.distribution) for plugin in allowed)
    ]
    chosen: dict[str, Plugin] = {}
    for plugin in allowed:
        other = chosen.setdefault(plugin.name, plugin)
        if other is not plugin:
            problems.append(f"two plugins have one name: {other} and {plugin}")
        elif permissions.mismatch(plugin):
            problems.append(f"the plugin {plugin} is not the one that `plugins.require_hashes` names")
    return list(chosen.values()), problems


def register(plugin: Plugin) -> "pluggy.PluginManager":
    """Import one plugin and match it with the hooks. Raises `PluginError`."""
    import pluggy  # noqa: PLC0415 - a proxy without plugins does without it

    from egress.sdk import hookspecs  # noqa: PLC0415

    manager = pluggy.PluginManager(hookspecs.NAMESPACE)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(plugin.entry_point.load(), plugin.name)
        manager.check_pending()
    except Exception as error:  # whatever an import raises
        words = f"{type(error).__name__}: {error}"[:200]
        raise PluginError(f"the plugin {plugin} cannot be loaded: {words}") from None
    return manager


def _normal(distribution: str) -> str:
    return distribution.lower().replace("_", "-").replace(".", "-")
