"""What this installation remembers of its credentials between starts: the key of its handles, its own id, the ids of
providers and what was revoked. No value."""

import contextlib
import json
import os
import secrets
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from egress.credentials.handles import KEY_BYTES
from egress.model.errors import DependencyError

_DIRECTORY = "credentials"
_KEY, _STATE = "handle.key", "state.json"


class Installation:
    """Reads everything at once; writes each change before it takes effect. Raises `DependencyError`."""

    def __init__(self, state_dir: Path) -> None:
        self._directory = state_dir / _DIRECTORY
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.key = self._own_key()
            found = self._read()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "is damaged"
            raise DependencyError("credential state", f"{self._directory}: {reason}") from None
        self.sandbox_id = str(found.get("sandbox_id") or secrets.token_hex(16))
        self._providers = _texts(found.get("providers"))
        self._revocations = _counts(found.get("revocations"))
        self._withdrawn = set(_names(found.get("withdrawn")))

    @property
    def directory(self) -> Path:
        return self._directory

    def provider_id(self, name: str) -> str:
        """A random id, the same for as long as this installation knows the name."""
        found = self._providers.get(name)
        if found is None:
            found = self._providers[name] = secrets.token_hex(16)
            self._write()
        return found

    def revocations(self, provider: str, key: str) -> int:
        return self._revocations.get(f"{provider}:{key}", 0)

    def is_withdrawn(self, provider: str, key: str) -> bool:
        return f"{provider}:{key}" in self._withdrawn

    def revoke(self, provider: str, keys: Iterable[str]) -> None:
        """Withdraw keys, so that nothing issued for them is ever good again."""
        for name in [f"{provider}:{key}" for key in keys]:
            self._revocations[name] = self._revocations.get(name, 0) + 1
            self._withdrawn.add(name)
        self._write()

    def restore(self, provider: str, keys: Iterable[str]) -> None:
        """Let keys have values again, under other handles than before."""
        names = {f"{provider}:{key}" for key in keys} & self._withdrawn
        if names:
            self._withdrawn -= names
            self._write()

    def _own_key(self) -> bytes:
        path = self._directory / _KEY
        with contextlib.suppress(FileNotFoundError):
            key = path.read_bytes()
            if len(key) != KEY_BYTES or stat.S_IMODE(path.stat().st_mode) & 0o077:
                raise ValueError("not a key, or open to others")
            return key
        key = secrets.token_bytes(KEY_BYTES)
        write_private(path, key)
        return key

    def _read(self) -> Mapping[str, object]:
        try:
            found = json.loads((self._directory / _STATE).read_bytes())
        except FileNotFoundError:
            return {}
        if not isinstance(found, dict):
            raise ValueError("not an object")  # noqa: TRY004 - damage, not a programming error
        return found

    def _write(self) -> None:
        state = {
            "sandbox_id": self.sandbox_id,
            "providers": self._providers,
            "revocations": self._revocations,
            "withdrawn": sorted(self._withdrawn),
        }
        try:
            write_private(self._directory / _STATE, json.dumps(state, indent=1).encode())
        except OSError as error:
            raise DependencyError("credential state", f"{self._directory}: {error.strerror}") from None


def write_private(path: Path, data: bytes) -> None:
    """Replace a file as a whole, readable by its owner alone, on the disk before it is seen. Raises `OSError`."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _texts(value: object) -> dict[str, str]:
    return {str(name): str(text) for name, text in value.items()} if isinstance(value, dict) else {}


def _counts(value: object) -> dict[str, int]:
    if not isinstance(value, dict):
        return {}
    return {str(name): count for name, count in value.items() if isinstance(count, int)}


def _names(value: object) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list) else []
