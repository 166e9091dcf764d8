"""The `keyring` source: one password of the desktop's keyring. The library blocks and may ask the user, so that it runs
on a thread; its texts may name what it found and are not passed on."""

from collections.abc import Mapping

from egress.sdk.secrets import Fetched, RunBlocking, SecretSource, SourceContext, SourceUnavailable
from egress.sdk.spec import Spec


def keyring(fields: Mapping[str, object], context: SourceContext) -> SecretSource:
    """`{service, username}`. Raises `BadSpec`."""
    spec = Spec(fields, ("service", "username"))
    return _Entry(spec.text("service"), spec.text("username"), context.run_blocking)


class _Entry:
    def __init__(self, service: str, username: str, run: RunBlocking) -> None:
        self._service = service
        self._username = username
        self._run = run

    async def fetch(self) -> Fetched:
        """Raises `SourceUnavailable`."""
        return Fetched.one(await self._run(self._read))

    def _read(self) -> str:
        import keyring as library  # noqa: PLC0415 - it looks for a backend when it is imported
        from keyring.errors import KeyringError, KeyringLocked, NoKeyringError  # noqa: PLC0415

        try:
            found = library.get_password(self._service, self._username)
        except NoKeyringError:
            raise SourceUnavailable("no_keyring") from None
        except KeyringLocked:
            raise SourceUnavailable("locked") from None
        except KeyringError:
            raise SourceUnavailable("refused") from None
        if found is None:
            raise SourceUnavailable("not_found")
        return found
