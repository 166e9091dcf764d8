"""Where values come from: what a secret source is, what it is given, and how it says that it has nothing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from egress.model.clock import Clock
from egress.model.secret import Secret
from egress.sdk.http import HttpClient, HttpFailure, HttpReply, TlsOptions

__all__ = [
    "BadSpec",
    "Fetched",
    "HttpClient",
    "HttpFailure",
    "HttpReply",
    "IdentityDocuments",
    "RunBlocking",
    "Secret",
    "SecretSource",
    "SourceContext",
    "SourceFactory",
    "SourceUnavailable",
    "TlsOptions",
    "Watched",
]


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one fetch gave. A source of one value uses the key `""`. `expires` is in seconds since the epoch.

    `refresh_at`, in the same seconds, is when to fetch again; None leaves that to the operator's `refresh`.
    `document` is the JSON text that pointers lead into, where that is not the value `""` itself.
    """

    values: Mapping[str, Secret]
    expires: float | None = None
    refresh_at: float | None = None
    document: Secret | None = None

    @staticmethod
    def one(text: str, expires: float | None = None) -> "Fetched":
        return Fetched({"": Secret(text)}, expires)


class SourceUnavailable(Exception):
    """No value now. `kind` is a word for operators (`timeout`, `not_found`, `refused`), never content."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class BadSpec(ValueError):
    """A specification that can never work. `path` leads to the offending field below the source's own."""

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message, path)
        self.message = message
        self.path = path

    def __str__(self) -> str:
        return self.message


class SecretSource(Protocol):
    async def fetch(self) -> Fetched:
        """The values now. Raises `SourceUnavailable`; anything else it raises is reported as `broken`."""
        ...


@runtime_checkable
class Watched(Protocol):
    """A source that can tell cheaply whether a fetch would give something else than the last one did."""

    def changed(self) -> bool:
        """Called every few seconds, on a thread."""
        ...


class RunBlocking(Protocol):
    async def __call__[T](self, call: Callable[..., T], *arguments: object) -> T:
        """Run a blocking call on one of a few threads."""
        ...


class IdentityDocuments(Protocol):
    async def fetch(self, audience: str) -> tuple[Secret, float | None]:
        """A document for one audience and when it ends, in seconds since the epoch. Raises `SourceUnavailable`."""
        ...


def _no_bundle(specification: object) -> SecretSource:
    del specification
    raise BadSpec("sources of several values are not available here")


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What a source may use. `base` is the directory that relative paths are relative to. `source` makes a source of
    one value of a nested specification such as `{file: token}`, `bundle` one of several values such as
    `{aws_session: {}}`; both raise `BadSpec`."""

    http: HttpClient
    environment: Mapping[str, str] = field(repr=False)
    clock: Clock
    base: Path
    state_dir: Path
    run_blocking: RunBlocking
    source: Callable[[object], SecretSource]
    allow_literal: bool = False
    bundle: Callable[[object], SecretSource] = _no_bundle


type SourceFactory = Callable[[Mapping[str, object], SourceContext], SecretSource]
"""Checks a specification and makes its source, without fetching. Raises `BadSpec`."""
