"""A granted token in a request, and the origin's word that it is not taken (token-grants.md sections 5 and 6). Pure."""

import re
from dataclasses import replace

from egress.credentials.snapshot import Placement
from egress.model.message import RequestHead, ResponseHead
from egress.model.secret import Secret

_INVALID_TOKEN = re.compile(rb"""\berror[ \t]*=[ \t]*"?invalid_token\b""", re.IGNORECASE)  # RFC 6750 section 3


def place_token(head: RequestHead, placement: Placement, token: Secret) -> RequestHead:
    """`head` with exactly one field of the placement's name, the last one: whatever the workload wrote there is gone,
    a placeholder included."""
    name = (placement.header or "Authorization").encode()
    value = token.reveal() if placement.style == "header" else f"Bearer {token.reveal()}"
    lower = name.lower()
    others = [line for line in head.fields if line[0].lower() != lower]
    return replace(head, fields=(*others, (name, value.encode())))


def refuses_token(response: ResponseHead) -> bool:
    """The origin says that the bearer token is no good any more."""
    return response.status == 401 and any(
        name.lower() == b"www-authenticate" and _INVALID_TOKEN.search(value) is not None
        for name, value in response.fields
    )
