"""OCSF 1.8.0 validation of event records, with the profiles they claim."""

from functools import cache

import jsonschema
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

CLASS_NAMES = {
    4001: "network_activity",
    4002: "http_activity",
    2004: "detection_finding",
    5019: "device_config_state_change",
    6002: "application_lifecycle",
}
# What `events.compat: openshell` adds for existing readers, where OCSF has no place for it.
COMPATIBLE_MEMBERS = frozenset({"container", "state", "state_id"})


@cache
def _schema() -> OcsfJsonSchemaEmbedded:
    return OcsfJsonSchemaEmbedded(get_ocsf_schema("1.8.0"))


@cache
def validator(class_uid: int, profiles: tuple[str, ...]) -> jsonschema.Draft202012Validator:
    schema = _schema().get_class_schema(CLASS_NAMES[class_uid], list(profiles))
    return jsonschema.Draft202012Validator(schema)


def problems(record: dict) -> list[str]:
    """Everything the schema objects to; empty for a valid record."""
    errors = validator(record["class_uid"], tuple(record["metadata"]["profiles"])).iter_errors(record)
    return [f"{error.json_path}: {error.message}" for error in errors]


def without_compatible_members(record: dict) -> dict:
    """The record as it is with `events.compat: off`, but for finding uids and unusual methods."""
    return {name: value for name, value in record.items() if name not in COMPATIBLE_MEMBERS}
