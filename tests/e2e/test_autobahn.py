"""The Autobahn cases against an echo server and an echo client that can be reached through the proxy only."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from tests.support.origins import OriginLoop
from tests.support.proxy import LANES, EgressProcess, Endpoint, policy_text
from tests.support.raw import eventually
from tests.support.websockets import Shim, WebSocketOrigin

KOSOKU = str(Path(sys.executable).with_name("kosoku"))
HOST = "ws.test"
FRAMING = ("1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "10.*")
LIMITS_AND_COMPRESSION = ("9.*", "12.*", "13.*")
RACY = frozenset(("3.2", "3.3", "3.4", "4.1.3", "4.1.4", "4.1.5", "4.2.3", "4.2.4", "4.2.5", "5.15"))
"""A good message, then a bad frame at once: the answer to the first one meets the Close on its way."""
LATE = frozenset(("6.4.1", "6.4.2", "6.4.3", "6.4.4"))
"""Bad text in small parts: those of an origin are gathered before they are looked at."""
BOUNDED = {"9.1.5", "9.1.6", "9.3.1", "9.3.2", "9.4.1", "9.4.2"}
"""Texts of 8 and 16 MiB, and messages of 4 MiB in fragments of 64 and 256 bytes: beyond our bounds on purpose."""


@pytest.fixture(scope="module", params=LANES)
def proxied(request: pytest.FixtureRequest, origin_loop: OriginLoop) -> Iterator[tuple[Shim, EgressProcess]]:
    """A port that leads through the proxy to an echo server."""
    origin = WebSocketOrigin(origin_loop)
    full = Endpoint(HOST, origin.port, {"protocol": "websocket", "enforcement": "enforce", "access": "full"})
    with EgressProcess(policy_text(full), aliases={HOST: "127.0.0.1"}, settings=LANES[request.param]) as proxy:
        shim = Shim(origin_loop, proxy.port, f"{HOST}:{origin.port}")
        yield shim, proxy
        shim.stop()
    origin.stop()


def run_cases(directory: Path, port: int, cases: tuple[str, ...], seconds: float) -> dict[str, Any]:
    """Verdicts by case."""
    chosen = [word for case in cases for word in ("-i", case)]
    command = [KOSOKU, "-m", "fuzzingclient", "-p", "4", *chosen, "-o", str(directory), f"ws://127.0.0.1:{port}"]
    done = subprocess.run(command, capture_output=True, timeout=seconds, text=True)
    assert (directory / "index.json").exists(), done.stderr
    return verdicts(directory)


def verdicts(directory: Path) -> dict[str, Any]:
    (found,) = json.loads((directory / "index.json").read_text()).values()
    return dict(found)


def written(directory: Path) -> bool:
    """The report is made after its request is answered."""
    with contextlib.suppress(OSError, ValueError):
        return bool(verdicts(directory))
    return False


def failures(found: dict[str, Any], tolerated: frozenset[str]) -> dict[str, tuple[str, str]]:
    """What is not right, nor merely not strict where that is `tolerated`."""
    fine = {"OK", "INFORMATIONAL"}
    wrong = {}
    for case, one in found.items():
        said = (one["behavior"], one["behaviorClose"])
        if not {*said} <= (fine | {"NON-STRICT"} if case in tolerated else fine):
            wrong[case] = said
    return wrong


@pytest.mark.timeout(120)
def test_framing_cases(proxied: tuple[Shim, EgressProcess], tmp_path: Path) -> None:
    found = run_cases(tmp_path, proxied[0].port, FRAMING, 100)
    assert len(found) == 247
    assert failures(found, RACY) == {}


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_limits_and_compression_cases(proxied: tuple[Shim, EgressProcess], tmp_path: Path) -> None:
    found = run_cases(tmp_path, proxied[0].port, LIMITS_AND_COMPRESSION, 1700)
    assert len(found) > 200
    assert failures(found, frozenset()).keys() == BOUNDED


@pytest.fixture
def fuzzing_server(tmp_path: Path) -> Iterator[int]:
    """Cases against whoever connects; the port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    chosen = [word for case in FRAMING for word in ("-i", case)]
    command = [KOSOKU, "-m", "fuzzingserver", *chosen, "-o", str(tmp_path), f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert eventually(lambda: accepts(port))
    yield port
    process.kill()
    process.wait()


def accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.mark.timeout(120)
@pytest.mark.parametrize("lane", LANES)
def test_framing_cases_sent_by_an_origin(lane: str, fuzzing_server: int, tmp_path: Path) -> None:
    full = Endpoint(HOST, fuzzing_server, {"protocol": "websocket", "enforcement": "enforce", "access": "full"})
    with EgressProcess(policy_text(full), aliases={HOST: "127.0.0.1"}, settings=LANES[lane]) as proxy:
        asyncio.run(answer_all(proxy.url, f"ws://{HOST}:{fuzzing_server}"))
    assert eventually(lambda: written(tmp_path))
    found = verdicts(tmp_path)
    assert len(found) == 247
    assert failures(found, RACY | LATE) == {}


async def answer_all(proxy: str, base: str) -> None:
    """An echo client, once per case."""
    options: dict[str, Any] = {"proxy": proxy, "max_size": None, "ping_interval": None, "compression": None}
    async with connect(f"{base}/getCaseCount", **options) as peer:
        count = int(await peer.recv())
    for case in range(1, count + 1):
        with contextlib.suppress(WebSocketException, OSError):
            async with connect(f"{base}/runCase?case={case}&agent=proxied", **options) as peer:
                async for message in peer:
                    await peer.send(message)
    async with connect(f"{base}/updateReports?agent=proxied", **options):
        pass
