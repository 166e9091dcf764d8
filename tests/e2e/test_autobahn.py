"""The Autobahn cases against an echo server and an echo client that can be reached through the proxy only."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.origins import OriginLoop
from tests.support.proxy import EgressProcess, Endpoint, policy_text
from tests.support.websockets import Shim, WebSocketOrigin

KOSOKU = str(Path(sys.executable).with_name("kosoku"))
HOST = "ws.test"
LANES: dict[str, dict[str, Any]] = {"http1": {}, "mitm": {"engine": {"fast_lane": "off"}}}
FRAMING = ("1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "10.*")
LIMITS_AND_COMPRESSION = ("9.*", "12.*", "13.*")
RACY = frozenset(("3.2", "3.3", "3.4", "4.1.3", "4.1.4", "4.1.5", "4.2.3", "4.2.4", "4.2.5", "5.15"))
"""A good message, then a bad frame at once: the answer to the first one meets the Close on its way."""


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


def failures(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """What is neither right nor a matter of taste."""
    return {
        case: (one["behavior"], one["behaviorClose"])
        for case, one in found.items()
        if not {one["behavior"], one["behaviorClose"]}
        <= {"OK", "INFORMATIONAL", *(["NON-STRICT"] if case in RACY else [])}
    }


@pytest.mark.timeout(120)
def test_framing_cases(proxied: tuple[Shim, EgressProcess], tmp_path: Path) -> None:
    found = run_cases(tmp_path, proxied[0].port, FRAMING, 100)
    assert len(found) == 247
    assert failures(found) == {}


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_limits_and_compression_cases(proxied: tuple[Shim, EgressProcess], tmp_path: Path) -> None:
    found = run_cases(tmp_path, proxied[0].port, LIMITS_AND_COMPRESSION, 1700)
    assert len(found) > 200
    assert failures(found) == {}
