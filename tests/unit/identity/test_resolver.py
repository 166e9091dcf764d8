"""What is decided without a socket; the rest needs real ones (integration/test_identity.py)."""

import ipaddress
from pathlib import Path

import pytest

from egress.identity.procfs import Procfs
from egress.identity.resolver import IdentitySettings, ProcessIdentity, pid_file_anchor
from egress.model.address import Port
from egress.model.intent import SocketPair
from egress.model.process import EvidenceUnavailable, UnavailableReason

PAIR = SocketPair(ipaddress.ip_address("192.0.2.77"), Port(1), ipaddress.ip_address("192.0.2.77"), Port(2))


async def test_before_the_entrypoint_exists_nothing_is_looked_at(tmp_path: Path) -> None:
    # A tree that is not there would be noticed by any look at it.
    identity = ProcessIdentity(IdentitySettings(anchor=lambda: None), procfs=Procfs(tmp_path / "nowhere"))
    assert await identity.identify(PAIR) == EvidenceUnavailable(
        UnavailableReason.UNAVAILABLE, "entrypoint process not yet spawned"
    )
    identity.close()


async def test_an_anchor_that_is_gone(tmp_path: Path) -> None:
    identity = ProcessIdentity(IdentitySettings(anchor=lambda: 4), procfs=Procfs(tmp_path))
    found = await identity.identify(PAIR)
    assert isinstance(found, EvidenceUnavailable)
    assert found.detail == "failed to resolve peer binary: socket table unreadable: No such file or directory"
    assert await identity.socket_uid(PAIR) is None
    identity.close()


async def test_other_platforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    identity = ProcessIdentity(IdentitySettings())
    assert await identity.identify(PAIR) == EvidenceUnavailable(
        UnavailableReason.UNAVAILABLE, "identity binding unavailable on this platform"
    )
    assert await identity.socket_uid(PAIR) is None
    identity.close()


@pytest.mark.parametrize(("content", "pid"), [("123\n", 123), (" 7 ", 7), ("", None), ("x", None), ("0", None)])
def test_pid_file(tmp_path: Path, content: str, pid: int | None) -> None:
    path = tmp_path / "pid"
    path.write_text(content)
    assert pid_file_anchor(path)() == pid


def test_missing_pid_file(tmp_path: Path) -> None:
    assert pid_file_anchor(tmp_path / "pid")() is None
