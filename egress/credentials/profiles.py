"""Provider profiles: the bundled catalogue, own directories, and what is wrong with one (credentials.md section 12)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from egress.config.files import read_document
from egress.credentials.document import CredentialModel, ProfileModel
from egress.credentials.profile_rules import INSPECTED, check_profile
from egress.credentials.scope import Selector
from egress.documents.diagnostic import Diagnostic, error, has_errors
from egress.documents.findings import Findings
from egress.documents.location import Location, SourceMap, Spot
from egress.documents.validate import validate, validate_known
from egress.documents.yaml import Document, read
from egress.policy.document import EndpointModel

ALIASES = {
    "claude": "claude-code", "claude_code": "claude-code", "gh": "github", "glab": "gitlab", "gcp": "google-cloud",
}  # fmt: skip
_SUFFIXES = (".yaml", ".yml", ".json")
_CLOSED = ("endpoints", "binaries")
"""Parts in which a key that we do not know is an error: it may have been meant as a limit."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile and the document, or the part of one, that it was read from."""

    model: ProfileModel
    document: Document
    foreign: tuple[Diagnostic, ...] = ()
    """Keys that we do not know, and left out."""

    @property
    def id(self) -> str:
        return self.model.id

    @property
    def credentialed(self) -> bool:
        """Does it say where a secret belongs?"""
        model = self.model
        return bool(model.credentials) or any(one.credential_signing for one in model.endpoints)

    @property
    def keys(self) -> dict[str, CredentialModel]:
        """Environment key to the credential that it carries."""
        return {key: one for one in self.model.credentials for key in one.env_vars}

    @property
    def binaries(self) -> list[str]:
        return [one if isinstance(one, str) else one.path for one in self.model.binaries]


class Catalogue:
    """Profiles by id. Bundled ones are read when they are asked for."""

    def __init__(self, own: Sequence[Profile] = ()) -> None:
        self._own = {profile.id: profile for profile in own}

    def find(self, name: str) -> Profile | None:
        """By id or alias."""
        if name in self._own:
            return self._own[name]
        wanted = ALIASES.get(name, name)
        return self._own[wanted] if wanted in self._own else _bundled(wanted)

    @property
    def names(self) -> list[str]:
        names = (entry.name for entry in _shelf().iterdir())
        return sorted({name.removesuffix(".yaml") for name in names if name.endswith(".yaml")} | set(self._own))


@cache
def _bundled(name: str) -> Profile | None:
    entry = _shelf() / f"{name}.yaml"
    if "/" in name or not entry.is_file():
        return None
    found = read_profile(entry.read_bytes(), f"profile:{name}")
    assert isinstance(found, Profile), found  # a test reads them all
    return found


def _shelf() -> Any:
    """A Traversable, whose module moved between versions."""
    return resources.files("egress.credentials") / "catalogue"


def read_profile(text: bytes, name: str) -> Profile | tuple[Diagnostic, ...]:
    """One profile document; all that is wrong with it otherwise."""
    document = read(text, name)
    return profile_of(document) if isinstance(document, Document) else document


def read_file(file: Path) -> Profile | tuple[Diagnostic, ...]:
    """The profile in a file; all that is wrong with it otherwise."""
    text = read_document(file)
    return (text,) if isinstance(text, Diagnostic) else read_profile(text, str(file))


def profile_of(document: Document) -> Profile | tuple[Diagnostic, ...]:
    """The profile that a document, or a part of one, is. Keys of other programs are left out unless it is `strict`."""
    strict = isinstance(document.data, dict) and document.data.get("strict") is True
    if strict:
        model = validate(ProfileModel, document)
        if not isinstance(model, ProfileModel):
            return model
        profile = Profile(model, document)
    else:
        known = validate_known(ProfileModel, document, _CLOSED)
        if not isinstance(known[0], ProfileModel):
            return known
        profile = Profile(known[0], document, known[1])
    found = lint(profile)
    return found if has_errors(found) else profile


def profile_paths(directory: Path) -> list[Path]:
    """The files of a directory that are profiles."""
    try:
        return [file for file in sorted(directory.iterdir()) if file.suffix in _SUFFIXES and file.is_file()]
    except OSError:
        return []


def read_directory(directory: Path) -> tuple[list[Profile], list[Diagnostic]]:
    """Own profiles, one a file; an id of the catalogue may be taken over, one of another file may not."""
    profiles: dict[str, Profile] = {}
    found: list[Diagnostic] = []
    if not directory.is_dir():
        return [], [error(Location(str(directory)), "is no directory")]
    for file in profile_paths(directory):
        profile = read_file(file)
        if not isinstance(profile, Profile):
            found += profile
        elif profile.id in profiles:
            first = profiles[profile.id].document.name
            found.append(error(profile.document.locate(("id",)), f"`{profile.id}` is defined in {first} already"))
        else:
            profiles[profile.id] = profile
            found += lint(profile)
    return list(profiles.values()), found


def lint(profile: Profile) -> tuple[Diagnostic, ...]:
    """Everything that is wrong with a profile that has the right keys, and what is worth a second look."""
    findings = Findings(profile.document)
    check_profile(profile.model, findings)
    return (*profile.foreign, *findings.diagnostics)


def entry_document(name: str, endpoints: Document, binaries: Sequence[str]) -> Document:
    """A policy of one entry, whose endpoints are found where they were written. No binaries are all."""
    written = [
        {"enforcement": "enforce"} | given if given.get("protocol", "").lower() in INSPECTED else given
        for given in endpoints.data
    ]
    entry = {"endpoints": written, "binaries": [{"path": path} for path in binaries or ("/**",)]}
    root = endpoints.source.root
    spot = Spot(root.start, {"endpoints": root.start}, {"endpoints": root})
    for key in (name, "network_policies"):
        spot = Spot(root.start, {key: root.start}, {key: spot})
    data = {"version": 1, "network_policies": {name: entry}}
    return Document(endpoints.name, data, SourceMap(endpoints.name, spot))


def selectors(endpoints: Iterable[EndpointModel]) -> tuple[Selector, ...]:
    """Where the endpoints of a profile, or of an instance, are."""
    return tuple(
        Selector.of(one.host, port, one.path) for one in endpoints for port in dict.fromkeys(one.effective_ports)
    )
