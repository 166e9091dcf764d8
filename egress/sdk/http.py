"""The HTTP client of the proxy's own calls, as its users see it: one request, one bounded reply, no redirects."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from egress.model.errors import EgressError

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Files of one server's TLS: whom to trust besides the usual, and who we are."""

    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A whole reply. Its repr shows neither fields nor body: both may hold secrets."""

    status: int
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)

    def header(self, name: str) -> str:
        """The first value of a field, empty when there is none."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), "")


class HttpFailure(EgressError):
    """No reply. `reason` says why, without anything of the request or the reply."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class HttpClient(Protocol):
    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        body: bytes = b"",
        timeout: float,  # noqa: ASYNC109 - kept by the client itself, for the whole exchange
        max_bytes: int,
        tls: TlsOptions | None = None,
    ) -> HttpReply:
        """One exchange within `timeout` seconds; a larger reply than `max_bytes` is a failure, a redirect a reply.
        Raises `HttpFailure` and nothing else."""
        ...
