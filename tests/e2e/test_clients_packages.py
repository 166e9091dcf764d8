"""pip and npm install from registries behind the proxy."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.proxy import EgressProcess, policy_text, rest
from tests.support.registries import PythonIndex, TlsServer, npm_origin
from tests.support.workload import Workload

SCOPED = "@acme/tiny"


@pytest.fixture(scope="module")
def index(authority: OriginAuthority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PythonIndex]:
    server = PythonIndex(tmp_path_factory.mktemp("index"), authority.server_context("index.test"), "tinything")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def registry(authority: OriginAuthority) -> Iterator[TlsServer]:
    server = npm_origin(authority.server_context("npm.test"), "npm.test", SCOPED)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def workload(
    authority: OriginAuthority, index: PythonIndex, registry: TlsServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workload]:
    policy = policy_text(
        rest("index.test", index.port, ("GET", "/simple/**"), ("GET", "/packages/**")),
        rest("npm.test", registry.port, ("GET", "/**"), allow_encoded_slash=True),
    )
    aliases = dict.fromkeys(("index.test", "npm.test"), "127.0.0.1")
    with EgressProcess(policy, aliases=aliases, trust=authority.ca_file) as proxy:
        yield Workload(proxy, tmp_path_factory.mktemp("packages"))


def test_pip(workload: Workload, index: PythonIndex) -> None:
    pip = shutil.which("pip3") or shutil.which("pip")
    assert pip is not None, "pip is needed for this test"
    done = workload.run(
        pip, "install", "-q", "--no-cache-dir", "--index-url", f"https://index.test:{index.port}/simple/",
        "--target", "installed", "tinything",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "through the proxy" in (workload.directory / "installed" / "tinything.py").read_text()


def test_pip_is_told_of_a_denial(workload: Workload, index: PythonIndex) -> None:
    pip = shutil.which("pip3") or shutil.which("pip")
    assert pip is not None, "pip is needed for this test"
    done = workload.run(
        pip, "install", "-vv", "--no-cache-dir", "--retries", "0", "--index-url", f"https://index.test:{index.port}/secret/",
        "--target", "never", "tinything",
    )  # fmt: skip
    assert done.returncode != 0
    assert "403" in done.stdout + done.stderr
    assert not Path(workload.directory / "never").exists()


def test_npm_with_a_scoped_package(workload: Workload, registry: TlsServer) -> None:
    """O-04: npm asks for `/@acme%2ftiny`, one path segment."""
    project = workload.directory / "project"
    project.mkdir()
    (project / "package.json").write_text('{"name": "p", "version": "1.0.0"}')
    done = workload.run(
        "npm", "install", "--prefix", project, "--no-audit", "--no-fund", "--fetch-retries", "0",
        "--cache", workload.directory / "npm-cache", "--registry", f"https://npm.test:{registry.port}/", SCOPED,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "through the proxy" in (project / "node_modules" / "@acme" / "tiny" / "index.js").read_text()
    assert registry.seen[0].lower() == "get /@acme%2ftiny"
