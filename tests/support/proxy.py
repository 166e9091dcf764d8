"""The installed command under test: `egress serve` as a process, with its settings, events and end."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import yaml

from tests.support.canary import told

COMMAND = str(Path(sys.executable).with_name("egress"))
"""The console script beside the interpreter that runs the tests."""

START_SECONDS = 30.0

LANES: dict[str, dict[str, Any]] = {"http1": {}, "mitm": {"engine": {"fast_lane": "off"}}}
"""Settings that send all HTTP through one lane."""


@dataclass
class Endpoint:
    """One endpoint of a test policy, in the policy's own words."""

    host: str
    port: int
    options: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return {"host": self.host, "port": self.port, **self.options}


def rest(host: str, port: int, *allowed: tuple[str, str], **options: Any) -> Endpoint:
    """An enforced `rest` endpoint; without rules it has full access."""
    rules = [{"allow": {"method": method, "path": path}} for method, path in allowed]
    how: dict[str, Any] = {"rules": rules} if rules else {}
    if not rules and "rules" not in options:
        how = {"access": "full"}
    return Endpoint(host, port, {"protocol": "rest", "enforcement": "enforce", **how, **options})


def opaque(host: str, port: int, **options: Any) -> Endpoint:
    """A layer-4 endpoint: nothing is judged inside."""
    return Endpoint(host, port, options)


def policy_text(*endpoints: Endpoint, binaries: tuple[str, ...] = ("/**",)) -> str:
    """A policy with one entry per endpoint, named `e0`, `e1`, … in order."""
    entries = {
        f"e{index}": {"endpoints": [endpoint.document()], "binaries": [{"path": path} for path in binaries]}
        for index, endpoint in enumerate(endpoints)
    }
    return yaml.safe_dump({"version": 1, "network_policies": entries}, sort_keys=False)


def merged(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid upon `base`, key by key."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, dict) and isinstance(value, Mapping) else value
    return result


def configure(
    directory: Path,
    policy: str,
    *,
    aliases: Mapping[str, str] | None = None,
    trust: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    providers: Mapping[str, Any] | None = None,
) -> Path:
    """Write `policy.yaml` and `egress.yaml` into a directory of their own, as what lies beside them is watched too;
    the settings file."""
    documents = directory / "conf"
    documents.mkdir()
    policy_file = documents / "policy.yaml"
    policy_file.write_text(policy)
    base: dict[str, Any] = {
        "version": 1,
        "listen": {"proxy": "127.0.0.1:0"},
        "state_dir": str(directory / "state"),
        "policy": {"file": str(policy_file)},
        "events": {"jsonl": {"path": str(directory / "events.jsonl")}},
        "admin": {"unix": {"path": str(directory / "admin.sock")}},
        "timeouts": {"drain": "2s"},  # what a test left open is not waited for
    }
    if aliases:
        base["destinations"] = {"aliases": dict(aliases)}
    if providers is not None:
        file = documents / "providers.yaml"
        file.write_text(yaml.safe_dump(dict(providers), sort_keys=False))
        base["providers"] = {"file": str(file)}
    if trust:
        base["tls"] = {"upstream_ca_file": str(trust)}
    config_file = documents / "egress.yaml"
    config_file.write_text(yaml.safe_dump(merged(base, settings or {}), sort_keys=False))
    return config_file


class EgressProcess:
    """A running proxy in a directory of its own. Use as a context manager."""

    def __init__(
        self,
        policy: str,
        *,
        aliases: Mapping[str, str] | None = None,
        trust: Path | None = None,
        settings: Mapping[str, Any] | None = None,
        providers: Mapping[str, Any] | None = None,
        descriptors: int | None = None,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        launcher: Sequence[str] = (),
    ) -> None:
        """`launcher` stands before the command, as `ip netns exec NAME`."""
        # Short: the admin socket lives below and a socket path ends at 107 bytes.
        self.directory = Path(tempfile.mkdtemp(prefix="egress-"))
        self.config_file = configure(
            self.directory, policy, aliases=aliases, trust=trust, settings=settings, providers=providers
        )
        self.policy_file = self.config_file.with_name("policy.yaml")
        self.events_file = self.directory / "events.jsonl"
        self.stderr_file = self.directory / "stderr.txt"
        self._ready_file = self.directory / "ready.json"
        self._descriptors = descriptors
        self._flags = flags
        self._environment = environment or {}
        self._launcher = launcher
        self._read = 0
        self._seen: list[dict[str, Any]] = []
        self._start()

    def _start(self) -> None:
        command = [COMMAND, "serve", "--config", str(self.config_file), "--ready-file", str(self._ready_file)]
        command = [*self._launcher, *command, *self._flags]
        if self._descriptors:
            command = ["prlimit", f"--nofile={self._descriptors}", *command]
        environment = plain_environment(**self._environment)
        with self.stderr_file.open("wb") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment)
        end = time.monotonic() + START_SECONDS
        while not self._ready_file.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                raise AssertionError(f"egress serve did not start ({self.process.poll()}):\n{self.stderr()}")
            time.sleep(0.01)
        ready = json.loads(self._ready_file.read_text())
        self.url = f"http://{ready['proxy']}"
        self.port: int = urlsplit(self.url).port or 0
        self.ca = Path(ready["ca"])
        self.bundle = Path(ready["bundle"])
        self.pid: int = ready["pid"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stderr(self) -> str:
        return self.stderr_file.read_text(errors="replace")

    def asked(self, target: str, method: str = "GET") -> Any:
        """What the operator socket answers: JSON, or the text of another type."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(10)
            sock.connect(str(self.directory / "admin.sock"))
            sock.sendall(f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            reply = b"".join(iter(lambda: sock.recv(65536), b""))
        head, _, body = reply.partition(b"\r\n\r\n")
        return json.loads(body) if b"application/json" in head else body.decode()

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Another command of the product that reads the same settings file."""
        command = [COMMAND, *words, "--config", str(self.config_file)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    @property
    def ready_file(self) -> Path:
        return self._ready_file

    def events(self) -> list[dict[str, Any]]:
        """Every event written so far, oldest first; a half-written last line waits for its rest."""
        if self.events_file.exists():
            with self.events_file.open("rb") as stream:
                stream.seek(self._read)
                data = stream.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read += len(whole)
            self._seen += [json.loads(line) for line in whole.splitlines()]
        return self._seen

    def wait_events(self, count: int, after: int = 0, within: float = 10.0) -> list[dict[str, Any]]:
        """Events from index `after` on, once there are at least `count`, or what there is when time is up."""
        end = time.monotonic() + within
        while len(self.events()) - after < count and time.monotonic() < end:
            time.sleep(0.01)
        return self._seen[after:]

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def resident(self) -> int:
        """Resident memory in bytes."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def stop(self, within: float = 10.0) -> int:
        """SIGTERM, then wait; kill when that is not enough. The exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(within)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.events()
        leaks = told(self.events_file, self.stderr_file)
        shutil.rmtree(self.directory, ignore_errors=True)
        assert leaks == [], "a secret in an event or a log"
        return self.process.returncode


STEERING = re.compile(r"_proxy$|_CA_?(BUNDLE|CERTS|INFO)|CERT|^PIP_|^npm_|^UV_|^EGRESS_|^OPENSHELL_", re.IGNORECASE)


def plain_environment(**extra: str) -> dict[str, str]:
    """This process's environment without what would steer a client or a proxy elsewhere."""
    kept = {name: value for name, value in os.environ.items() if not STEERING.search(name)}
    return kept | extra


@contextlib.contextmanager
def many_descriptors(needed: int) -> Iterator[None]:
    """Room for `needed` sockets in the test process itself."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, needed), hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
