"""Files that change under a running proxy: a fault of the providers takes credentials away, another fault does not."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.proxy import EgressProcess, policy_text, rest
from tests.support.raw import eventually

PROFILE = """\
id: ticket-desk
display_name: Ticket Desk
credentials: [{name: token, env_vars: [DESK_TOKEN], auth_style: header, header_name: X-Desk}]
endpoints: [{host: desk.example, port: 443, protocol: rest, access: full}]
"""
POLICY = policy_text(rest("other.example", 443))


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    (tmp_path / "desk.yaml").write_text(PROFILE)
    return tmp_path


@pytest.fixture
def proxy(profiles: Path) -> Iterator[EgressProcess]:
    desk = {"name": "desk", "profile": "ticket-desk", "values": {"DESK_TOKEN": {"env": "DESK"}}}
    idle = {"name": "idle", "profile": "generic-bearer", "values": {"API_TOKEN": {"env": "DESK"}}}  # a warning
    file = {"version": 1, "profile_dirs": [str(profiles)], "providers": [desk, idle]}
    with EgressProcess(POLICY, providers=file, environment={"DESK": "tok-live-11223344"}) as running:
        yield running


def state(proxy: EgressProcess) -> str:
    done = proxy.command("credentials", "list", "--json")
    assert done.returncode == 0, done.stderr
    return next((str(one["state"]) for one in json.loads(done.stdout) if one["key"] == "DESK_TOKEN"), "none")


def reloads(proxy: EgressProcess) -> int:
    """How many times files were read again, with whatever outcome."""
    words = ("rejected", "installed")
    return sum(any(word in json.dumps(event) for word in words) for event in proxy.events())


def reload(proxy: EgressProcess) -> None:
    before = reloads(proxy)
    proxy.process.send_signal(signal.SIGHUP)
    assert eventually(lambda: reloads(proxy) > before, 20)


def test_a_fault_of_the_policy_takes_no_credential_away(proxy: EgressProcess) -> None:
    held = state(proxy)
    assert held != "none"
    proxy.policy_file.write_text(POLICY.replace("version: 1", "version: 2"))
    reload(proxy)
    assert state(proxy) == held


@pytest.mark.parametrize("signalled", [False, True])
def test_a_fault_of_a_profile_does_until_it_is_gone(proxy: EgressProcess, profiles: Path, signalled: bool) -> None:
    """The files are again what they were; the values are not, until they are taken in again."""
    held = state(proxy)
    (profiles / "new.yaml").write_text(PROFILE.replace("X-Desk", "Host"))
    assert eventually(lambda: state(proxy) == "none", 20)
    (profiles / "new.yaml").unlink()
    if signalled:
        proxy.process.send_signal(signal.SIGHUP)
    assert eventually(lambda: state(proxy) == held, 20)
