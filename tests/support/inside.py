"""A proxy inside the test process, on a loop in a thread of its own, so that its tasks and objects can be counted."""

import asyncio
import gc
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from egress.app import Proxy, Ready
from egress.config.overrides import Flags
from egress.generation.prepare import Candidate, prepare
from egress.model.ids import GenerationNumber
from tests.support.proxy import configure


class InsideProxy:
    """Use as a context manager. `port` and `ca` as of the installed command."""

    def __init__(self, policy: str, *, aliases: Mapping[str, str], trust: Path, settings: Mapping[str, Any]) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="egress-"))
        config = configure(self._directory, policy, aliases=aliases, trust=trust, settings=settings)
        flags = Flags(config=config)
        candidate = prepare(flags, {}, GenerationNumber(1))
        assert isinstance(candidate, Candidate), candidate
        self._started = threading.Event()
        self._thresholds = gc.get_threshold()
        self._thread = threading.Thread(target=asyncio.run, args=(self._main(candidate, flags),), daemon=True)
        self._thread.start()
        assert self._started.wait(20), "the proxy did not start"

    async def _main(self, candidate: Candidate, flags: Flags) -> None:
        self._loop = asyncio.get_running_loop()
        self._proxy = Proxy(candidate, flags, {})
        await self._proxy.run(self._ready)

    def _ready(self, ready: Ready) -> None:
        assert ready.trust is not None
        self.port = int(ready.proxy[0].rpartition(":")[2])
        self.ca = ready.trust.certificate
        self._started.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._proxy.stop)
        self._loop.call_soon_threadsafe(self._proxy.stop)
        self._thread.join(10)
        gc.unfreeze()
        gc.set_threshold(*self._thresholds)
        shutil.rmtree(self._directory, ignore_errors=True)

    def tasks(self) -> int:
        """Tasks of the proxy's loop, this look at them not counted."""

        async def count() -> int:
            return len(asyncio.all_tasks()) - 1

        return asyncio.run_coroutine_threadsafe(count(), self._loop).result(5)

    @staticmethod
    def living(*kinds: type) -> int:
        """Instances that the collector still finds reachable."""
        gc.collect()
        return sum(isinstance(found, kinds) for found in gc.get_objects())
