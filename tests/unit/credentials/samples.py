"""Heads, places and snapshots that the tests of credentials share."""

from egress.credentials.scope import Place, Scope, Selector
from egress.credentials.snapshot import Credential, CredentialSnapshot, Resolver
from egress.model.address import Origin, Port, Scheme, parse_host
from egress.model.body import NO_BODY
from egress.model.message import FieldLine, RequestHead
from egress.model.secret import Secret

P = "openshell:resolve:env:"
A = "OPENSHELL-RESOLVE-ENV-"
NOW = 1_000.0
HERE = Place("api.test", 443, "/v1/x", "GET", "default", ("/usr/bin/curl",))
ELSEWHERE = Place("other.test", 443, "/v1/x", "GET", "default", ("/usr/bin/curl",))
SCOPE = Scope((Selector.of("api.test", 443),))
ORIGIN = Origin(Scheme.HTTPS, parse_host("api.test"), Port(443))


def head(target: str = "/", *fields: FieldLine) -> RequestHead:
    path, mark, query = target.partition("?")
    return RequestHead("GET", ORIGIN, path, query if mark else None, fields, NO_BODY)


def config(key: str, text: str) -> Credential:
    """A value that is visible everywhere."""
    return Credential("settings", key, Secret(text), None)


def bound(key: str, text: str, identity: str = "one", handle: str = "", expires: float | None = None) -> Credential:
    return Credential("desk", key, Secret(text), SCOPE, expires, identity, handle)


def snapshot(*credentials: Credential, retain: str = "current") -> CredentialSnapshot:
    return CredentialSnapshot.empty().next(credentials, retain=retain)


def resolver(**texts: str) -> Resolver:
    """One that knows these values for every place; keys in upper case."""
    made = snapshot(*[config(key, text) for key, text in texts.items()]).resolver(HERE, NOW)
    assert made is not None
    return made
