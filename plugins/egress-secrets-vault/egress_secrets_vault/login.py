"""How Vault is told who asks: a token that is given, or one that a login gives, which is kept for most of its lease."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from egress.sdk.secrets import (
    BadSpec,
    HttpFailure,
    HttpReply,
    Secret,
    SecretSource,
    SourceContext,
    SourceUnavailable,
    TlsOptions,
)
from egress.sdk.spec import Spec

REPLY_BYTES = 256 * 1024
CALL_SECONDS = 20.0
KEPT = 2 / 3
"""Part of a lease after which it is renewed, or a token asked for anew."""
_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount/token"


@dataclass(frozen=True, slots=True)
class Server:
    """Where Vault is and how it is reached."""

    url: str
    namespace: str
    tls: TlsOptions | None
    context: SourceContext

    @staticmethod
    def of(spec: Spec, context: SourceContext) -> "Server":
        """`addr`, else `VAULT_ADDR`; `namespace`, else `VAULT_NAMESPACE`. Raises `BadSpec`."""
        url = spec.url("addr", context.environment.get("VAULT_ADDR", "")).rstrip("/")
        if urlsplit(url).query:
            raise BadSpec("must be a URL without a query", ("addr",))
        return Server(url, spec.text("namespace", context.environment.get("VAULT_NAMESPACE", "")), _tls(spec, context),
                      context)  # fmt: skip

    async def call(self, method: str, path: str, token: Secret | None, given: object = None) -> Mapping[str, Any]:
        """The JSON object of a reply. Raises `SourceUnavailable`."""
        headers = {"X-Vault-Request": "true"}
        if token is not None:
            headers["X-Vault-Token"] = token.reveal()
        if self.namespace:
            headers["X-Vault-Namespace"] = self.namespace
        if given is not None:
            headers["Content-Type"] = "application/json"
        try:
            reply = await self.context.http.request(
                method,
                f"{self.url}/v1/{path}",
                headers=headers,
                body=json.dumps(given).encode() if given is not None else b"",
                timeout=CALL_SECONDS,
                max_bytes=REPLY_BYTES,
                tls=self.tls,
            )
        except HttpFailure:
            raise SourceUnavailable("unreachable") from None
        return _read(reply)


def _read(reply: HttpReply) -> Mapping[str, Any]:
    if reply.status in (403, 404):
        raise SourceUnavailable({403: "denied", 404: "not_found"}[reply.status])
    if reply.status == 503:
        raise SourceUnavailable("sealed")
    if not 200 <= reply.status < 300:
        raise SourceUnavailable(f"http_{reply.status}")
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise SourceUnavailable("malformed_reply")
    return found


def _tls(spec: Spec, context: SourceContext) -> TlsOptions | None:
    if "tls" not in spec:
        return None
    names = ("ca_file", "client_cert", "client_key")
    files = Spec(spec.mapping("tls"), names)
    return TlsOptions(*[context.base / files.text(name) if name in files else None for name in names])


def path_of(text: str, key: str) -> str:
    """A path below `/v1/`, encoded. Raises `BadSpec` for one that could leave its mount."""
    parts = text.strip("/").split("/")
    if not all(parts) or any(part in (".", "..") for part in parts):
        raise BadSpec("must be a path such as `team/service`", (key,))
    return "/".join(quote(part, safe="") for part in parts)


@dataclass(frozen=True, slots=True)
class _Request:
    """A login: where, what is said in clear, and the sources of the rest. Without a path the token is there already."""

    path: str
    given: Mapping[str, str]
    secrets: Mapping[str, SecretSource]


class Login:
    """The token for calls. Raises `BadSpec` when it is made."""

    def __init__(self, spec: Spec, server: Server) -> None:
        method, fields = _method(spec)
        self._server = server
        self._request = _METHODS[method](fields, server)
        self._held: Secret | None = None
        self._until = 0.0

    async def token(self) -> Secret:
        """Raises `SourceUnavailable`."""
        now = self._server.context.clock.monotonic()
        if self._held is not None and now < self._until:
            return self._held
        request = self._request
        secrets = {name: (await source.fetch()).values[""].reveal().strip() for name, source in request.secrets.items()}
        if not request.path:
            return Secret(secrets["token"])
        found = await self._server.call("POST", request.path, None, {**request.given, **secrets})
        auth = found.get("auth")
        token, lease = (auth.get("client_token"), auth.get("lease_duration")) if isinstance(auth, dict) else (None, 0)
        if not isinstance(token, str) or not token:
            raise SourceUnavailable("malformed_reply")
        self._held = Secret(token)
        self._until = now + lease * KEPT if isinstance(lease, int) and lease > 0 else float("inf")
        return self._held

    def forget(self) -> None:
        """The token was refused: the next one is asked for anew."""
        self._held = None

    @property
    def can_repeat(self) -> bool:
        """Would another login give another token?"""
        return self._held is not None


def _method(spec: Spec) -> tuple[str, Mapping[str, object]]:
    """`token`, or `{approle: {…}}`."""
    given = spec.raw("auth") or "token"
    if isinstance(given, str):
        given = {given: {}}
    name, fields = next(iter(given.items())) if isinstance(given, dict) and len(given) == 1 else ("", {})
    if name not in _METHODS or not isinstance(fields, dict):
        raise BadSpec(f"must be one of {', '.join(_METHODS)}, with what it needs below it", ("auth",))
    return name, fields


def _token(fields: Mapping[str, object], server: Server) -> _Request:
    """A source; else `VAULT_TOKEN`, else the file of Vault's own command."""
    context = server.context
    given: object = fields
    if not fields:
        given = {"env": "VAULT_TOKEN"} if "VAULT_TOKEN" in context.environment else {"file": "~/.vault-token"}
    try:
        return _Request("", {}, {"token": context.source(given)})
    except BadSpec as fault:
        raise BadSpec(fault.message, ("auth", "token", *fault.path)) from None


def _approle(fields: Mapping[str, object], server: Server) -> _Request:
    spec = Spec(fields, ("role_id", "secret_id", "mount"))
    secrets = {"secret_id": spec.source("secret_id", server.context)} if "secret_id" in spec else {}
    return _Request(_login_path(spec, "approle"), {"role_id": spec.text("role_id")}, secrets)


def _kubernetes(fields: Mapping[str, object], server: Server) -> _Request:
    spec = Spec(fields, ("role", "jwt", "mount"))
    projected = {"file": {"path": _SERVICE_ACCOUNT, "allow_permissive": True}}
    jwt = spec.source("jwt", server.context) if "jwt" in spec else server.context.source(projected)
    return _Request(_login_path(spec, "kubernetes"), {"role": spec.text("role")}, {"jwt": jwt})


def _jwt(fields: Mapping[str, object], server: Server) -> _Request:
    spec = Spec(fields, ("role", "jwt", "mount"))
    role = {"role": spec.text("role")} if "role" in spec else {}
    return _Request(_login_path(spec, "jwt"), role, {"jwt": spec.source("jwt", server.context)})


def _cert(fields: Mapping[str, object], server: Server) -> _Request:
    if server.tls is None or server.tls.client_cert is None:
        raise BadSpec("needs `tls: {client_cert: FILE}`", ("auth",))
    spec = Spec(fields, ("name", "mount"))
    return _Request(_login_path(spec, "cert"), {"name": spec.text("name")} if "name" in spec else {}, {})


def _login_path(spec: Spec, default: str) -> str:
    return f"auth/{path_of(spec.text('mount', default), 'mount')}/login"


_METHODS: Mapping[str, Callable[[Mapping[str, object], Server], _Request]] = {
    "token": _token,
    "approle": _approle,
    "kubernetes": _kubernetes,
    "jwt": _jwt,
    "cert": _cert,
}
