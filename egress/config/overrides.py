"""Values that come from outside the settings file: start-up flags, and the variables that OpenShell images set."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from egress.config.proxy_flags import NO_PROXY_FLAGS, PROXY_FLAG, ProxyFlags
from egress.config.proxy_flags import PARTS as PROXY_PARTS
from egress.documents.diagnostic import Diagnostic, warning
from egress.documents.location import KeyPath, Location


@dataclass(frozen=True, slots=True)
class Override:
    """One value in place of the file's; `source` is the flag or variable it came from."""

    path: KeyPath
    value: Any
    source: str
    parts: Mapping[str, str] = field(default_factory=dict)
    """For a value made of several flags: which of them said the key of that name."""

    def place(self, path: KeyPath) -> str:
        """The flag that said what stands at `path`."""
        return next((self.parts[key] for key in map(str, reversed(path)) if key in self.parts), self.source)


@dataclass(frozen=True, slots=True)
class Flags:
    """Start-up flags that stand for settings. They win over the file."""

    config: Path | None = None
    policy: tuple[Path, ...] = ()
    listen: str | None = None
    state_dir: Path | None = None
    events: str | None = None
    log_level: str | None = None
    proxy: ProxyFlags = NO_PROXY_FLAGS
    providers: Path | None = None
    allow_literal_secrets: bool = False
    """Values may be written into the providers file."""
    check_origin: str | None = None
    """Offline commands judge what files say, wherever they are checked out; `off` for them."""

    def overrides(self) -> Iterator[Override]:
        """Paths of flags are relative to where the command was started, not to the file."""
        if self.policy:
            yield Override(("policy", "file"), [_here(path) for path in self.policy], "--policy")
        if self.listen is not None:
            yield Override(("listen", "proxy"), self.listen, "--listen")
        if self.providers is not None:
            yield Override(("providers", "file"), _here(self.providers), "--providers")
        if self.state_dir is not None:
            yield Override(("state_dir",), _here(self.state_dir), "--state-dir")
        if self.events is not None:
            target = self.events if self.events == "-" else _here(Path(self.events))
            yield Override(("events", "jsonl", "path"), target, "--events")
            yield Override(("events", "shorthand", "enabled"), False, "--events")
        if self.log_level is not None:
            yield Override(("logs", "level"), _log_level(self.log_level), "--log-level")
        section = self.proxy.section()
        if section:
            yield Override(("upstream_proxy",), section, PROXY_FLAG, PROXY_PARTS)
        if self.check_origin is not None:
            yield Override(("reload", "check_origin"), self.check_origin, "this command")


_RELAXED = frozenset(("relaxed", "disabled", "endpoint-only", "false", "0"))
_LOG_LEVELS = {"warn": "warning", "trace": "debug"}


def _here(path: Path) -> str:
    return str(path.absolute())


def _path(text: str) -> str:
    return _here(Path(text))


def _identity_mode(text: str) -> str:
    return "off" if text in _RELAXED else text


def _log_level(text: str) -> str:
    return _LOG_LEVELS.get(text.lower(), text.lower())


_VARIABLES: Mapping[str, tuple[KeyPath, Callable[[str], str]]] = {
    "OPENSHELL_POLICY_DATA": (("policy", "file"), _path),
    "OPENSHELL_PROXY_TLS_DIR": (("tls", "ca_dir"), _path),
    "OPENSHELL_NETWORK_BINARY_IDENTITY": (("identity", "mode"), _identity_mode),
    "OPENSHELL_LOG_LEVEL": (("logs", "level"), _log_level),
    "OPENSHELL_INFERENCE_ROUTES": (("inference", "routes_file"), _path),
}


def openshell_overrides(environment: Mapping[str, str]) -> tuple[tuple[Override, ...], tuple[Diagnostic, ...]]:
    """What OpenShell's variables say about things we have, and what their reader should know."""
    found = tuple(
        Override(path, read(environment[name]), name)
        for name, (path, read) in _VARIABLES.items()
        if environment.get(name)
    )
    return found, tuple(_warnings(environment))


def _warnings(environment: Mapping[str, str]) -> Iterator[Diagnostic]:
    mode = "OPENSHELL_NETWORK_BINARY_IDENTITY"
    if environment.get(mode) in _RELAXED:
        message = "identity.mode: `off`: nobody is asked which program connects"
        yield warning(Location(mode), message, "only policy entries for any binary (`/**`) match")
    rules = "OPENSHELL_POLICY_RULES"
    if environment.get(rules):
        yield warning(Location(rules), "policies in Rego are not read", "the policy is the YAML file alone")
