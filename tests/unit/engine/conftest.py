"""Both event loops that the proxy runs on, and the contexts that its TLS tests share."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.support.authorities import OriginAuthority

type Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine on one loop after the other; a callback that raises fails the test."""

    def start(work: Coroutine[Any, Any, Any]) -> Any:
        faults: list[Any] = []

        async def watched() -> Any:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
            async with asyncio.timeout(5):
                return await work

        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            result = runner.run(watched())
        assert faults == []
        return result

    return start


@pytest.fixture(scope="session")
def server_context(authority: OriginAuthority) -> ssl.SSLContext:
    return authority.server_context("peer.test")


@pytest.fixture(scope="session")
def client_context(authority: OriginAuthority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(Path(authority.ca_file)))
