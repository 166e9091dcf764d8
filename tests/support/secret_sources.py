"""What sources need around them in tests: a clock that is moved, an HTTP client that answers from a list."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl

from egress.credentials.sources.registry import Sources, Surroundings
from egress.sdk.http import NO_HEADERS, HttpFailure, HttpReply, TlsOptions


@dataclass
class StillClock:
    """Both clocks at one instant, until `at` is set."""

    at: float = 1_800_000_000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at - 1_700_000_000.0


@dataclass
class Asked:
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    tls: TlsOptions | None

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))


@dataclass
class Replies:
    """An `HttpClient` that gives its replies in order, the last one again and again; None is a failure."""

    replies: list[tuple[int, bytes] | None]
    asked: list[Asked] = field(default_factory=list)

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        body: bytes = b"",
        timeout: float,
        max_bytes: int,
        tls: TlsOptions | None = None,
    ) -> HttpReply:
        self.asked.append(Asked(method, url, headers, body, tls))
        found = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if found is None:
            raise HttpFailure("connect_refused")
        assert len(found[1]) <= max_bytes
        return HttpReply(found[0], (), found[1])


def sources(
    base: Path,
    environment: Mapping[str, str] | None = None,
    http: Replies | None = None,
    clock: StillClock | None = None,
    *,
    allow_literal: bool = True,
) -> Sources:
    around = Surroundings(
        http or Replies([None]), clock or StillClock(), base / "state", environment or {}, allow_literal=allow_literal
    )
    return Sources(around, base)
