"""Values that a program prints: run without a shell, with few variables, within a time and a size. What it writes on
stderr and how it fails is nobody's to read: it may quote what it was given."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from egress.credentials.sources.command_output import PARSERS
from egress.documents.units import read_duration
from egress.sdk.secrets import BadSpec, Fetched, SecretSource, SourceContext, SourceUnavailable
from egress.sdk.spec import Spec

MOST_BYTES = 64 * 1024
_END_SECONDS = 1.0
"""Waited for a program that was killed."""
_PASSED_ON = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS",
)  # fmt: skip
"""What credential helpers need to find their own files; `env_allow` adds to it."""


@dataclass(frozen=True, slots=True)
class _Program:
    argv: tuple[str, ...]
    directory: Path
    environment: Mapping[str, str]
    stdin: bytes
    seconds: float | None
    parse: str


def command(fields: Mapping[str, object], context: SourceContext) -> SecretSource:
    """`{argv, env_allow, cwd, timeout, input, parse: text|json|exec_credential|aws_process|docker|git}`; `input` is
    what the helpers of docker and git want to read."""
    spec = Spec(fields, ("argv", "env_allow", "cwd", "timeout", "input", "parse"))
    allowed = (*_PASSED_ON, *spec.texts("env_allow", ()))
    given = spec.raw("input") or ""
    if not isinstance(given, str):
        raise BadSpec("must be a text", ("input",))
    return _Command(
        _Program(
            spec.texts("argv"),
            context.base / spec.text("cwd", ""),
            {name: context.environment[name] for name in allowed if name in context.environment},
            given.encode(),
            _seconds(spec),
            spec.choice("parse", tuple(PARSERS), "text"),
        )
    )


def _seconds(spec: Spec) -> float | None:
    """Its own deadline; the one of the value holds all the same."""
    if "timeout" not in spec:
        return None
    try:
        return read_duration(spec.raw("timeout"))
    except ValueError as error:
        raise BadSpec(str(error), ("timeout",)) from None


class _Command:
    def __init__(self, program: _Program) -> None:
        self._program = program

    async def fetch(self) -> Fetched:
        """Raises `SourceUnavailable`, `TimeoutError`. However it ends, no process of the program's group is left."""
        program = self._program
        try:
            process = await asyncio.create_subprocess_exec(
                *program.argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                cwd=program.directory,
                env=program.environment,
                start_new_session=True,
            )
        except (OSError, ValueError):
            raise SourceUnavailable("cannot_start") from None
        try:
            async with asyncio.timeout(program.seconds):
                output = await _talk(process, program.stdin)
                status = await process.wait()
        finally:
            await _end(process)
        if status != 0:
            raise SourceUnavailable(f"exit_{status}" if status > 0 else f"signal_{-status}")
        try:
            return PARSERS[program.parse](output.decode())
        except UnicodeDecodeError:
            raise SourceUnavailable("not_text") from None


async def _talk(process: asyncio.subprocess.Process, given: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    if given and not process.stdin.is_closing():  # it may have ended already, which uvloop tells as a RuntimeError
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(given)
            await process.stdin.drain()
    process.stdin.close()
    output = bytearray()
    while more := await process.stdout.read(MOST_BYTES):
        output += more
        if len(output) > MOST_BYTES:
            raise SourceUnavailable("too_large")
    return bytes(output)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill whatever is left of the group: also what it started and left behind with our pipe open."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:
        await asyncio.shield(_gone(process))


async def _gone(process: asyncio.subprocess.Process) -> None:
    """asyncio tells of the end only once the output was read to its own. Someone outside the group may hold that."""
    assert process.stdout is not None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
            while await process.stdout.read(MOST_BYTES):
                pass
            await process.wait()
