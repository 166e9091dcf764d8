"""`egress run -- COMMAND`: a proxy for one command, or the running one as a given agent."""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from egress.app import Proxy, Ready
from egress.cli.env import credential_of, from_settings, placeholders
from egress.cli.environment import child_environment, proxy_url
from egress.cli.operator import operator_settings
from egress.cli.serve import run_loop
from egress.cli.terminal import ExitCode, complain
from egress.config.load import find_file
from egress.config.overrides import Flags
from egress.generation.prepare import Candidate, prepare
from egress.model.errors import EgressError
from egress.model.ids import GenerationNumber
from egress.model.intent import DEFAULT_AGENT

ANY_PORT = "127.0.0.1:0"
NOT_FOUND, NOT_EXECUTABLE = 127, 126


def run(command: Sequence[str], flags: Flags, agent: str | None) -> int:
    """Run `command` and return its exit code; as a shell would, 127 and 126 where it cannot be started."""
    if agent is not None:
        return _run_as(command, flags, agent)
    with tempfile.TemporaryDirectory(prefix="egress-run-") as directory:
        if find_file(flags.config, os.environ) is None:
            flags = replace(flags, state_dir=Path(directory))
        candidate = prepare(replace(flags, listen=ANY_PORT), os.environ, GenerationNumber(1))
        if not isinstance(candidate, Candidate):
            complain(candidate)
            return ExitCode.INVALID
        complain(candidate.diagnostics)
        session = _Session(command, candidate, replace(flags, listen=ANY_PORT))
        try:
            run_loop(session.run())
        except* (OSError, EgressError) as group:
            sys.stderr.write(f"egress: {group.exceptions[0]}\n")
        return session.code


def _run_as(command: Sequence[str], flags: Flags, agent: str) -> int:
    """Point the command at the proxy that the settings describe."""
    settings = operator_settings(flags.config)
    running = from_settings(settings)
    url = proxy_url(str(running.address), *credential_of(settings, agent))
    os.environ.update(placeholders(settings, running, agent))
    os.environ.update(child_environment(url, running.certificate, running.bundle))
    try:
        os.execvp(command[0], list(command))  # noqa: S606 - the command is what the user typed
    except OSError as error:
        return _not_started(command[0], error)


class _Session:
    """One proxy and one child. The child is the anchor of process identity: only its tree is served."""

    def __init__(self, command: Sequence[str], candidate: Candidate, flags: Flags) -> None:
        self._command = command
        self._child: asyncio.subprocess.Process | None = None
        self._proxy = Proxy(candidate, flags, os.environ, anchor=self._anchor, operated=False)
        self._ready: asyncio.Future[Ready] | None = None
        self.code: int = ExitCode.FAILURE

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._forward, number)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._proxy.run(self._ready.set_result))
            ready = await self._ready
            self.code = await self._run_child(ready)
            self._proxy.stop()
            self._proxy.stop()

    async def _run_child(self, ready: Ready) -> int:
        environment = dict(os.environ)
        if ready.trust is not None:
            trust = ready.trust
            # What names the proxy wins over whatever a provider's key is called.
            environment |= self._proxy.environment(DEFAULT_AGENT)
            environment |= child_environment(proxy_url(ready.proxy[0]), trust.certificate, trust.bundle)
        try:
            self._child = await asyncio.create_subprocess_exec(*self._command, env=environment)
        except OSError as error:
            return _not_started(self._command[0], error)
        code = await self._child.wait()
        return code if code >= 0 else 128 - code

    def _anchor(self) -> int | None:
        return self._child.pid if self._child is not None else None

    def _forward(self, number: signal.Signals) -> None:
        """The terminal signals the whole group itself; forwarding it again does no harm."""
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(number)


def _not_started(program: str, error: OSError) -> int:
    sys.stderr.write(f"egress: {program}: {error.strerror}\n")
    return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
