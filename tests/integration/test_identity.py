"""Real sockets and real processes: who holds the client's end."""

import asyncio
import contextlib
import hashlib
import ipaddress
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from egress.events.event import Finding
from egress.identity import resolver as resolver_module
from egress.identity import sockets as sockets_module
from egress.identity.procfs import Procfs
from egress.identity.resolver import IdentitySettings, ProcessIdentity
from egress.identity.sockets import DiagQuery, TextQuery, inside
from egress.identity.trust import TofuMode
from egress.model.address import IpAddress, Port
from egress.model.intent import SocketPair
from egress.model.process import Evidence, EvidenceUnavailable, ProcessEvidence, UnavailableReason
from tests.support.fake_proc import FakeProc

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces")

PYTHON = os.path.realpath(sys.executable)
BASH = shutil.which("bash") or "/bin/bash"


def unmapped(text: str) -> IpAddress:
    address = ipaddress.ip_address(text)
    return getattr(address, "ipv4_mapped", None) or address


def pair_of(accepted: socket.socket) -> SocketPair:
    peer, own = accepted.getpeername(), accepted.getsockname()
    return SocketPair(unmapped(peer[0]), Port(peer[1]), unmapped(own[0]), Port(own[1]))


class Listener:
    """The proxy's side: a listening socket, and what it accepted."""

    def __init__(self, listening: socket.socket | None = None) -> None:
        self.socket = listening or socket.create_server(("127.0.0.1", 0), backlog=256)
        self.socket.settimeout(10)
        self.accepted: list[socket.socket] = []
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def port(self) -> int:
        return self.socket.getsockname()[1]

    def accept(self) -> SocketPair:
        self.accepted.append(self.socket.accept()[0])
        return pair_of(self.accepted[-1])

    def run(self, *command: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self.processes.append(process)
        return process

    def python(self, script: str) -> subprocess.Popen[bytes]:
        """Runs `script` after connecting as `s`; it says `ready` when it is done with that."""
        connect = f"import os, socket, sys, time; s = socket.create_connection(('127.0.0.1', {self.port}))"
        return self.run(sys.executable, "-c", f"{connect}\n{script}\nprint('ready', flush=True)\ntime.sleep(60)")

    def bash(self, executable: str | Path = BASH) -> SocketPair:
        """A connection of `executable`, which is a bash under whatever name."""
        self.run(str(executable), "-c", f"exec 3<>/dev/tcp/127.0.0.1/{self.port}; read line")
        return self.accept()

    def close(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        for accepted in [*self.accepted, self.socket]:
            accepted.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


@pytest.fixture
def findings() -> list[Finding]:
    return []


@pytest.fixture
def identity(findings: list[Finding]) -> Iterator[ProcessIdentity]:
    made = ProcessIdentity(IdentitySettings(), findings.append)
    yield made
    made.close()


def known(evidence: Evidence) -> ProcessEvidence:
    assert isinstance(evidence, ProcessEvidence), evidence
    return evidence


def unknown(evidence: Evidence) -> tuple[UnavailableReason, str]:
    assert isinstance(evidence, EvidenceUnavailable), evidence
    return evidence.reason, evidence.detail


def ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"


async def test_program_ancestors_and_digest(listener: Listener, identity: ProcessIdentity) -> None:
    process = listener.run(BASH, "-c", f"exec 3<>/dev/tcp/127.0.0.1/{listener.port}; read line", "/opt/script.sh")
    found = known(await identity.identify(listener.accept()))
    executable = os.path.realpath(BASH)
    (owner,) = found.owners
    assert (owner.pid, owner.executable) == (process.pid, executable)
    assert owner.sha256 == hashlib.sha256(Path(executable).read_bytes()).hexdigest()
    assert (found.ancestors[0].pid, found.ancestors[0].executable) == (os.getpid(), PYTHON)
    assert "/opt/script.sh" in found.command_paths
    assert executable not in found.command_paths
    assert found.uid == os.getuid()


async def test_a_client_inside_the_proxy_process(listener: Listener, identity: ProcessIdentity) -> None:
    with socket.create_connection(("127.0.0.1", listener.port)):
        found = known(await identity.identify(listener.accept()))
    assert [owner.pid for owner in found.owners] == [os.getpid()]


@pytest.mark.parametrize(
    ("bind", "target"), [("::1", "::1"), ("::", "::ffff:127.0.0.1"), ("127.0.0.1", "::ffff:127.0.0.1")]
)
async def test_ipv6_and_mapped_addresses(identity: ProcessIdentity, bind: str, target: str) -> None:
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    listener = Listener(socket.create_server((bind, 0), family=family, dualstack_ipv6=bind == "::"))
    with socket.create_connection((target, listener.port)):
        pair = listener.accept()
        known(await identity.identify(pair))
        texts = TextQuery(Path("/proc/net")).find(pair)
        exact = DiagQuery().find(pair)
        assert texts is not None
        assert exact is not None
        assert (texts.inode, texts.uid) == (exact.inode, exact.uid)
    listener.close()


async def test_the_whole_tuple_counts(listener: Listener, identity: ProcessIdentity) -> None:
    """Two programs connect from one local port to two proxies."""
    other = Listener()
    script = (
        "import os, socket, sys, time; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
        "s.bind(('127.0.0.1', int(sys.argv[1]))); s.connect(('127.0.0.1', int(sys.argv[2]))); time.sleep(60)"
    )
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
        first = listener.run(sys.executable, "-c", script, port, str(listener.port))
        pair = listener.accept()
        second = listener.run(sys.executable, "-c", script, port, str(other.port))
        assert other.accept().client_port == pair.client_port
    assert known(await identity.identify(pair)).owners[0].pid == first.pid
    assert known(await identity.identify(pair_of(other.accepted[0]))).owners[0].pid == second.pid
    other.close()


@pytest.mark.parametrize("end", ["s.close()", "s.shutdown(socket.SHUT_WR)"])
async def test_a_connection_that_is_not_established_any_more(
    listener: Listener, identity: ProcessIdentity, end: str
) -> None:
    ready(listener.python(end))
    pair = listener.accept()
    expected = "failed to resolve peer binary: no ESTABLISHED connection found for the tuple"
    assert unknown(await identity.identify(pair)) == (UnavailableReason.UNAVAILABLE, expected)
    assert await identity.socket_uid(pair) is None


async def test_nobody_is_connected(identity: ProcessIdentity) -> None:
    nobody = SocketPair(unmapped("192.0.2.9"), Port(9), unmapped("192.0.2.1"), Port(3128))
    started = time.monotonic()
    assert unknown(await identity.identify(nobody))[0] is UnavailableReason.UNAVAILABLE
    assert time.monotonic() - started < 1.9  # no deadline was waited for


async def test_the_uid_of_a_socket(listener: Listener, identity: ProcessIdentity) -> None:
    pair = listener.bash()
    assert await identity.socket_uid(pair) == os.getuid()


async def test_forked_children_share_as_one_program(listener: Listener, identity: ProcessIdentity) -> None:
    process = listener.python("pids = [os.fork()]\nif not pids[0]: time.sleep(60)")
    pair = listener.accept()
    ready(process)
    found = known(await identity.identify(pair))
    assert len(found.owners) == 2
    assert found.owners[0].pid == process.pid
    assert {owner.executable for owner in found.owners} == {PYTHON}
    assert found.ancestors[0].pid == os.getpid()


async def test_a_socket_inherited_by_another_program_is_ambiguous(
    listener: Listener, identity: ProcessIdentity
) -> None:
    process = listener.python(
        "import subprocess\ns.set_inheritable(True)\nchild = subprocess.Popen(['sleep', '60'], close_fds=False)\n"
        "while 'sleep' not in os.readlink(f'/proc/{child.pid}/exe') and 'coreutils' not in "
        "os.readlink(f'/proc/{child.pid}/exe'): time.sleep(0.01)"
    )
    pair = listener.accept()
    ready(process)
    reason, detail = unknown(await identity.identify(pair))
    assert reason is UnavailableReason.AMBIGUOUS
    inode = DiagQuery().find(pair)
    assert inode is not None
    assert detail.startswith(f"ambiguous shared socket ownership: inode {inode.inode} is held by PIDs [{process.pid}, ")
    assert detail.endswith("] with different policy identities")


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """A bash of our own."""
    path = tmp_path / "tool"
    shutil.copy(os.path.realpath(BASH), path)
    return path


def replace_content(path: Path, content: bytes) -> None:
    """As a package manager does it: a new file takes the name, the old one lives on while it runs."""
    new = path.with_name("new")
    new.write_bytes(content)
    new.chmod(0o755)
    new.rename(path)


async def test_hot_swap(listener: Listener, identity: ProcessIdentity, findings: list[Finding], tool: Path) -> None:
    original = tool.read_bytes()
    old = listener.bash(tool)
    before = known(await identity.identify(old))
    replace_content(tool, original + b"\0")
    after = known(await identity.recheck(old))
    assert after == before
    assert after.executable == str(tool)
    reason, detail = unknown(await identity.identify(listener.bash(tool)))
    assert reason is UnavailableReason.HASH_CHANGED
    assert detail.startswith(
        f"binary integrity check failed: Binary integrity violation: {tool} hash changed (cached: "
    )
    assert known(await identity.recheck(old)) == before
    replace_content(tool, original)
    assert known(await identity.identify(listener.bash(tool))).executable == str(tool)
    await asyncio.sleep(0)
    assert [finding.type for finding in findings] == ["egress.identity.executable_changed"]


async def test_an_ancestor_that_changed(listener: Listener, identity: ProcessIdentity, tool: Path) -> None:
    script = f"{BASH} -c 'exec 3<>/dev/tcp/127.0.0.1/{listener.port}; read line'; true"
    listener.run(str(tool), "-c", script)
    found = known(await identity.identify(listener.accept()))
    assert found.ancestors[0].executable == str(tool)
    replace_content(tool, tool.read_bytes() + b"\0")
    listener.run(str(tool), "-c", script)
    reason, detail = unknown(await identity.identify(listener.accept()))
    assert reason is UnavailableReason.HASH_CHANGED
    assert detail.startswith(f"ancestor integrity check failed for {tool}: binary integrity check failed: ")


async def test_tofu_off(listener: Listener, tool: Path) -> None:
    identity = ProcessIdentity(IdentitySettings(tofu=TofuMode.OFF))
    first = known(await identity.identify(listener.bash(tool)))
    replace_content(tool, tool.read_bytes() + b"\0")
    second = known(await identity.identify(listener.bash(tool)))
    assert first.owners[0].sha256 != second.owners[0].sha256
    identity.close()


async def test_an_unlinked_executable_keeps_its_name(listener: Listener, identity: ProcessIdentity, tool: Path) -> None:
    pair = listener.bash(tool)
    tool.unlink()
    assert known(await identity.identify(pair)).executable == str(tool)


async def test_an_executable_really_named_so(listener: Listener, identity: ProcessIdentity, tool: Path) -> None:
    odd = tool.with_name("tool (deleted)")
    tool.rename(odd)
    pair = listener.bash(odd)
    assert known(await identity.identify(pair)).executable == str(odd)
    odd.unlink()
    assert known(await identity.recheck(pair)).executable == str(odd)


async def test_a_name_that_is_no_utf_8(listener: Listener, identity: ProcessIdentity, tool: Path) -> None:
    odd = os.fsencode(tool) + b"\xff"
    os.rename(tool, odd)
    assert known(await identity.identify(listener.bash(os.fsdecode(odd)))).executable == f"{tool}\\xff"


async def test_execve_is_noticed_though_pid_and_start_time_stay(listener: Listener, identity: ProcessIdentity) -> None:
    process = listener.python(
        "s.set_inheritable(True)\nprint('ready', flush=True)\nsys.stdin.read(1)\n"
        f"os.execv({BASH!r}, ['bash', '-c', 'echo ready; read line'])"
    )
    pair = listener.accept()
    ready(process)
    before = known(await identity.identify(pair))
    assert before.executable == PYTHON
    assert await identity.identify(pair) is before
    assert process.stdin is not None
    process.stdin.write(b"x")
    process.stdin.flush()
    ready(process)
    after = known(await identity.identify(pair))
    assert (after.owners[0].pid, after.owners[0].started) == (before.owners[0].pid, before.owners[0].started)
    assert after.executable == os.path.realpath(BASH)


async def test_a_recheck_sees_who_joined(listener: Listener, identity: ProcessIdentity) -> None:
    process = listener.python(
        "import subprocess\ns.set_inheritable(True)\nprint('ready', flush=True)\nsys.stdin.read(1)\n"
        "child = subprocess.Popen(['sleep', '60'], close_fds=False)\n"
        "while os.readlink(f'/proc/{child.pid}/exe') == os.readlink('/proc/self/exe'): time.sleep(0.01)"
    )
    pair = listener.accept()
    ready(process)
    known(await identity.identify(pair))
    assert process.stdin is not None
    process.stdin.write(b"x")
    process.stdin.flush()
    ready(process)
    assert unknown(await identity.recheck(pair))[0] is UnavailableReason.AMBIGUOUS


async def test_connections_that_wait_share_a_walk(listener: Listener) -> None:
    procfs = Procfs()
    walks: list[float] = []
    listing = procfs.pids
    procfs.pids = lambda: walks.append(time.monotonic()) or listing()  # type: ignore[method-assign,func-returns-value]
    identity = ProcessIdentity(IdentitySettings(), procfs=procfs)
    process = listener.python(f"more = [socket.create_connection(('127.0.0.1', {listener.port})) for _ in range(99)]")
    pairs = [listener.accept() for _ in range(100)]
    ready(process)
    found = await asyncio.gather(*(identity.identify(pair) for pair in pairs))
    assert {known(evidence).owners[0].pid for evidence in found} == {process.pid}
    assert len(walks) <= 5
    identity.close()


async def test_a_kernel_without_socket_queries(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path | None) -> DiagQuery:
        raise OSError(93, "Protocol not supported")

    monkeypatch.setattr(sockets_module, "DiagQuery", refuse)
    identity = ProcessIdentity(IdentitySettings())
    pair = listener.bash()
    assert known(await identity.identify(pair)).executable == os.path.realpath(BASH)
    assert await identity.socket_uid(pair) == os.getuid()
    identity.close()


async def test_no_answer_in_time(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver_module, "DEADLINE_SECONDS", 0.1)
    procfs = Procfs()
    listing = procfs.pids
    procfs.pids = lambda: time.sleep(0.3) or listing()  # type: ignore[method-assign,func-returns-value]
    identity = ProcessIdentity(IdentitySettings(), procfs=procfs)
    expected = "failed to resolve peer binary: no answer within 0.1 s"
    assert unknown(await identity.identify(listener.bash())) == (UnavailableReason.UNAVAILABLE, expected)
    identity.close()


class TestHiddenDescriptors:
    """A made-up process table around a real socket."""

    @pytest.fixture
    def proc(self, tmp_path: Path, listener: Listener) -> FakeProc:
        self.client = socket.create_connection(("127.0.0.1", listener.port))
        self.pair = listener.accept()
        proc = FakeProc(tmp_path / "proc")
        proc.add_proxy()
        proc.add(1, "/usr/bin/true", parent=0)
        proc.add(100, "/usr/bin/true", parent=1)
        proc.add(200, BASH, parent=100, inodes=(os.fstat(self.client.fileno()).st_ino,))
        proc.add(300, BASH, parent=200)
        proc.add(400, BASH, parent=100)
        for name in ("self", "100"):
            (proc.root / name / "ns").mkdir(parents=True, exist_ok=True)
            (proc.root / name / "ns/net").symlink_to("/proc/self/ns/net")
        return proc

    async def ask(self, proc: FakeProc, anchor: Callable[[], int | None] | None = None) -> Evidence:
        identity = ProcessIdentity(IdentitySettings(anchor=anchor), procfs=proc.procfs)
        try:
            return await identity.identify(self.pair)
        finally:
            identity.close()
            self.client.close()

    async def test_all_readable(self, proc: FakeProc) -> None:
        assert known(await self.ask(proc, lambda: 100)).owners[0].pid == 200

    @pytest.mark.parametrize(
        ("hidden", "anchor", "incomplete"),
        [(300, None, True), (400, None, False), (400, 100, True), (300, 100, True), (1, 100, False)],
    )
    async def test_in_the_tree_that_counts(
        self, proc: FakeProc, hidden: int, anchor: int | None, incomplete: bool
    ) -> None:
        proc.hide_descriptors(hidden)
        found = await self.ask(proc, None if anchor is None else lambda: anchor)
        if incomplete:
            detail = f"failed to resolve peer binary: descriptors of PID {hidden} are not readable"
            assert unknown(found) == (UnavailableReason.INCOMPLETE, detail)
        else:
            assert known(found).owners[0].pid == 200

    async def test_a_corpse_holds_nothing(self, proc: FakeProc) -> None:
        proc.hide_descriptors(300)
        stat = proc.root / "300/stat"
        stat.write_text(stat.read_text().replace(" S ", " Z "))
        assert known(await self.ask(proc)).owners[0].pid == 200

    async def test_an_owner_that_hides(self, proc: FakeProc) -> None:
        proc.hide_descriptors(200)
        detail = "failed to resolve peer binary: no process holds the socket; SYS_PTRACE may be missing"
        assert unknown(await self.ask(proc)) == (UnavailableReason.UNAVAILABLE, detail)

    async def test_an_owner_without_a_readable_executable(self, proc: FakeProc) -> None:
        exe = proc.root / "200/exe"
        exe.unlink()
        exe.mkdir()
        reason, detail = unknown(await self.ask(proc))
        assert reason is UnavailableReason.UNAVAILABLE
        assert detail == "failed to resolve peer binary for PID 200: Invalid argument"

    async def test_an_owner_that_keeps_changing(self, proc: FakeProc) -> None:
        (proc.root / "200/exe").unlink()
        reason, detail = unknown(await self.ask(proc))
        assert reason is UnavailableReason.UNAVAILABLE
        assert detail == "failed to resolve peer binary: process 200 ended while it was identified"

    async def test_too_many_owners(self, proc: FakeProc) -> None:
        inode = os.fstat(self.client.fileno()).st_ino
        for pid in range(500, 570):
            proc.add(pid, BASH, parent=200, inodes=(inode,))
        assert unknown(await self.ask(proc))[0] is UnavailableReason.AMBIGUOUS


@needs_root
class TestNamespaces:
    @pytest.fixture
    def sandbox(self, listener: Listener) -> subprocess.Popen[bytes]:
        process = listener.run("unshare", "-n", "sh", "-c", "ip link set lo up && echo ready && read line")
        ready(process)
        return process

    async def test_clients_in_another_network_namespace(
        self, listener: Listener, identity: ProcessIdentity, sandbox: subprocess.Popen[bytes]
    ) -> None:
        namespace = Path(f"/proc/{sandbox.pid}/ns/net")
        there = Listener(inside(namespace, lambda: socket.create_server(("127.0.0.1", 0))))
        script = f"exec 3<>/dev/tcp/127.0.0.1/{there.port}; read line"
        client = listener.run("nsenter", f"--net={namespace}", BASH, "-c", script)
        pair = there.accept()
        assert unknown(await identity.identify(pair))[0] is UnavailableReason.UNAVAILABLE
        assert await identity.socket_uid(pair) is None
        for settings in (IdentitySettings(netns=namespace), IdentitySettings(anchor=lambda: sandbox.pid)):
            inner = ProcessIdentity(settings)
            assert known(await inner.identify(pair)).owners[0].pid == client.pid
            assert await inner.socket_uid(pair) == os.getuid()
            inner.close()
        text = TextQuery(Path("/proc/thread-self/net"), namespace).find(pair)
        assert text is not None
        assert text.inode == DiagQuery(namespace).find(pair).inode  # type: ignore[union-attr]
        there.close()

    async def test_a_path_shown_from_another_mount_namespace(
        self, listener: Listener, identity: ProcessIdentity, tool: Path
    ) -> None:
        """The program mounts itself over a path that policy may list."""
        trusted = tool.with_name("trusted")
        shutil.copy("/usr/bin/true", trusted)
        connect = f"exec 3<>/dev/tcp/127.0.0.1/{listener.port}; read line"
        listener.run("unshare", "-m", "sh", "-c", f"mount --bind {tool} {trusted}; exec {trusted} -c '{connect}'")
        reason, detail = unknown(await identity.identify(listener.accept()))
        assert reason is UnavailableReason.UNAVAILABLE
        assert "runs in another mount namespace and its file is not the one known here" in detail

    async def test_the_same_file_in_another_mount_namespace(
        self, listener: Listener, identity: ProcessIdentity
    ) -> None:
        connect = f"exec 3<>/dev/tcp/127.0.0.1/{listener.port}; read line"
        listener.run("unshare", "-m", BASH, "-c", connect)
        assert known(await identity.identify(listener.accept())).executable == os.path.realpath(BASH)
