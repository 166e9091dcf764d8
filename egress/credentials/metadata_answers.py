"""What the metadata server answers, as a pure function of the question and of what is known now.

Tokens are never in it: an answer carries placeholders, which become values on the API call like any other credential
(token-grants.md section 8). Two answers need waiting for and are therefore returned as a wish: `TokenWanted` and
`IdentityWanted`.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import unquote

from egress.credentials.metadata_facts import AWS_PATH, AZURE_PATH, Clouds, GoogleFacts
from egress.credentials.snapshot import CredentialSnapshot
from egress.http.query import QueryPairs

GOOGLE_PREFIX = "/computeMetadata/v1"
GOOGLE_KEYS = ("GCP_SA_ACCESS_TOKEN", "GCP_ADC_ACCESS_TOKEN")
AWS_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
AWS_SESSION_KEY = "AWS_SESSION_TOKEN"
AZURE_KEYS = ("AZURE_ACCESS_TOKEN",)
UNKNOWN_LIFE = 3600
"""Seconds told for a token whose end is unknown."""

_SCOPE = re.compile(r"https://www\.googleapis\.com/auth/[a-z0-9._-]{1,64}\Z")

TEXT = "text/plain"
HTML = "text/html"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Token:
    """A credential as the workload may hold it. `expires` is seconds since the epoch, None when unknown."""

    provider: str
    placeholder: str
    expires: float | None = None

    def left(self, now: float) -> int:
        """Whole seconds it is still good for."""
        return UNKNOWN_LIFE if self.expires is None else int(self.expires - now)


@dataclass(frozen=True, slots=True)
class MetadataView:
    """What is known now. `configured`: there is a resolver at all; `tokens` by environment key."""

    configured: bool = False
    clouds: Clouds = field(default_factory=Clouds)
    tokens: Mapping[str, Token] = field(default_factory=dict)

    @property
    def facts(self) -> GoogleFacts:
        return self.clouds.google

    @staticmethod
    def of(snapshot: CredentialSnapshot, agent: str, clouds: Clouds) -> "MetadataView":
        """What one agent may be told: of each provider that serves it, the placeholders."""
        named = snapshot.placeholders(agent)
        tokens = {key: Token(one.provider, named[key], one.expires) for key, one in snapshot.served(agent).items()}
        return MetadataView(snapshot.revision != 0, clouds, tokens)

    def token(self, keys: tuple[str, ...], now: float) -> Token | None:
        """The first of `keys` that is held and not yet over."""
        held = (self.tokens.get(key) for key in keys)
        return next((token for token in held if token is not None and token.left(now) > 0), None)


@dataclass(frozen=True, slots=True)
class Question:
    """One request: `path` undecoded, without query and without one trailing slash; names of `fields` in lower case."""

    method: str
    path: str
    query: QueryPairs
    fields: Mapping[str, tuple[str, ...]]

    def parameter(self, name: str) -> str | None:
        return next((value for key, value in self.query if key == name), None)


@dataclass(frozen=True, slots=True)
class Answer:
    """`route` names what was asked without repeating it; `served` is true when a placeholder or token is inside."""

    status: int
    kind: str
    body: bytes
    route: str = "other"
    served: bool = False
    scopes: tuple[str, ...] = ()
    """Scopes that were asked for, as far as they are known ones."""
    flavor: bool = True
    """The reply says `Metadata-Flavor: Google`."""


@dataclass(frozen=True, slots=True)
class TokenWanted:
    """The answer is `render` of a view that was given the time to hold a token of `keys` with some life left."""

    keys: tuple[str, ...]
    render: Callable[[MetadataView, float], Answer]


@dataclass(frozen=True, slots=True)
class IdentityWanted:
    """A real identity token for a listed audience."""

    audience: str


type Outcome = Answer | TokenWanted | IdentityWanted


def answer(question: Question, view: MetadataView) -> Outcome:
    """What to reply, or what it takes to know it."""
    if question.method != "GET":
        return Answer(405, HTML, b"Method Not Allowed")
    if "x-forwarded-for" in question.fields:  # a request that some server was talked into passing on
        return Answer(403, HTML, b"Forbidden")
    if view.clouds.aws and question.path == AWS_PATH:
        return TokenWanted(AWS_KEYS, _aws)
    if view.clouds.azure and question.path == AZURE_PATH:
        return _azure(question)
    if not any(value.lower() == "google" for value in question.fields.get("metadata-flavor", ())):
        return Answer(403, HTML, b"Forbidden")
    return _google(question, view)


def _google(question: Question, view: MetadataView) -> Outcome:
    if question.path in ("", "/computeMetadata", GOOGLE_PREFIX):
        return Answer(200, TEXT, b"computeMetadata/\n", "index")
    if not question.path.startswith(GOOGLE_PREFIX + "/"):
        return _not_found()
    path = question.path.removeprefix(GOOGLE_PREFIX + "/")
    accounts = "instance/service-accounts"
    if path.startswith(accounts + "/"):
        account, _, leaf = path.removeprefix(accounts + "/").partition("/")
        known = unquote(account) in {"default", view.facts.email or "default"}
        return _account(leaf, question, view) if known else _not_found()
    if path == accounts and question.parameter("recursive") == "true":
        names = ("default", view.facts.email) if view.facts.email else ("default",)
        return _json(200, {name: _account_record(view.facts) for name in names}, "service-accounts")
    if path == accounts:
        return Answer(200, TEXT, b"default/\n", "service-accounts")
    if path == "project/project-id":
        return _fact(view.facts.project_id, "project-id", question, view)
    return _plain(path, question, view)


def _plain(path: str, question: Question, view: MetadataView) -> Answer:
    """Leaves that any client may read, resolver or not."""
    if path == "instance":
        return Answer(200, TEXT, b"service-accounts/\n", "instance")
    if path == "instance/attributes":
        return Answer(200, TEXT, b"", "attributes")
    if path == "universe/universe-domain":
        return _leaf("googleapis.com", "universe-domain", question)
    value = view.facts.leaf(path)
    return _leaf(value, "instance", question) if value else _not_found()


def _account(leaf: str, question: Question, view: MetadataView) -> Outcome:
    """One account, asked for as `default` or by its e-mail address: google-auth remembers the address of the first
    answer and asks for that ever after."""
    match leaf:
        case "":
            if question.parameter("recursive") == "true":
                return _json(200, _account_record(view.facts), "account")
            return Answer(200, TEXT, b"aliases\nemail\nscopes\ntoken\n", "account")
        case "token":
            return _token(question, view)
        case "email":
            return _fact(view.facts.email, "email", question, view)
        case "scopes":
            return _leaf("\n".join(view.facts.granted), "scopes", question)
        case "aliases":
            return Answer(200, TEXT, b"default\n", "aliases")
        case "identity":
            return _identity(question, view)
    return _not_found()


def _account_record(facts: GoogleFacts) -> Mapping[str, object]:
    """Without a known address the account calls itself `default`, so that the same path is asked again."""
    return {"aliases": ["default"], "email": facts.email or "default", "scopes": list(facts.granted)}


def _token(question: Question, view: MetadataView) -> Outcome:
    asked = tuple(scope for scope in (question.parameter("scopes") or "").split(",") if scope)
    if view.facts.scopes and not set(asked) <= set(view.facts.scopes):
        return _json(400, {"error": "invalid_scope"}, "token")

    def render(current: MetadataView, now: float) -> Answer:
        token = current.token(GOOGLE_KEYS, now)
        if token is None:
            return _no_token(current, "token")
        body = {"access_token": token.placeholder, "expires_in": token.left(now), "token_type": "Bearer"}
        return _json(200, body, "token", served=True, scopes=_nameable(asked))

    return TokenWanted(GOOGLE_KEYS, render)


def _nameable(scopes: tuple[str, ...]) -> tuple[str, ...]:
    """Those that look like scopes: the rest is the workload's own text, which events do not repeat."""
    return tuple(scope for scope in scopes[:16] if _SCOPE.match(scope))


def _identity(question: Question, view: MetadataView) -> Outcome:
    audience = question.parameter("audience")
    if not audience:
        return _json(400, {"error": "audience_missing"}, "identity")
    if audience not in view.clouds.audiences:
        detail = "identity tokens are given for the audiences of metadata_server.id_tokens only"
        return _json(404, {"error": "not_found", "error_description": detail}, "identity")
    return IdentityWanted(audience)


def identity_answer(token: str | None) -> Answer:
    """`token` is the real thing; None when it could not be had."""
    if token is None:
        return _json(503, {"error": "token_unavailable"}, "identity")
    return Answer(200, TEXT, token.encode(), "identity", served=True)


def _fact(value: str, route: str, question: Question, view: MetadataView) -> Answer:
    if not view.configured:
        return Answer(503, TEXT, b"", route)
    return _leaf(value, route, question) if value else _not_found()


def _leaf(value: str, route: str, question: Question) -> Answer:
    if question.parameter("alt") == "json":
        return Answer(200, JSON, json.dumps(value).encode(), route)
    return Answer(200, TEXT, value.encode(), route)


def _not_found() -> Answer:
    return _json(404, {"error": "not_found"}, "other")


def _no_token(view: MetadataView, route: str) -> Answer:
    return _json(503, {"error": "token_unavailable" if view.configured else "credentials_unavailable"}, route)


def _json(
    status: int, body: Mapping[str, object], route: str, *, served: bool = False, scopes: tuple[str, ...] = ()
) -> Answer:
    return Answer(status, JSON, json.dumps(body).encode(), route, served, scopes)


def _aws(view: MetadataView, now: float) -> Answer:
    """Container credentials: keys that sign nothing by themselves, with the real end, so that SDKs come back in time.

    Both keys or none; without a session token the member is empty, since SDKs insist on it.
    """
    key_id, secret = (view.token((key,), now) for key in AWS_KEYS)
    if key_id is None or secret is None:
        return _no_token(view, "aws")
    session = view.token((AWS_SESSION_KEY,), now)
    parts = (key_id, secret) if session is None else (key_id, secret, session)
    until = datetime.fromtimestamp(int(now) + min(part.left(now) for part in parts), UTC)
    body = {
        "AccessKeyId": key_id.placeholder,
        "SecretAccessKey": secret.placeholder,
        "Token": session.placeholder if session else "",
        "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return Answer(200, JSON, json.dumps(body).encode(), "aws", served=True, flavor=False)


def _azure(question: Question) -> Outcome:
    """The shape of Azure's instance metadata: numbers are text there."""
    if not any(value.lower() == "true" for value in question.fields.get("metadata", ())):
        return Answer(400, JSON, b'{"error":"invalid_request"}', "azure", flavor=False)
    resource = question.parameter("resource")
    if not resource or not question.parameter("api-version"):
        return Answer(400, JSON, b'{"error":"invalid_request"}', "azure", flavor=False)

    def render(view: MetadataView, now: float) -> Answer:
        token = view.token(AZURE_KEYS, now)
        if token is None:
            return _no_token(view, "azure")
        left = token.left(now)
        body = {
            "access_token": token.placeholder,
            "expires_in": str(left),
            "expires_on": str(int(now) + left),
            "not_before": str(int(now)),
            "resource": resource,
            "token_type": "Bearer",
        }
        return Answer(200, JSON, json.dumps(body).encode(), "azure", served=True, flavor=False)

    return TokenWanted(AZURE_KEYS, render)
