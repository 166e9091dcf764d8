"""From a settings file, flags and environment to `Settings`, or to everything that is wrong with them."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from egress.config.catalogue import unavailable
from egress.config.files import origin_problems, read_document, read_secret
from egress.config.overrides import Flags, Override, openshell_overrides
from egress.config.rules import check_settings
from egress.config.sections import Section
from egress.config.settings import Settings
from egress.documents.diagnostic import Diagnostic, error, has_errors
from egress.documents.location import KeyPath, Location, SourceMap, Spot, path_text
from egress.documents.validate import validate
from egress.documents.yaml import Document, read

SYSTEM_FILE = Path("/etc/egress/egress.yaml")
_STANDARD_OUTPUT = Path("-")


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings in force; `file` is None when flags alone made them. Warnings never stop a start."""

    settings: Settings
    file: Path | None
    warnings: tuple[Diagnostic, ...] = ()
    locate: Callable[[KeyPath], Location] = lambda _path: Location("defaults")
    """Where a key stands, or which flag said it."""


def find_file(flag: Path | None, environment: Mapping[str, str]) -> Path | None:
    """The first settings file of the search order. One that was asked for by name need not exist: it is then an
    error to report, not a reason to look elsewhere."""
    named = flag or (Path(environment["EGRESS_CONFIG"]) if environment.get("EGRESS_CONFIG") else None)
    if named is not None:
        return named.absolute()
    candidates = [SYSTEM_FILE]
    if os.geteuid() != 0:
        home = environment.get("XDG_CONFIG_HOME", "")
        base = Path(home) if home.startswith("/") else Path.home() / ".config"
        candidates.insert(0, base / "egress" / "egress.yaml")
    return next((path for path in candidates if path.is_file()), None)


def load(flags: Flags, environment: Mapping[str, str]) -> Loaded | tuple[Diagnostic, ...]:
    """Read the settings; a tuple holds all diagnostics of a failure."""
    file = find_file(flags.config, environment)
    document = _document(file)
    if isinstance(document, tuple):
        return document
    aliases, warnings = openshell_overrides(environment)
    overrides = (*aliases, *flags.overrides())
    problems = [*_substitutions(document), *_validated(document), *_invalid(overrides), *flags.proxy.problems()]
    if not problems:
        problems += _conflicts(document, aliases)
    if problems:
        return tuple(problems)
    merged = replace(document, data=_merged(document.data, overrides))
    settings = validate(Settings, merged)
    if isinstance(settings, tuple):
        return settings
    settings = _absolute(settings, file.parent if file else Path.cwd())
    found = (*warnings, *_judge(settings, merged, overrides, file))
    return found if has_errors(found) else Loaded(settings, file, found, _locator(merged, overrides))


def _locator(document: Document, overrides: tuple[Override, ...]) -> Callable[[KeyPath], Location]:
    def locate(path: KeyPath) -> Location:
        source = next((item.place(path) for item in overrides if item.path == path[: len(item.path)]), None)
        return Location(source) if source else document.locate_key(path)

    return locate


def _document(file: Path | None) -> Document | tuple[Diagnostic, ...]:
    if file is None:
        return _unwritten("defaults", {"version": 1})
    content = read_document(file)
    if isinstance(content, Diagnostic):
        return (content,)
    document = read(content, str(file))
    if isinstance(document, Document) and not isinstance(document.data, dict):
        return (error(document.locate(()), "must be a mapping", "start with `version: 1`"),)
    return document


def _unwritten(name: str, data: Any) -> Document:
    """A document that stands in no file."""
    return Document(name, data, SourceMap(name, Spot(0)))


def _validated(document: Document) -> tuple[Diagnostic, ...]:
    found = validate(Settings, document)
    return found if isinstance(found, tuple) else ()


def _invalid(overrides: tuple[Override, ...]) -> Iterator[Diagnostic]:
    """Each flag and variable is judged alone, so that a message names it and not the file it overrides."""
    for override in overrides:
        yield from _validated(_alone(override))


def _alone(override: Override) -> Document:
    return _unwritten(override.source, _merged({"version": 1}, (override,)))


def _merged(data: Mapping[str, Any], overrides: tuple[Override, ...]) -> dict[str, Any]:
    merged: dict[str, Any] = dict(data)
    for override in overrides:
        section = merged
        *sections, last = map(str, override.path)
        for key in sections:
            section[key] = dict(section.get(key) or {})
            section = section[key]
        section[last] = override.value
    return merged


def _conflicts(document: Document, aliases: tuple[Override, ...]) -> Iterator[Diagnostic]:
    """An inherited variable must not silently lose against the file, nor win over it."""
    written = validate(Settings, document)
    for alias in aliases:
        if isinstance(written, tuple) or not _is_written(document.data, alias.path):
            continue
        meant = validate(Settings, _alone(alias))
        ours = _value(_absolute(written, Path(document.name).parent), alias.path)
        if not isinstance(meant, tuple) and _value(meant, alias.path) != ours:
            key = path_text(alias.path)
            message = f"{key}: differs from what {alias.source} says"
            yield error(document.locate(alias.path), message, f"unset {alias.source}, or leave the key out")


def _is_written(data: Any, path: KeyPath) -> bool:
    for key in path:
        if not isinstance(data, dict) or key not in data:
            return False
        data = data[key]
    return True


def _value(settings: Settings, path: KeyPath) -> object:
    value: object = settings
    for key in path:
        value = getattr(value, str(key))
    return value


def _substitutions(document: Document) -> Iterator[Diagnostic]:
    """`${env:}` and `${file:}` work in no key of this file. Taken literally they would look as if they did."""
    for path, text in _texts(document.data, ()):
        if "${env:" in text or "${file:" in text:
            message = f"{path_text(path)}: substitution is not available in this key"
            yield error(document.locate(path), message, "write the value, or use a key that ends in `_file`")


def _texts(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*path, index))


def _absolute[S: Section](section: S, directory: Path) -> S:
    """The same settings with every path made absolute."""
    return section.model_copy(
        update={name: _absolute_value(getattr(section, name), directory) for name in type(section).model_fields}
    )


def _absolute_value(value: Any, directory: Path) -> Any:
    match value:
        case Path():
            return value if value == _STANDARD_OUTPUT else directory / value
        case Section():
            return _absolute(value, directory)
        case dict():
            return {key: _absolute_value(item, directory) for key, item in value.items()}
        case tuple():
            return tuple(_absolute_value(item, directory) for item in value)
        case _:
            return value


def _judge(
    settings: Settings, document: Document, overrides: tuple[Override, ...], file: Path | None
) -> Iterator[Diagnostic]:
    for path in unavailable(settings):
        source = next((item.source for item in overrides if item.path[: len(path)] == path), None)
        location = Location(source) if source else document.locate_key(path)
        yield error(location, f"{path_text(path)}: not available in this version", "leave the key out")
    yield from check_settings(settings, document)
    yield from _unreadable_secrets(settings, document)
    if file is not None and settings.reload.check_origin == "on":
        uids = {uid for agent in settings.agents for uid in agent.match.uids or ()}
        yield from origin_problems(file, uids)


def _unreadable_secrets(settings: Settings, document: Document) -> Iterator[Diagnostic]:
    for index, agent in enumerate(settings.agents):
        auth = agent.match.proxy_auth
        found = read_secret(auth.password_file) if auth else None
        if isinstance(found, Diagnostic):
            path: KeyPath = ("agents", index, "match", "proxy_auth", "password_file")
            yield error(document.locate(path), f"{path_text(path)}: {found.location} {found.message}", found.hint)
