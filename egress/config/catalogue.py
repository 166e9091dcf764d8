"""Walks over the settings: the list of all keys for the reference, keys this version cannot honour, keys that need a
restart."""

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAliasType, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from egress.config.sections import Section, Trait, trait
from egress.config.settings import Settings
from egress.config.types import AUTO, OFF, SocketAddress, Wording
from egress.documents.location import KeyPath, path_text
from egress.model.address import Host

_NAMES = {int: "int", str: "text", bool: "bool", float: "number", Host: "name", Path: "path", SocketAddress: "address"}


@dataclass(frozen=True, slots=True)
class SettingEntry:
    """One key of the settings file, in words. `available` is false when only the default may be written."""

    key: str
    type: str
    default: str
    description: str
    restart: bool
    available: bool


def entries(section: type[Section] = Settings, prefix: str = "") -> Iterator[SettingEntry]:
    """Every key, depth first, sections themselves left out."""
    yield from _entries(section, prefix, Trait())


def _entries(section: type[Section], prefix: str, above: Trait) -> Iterator[SettingEntry]:
    for name, field in section.model_fields.items():
        own = trait(field)
        available = _available(own) and _available(above)
        nested = _section_of(field.annotation)
        restart = own.restart or above.restart
        if nested is not None:
            inherited = Trait(restart, None if available else ())
            suffix = _suffix(field.annotation)
            yield from _entries(nested, f"{prefix}{name}{suffix}.", inherited)
            continue
        yield SettingEntry(
            f"{prefix}{name}", _type_text(field), _default_text(field), field.description or "", restart, available
        )


def _available(own: Trait) -> bool:
    return own.only is None or len(own.only) > 1


def unavailable(section: Section, prefix: KeyPath = ()) -> Iterator[KeyPath]:
    """Keys whose value asks for something that this version does not do."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        only = trait(field).only
        if only is not None and value not in only:
            yield (*prefix, name)
            continue
        yield from _unavailable_below(value, (*prefix, name))


def _unavailable_below(value: object, path: KeyPath) -> Iterator[KeyPath]:
    if isinstance(value, Section):
        yield from unavailable(value, path)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _unavailable_below(item, (*path, index))


def needs_restart(old: Section, new: Section, prefix: KeyPath = ()) -> Iterator[str]:
    """Keys that differ and that a reload must not change, as `listen.proxy`."""
    for name, field in type(old).model_fields.items():
        before, after = getattr(old, name), getattr(new, name)
        path = (*prefix, name)
        if isinstance(before, Section) and isinstance(after, Section):
            yield from needs_restart(before, after, path)
        elif before != after and trait(field).restart:
            yield path_text(path)


def _section_of(annotation: Any) -> type[Section] | None:
    """The section behind `S`, `S | None` or `Many[S]`."""
    for option in (annotation, *get_args(annotation)):
        if isinstance(option, type) and issubclass(option, Section):
            return option
    return None


def _suffix(annotation: Any) -> str:
    """How a key says that its section stands there many times: in a list, or under names."""
    origin = get_origin(annotation)
    if isinstance(origin, TypeAliasType):
        return "[]"
    return ".*" if isinstance(origin, type) and issubclass(origin, Mapping) else ""


def _type_text(field: FieldInfo) -> str:
    wording = next((item.text for item in field.metadata if isinstance(item, Wording)), None)
    return wording or _annotation_text(field.annotation)


def _annotation_text(annotation: Any) -> str:
    """An annotation in the words of the reference."""
    for item in getattr(annotation, "__metadata__", ()):
        if isinstance(item, Wording):
            return item.text
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f"`{word}`" for word in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_annotation_text(option) for option in arguments if option is not type(None))
    if isinstance(origin, TypeAliasType):
        return f"list of {_annotation_text(arguments[0])}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"map of {_annotation_text(arguments[0])} to {_annotation_text(arguments[1])}"
    return _NAMES[annotation]


def _default_text(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    wording = _type_text(field)
    match field.default:
        case None:
            return _unset_text(field)
        case bool() as flag:
            return f"`{str(flag).lower()}`"
        case float() as seconds if wording == "duration" or wording.startswith("duration"):
            return f"`{_duration_text(seconds)}`"
        case int() as size if wording == "size":
            return f"`{_size_text(size)}`"
        case int() as mode if wording == "octal text":
            return f'`"{mode:04o}"`'
        case tuple() as items:
            return f"`{', '.join(map(str, items))}`" if items else "`[]`"
        case Mapping():
            return "`{}`"
        case other:
            return f"`{other}`" if other != "" else '`""`'


def _unset_text(field: FieldInfo) -> str:
    """None is what `auto` and `off` are read as, where a type has such a word."""
    wording = next((item.text for item in field.metadata if isinstance(item, Wording)), "")
    return next((f"`{word}`" for word in (AUTO, OFF) if wording.endswith(f" or `{word}`")), "none")


def _duration_text(seconds: float) -> str:
    return f"{seconds:g}s" if seconds >= 1 or seconds == 0 else f"{seconds * 1000:g}ms"


def _size_text(size: int) -> str:
    return f"{size // 1024**2}MiB" if size % 1024**2 == 0 else str(size)
