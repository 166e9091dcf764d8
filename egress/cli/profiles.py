"""`egress profiles`: the catalogue of what providers can be, one of them in full, and what is wrong with own ones."""

from collections.abc import Iterable
from pathlib import Path

from egress.cli.check import diagnostic_json
from egress.cli.operator import operator_settings
from egress.cli.terminal import ExitCode, complain, fail, show, show_json
from egress.credentials.profiles import Catalogue, Profile, entry_document, lint, read_directory, read_file
from egress.documents.diagnostic import Diagnostic, has_errors
from egress.policy.compile import compile_policy


def list_profiles(directories: Iterable[Path], *, as_json: bool) -> None:
    """Every profile by name: what it is for, its keys, its hosts."""
    catalogue = _catalogue(directories)
    profiles = [profile for name in catalogue.names if (profile := catalogue.find(name)) is not None]
    if as_json:
        show_json([_facts(profile) for profile in profiles])
        return
    width = max(len(profile.id) for profile in profiles)
    for profile in profiles:
        show(f"{profile.id.ljust(width)}  {profile.model.display_name}: {', '.join(profile.keys) or 'token grants'}\n")


def show_profile(name: str, directories: Iterable[Path], *, as_json: bool) -> None:
    """One profile: keys, where they stand in a request, endpoints, programs."""
    profile = _catalogue(directories).find(name)
    if profile is None:
        fail(f"there is no profile `{name}`; `egress profiles list` names them", ExitCode.INVALID)
    facts = _facts(profile)
    if as_json:
        show_json(facts)
        return
    show(f"{profile.id}: {profile.model.display_name}\n")
    if profile.model.description:
        show(f"  {profile.model.description}\n")
    for one in profile.model.credentials:
        keys = ", ".join(one.env_vars) or "token grant"
        show(f"  {one.name}: {keys}{' (required)' if one.required else ''}{_placed(one.auth_style, one.header_name)}\n")
    for endpoint in profile.model.endpoints:
        ports = ",".join(map(str, endpoint.effective_ports))
        access = endpoint.access or ("rules" if endpoint.rules else "no access")
        show(f"  {endpoint.host}:{ports}{endpoint.path} {endpoint.protocol} {access}\n")
    if not profile.model.endpoints:
        show("  no endpoints: bind it with `credential_binding` in the policy, or give the instance `endpoints`\n")


def lint_profiles(paths: Iterable[Path], *, as_json: bool) -> ExitCode:
    """Every problem of these files and directories, warnings included."""
    found: list[Diagnostic] = []
    for path in paths:
        if path.is_dir():
            profiles, problems = read_directory(path)
            found += problems
            found += [one for profile in profiles for one in _endpoint_problems(profile)]
        else:
            found += _problems(path)
    fine = not has_errors(found)
    if as_json:
        show_json({"ok": fine, "diagnostics": [diagnostic_json(one) for one in found]})
    else:
        complain(found)
    return ExitCode.FINE if fine else ExitCode.INVALID


def _problems(file: Path) -> Iterable[Diagnostic]:
    profile = read_file(file)
    return (*lint(profile), *_endpoint_problems(profile)) if isinstance(profile, Profile) else profile


def _endpoint_problems(profile: Profile) -> Iterable[Diagnostic]:
    """What the policy would say of the profile's endpoints."""
    if not profile.model.endpoints:
        return ()
    document = entry_document("profile", profile.document.part(("endpoints",)), profile.binaries)
    return compile_policy([document]).diagnostics


def directories_of(config: Path | None, given: Iterable[Path]) -> list[Path]:
    """Directories of own profiles: those that are named, or those of the providers file."""
    named = list(given)
    file = operator_settings(config).providers.file if not named else None
    if file is None:
        return named
    from egress.credentials.providers import profile_directories  # noqa: PLC0415

    return profile_directories(file)


def _catalogue(directories: Iterable[Path]) -> Catalogue:
    own: list[Profile] = []
    for directory in directories:
        profiles, problems = read_directory(directory)
        complain(problems)
        own += profiles
    return Catalogue(own)


def _placed(style: str, header: str) -> str:
    match style:
        case "":
            return ""
        case "header" | "bearer":
            return f", {style} in {header}"
        case _:
            return f", {style}"


def _facts(profile: Profile) -> dict[str, object]:
    model = profile.model
    return {
        "id": model.id,
        "display_name": model.display_name,
        "category": model.category,
        "credentials": [
            {"name": one.name, "keys": one.env_vars, "required": one.required, "auth_style": one.auth_style}
            for one in model.credentials
        ],
        "endpoints": [
            {"host": one.host, "ports": one.effective_ports, "path": one.path, "protocol": one.protocol}
            for one in model.endpoints
        ],
        "binaries": profile.binaries,
    }
