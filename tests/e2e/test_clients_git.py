"""git over HTTPS through the installed command: clone, fetch, push, and the denial of a push."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.proxy import EgressProcess, policy_text, rest
from tests.support.registries import TlsServer, git_origin
from tests.support.workload import Workload

REFS = 400


@dataclass
class Forge:
    """A proxy in front of a git server, and a workload to use it from."""

    workload: Workload
    server: TlsServer
    bare: Path

    def url(self, host: str) -> str:
        return f"https://{host}:{self.server.port}/big.git"

    def refs(self) -> list[str]:
        return git(self.bare, "for-each-ref", "--format=%(refname)").split()


def git(directory: Path, *words: str, feed: str | None = None) -> str:
    identity = ("-c", "user.name=tester", "-c", "user.email=tester@example.test")
    done = subprocess.run(
        ["git", *identity, *words], cwd=directory, input=feed, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture(scope="module")
def forge(authority: OriginAuthority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    root = tmp_path_factory.mktemp("forge")
    bare = make_repository(root)
    server = git_origin(root, authority.server_context("git.test", "readonly.test"))
    policy = policy_text(
        rest("git.test", server.port),
        rest(
            "readonly.test",
            server.port,
            rules=[
                {"allow": {"method": "GET", "path": "/**/info/refs", "query": {"service": "git-upload-pack"}}},
                {"allow": {"method": "POST", "path": "/**/git-upload-pack"}},
            ],
        ),
    )
    aliases = dict.fromkeys(("git.test", "readonly.test"), "127.0.0.1")
    with EgressProcess(policy, aliases=aliases, trust=authority.ca_file) as proxy:
        yield Forge(Workload(proxy, tmp_path_factory.mktemp("git")), server, bare)
    server.stop()


def make_repository(root: Path) -> Path:
    """A bare repository with many refs and an incompressible file of 4 MB."""
    seed, bare = root / "seed", root / "big.git"
    seed.mkdir()
    git(seed, "init", "-q", "-b", "main")
    (seed / "noise.bin").write_bytes(os.urandom(4_000_000))
    git(seed, "add", ".")
    git(seed, "commit", "-q", "-m", "one")
    commit = git(seed, "rev-parse", "HEAD").strip()
    git(seed, "update-ref", "--stdin", feed="".join(f"create refs/heads/b{n} {commit}\n" for n in range(REFS)))
    git(root, "clone", "-q", "--mirror", str(seed), str(bare))
    git(bare, "config", "http.receivepack", "true")
    return bare


def test_clone_and_chunked_push(forge: Forge) -> None:
    """O-24: a big pack down, then a push in chunks with `http.postBuffer` far below its size."""
    work = forge.workload
    done = work.run("git", "clone", "-q", forge.url("git.test"), "copy")
    assert done.returncode == 0, done.stderr
    copy = work.directory / "copy"
    assert (copy / "noise.bin").stat().st_size == 4_000_000
    assert git(copy, "branch", "-r").count("origin/b") == REFS
    (copy / "more.bin").write_bytes(os.urandom(1_500_000))
    git(copy, "add", ".")
    git(copy, "commit", "-q", "-m", "two")
    done = work.run("git", "-C", "copy", "-c", "http.postBuffer=1024", "push", "-q", "origin", "HEAD:refs/heads/pushed")
    assert done.returncode == 0, done.stderr
    assert "refs/heads/pushed" in forge.refs()
    assert git(forge.bare, "rev-parse", "pushed") == git(copy, "rev-parse", "HEAD")


def test_clone_through_rules_that_only_read(forge: Forge) -> None:
    done = forge.workload.run("git", "clone", "-q", forge.url("readonly.test"), "reader")
    assert done.returncode == 0, done.stderr


def test_push_is_denied_where_git_can_show_it(forge: Forge) -> None:
    """The denial comes at `info/refs?service=git-receive-pack`, before any pack is built."""
    work = forge.workload
    if not (work.directory / "pusher").exists():
        assert work.run("git", "clone", "-q", "--depth", "1", forge.url("readonly.test"), "pusher").returncode == 0
    before = forge.refs()
    done = work.run("git", "-C", "pusher", "push", "origin", "HEAD:refs/heads/denied")
    assert done.returncode != 0
    assert "403" in done.stderr
    assert forge.refs() == before
    assert "POST /big.git/git-receive-pack" not in forge.server.seen[-2:]


def test_shallow_fetch_with_protocol_2(forge: Forge) -> None:
    work = forge.workload
    done = work.run("git", "-c", "protocol.version=2", "clone", "-q", "--depth", "1", forge.url("git.test"), "shallow")
    assert done.returncode == 0, done.stderr
    done = work.run("git", "-C", "shallow", "fetch", "-q", "origin", "b1", "b2")
    assert done.returncode == 0, done.stderr
