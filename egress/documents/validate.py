"""Run a pydantic model over a document: every error located, in words an author can act on.

Messages name the kind of a wrong value, never the value itself: it may be a secret.
"""

import copy
import difflib
import types
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, TypeAliasType, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from egress.documents.diagnostic import Diagnostic, Severity, error
from egress.documents.location import KeyPath, path_text
from egress.documents.yaml import Document

_EXPECTED = {
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
}
_BOUNDS = {
    "greater_than": "must be more than",
    "greater_than_equal": "must be at least",
    "less_than": "must be less than",
    "less_than_equal": "must be at most",
}
_YAML_1_1_WORDS = frozenset(("yes", "no", "on", "off", "y", "n"))
_MAX_LISTED_KEYS = 12
_NEAR = "did you mean"


def validate[Model: BaseModel](model: type[Model], document: Document) -> Model | tuple[Diagnostic, ...]:
    """The document as an instance of `model`, or all that is wrong with it."""
    try:
        return model.model_validate(document.data, strict=True)
    except ValidationError as failure:
        details = failure.errors(include_url=False)
    return tuple(_diagnostic(model, document, detail) for detail in details)


def validate_known[Model: BaseModel](
    model: type[Model], document: Document, closed: Collection[str]
) -> tuple[Model, tuple[Diagnostic, ...]] | tuple[Diagnostic, ...]:
    """Like `validate`, for documents that others wrote for more than us: unknown keys are left out with a warning.

    They stay errors below the top-level keys in `closed`, and where they look like a known key that was misspelt.
    """
    try:
        return model.model_validate(document.data, strict=True), ()
    except ValidationError as failure:
        details = failure.errors(include_url=False)
    found = []
    unknown: list[KeyPath] = []
    for detail in details:
        diagnostic = _diagnostic(model, document, detail)
        foreign = detail["type"] == "extra_forbidden" and not diagnostic.hint.startswith(_NEAR)
        if foreign and (len(detail["loc"]) == 1 or detail["loc"][0] not in closed):
            unknown.append(detail["loc"])
            diagnostic = replace(diagnostic, severity=Severity.WARNING)
        found.append(diagnostic)
    if len(unknown) < len(details):
        return tuple(found)
    return model.model_validate(_without(document.data, unknown), strict=True), tuple(found)


def _without(data: object, paths: Iterable[KeyPath]) -> Any:
    kept: Any = copy.deepcopy(data)
    for path in paths:
        holder = kept
        for step in path[:-1]:
            holder = holder[step]
        del holder[path[-1]]
    return kept


def _diagnostic(model: type[BaseModel], document: Document, detail: ErrorDetails) -> Diagnostic:
    path: KeyPath = detail["loc"]
    kind = detail["type"]
    if kind == "extra_forbidden":
        known = _keys_at(model, path[:-1])
        message = f"{_prefix(path[:-1])}unknown key `{path[-1]}`"
        return error(document.locate_key(path), message, _did_you_mean(str(path[-1]), known))
    if kind == "missing":
        return error(document.locate(path), f"{_prefix(path[:-1])}the key `{path[-1]}` is missing")
    message, hint = _wording(kind, detail)
    return error(document.locate(path), f"{_prefix(path)}{message}", hint)


def _wording(kind: str, detail: ErrorDetails) -> tuple[str, str]:
    given = detail["input"]
    context: Mapping[str, Any] = detail.get("ctx", {})
    if kind in _EXPECTED:
        return f"{_EXPECTED[kind]}, not {_kind_of(given)}", _hint_for(kind, given)
    if kind == "literal_error":
        return f"must be one of {str(context['expected']).replace("'", '`')}", ""
    if kind in _BOUNDS:
        return f"{_BOUNDS[kind]} {next(iter(context.values()))}", ""
    if kind == "value_error":
        text, _, hint = str(context["error"]).partition("\n")
        return text, hint
    message = detail["msg"]
    return message[:1].lower() + message[1:], ""


def _hint_for(kind: str, given: object) -> str:
    if kind == "string_type" and isinstance(given, (int, float)):
        return "put quotes around it"
    if kind == "bool_type" and isinstance(given, str) and given.lower() in _YAML_1_1_WORDS:
        return "YAML 1.2 knows only true and false"
    if kind == "int_type" and isinstance(given, str) and given.strip().isdigit():
        return "leave the quotes out"
    if kind in ("model_type", "dict_type", "list_type") and given is None:
        return "leave the key out, or give it a value"
    return ""


def _kind_of(given: object) -> str:
    match given:
        case None:
            return "empty"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "a mapping"


def _prefix(path: KeyPath) -> str:
    return f"{path_text(path)}: " if path else ""


def _did_you_mean(key: str, known: Iterable[str]) -> str:
    keys = sorted(known)
    near = difflib.get_close_matches(key, keys, n=1, cutoff=0.7)
    if near:
        return f"{_NEAR} `{near[0]}`?"
    return f"known keys here: {', '.join(keys)}" if 0 < len(keys) <= _MAX_LISTED_KEYS else ""


def _keys_at(annotation: Any, path: KeyPath) -> set[str]:
    """The keys that a value of this annotation, followed down `path`, may have."""
    annotation = _unwrap(annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        return set().union(*(_keys_at(option, path) for option in get_args(annotation)))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = {field.alias or name: field.annotation for name, field in annotation.model_fields.items()}
        if not path:
            return set(fields)
        return _keys_at(fields[path[0]], path[1:]) if path[0] in fields else set()
    arguments = get_args(annotation)
    if not path or not arguments:
        return set()
    return _keys_at(arguments[-1], path[1:])  # list[X], dict[str, X]


def _unwrap(annotation: Any) -> Any:
    while True:
        if isinstance(annotation, TypeAliasType):
            annotation = annotation.__value__
        elif get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        else:
            return annotation
