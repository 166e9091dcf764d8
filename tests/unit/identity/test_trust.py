import hashlib
from pathlib import Path
from threading import Thread

import pytest

from egress.events.event import Finding
from egress.identity import trust
from egress.identity.lineage import Image, LineageReader
from egress.identity.procfs import Procfs, Vanished
from egress.identity.trust import Distrust, TofuMode, TrustStore
from egress.model.process import UnavailableReason
from tests.support.fake_proc import FakeProc

A, B = b"first content", b"second content"


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Tree:
    """One program path at a time, with processes that each keep the image they were started from."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.proc = FakeProc(directory / "proc")
        self.proc.add_proxy()
        self.proc.add(1, "/usr/bin/true", parent=0)
        self.findings: list[Finding] = []
        self._next = 100
        self._links: dict[int, bytes] = {}
        link = self.proc.procfs.executable_link
        self.proc.procfs.executable_link = lambda pid: self._links.get(pid) or link(pid)  # type: ignore[method-assign]

    def store(self, mode: TofuMode = TofuMode.STRICT) -> TrustStore:
        return TrustStore(self.proc.procfs, mode, self.findings.append)

    def start(self, content: bytes, path: str = "/opt/tool") -> Image:
        """A process that runs `content` and shows `path`."""
        self._next += 1
        image = self.directory / f"image{self._next}"
        image.write_bytes(content)
        self.proc.add(self._next, image)
        self._links[self._next] = path.encode()
        return LineageReader(self.proc.procfs, None).image(self._next)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def reason(verdict: object) -> UnavailableReason:
    assert isinstance(verdict, Distrust), verdict
    return verdict.reason


def test_hot_swap(tree: Tree) -> None:
    store = tree.store()
    old = tree.start(A)
    assert store.verify(old) == sha(A)
    new = tree.start(B)
    refused = store.verify(new)
    assert refused == Distrust(
        UnavailableReason.HASH_CHANGED,
        "binary integrity check failed: Binary integrity violation: /opt/tool hash changed "
        f"(cached: {sha(A)}, current: {sha(B)})",
    )
    assert store.verify(old) == sha(A)
    assert reason(store.verify(new)) is UnavailableReason.HASH_CHANGED
    assert store.verify(tree.start(A)) == sha(A)
    assert [finding.type for finding in tree.findings] == ["egress.identity.executable_changed"] * 2
    assert all(finding.blocked for finding in tree.findings)


def test_paths_are_trusted_one_by_one(tree: Tree) -> None:
    store = tree.store()
    assert store.verify(tree.start(A, "/a")) == sha(A)
    assert store.verify(tree.start(B, "/b")) == sha(B)


def test_an_unchanged_file_is_not_read_again(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tree.store()
    image = tree.start(A)
    assert store.known_digest(image) is None
    assert store.verify(image) == sha(A)
    monkeypatch.setattr(Procfs, "open_executable", lambda *_: pytest.fail("read again"))
    assert store.verify(image) == store.known_digest(image) == sha(A)


def test_content_changed_in_place_is_noticed(tree: Tree) -> None:
    store = tree.store()
    image = tree.start(A)
    assert store.verify(image) == sha(A)
    (tree.directory / f"image{image.pid}").write_bytes(B)
    again = LineageReader(tree.proc.procfs, None).image(image.pid)
    assert reason(store.verify(again)) is UnavailableReason.HASH_CHANGED


def test_warn_reports_and_moves_on(tree: Tree) -> None:
    store = tree.store(TofuMode.WARN)
    assert store.verify(tree.start(A)) == sha(A)
    assert store.verify(tree.start(B)) == sha(B)
    assert store.verify(tree.start(B)) == sha(B)
    assert [finding.blocked for finding in tree.findings] == [False]


def test_off_compares_nothing(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tree.store(TofuMode.OFF)
    assert store.verify(tree.start(A)) == sha(A)
    assert store.verify(tree.start(B)) == sha(B)
    monkeypatch.setattr(trust, "MAX_IMAGE_BYTES", 4)
    assert store.verify(tree.start(b"too large")) is None
    assert tree.findings == []


def test_pins_replace_first_use(tree: Tree) -> None:
    store = tree.store()
    assert store.verify(tree.start(A)) == sha(A)
    store.pin({"/opt/tool": frozenset({sha(B)})})
    assert store.verify(tree.start(B)) == sha(B)
    assert store.verify(tree.start(A)) == sha(A)
    store.pin({})
    assert reason(store.verify(tree.start(B))) is UnavailableReason.HASH_CHANGED


def test_forget(tree: Tree) -> None:
    store = tree.store()
    assert store.verify(tree.start(A)) == sha(A)
    assert store.forget("/opt/tool")
    assert not store.forget("/opt/tool")
    assert store.verify(tree.start(B)) == sha(B)


def test_remember_closes_the_window_before_first_use(tree: Tree) -> None:
    store = tree.store()
    (tree.directory / "tool").write_bytes(A)
    with (tree.directory / "tool").open("rb") as file:
        store.remember("/opt/tool", file.fileno())
    assert reason(store.verify(tree.start(B))) is UnavailableReason.HASH_CHANGED
    assert store.verify(tree.start(A)) == sha(A)


def test_an_unfamiliar_image_is_never_the_first(tree: Tree) -> None:
    store = tree.store()
    hidden = tree.start(A)
    stranger = Image(
        hidden.pid, hidden.started, hidden.link, hidden.path, hidden.fingerprint, False, hidden.argument_paths
    )
    assert reason(store.verify(stranger)) is UnavailableReason.UNAVAILABLE
    assert store.verify(hidden) == sha(A)
    assert store.verify(stranger) == sha(A)


def test_a_forgotten_file_is_hashed_again_and_its_path_is_remembered(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust, "REMEMBERED_DIGESTS", 2)
    store = tree.store()
    first = tree.start(A, "/first")
    for image in (first, tree.start(A, "/second"), tree.start(A, "/third")):
        assert store.verify(image) == sha(A)
    assert store.known_digest(first) is None
    assert reason(store.verify(tree.start(B, "/first"))) is UnavailableReason.HASH_CHANGED
    assert store.verify(first) == sha(A)


def test_a_full_store_refuses_new_paths_only(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "REMEMBERED_PATHS", 2)
    store = tree.store()
    known = tree.start(A, "/first")
    assert store.verify(known) == sha(A)
    assert store.verify(tree.start(A, "/second")) == sha(A)
    assert reason(store.verify(tree.start(A, "/third"))) is UnavailableReason.STORE_FULL
    assert store.verify(known) == sha(A)
    assert [finding.type for finding in tree.findings] == ["egress.identity.store_full"]


def test_files_that_are_not_hashed(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tree.store()
    large = tree.start(A, "/large")
    monkeypatch.setattr(trust, "MAX_IMAGE_BYTES", 4)
    assert store.verify(large) == Distrust(
        UnavailableReason.UNAVAILABLE, "binary integrity check failed: /large cannot be hashed: larger than 4 bytes"
    )
    monkeypatch.setattr(trust, "MAX_IMAGE_BYTES", 1 << 20)
    monkeypatch.setattr(trust, "HASH_SECONDS", -1.0)
    assert reason(store.verify(large)) is UnavailableReason.UNAVAILABLE
    monkeypatch.setattr(trust, "HASH_SECONDS", 5.0)
    assert store.verify(large) == sha(A)


def test_a_process_that_runs_another_file_by_now(tree: Tree) -> None:
    store = tree.store()
    image = tree.start(A)
    link = tree.proc.root / str(image.pid) / "exe"
    link.unlink()
    with pytest.raises(Vanished):
        store.verify(image)
    other = tree.directory / "other"
    other.write_bytes(A)
    link.symlink_to(other)
    with pytest.raises(Vanished):
        store.verify(image)


def test_many_that_ask_at_once_have_the_file_hashed_once(tree: Tree) -> None:
    store = tree.store()
    image = tree.start(A * 100_000)
    opened: list[int] = []
    original = tree.proc.procfs.open_executable

    def count(pid: int) -> int:
        opened.append(pid)
        return original(pid)

    tree.proc.procfs.open_executable = count  # type: ignore[method-assign]
    results: list[object] = []
    threads = [Thread(target=lambda: results.append(store.verify(image))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [sha(A * 100_000)] * 8
    assert opened == [image.pid]
