"""Requests that ask an API for fresh credentials: what they return is not known in advance and so cannot be masked.

Two kinds: OAuth token requests (credentials.md 15.4) and AWS calls (sigv4.md 10).
"""

import re
from functools import cache
from urllib.parse import unquote_plus

from egress.credentials.aws.payload import value_of
from egress.credentials.aws.tables import MINTING_CALLS, MINTING_OPERATIONS
from egress.http.fields import list_members
from egress.model.body import FramingKind
from egress.model.limits import KIB
from egress.model.message import RequestHead
from egress.model.verdict import Denial, DenialCode, Stage

LOOK_BYTES = 64 * KIB
"""A form that is held for this look. A longer one streams through `FormWatch`."""

QUERY_SERVICES = frozenset(("iam", "redshift", "sts"))
"""Services that are asked by form and hand out credentials."""

_OPERATIONS = {service: frozenset(names) for service, names in MINTING_OPERATIONS.items()}
_OPERATIONS["cognito-identity"] = frozenset(
    ("getcredentialsforidentity", "getopenidtoken", "getopenidtokenfordeveloperidentity")
)
_OPERATIONS["s3express"] = _OPERATIONS["s3"]
_RPC_PATH = re.compile(r"/service/[^/]+/operation/([^/]+)/?\Z")
_FORM = b"application/x-www-form-urlencoded"

_OAUTH = Denial(
    Stage.CREDENTIALS, DenialCode.CREDENTIAL_MINTING_DENIED,
    "the request asks for fresh credentials, which would reach the workload unmasked; "
    "let the proxy ask: an `oauth2` source in providers.yaml, or a token grant",
    hints=("write an `oauth2` source or a token grant, or `deny_credential_minting: false` on the endpoint",),
)  # fmt: skip
_AWS = Denial(
    Stage.CREDENTIALS, DenialCode.CREDENTIAL_MINTING_DENIED,
    "the request asks AWS for fresh credentials, which would reach the workload unmasked; "
    "let the proxy ask: an `aws_session` source in providers.yaml",
    hints=("write an `aws_session` source, or `deny_credential_minting: false` on the endpoint",),
)  # fmt: skip


def mint_hold(head: RequestHead, service: str = "") -> int | None:
    """Ceiling of a body that must be complete for `minting`; None when the head says enough, or `FormWatch` reads on.

    `service` is the signing name of an AWS endpoint, empty for others.
    """
    if head.framing.empty or head.method != "POST":
        return None
    if service in QUERY_SERVICES:
        return LOOK_BYTES
    short = head.framing.kind is FramingKind.LENGTH and (head.framing.length or 0) <= LOOK_BYTES
    return LOOK_BYTES if short and _is_form(head) else None


def minting(head: RequestHead, body: bytes | None, service: str = "") -> Denial | None:
    """The refusal of a request that asks for credentials. `body` is None when it streams."""
    if service in _OPERATIONS and _asks_aws(head, body, service):
        return _AWS
    if head.method != "POST":
        return None
    in_query = head.query is not None and "grant_type" in _names(head.query)
    in_body = body is not None and _is_form(head) and "grant_type" in _names(body.decode("latin-1"))
    return _OAUTH if in_query or in_body else None


def _asks_aws(head: RequestHead, body: bytes | None, service: str) -> bool:
    asked = _operations(head, body, service)
    if not _OPERATIONS[service].isdisjoint(asked):
        return True
    if service in ("s3", "s3express"):
        if head.method == "GET" and head.query is not None and "session" in _names(head.query):
            return True
    elif body and service in QUERY_SERVICES and value_of(head, b"content-encoding"):
        return True  # a form that cannot be read may ask for anything
    return any(head.method == method and path.match(head.path) for method, path in _calls(service))


def _operations(head: RequestHead, body: bytes | None, service: str) -> set[str]:
    """Names of the operations that the request asks for, in every way AWS has to say it."""
    found = set()
    target = value_of(head, b"x-amz-target")
    if target is not None:
        found.add(target.rpartition(b".")[2].strip().decode("latin-1").lower())
    path = _RPC_PATH.match(head.path)
    if path is not None:
        found.add(path[1].lower())
    forms = [head.query or ""]
    if body and service in QUERY_SERVICES:
        forms.append(body.decode("latin-1"))
    for form in forms:
        pairs = [piece.partition("=") for piece in form.split("&")]
        found |= {unquote_plus(value).strip().lower() for name, _, value in pairs if _plain(name) == "action"}
    return found


@cache
def _calls(service: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((method, re.compile(path + r"/?\Z")) for method, path in MINTING_CALLS.get(service, ()))


def _is_form(head: RequestHead) -> bool:
    kind = value_of(head, b"content-type") or b""
    return kind.partition(b";")[0].strip().lower() == _FORM


def _names(form: str) -> set[str]:
    return {_plain(piece.partition("=")[0]) for piece in form.split("&")}


def _plain(name: str) -> str:
    return unquote_plus(name).strip().lower()


class FormWatch:
    """Reads the names of a streaming form and stops at one that asks for credentials. Holds at most one name."""

    __slots__ = ("_in_value", "_name")

    LONGEST = 3 * len(b"grant_type") + 8
    """Bytes of a name that may still turn out to be the one, percent-encoded throughout, with blanks."""

    def __init__(self) -> None:
        self._name = b""
        self._in_value = False

    @classmethod
    def of(cls, head: RequestHead) -> "FormWatch | None":
        """A watch over the body of `head`; None when it is no form."""
        coded = value_of(head, b"content-encoding")
        plain = coded is None or list_members(coded) == [b"identity"]
        return cls() if head.method == "POST" and _is_form(head) and plain else None

    def feed(self, data: bytes) -> bytes | Denial:
        """`data` may go on, or the request is refused."""
        for index, piece in enumerate(data.split(b"&")):
            if index:
                self._name, self._in_value = b"", False
            if not self._in_value:
                name, equals, _ = piece.partition(b"=")
                self._name = (self._name + name)[: self.LONGEST]
                self._in_value = bool(equals)
                if equals and _plain(self._name.decode("latin-1")) == "grant_type":
                    return _OAUTH
        return data
