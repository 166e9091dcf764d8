"""Values that programs print, by real processes."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import uvloop

from egress.credentials.sources.command import _end
from egress.credentials.sources.command_output import PARSERS
from egress.sdk.secrets import BadSpec, SourceUnavailable
from tests.support.secret_sources import sources


async def run(tmp_path: Path, fields: object, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    source = sources(tmp_path, environment or {"PATH": os.environ["PATH"]}).make("command", fields)
    return {key: secret.reveal() for key, secret in (await source.fetch()).values.items()}


async def refusal(tmp_path: Path, fields: object) -> str:
    with pytest.raises(SourceUnavailable) as caught:
        await run(tmp_path, fields)
    assert caught.value.__cause__ is None
    return caught.value.kind


def script(text: str) -> list[str]:
    return ["/bin/sh", "-c", text]


async def test_a_program_without_a_shell(tmp_path: Path) -> None:
    assert await run(tmp_path, ["echo", "$HOME; true"]) == {"": "$HOME; true\n"}


async def test_what_a_program_finds_around_it(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    given = {"PATH": os.environ["PATH"], "HOME": "/home/anna", "TOKEN": "canary", "WANTED": "yes"}
    fields = {"argv": script("pwd; env"), "cwd": "work", "env_allow": ["WANTED", "ABSENT"]}
    directory, *lines = (await run(tmp_path, fields, given))[""].splitlines()
    assert Path(directory) == tmp_path / "work"
    found = dict(line.split("=", 1) for line in lines)
    assert {name: found.get(name) for name in given} == {**given, "TOKEN": None}


async def test_input_for_helpers(tmp_path: Path) -> None:
    fields = {"argv": script("read line; echo got $line"), "input": "https://registry.test\nmore\n"}
    assert await run(tmp_path, fields) == {"": "got https://registry.test\n"}
    assert await run(tmp_path, {"argv": script("exec <&-; echo deaf"), "input": "x" * 1_000_000}) == {"": "deaf\n"}


def test_programs_that_end_before_they_were_given_anything(tmp_path: Path) -> None:
    async def many() -> list[dict[str, str]]:
        return await asyncio.gather(*[run(tmp_path, ["echo", "x"]) for _ in range(10)])

    assert uvloop.run(many()) == [{"": "x\n"}] * 10


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("echo canary; echo canary >&2; exit 3", "exit_3"),
        ("kill -9 $$", "signal_9"),
        ("printf '\\377'", "not_text"),
        ("yes canary", "too_large"),
    ],
)
async def test_programs_that_give_nothing(tmp_path: Path, text: str, kind: str) -> None:
    assert await refusal(tmp_path, script(text)) == kind


async def test_programs_that_cannot_start(tmp_path: Path) -> None:
    assert await refusal(tmp_path, ["/nowhere/gh"]) == "cannot_start"
    assert await refusal(tmp_path, {"argv": ["echo"], "cwd": "nowhere"}) == "cannot_start"


async def test_a_program_and_all_it_started_end_with_their_time(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    text = f"sleep 60 & echo $! > {pids}; echo $$ >> {pids}; sleep 60"
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        await run(tmp_path, {"argv": script(text), "timeout": "500ms"})
    assert time.monotonic() - begin < 10
    for _ in range(100):
        left = [pid for pid in pids.read_text().split() if _runs(pid)]
        if not left:
            break
        await asyncio.sleep(0.02)
    assert left == []


async def test_a_program_whose_output_nobody_read_ends_too() -> None:
    """asyncio's pipes are full and paused: it would never hear of the end."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec("yes", stdin=pipe, stdout=pipe, start_new_session=True)
    assert process.stdout is not None
    while len(process.stdout._buffer) < 128 * 1024:  # type: ignore[attr-defined]
        await asyncio.sleep(0.01)
    async with asyncio.timeout(5):
        await _end(process)
    assert process.returncode == -signal.SIGKILL


def _runs(pid: str) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


async def test_what_a_program_writes_on_stderr_is_seen_by_nobody(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    await run(tmp_path, script("echo canary >&2; echo v"))
    assert "canary" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, ("argv",)),
        ({"argv": []}, ("argv",)),
        ({"argv": ["a", 1]}, ("argv",)),
        ({"argv": ["a\0"]}, ("argv",)),
        ({"argv": ["a"], "timeout": "soon"}, ("timeout",)),
        ({"argv": ["a"], "parse": "xml"}, ("parse",)),
        ({"argv": ["a"], "env_allow": 1}, ("env_allow",)),
        ({"argv": ["a"], "input": 1}, ("input",)),
        ({"argv": ["a"], "shell": True}, ("shell",)),
    ],
)
def test_commands_that_cannot_be(tmp_path: Path, fields: dict[str, object], path: tuple[str, ...]) -> None:
    with pytest.raises(BadSpec) as caught:
        sources(tmp_path).make("command", fields)
    assert caught.value.path == path


# what helpers print --------------------------------------------------------------------------------------------------

EXEC = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "kind": "ExecCredential",
    "status": {"token": "t", "expirationTimestamp": "2027-01-15T08:00:00Z"},
}
AWS = {"Version": 1, "AccessKeyId": "AKIA", "SecretAccessKey": "s", "SessionToken": "t"}
SECRETS = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t"}
ENDS = 1_800_000_000.0


@pytest.mark.parametrize(
    ("parse", "output", "values", "expires"),
    [
        ("text", "v\n", {"": "v\n"}, None),
        ("json", '"v"', {"": "v"}, None),
        ("json", '{"A": "1", "n": 1}', {"A": "1"}, None),
        ("exec_credential", json.dumps(EXEC), {"": "t"}, ENDS),
        ("exec_credential", json.dumps({"status": {"token": "t"}}), {"": "t"}, None),
        ("aws_process", json.dumps({**AWS, "Expiration": "2027-01-15T08:00:00Z"}), SECRETS, ENDS),
        ("aws_process", json.dumps(AWS), SECRETS, None),
        (
            "docker",
            '{"ServerURL": "u", "Username": "anna", "Secret": "s"}',
            {"": "s", "Secret": "s", "Username": "anna", "ServerURL": "u"},
            None,
        ),
        (
            "git",
            "protocol=https\nhost=git.test\nusername=anna\npassword=p=q\npassword_expiry_utc=1800000000\n",
            {"": "p=q", "password": "p=q", "username": "anna"},
            ENDS,
        ),
        ("git", "password=p\n", {"": "p", "password": "p"}, None),
    ],
)
def test_conventions(parse: str, output: str, values: dict[str, str], expires: float | None) -> None:
    found = PARSERS[parse](output)
    assert {key: secret.reveal() for key, secret in found.values.items()} == values
    assert found.expires == expires


@pytest.mark.parametrize(
    ("parse", "output"),
    [
        ("json", "{canary"),
        ("json", "[1]"),
        ("exec_credential", "{}"),
        ("exec_credential", '{"status": {"token": 1}}'),
        ("exec_credential", '{"status": {"token": "t", "expirationTimestamp": "soon"}}'),
        ("aws_process", json.dumps({**AWS, "Version": 2})),
        ("aws_process", '{"Version": 1, "AccessKeyId": "a"}'),
        ("docker", '{"Username": "anna"}'),
        ("docker", "credentials not found in native keychain"),
        ("git", "username=anna\n"),
        ("git", ""),
    ],
)
def test_outputs_that_are_none(parse: str, output: str) -> None:
    with pytest.raises(SourceUnavailable) as caught:
        PARSERS[parse](output)
    assert caught.value.__cause__ is None
    assert caught.value.kind in ("not_json", "not_text", "no_such_field", "unreadable_expiry")
