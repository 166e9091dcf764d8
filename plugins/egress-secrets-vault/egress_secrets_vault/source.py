"""The `vault` source: a field of a secret in HashiCorp Vault or OpenBao, over its HTTP API. Secrets with a lease are
renewed while they can be, and read anew after that."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from egress.sdk.secrets import Fetched, Secret, SecretSource, SourceContext, SourceUnavailable
from egress.sdk.spec import Spec
from egress_secrets_vault.login import KEPT, Login, Server, path_of

_KEYS = ("addr", "mount", "path", "field", "kv", "version", "namespace", "auth", "tls")


def vault(fields: Mapping[str, object], context: SourceContext) -> SecretSource:
    """`{addr, mount, path, field, kv: 1|2, version, namespace, auth, tls}`. Without `field` every field of the secret
    is an output. Raises `BadSpec`."""
    spec = Spec(fields, _KEYS)
    server = Server.of(spec, context)
    mount, path = path_of(spec.text("mount", "secret"), "mount"), path_of(spec.text("path"), "path")
    kv = spec.number("kv", 1, 2, 2)
    where = f"{mount}/data/{path}" if kv == 2 else f"{mount}/{path}"
    if "version" in spec and kv == 2:
        where += f"?version={spec.number('version', 1, 1 << 31)}"
    return _Stored(where, kv, spec.text("field", ""), server, Login(spec, server))


@dataclass(frozen=True, slots=True)
class _Lease:
    """A secret that is good for some time, and may be prolonged."""

    id: Secret
    seconds: int
    fetched: Fetched


class _Stored:
    def __init__(self, where: str, kv: int, field: str, server: Server, login: Login) -> None:
        self._where = where
        self._kv = kv
        self._field = field
        self._server = server
        self._login = login
        self._lease: _Lease | None = None

    async def fetch(self) -> Fetched:
        """Raises `SourceUnavailable`."""
        lease, self._lease = self._lease, None
        if lease is not None:
            renewed = await self._renewed(lease)
            if renewed is not None:
                return renewed
        return self._taken(await self._asked("GET", self._where))

    async def _asked(self, method: str, path: str, given: object = None) -> Mapping[str, Any]:
        """One call; a token of a login that is refused is replaced once."""
        token = await self._login.token()
        try:
            return await self._server.call(method, path, token, given)
        except SourceUnavailable as unavailable:
            if unavailable.kind != "denied" or not self._login.can_repeat:
                raise
        self._login.forget()
        return await self._server.call(method, path, await self._login.token(), given)

    async def _renewed(self, lease: _Lease) -> Fetched | None:
        """The same values for longer; None when there is no more time to be had."""
        try:
            found = await self._asked(
                "PUT", "sys/leases/renew", {"lease_id": lease.id.reveal(), "increment": lease.seconds}
            )
        except SourceUnavailable:
            return None
        return self._leased(found, lease.fetched)

    def _taken(self, found: Mapping[str, Any]) -> Fetched:
        data = found.get("data")
        if self._kv == 2:
            data = data.get("data") if isinstance(data, dict) else None
        if not isinstance(data, dict):
            raise SourceUnavailable("not_found")  # a deleted version has no data
        texts = {name: Secret(value) for name, value in data.items() if isinstance(value, str)}
        if self._field:
            if self._field not in texts:
                raise SourceUnavailable("no_such_field")
            texts = {"": texts[self._field]}
        fetched = Fetched(texts, document=Secret(json.dumps(data)))
        return self._leased(found, fetched) or fetched

    def _leased(self, found: Mapping[str, Any], fetched: Fetched) -> Fetched | None:
        """What was fetched with the end of its lease. None without one, or with one that is over at once."""
        seconds, lease = found.get("lease_duration"), found.get("lease_id")
        if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds <= 0:
            return None
        now = self._server.context.clock.now()
        soon = now + seconds * KEPT
        if not isinstance(lease, str) or not lease:
            # Version 1 of the key-value store tells how often to look, not how long a value is good.
            return Fetched(fetched.values, None, soon, fetched.document)
        leased = Fetched(fetched.values, now + seconds, soon, fetched.document)
        if found.get("renewable") is True:
            self._lease = _Lease(Secret(lease), seconds, leased)
        return leased
