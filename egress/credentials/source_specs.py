"""Where a value comes from, as a providers file says it: one source and how what it gives is read and kept
(credentials.md sections 13 and 15)."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from egress.credentials.document import MODIFIERS, DefaultsModel, ModifiersModel, RefreshModel
from egress.documents.diagnostic import error
from egress.documents.findings import Findings
from egress.documents.location import Location
from egress.documents.validate import validate
from egress.documents.yaml import Document

BUILT_IN = frozenset(
    ("env", "file", "fd", "command", "aws_session", "oauth2", "google_service_account", "literal", "same_as")
)
PLUGINS = {
    "keyring": "egress-secrets-keyring", "vault": "egress-secrets-vault",
    "aws_secrets_manager": "egress-secrets-aws",
}  # fmt: skip
_SOURCES = {
    "oauth2_refresh_token": "oauth2", "oauth2_client_credentials": "oauth2",
    "google_service_account_jwt": "google_service_account",
}  # fmt: skip
"""Strategies of profiles, and the source that follows them."""


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """Where a value comes from, as written: the factory of `scheme` reads `fields`. The rest says how what it gives is
    read and kept. Times in seconds; `refresh` None is never; `on_failure` is a word and the seconds of `keep_for`."""

    scheme: str
    fields: Any
    location: Location
    json: str = ""
    base64: bool = False
    strip: str = "newline"
    refresh: float | None = 900.0
    expires: str = ""
    refresh_before: float = 300.0
    timeout: float = 10.0
    on_failure: tuple[str, float] = ("revoke", 0.0)


def read_source(
    given: Document,
    schemes: Collection[str],
    defaults: DefaultsModel,
    findings: Findings,
    profile: RefreshModel | None = None,
) -> SourceSpec | None:
    """One source with its modifiers; None, and findings, when it cannot be read.

    `profile` is how the profile means the value to be renewed: a source that does so takes what it lacks from there.
    """
    written: Mapping[str, Any] = given.data
    named = [key for key in written if key not in MODIFIERS]
    if len(named) != 1:
        _refuse(findings, given.locate(()), "needs exactly one source", f"one of {_listed(schemes)}")
        return None
    scheme = named[0]
    place = given.locate((scheme,))
    if scheme not in schemes:
        plugin = PLUGINS.get(scheme)
        hint = f"install {plugin} and list it in `plugins.enabled`" if plugin else f"sources: {_listed(schemes)}"
        _refuse(findings, given.locate_key((scheme,)), f"there is no source `{scheme}`", hint)
        return None
    modifiers = validate(ModifiersModel, replace(given, data={key: written[key] for key in written if key != scheme}))
    if not isinstance(modifiers, ModifiersModel):
        findings.diagnostics.extend(modifiers)
        return None
    fields = written[scheme]
    before = modifiers.refresh_before
    if profile is not None and _SOURCES.get(profile.strategy) == scheme and isinstance(fields, Mapping):
        fields = {**dict(_known(scheme, profile, fields)), **fields}
        if "refresh_before" not in modifiers.model_fields_set:
            before = float(profile.refresh_before_seconds)
    return SourceSpec(
        scheme, fields, place, modifiers.json_pointer, modifiers.base64, modifiers.strip,
        modifiers.refresh if "refresh" in modifiers.model_fields_set else defaults.refresh,
        modifiers.expires, before, modifiers.timeout or defaults.timeout, modifiers.on_failure or defaults.on_failure,
    )  # fmt: skip


def _known(scheme: str, profile: RefreshModel, fields: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """What a profile says of a token request, as the source spells it."""
    yield "max_lifetime", profile.max_lifetime_seconds
    if scheme == "oauth2":
        yield "strategy", profile.strategy
    if profile.token_url and "tenant_id" not in fields:
        yield "token_url", profile.token_url
    if profile.scopes:
        yield "scopes", list(profile.scopes)


def _listed(schemes: Collection[str]) -> str:
    return ", ".join(sorted(schemes))


def _refuse(findings: Findings, place: Location, message: str, hint: str) -> None:
    findings.diagnostics.append(error(place, message, hint))
