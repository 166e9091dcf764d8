"""The files a candidate comes from, and their content as one digest: what is watched, and what counts as a change."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from egress.config.settings import Settings

SUFFIXES = (".yaml", ".yml")


def policy_files(path: Path) -> list[Path]:
    """The file itself; a directory stands for its YAML files by name."""
    try:
        inside = list(path.iterdir()) if path.is_dir() else [path]
    except OSError:
        return [path]  # reading it will say why not
    if inside == [path]:
        return inside
    return sorted(item for item in inside if item.suffix in SUFFIXES and not item.name.startswith("."))


def files_of(settings: Settings, file: Path | None) -> tuple[Path, ...]:
    """Everything that `settings`, read from `file`, is made of. Directories count too: a file may be added."""
    found = [] if file is None else [file]
    for paths in settings.policy_files.values():
        for path in paths:
            found += [path, *policy_files(path)]
    if settings.providers.file is not None:
        from egress.credentials.providers import profile_files  # noqa: PLC0415 - only where there are providers

        found += profile_files(settings.providers.file)
    return tuple(dict.fromkeys([*found, *secret_files(settings)]))


def secret_files(settings: Settings) -> Iterator[Path]:
    """Files whose content is used as it stands: credentials, and the authorities of origins and proxies."""
    for agent in settings.agents:
        if agent.match.proxy_auth is not None:
            yield agent.match.proxy_auth.password_file
    if settings.providers.file is not None:
        yield settings.providers.file
    if settings.tls.upstream_ca_file is not None:
        yield settings.tls.upstream_ca_file
    for proxy in settings.upstream_proxy.proxies.values():
        auth = proxy.auth
        named = (proxy.ca_file, proxy.client_cert, auth.basic_file, auth.digest_file, auth.bearer_file)
        yield from (path for path in named if path is not None)


def fingerprint(files: Iterable[Path]) -> str:
    """A digest over the content of the files; one that cannot be read counts as such."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(str(file).encode() + b"\0")
        try:
            content = b"\n".join(map(bytes, sorted(file.iterdir()))) if file.is_dir() else file.read_bytes()
        except OSError as failure:
            content = f"unreadable {failure.errno}".encode()
        digest.update(b"%d\0%b" % (len(content), content))
    return digest.hexdigest()
