"""Access tokens by a refresh token or by client credentials; a refresh token that the endpoint replaced is written back
before the access token is used."""

import hashlib
import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path

from egress.credentials.installation import write_private
from egress.credentials.sources.token_call import Endpoint, ask, basic_authorization, read_endpoint
from egress.sdk.secrets import BadSpec, Fetched, Secret, SecretSource, SourceContext, SourceUnavailable
from egress.sdk.spec import Spec

log = logging.getLogger(__name__)

_KEYS = (
    "strategy", "token_url", "tenant_id", "client_id", "client_secret", "client_auth", "refresh_token", "scopes",
    "audience", "max_lifetime", "tls", "write_back",
)  # fmt: skip
_STRATEGIES = {
    "refresh_token": "refresh_token",
    "oauth2_refresh_token": "refresh_token",
    "client_credentials": "client_credentials",
    "oauth2_client_credentials": "client_credentials",
}
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,127}\Z")


def oauth2(fields: Mapping[str, object], context: SourceContext) -> SecretSource:
    """`{strategy, token_url | tenant_id, client_id, client_secret, client_auth: body|basic, refresh_token, scopes,
    audience, max_lifetime, tls, write_back: {file}}`; the two secrets are sources."""
    spec = Spec(fields, _KEYS)
    strategy = _STRATEGIES[_strategy(spec)]
    client = _Client(spec, context)
    if strategy == "client_credentials":
        for key in ("refresh_token", "write_back"):
            if key in spec:
                raise BadSpec("means nothing for client credentials", (key,))
        if client.secret is None and client.endpoint.tls is None:
            raise BadSpec("is missing: write a source, such as `{file: PATH}`", ("client_secret",))
        return _ClientCredentials(client)
    return _RefreshToken(client, spec.source("refresh_token", context), _WriteBack(spec, fields, context))


def _strategy(spec: Spec) -> str:
    default = "refresh_token" if "refresh_token" in spec else "client_credentials"
    return spec.choice("strategy", tuple(_STRATEGIES), default)


class _Client:
    """Who asks, where, for which scopes."""

    def __init__(self, spec: Spec, context: SourceContext) -> None:
        self.context = context
        self.endpoint = _endpoint(spec, context)
        self._id = spec.text("client_id")
        self.secret = spec.source("client_secret", context) if "client_secret" in spec else None
        self._basic = spec.choice("client_auth", ("body", "basic"), "body") == "basic"
        if self._basic and self.secret is None:
            raise BadSpec("`basic` needs a `client_secret`", ("client_auth",))
        self._more = {"scope": read_scopes(spec), "audience": spec.text("audience", "")}

    async def ask(self, form: Mapping[str, str]) -> tuple[Fetched, Secret | None]:
        """The token, and the refresh token that replaces the one in use. Raises `SourceUnavailable`."""
        secret = await fetch_one(self.secret) if self.secret is not None else ""
        form = {**form, **self._more}
        authorization = ""
        if self._basic:
            authorization = basic_authorization(self._id, secret)
        else:
            form |= {"client_id": self._id, "client_secret": secret}
        token = await ask(self.context.http, self.endpoint, form, authorization)
        return Fetched({"": token.access}, self.context.clock.now() + token.life), token.refresh


def _endpoint(spec: Spec, context: SourceContext) -> Endpoint:
    if "tenant_id" not in spec:
        return read_endpoint(spec, context)
    tenant = spec.text("tenant_id")
    if not _TENANT.match(tenant):
        raise BadSpec("must be a tenant's id or domain", ("tenant_id",))
    url = f"https://login.microsoftonline.com/{tenant}/oauth2/v2.0/token"
    known = {key: spec.raw(key) for key in ("max_lifetime", "tls") if key in spec}
    return read_endpoint(Spec({**known, "token_url": url}, ("token_url", "max_lifetime", "tls")), context)


def read_scopes(spec: Spec) -> str:
    """A list, or a text split at blanks and commas."""
    items = spec.texts("scopes", ())
    return " ".join(word for item in items for word in item.replace(",", " ").split())


async def fetch_one(source: SecretSource) -> str:
    """The text of a nested source."""
    return (await source.fetch()).values[""].reveal()


class _ClientCredentials:
    def __init__(self, client: _Client) -> None:
        self._client = client

    async def fetch(self) -> Fetched:
        fetched, _ = await self._client.ask({"grant_type": "client_credentials"})
        return fetched


class _RefreshToken:
    def __init__(self, client: _Client, source: SecretSource, write_back: "_WriteBack") -> None:
        self._client = client
        self._source = source
        self._write_back = write_back

    async def fetch(self) -> Fetched:
        token = await self._write_back.current(self._source)
        fetched, rotated = await self._client.ask({"grant_type": "refresh_token", "refresh_token": token.reveal()})
        if rotated is not None and rotated != token:
            await self._write_back.keep(rotated)
        return fetched


class _WriteBack:
    """Where a replaced refresh token is kept: in `write_back.file`, in the file it came from, or in the state directory
    beside a digest of the one that it began with, so that a new beginning counts."""

    def __init__(self, spec: Spec, fields: Mapping[str, object], context: SourceContext) -> None:
        self._run = context.run_blocking
        self._unwritten: Secret | None = None
        self._kept: SecretSource | None = None
        self._seed = ""
        named = Spec(spec.mapping("write_back"), ("file",))
        origin = fields.get("refresh_token")
        plain = origin.get("file") if isinstance(origin, dict) and len(origin) == 1 else None
        if "file" in named:
            self._path = context.base / Path(named.text("file")).expanduser()
            self._kept = context.source({"file": str(self._path)})
        elif isinstance(plain, str) and not plain.startswith("$"):
            self._path = context.base / Path(plain).expanduser()
        else:
            text = json.dumps(fields, sort_keys=True, default=str)
            name = f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.refresh"
            self._path = context.state_dir / "credentials" / name
            self._kept = context.source({"file": str(self._path)})
            self._seed = "?"

    async def current(self, source: SecretSource) -> Secret:
        """The refresh token to use: the last one that was kept, or else the source's."""
        if self._unwritten is not None:
            return self._unwritten
        kept = await _if_there(self._kept) if self._kept is not None else ""
        if kept and not self._seed:
            return Secret(kept)
        first = await fetch_one(source)
        if self._seed:
            self._seed = hashlib.sha256(first.encode()).hexdigest()
        seed, _, token = kept.partition("\n")
        return Secret(token) if token and seed == self._seed else Secret(first)

    async def keep(self, token: Secret) -> None:
        """Write it. What cannot be written is kept in memory, where a restart loses it."""
        text = f"{self._seed}\n{token.reveal()}" if self._seed else token.reveal()
        try:
            await self._run(_write, self._path, text.encode())
            self._unwritten = None
        except OSError:
            self._unwritten = token
            log.error("a replaced refresh token could not be written", extra={"path": str(self._path)})  # noqa: TRY400


async def _if_there(source: SecretSource) -> str:
    try:
        return await fetch_one(source)
    except SourceUnavailable as unavailable:
        if unavailable.kind in ("not_found", "empty"):
            return ""
        raise


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, data)
