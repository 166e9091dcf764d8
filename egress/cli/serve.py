"""`egress serve`: the proxy in the foreground."""

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path

from egress import logs
from egress.app import Proxy, Ready
from egress.config.overrides import Flags
from egress.documents.diagnostic import render
from egress.generation.prepare import Candidate, prepare
from egress.model.errors import EgressError
from egress.model.ids import GenerationNumber

INVALID, FAILED = 2, 1


def serve(flags: Flags, ready_file: Path | None) -> int:
    """Run until told to stop; the exit code of decision 23."""
    candidate = prepare(flags, os.environ, GenerationNumber(1))
    if not isinstance(candidate, Candidate):
        print(render(candidate), file=sys.stderr)
        return INVALID
    if candidate.diagnostics:
        print(render(candidate.diagnostics), file=sys.stderr)
    logs.setup(candidate.settings.logs.level, logs.LogFormat(candidate.settings.logs.format))
    try:
        run_loop(_serve(candidate, flags, ready_file))
    except (OSError, EgressError) as error:
        print(f"egress: {error}", file=sys.stderr)
        return FAILED
    return 0


def run_loop(work: Coroutine[object, object, None]) -> None:
    """Run on uvloop where it is installed."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


async def _serve(candidate: Candidate, flags: Flags, ready_file: Path | None) -> None:
    proxy = Proxy(candidate, flags, os.environ)
    loop = asyncio.get_running_loop()
    for number, action in ((signal.SIGTERM, proxy.stop), (signal.SIGINT, proxy.stop), (signal.SIGHUP, proxy.reload)):
        loop.add_signal_handler(number, action)
    await proxy.run(_announce(ready_file))


def _announce(ready_file: Path | None) -> Callable[[Ready], None]:
    def announce(ready: Ready) -> None:
        for address in ready.proxy:
            print(f"egress: listening on {address}", file=sys.stderr)
        if ready_file is not None:
            write_ready(ready_file, ready)

    return announce


def write_ready(path: Path, ready: Ready) -> None:
    """Write the ready file in one step (decision 22)."""
    content = {
        "proxy": ready.proxy[0],
        "admin": str(ready.admin) if ready.admin is not None else None,
        "metrics": ready.metrics,
        "ca": str(ready.trust.certificate) if ready.trust else None,
        "bundle": str(ready.trust.bundle) if ready.trust else None,
        "pid": os.getpid(),
    }
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        json.dump(content, file)
    Path(file.name).replace(path)
