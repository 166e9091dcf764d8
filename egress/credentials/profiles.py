"""Provider profiles: the bundled catalogue, own directories, and what is wrong with one (credentials.md section 12)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from egress.credentials.document import CredentialModel, ProfileModel
from egress.credentials.placeholder import reserved_key
from egress.credentials.scope import Selector
from egress.credentials.token_endpoint import endpoint_fault
from egress.documents.diagnostic import Diagnostic, error, has_errors, warning
from egress.documents.location import KeyPath, Location
from egress.documents.validate import validate
from egress.documents.yaml import Document, read
from egress.http.fields import is_token
from egress.policy.document import EndpointModel

ALIASES = {
    "claude": "claude-code", "claude_code": "claude-code", "gh": "github", "glab": "gitlab", "gcp": "google-cloud",
}  # fmt: skip
_FRAMING = frozenset((b"host", b"content-length", b"transfer-encoding", b"connection"))
_INSPECTED = ("rest", "websocket", "graphql", "json-rpc", "mcp")


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile and the document that it was read from."""

    model: ProfileModel
    document: Document
    at: KeyPath = ()
    """Where the profile stands in the document; inline ones stand inside a provider."""

    @property
    def id(self) -> str:
        return self.model.id

    def locate(self, *path: str | int) -> Location:
        return self.document.locate((*self.at, *path))

    @property
    def credentialed(self) -> bool:
        """Does it say where a secret belongs?"""
        model = self.model
        return bool(model.credentials) or any(one.credential_signing for one in model.endpoints)

    @property
    def keys(self) -> dict[str, CredentialModel]:
        """Environment key to the credential that it carries."""
        return {key: one for one in self.model.credentials for key in one.env_vars}


class Catalogue:
    """Profiles by id. Bundled ones are read when they are asked for."""

    def __init__(self, own: Sequence[Profile] = ()) -> None:
        self._own = {profile.id: profile for profile in own}

    def find(self, name: str) -> Profile | None:
        """By id or alias."""
        wanted = ALIASES.get(name, name)
        if wanted in self._own:
            return self._own[wanted]
        entry = _bundled() / f"{wanted}.yaml"
        if "/" in wanted or not entry.is_file():
            return None
        found = read_profile(entry.read_bytes(), f"profile:{wanted}")
        assert isinstance(found, Profile), found  # a test reads them all
        return found

    @property
    def names(self) -> list[str]:
        bundled = {entry.name.removesuffix(".yaml") for entry in _bundled().iterdir() if entry.name.endswith(".yaml")}
        return sorted(bundled | set(self._own))


def _bundled() -> Any:
    """A Traversable, whose module moved between versions."""
    return resources.files("egress.credentials") / "catalogue"


def read_profile(text: bytes, name: str) -> Profile | tuple[Diagnostic, ...]:
    """One profile document; all that is wrong with it otherwise."""
    document = read(text, name)
    if not isinstance(document, Document):
        return document
    model = validate(ProfileModel, document)
    if not isinstance(model, ProfileModel):
        return model
    profile = Profile(model, document)
    found = tuple(lint(profile))
    return found if has_errors(found) else profile


def read_directory(directory: Path) -> tuple[list[Profile], list[Diagnostic]]:
    """Own profiles, one a file; an id of the catalogue may be taken over, one of another file may not."""
    profiles: dict[str, Profile] = {}
    found: list[Diagnostic] = []
    try:
        files = sorted(file for file in directory.iterdir() if file.suffix in (".yaml", ".yml", ".json"))
    except OSError as problem:
        return [], [error(Location(str(directory)), f"cannot be read: {problem.strerror}")]
    for file in files:
        profile = read_profile(file.read_bytes(), str(file))
        if not isinstance(profile, Profile):
            found += profile
        elif profile.id in profiles:
            found.append(error(profile.locate("id"), f"the profile `{profile.id}` is defined twice"))
        else:
            profiles[profile.id] = profile
    return list(profiles.values()), found


def lint(profile: Profile) -> Iterator[Diagnostic]:
    """Everything that is wrong with a profile that has the right keys."""
    model = profile.model
    names: set[str] = set()
    keys: set[str] = set()
    for index, one in enumerate(model.credentials):
        at = ("credentials", index)
        if one.name in names:
            yield error(profile.locate(*at, "name"), f"the credential `{one.name}` is named twice")
        names.add(one.name)
        for key in one.env_vars:
            if key in keys or key in model.config:
                yield error(profile.locate(*at, "env_vars"), f"the key `{key}` is declared twice")
            if reserved_key(key):
                yield error(profile.locate(*at, "env_vars"), f"the key `{key}` would be read as a placeholder's")
            keys.add(key)
        yield from _placement(profile, one, at)
        yield from _grant(profile, one, at)
        yield from _narrowed(profile, one, at)
        yield from _refresh(profile, one, at)
    for name in model.discovery.credentials:
        if name not in names:
            yield error(profile.locate("discovery", "credentials"), f"there is no credential `{name}`")
    for index, endpoint in enumerate(model.endpoints):
        yield from _endpoint(profile, endpoint, index)


def _placement(profile: Profile, one: CredentialModel, at: tuple[str, int]) -> Iterator[Diagnostic]:
    style = one.auth_style
    if style in ("header", "bearer") and not one.header_name:
        hint = "write `header_name: Authorization`" if style == "bearer" else ""
        yield error(profile.locate(*at), f"`auth_style: {style}` needs `header_name`", hint)
    if style == "query" and not one.query_param:
        yield error(profile.locate(*at), "`auth_style: query` needs `query_param`")
    if style == "path" and one.path_template.count("{credential}") != 1:
        yield error(profile.locate(*at), "`auth_style: path` needs `path_template` with one `{credential}`")
    if one.header_name and (not is_token(one.header_name.encode()) or one.header_name.lower().encode() in _FRAMING):
        yield error(profile.locate(*at, "header_name"), "is no field that a credential can be placed in")


def _grant(profile: Profile, one: CredentialModel, at: tuple[str, int]) -> Iterator[Diagnostic]:
    style = one.auth_style
    if one.token_grant is not None:
        if style in ("basic", "query", "path"):
            yield error(profile.locate(*at, "auth_style"), "a token grant is placed as `bearer` or `header`")
        if one.env_vars:
            yield error(profile.locate(*at, "env_vars"), "a token grant has no environment variable")
        fault = endpoint_fault(one.token_grant.token_endpoint)
        if fault is not None:
            yield error(profile.locate(*at, "token_grant", "token_endpoint"), fault)
        for number, override in enumerate(one.token_grant.audience_overrides):
            if override.host and not any(_within(override.host, endpoint.host) for endpoint in profile.model.endpoints):
                place = profile.locate(*at, "token_grant", "audience_overrides", number)
                yield error(place, "the host is wider than every endpoint of the profile")


def _within(host: str, endpoint: str) -> bool:
    return host.lower() == endpoint.lower() or ("*" not in host and Selector.of(endpoint, 1).covers_authority(host, 1))


def _narrowed(profile: Profile, one: CredentialModel, at: tuple[str, int]) -> Iterator[Diagnostic]:
    for index in one.endpoints or ():
        if not 0 <= index < len(profile.model.endpoints):
            yield error(profile.locate(*at, "endpoints"), f"there is no endpoint {index}")


def _refresh(profile: Profile, one: CredentialModel, at: tuple[str, int]) -> Iterator[Diagnostic]:
    refresh = one.refresh
    if refresh is None:
        return
    place = profile.locate(*at, "refresh")
    if refresh.strategy.startswith("oauth2") and refresh.token_url and endpoint_fault(refresh.token_url):
        yield error(place, f"`token_url`: {endpoint_fault(refresh.token_url)}")
    if refresh.strategy == "google_service_account_jwt" and not refresh.scopes:
        yield error(place, "`google_service_account_jwt` needs `scopes`")
    if refresh.additional_outputs and refresh.strategy != "aws_sts_assume_role":
        yield error(place, "`additional_outputs` belong to `aws_sts_assume_role`")


def _endpoint(profile: Profile, endpoint: EndpointModel, index: int) -> Iterator[Diagnostic]:
    place = profile.locate("endpoints", index)
    if not endpoint.host:
        yield error(place, "an endpoint of a profile needs a host")
    if not endpoint.effective_ports:
        yield error(place, "an endpoint of a profile needs a port")
    if endpoint.credential_binding is not None:
        yield error(place, "`credential_binding` is no key of a profile's endpoint")
    for port in endpoint.effective_ports:
        try:
            Selector.of(endpoint.host, port, endpoint.path)
        except ValueError as problem:
            yield error(place, str(problem))
    read = endpoint.protocol in _INSPECTED and endpoint.tls not in ("skip", "passthrough")
    if profile.credentialed and not endpoint.allow_uninspected_credentials and not read:
        hint = "write `protocol: rest`, or `allow_uninspected_credentials: true`"
        yield error(place, "credentials go only where traffic is inspected", hint)
    if endpoint.enforcement is None and endpoint.protocol in _INSPECTED:
        yield warning(place, "`enforcement` is left to the default", "write `enforcement: enforce`")


def selectors(endpoints: Iterable[EndpointModel]) -> tuple[Selector, ...]:
    """Where the endpoints of a profile, or of an instance, are."""
    return tuple(
        Selector.of(one.host, port, one.path) for one in endpoints for port in dict.fromkeys(one.effective_ports)
    )
