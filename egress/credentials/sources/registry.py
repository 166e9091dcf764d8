"""Sources by scheme: the built-in ones, imported when they are first named, and those of plugins."""

import asyncio
import importlib
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from egress.credentials.reading import Reading
from egress.credentials.sources.inherited import Descriptors
from egress.model.clock import Clock
from egress.sdk.http import HttpClient
from egress.sdk.secrets import BadSpec, Fetched, SecretSource, SourceContext, SourceFactory, SourceUnavailable
from egress.sdk.spec import Spec

THREADS = 8

_BUILT_IN = {
    "env": "egress.credentials.sources.inherited:environment",
    "fd": "egress.credentials.sources.inherited:descriptor",
    "literal": "egress.credentials.sources.inherited:literal",
    "file": "egress.credentials.sources.file:file",
    "command": "egress.credentials.sources.command:command",
    "oauth2": "egress.credentials.sources.oauth2:oauth2",
    "google_service_account": "egress.credentials.sources.google:google_service_account",
    "aws_session": "egress.credentials.aws.session:aws_session",
}
_SHORT = {"env": "name", "fd": "number", "literal": "text", "file": "path", "command": "argv"}
"""The field that is meant where a source is written without a mapping."""
_NESTED = ("json", "base64", "strip")
"""Modifiers of a source that stands inside another one."""

SCHEMES = frozenset(_BUILT_IN) | {"same_as"}
"""What can be named without plugins."""


class Threads:
    """A few threads for blocking libraries, none of them anybody's own."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="secrets")

    async def __call__[T](self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class _OneThread:
    """A source's turn on the threads: one call at a time, or a library that hangs would take them all."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._running: asyncio.Task[Any] | None = None

    async def __call__[T](self, call: Callable[..., T], *arguments: object) -> T:
        if self._running is not None and not self._running.done():
            raise SourceUnavailable("still_running")
        running = self._running = asyncio.ensure_future(self._threads(call, *arguments))
        running.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        return await asyncio.shield(running)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What sources are given, and lasts as long as the process. `environment` is a copy taken at start: variables that
    were read are taken out of the process's own."""

    http: HttpClient
    clock: Clock
    state_dir: Path
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    allow_literal: bool = False
    threads: Threads = field(default_factory=Threads)
    descriptors: Descriptors = field(default_factory=Descriptors)


class Sources:
    """Makes sources of specifications in a file of the directory `base`. `plugins` are factories by scheme."""

    def __init__(self, around: Surroundings, base: Path, plugins: Mapping[str, SourceFactory] | None = None) -> None:
        self._around = around
        self._base = base
        self._plugins = plugins or {}

    @property
    def schemes(self) -> frozenset[str]:
        return SCHEMES | frozenset(self._plugins)

    def make(self, scheme: str, fields: object) -> SecretSource:
        """Checks, without fetching. Raises `BadSpec`."""
        if scheme in _SHORT and not isinstance(fields, Mapping):
            fields = {_SHORT[scheme]: fields}
        if not isinstance(fields, Mapping):
            raise BadSpec(f"`{scheme}` takes a mapping")
        return self._factory(scheme)(fields, self.context())

    def nested(self, specification: object) -> SecretSource:
        """The source of one value from `{scheme: fields}` with modifiers beside it. Raises `BadSpec`."""
        if not isinstance(specification, Mapping):
            raise BadSpec("must be a source, such as `{file: PATH}`")
        modifiers = {key: value for key, value in specification.items() if key in _NESTED}
        schemes = [key for key in specification if key not in _NESTED]
        if len(schemes) != 1 or not isinstance(schemes[0], str):
            raise BadSpec("needs exactly one source")
        spec = Spec(modifiers, _NESTED)
        reading = Reading(spec.text("json", ""), spec.flag("base64"), spec.text("strip", "newline"))
        return _Single(self.make(schemes[0], specification[schemes[0]]), reading)

    def bundle(self, specification: object) -> SecretSource:
        """The source of several values from `{scheme: fields}`. Raises `BadSpec`."""
        if not isinstance(specification, Mapping) or len(specification) != 1:
            raise BadSpec("needs exactly one source")
        scheme, fields = next(iter(specification.items()))
        return self.make(str(scheme), fields)

    def context(self) -> SourceContext:
        """What one source may use."""
        around = self._around
        return SourceContext(
            around.http, around.environment, around.clock, self._base, around.state_dir, _OneThread(around.threads),
            self.nested, around.allow_literal, self.bundle,
        )  # fmt: skip

    def _factory(self, scheme: str) -> SourceFactory:
        if scheme in self._plugins:
            return self._plugins[scheme]
        if scheme == "fd":
            from egress.credentials.sources.inherited import descriptor  # noqa: PLC0415

            return lambda fields, context: descriptor(fields, context, self._around.descriptors)
        if scheme not in _BUILT_IN:
            raise BadSpec(f"there is no source `{scheme}`")
        module, _, name = _BUILT_IN[scheme].partition(":")
        factory: SourceFactory = getattr(importlib.import_module(module), name)
        return factory


class _Single:
    """The one value of a source inside another, read by its modifiers."""

    def __init__(self, source: SecretSource, reading: Reading) -> None:
        self._source = source
        self._reading = reading

    async def fetch(self) -> Fetched:
        fetched = await self._source.fetch()
        return Fetched.one(self._reading.text(fetched, ""), fetched.expires)
