"""Values that are here already: variables, descriptors, literals and files with their permissions."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from egress.sdk.secrets import BadSpec, Fetched, SecretSource, SourceUnavailable, Watched
from tests.support.secret_sources import sources


def values(fetched: Fetched) -> dict[str, str]:
    return {key: secret.reveal() for key, secret in fetched.values.items()}


async def refusal(source: SecretSource) -> str:
    with pytest.raises(SourceUnavailable) as caught:
        await source.fetch()
    return caught.value.kind


def fault(tmp_path: Path, scheme: str, fields: object, **more: bool) -> tuple[tuple[str | int, ...], str]:
    with pytest.raises(BadSpec) as caught:
        sources(tmp_path, **more).make(scheme, fields)
    return caught.value.path, caught.value.message


# variables -----------------------------------------------------------------------------------------------------------


async def test_a_variable_is_taken_out_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EGRESS_TEST_TOKEN", "t0ken")
    source = sources(tmp_path, dict(os.environ)).make("env", "EGRESS_TEST_TOKEN")
    assert os.environ["EGRESS_TEST_TOKEN"] == "t0ken"  # making it fetches nothing
    assert values(await source.fetch()) == {"": "t0ken"}
    assert "EGRESS_TEST_TOKEN" not in os.environ
    assert values(await source.fetch()) == {"": "t0ken"}


def test_a_variable_that_was_read_is_not_in_proc_either() -> None:
    code = """
import os
from pathlib import Path
from egress.credentials.hygiene import forget_variable
seen = lambda: Path("/proc/self/environ").read_bytes()
assert b"TOKEN=canary-5566" in seen()
forget_variable("TOKEN")
assert b"canary-5566" not in seen() and b"OTHER=kept" in seen() and b"XTOKEN=kept" in seen()
assert "TOKEN" not in os.environ and os.environ["XTOKEN"] == os.environ["OTHER"] == "kept"
"""
    environment = {"TOKEN": "canary-5566", "OTHER": "kept", "XTOKEN": "kept"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, cwd=Path(__file__).parents[4])


async def test_a_variable_that_is_not_set(tmp_path: Path) -> None:
    assert await refusal(sources(tmp_path).make("env", {"name": "NONE"})) == "not_set"


# literals ------------------------------------------------------------------------------------------------------------


async def test_literals_only_where_they_are_allowed(tmp_path: Path) -> None:
    assert values(await sources(tmp_path).make("literal", "v").fetch()) == {"": "v"}
    _, message = fault(tmp_path, "literal", "canary-1", allow_literal=False)
    assert "--allow-literal-secrets" in message
    assert "canary" not in message


# descriptors ---------------------------------------------------------------------------------------------------------


async def test_a_descriptor_is_read_once_and_closed(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(reader, True)
    os.write(writer, b"from a pipe\n")
    os.close(writer)
    made = sources(tmp_path)
    first, second = made.make("fd", reader), made.make("fd", {"number": reader})
    assert values(await first.fetch()) == {"": "from a pipe\n"}
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(reader)
    assert values(await second.fetch()) == {"": "from a pipe\n"}


async def test_a_descriptor_of_our_own_is_left_alone(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    assert await refusal(sources(tmp_path).make("fd", reader)) == "not_inherited"
    os.close(writer)
    os.close(reader)


async def test_descriptors_that_give_nothing(tmp_path: Path) -> None:
    assert await refusal(sources(tmp_path).make("fd", 9999)) == "not_open"
    for number in (2, -1, "3", True):
        assert fault(tmp_path, "fd", number)[0] == ("number",)


# files ---------------------------------------------------------------------------------------------------------------


def private(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(0o600)
    return path


async def test_a_file_beside_the_document(tmp_path: Path) -> None:
    private(tmp_path / "token", "v\n")
    for fields in ("token", {"path": "token"}, str(tmp_path / "token")):
        assert values(await sources(tmp_path).make("file", fields).fetch()) == {"": "v\n"}


async def test_the_directory_of_service_credentials(tmp_path: Path) -> None:
    (tmp_path / "creds").mkdir()
    private(tmp_path / "creds" / "token", "v")
    made = sources(tmp_path, {"CREDENTIALS_DIRECTORY": str(tmp_path / "creds")})
    assert values(await made.make("file", "$CREDENTIALS_DIRECTORY/token").fetch()) == {"": "v"}
    assert fault(tmp_path, "file", "$CREDENTIALS_DIRECTORY/token") == (("path",), "$CREDENTIALS_DIRECTORY is not set")


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o660, 0o611, 0o644])
async def test_a_file_that_others_may_open(tmp_path: Path, mode: int) -> None:
    private(tmp_path / "token", "v").chmod(mode)
    assert await refusal(sources(tmp_path).make("file", "token")) == "open_to_others"
    permissive = {"path": "token", "allow_permissive": True}
    assert values(await sources(tmp_path).make("file", permissive).fetch()) == {"": "v"}


async def test_json_and_variables(tmp_path: Path) -> None:
    private(tmp_path / "a.json", json.dumps({"A": "1", "B": 2, "C": "3"}))
    private(tmp_path / ".env", "# no=value\nexport A='one two'\nB = \"x=y\"\n\nC=plain # kept\nnothing\n")
    made = sources(tmp_path)
    found = await made.make("file", {"path": "a.json", "format": "json"}).fetch()
    assert values(found) == {"A": "1", "C": "3"}
    assert found.document is not None
    assert json.loads(found.document.reveal())["B"] == 2
    assert values(await made.make("file", {"path": "a.json", "format": "json", "key": "C"}).fetch()) == {"": "3"}
    variables = values(await made.make("file", {"path": ".env", "format": "dotenv"}).fetch())
    assert variables == {"A": "one two", "B": "x=y", "C": "plain # kept"}
    absent = made.make("file", {"path": ".env", "format": "dotenv", "key": "Z"})
    assert await refusal(absent) == "no_such_field"


async def test_files_that_give_nothing(tmp_path: Path) -> None:
    private(tmp_path / "binary", b"\xff\xfe")
    private(tmp_path / "large", "x" * 70_000)
    private(tmp_path / "a.json", "{canary")
    os.mkfifo(tmp_path / "fifo", 0o600)
    made = sources(tmp_path)
    kinds = {name: await refusal(made.make("file", name)) for name in ("binary", "large", "fifo", "none", ".")}
    assert kinds == {
        "binary": "not_text", "large": "too_large", "fifo": "no_file", "none": "not_found", ".": "unreadable",
    }  # fmt: skip
    assert await refusal(made.make("file", {"path": "a.json", "format": "json"})) == "not_json"


async def test_a_change_is_noticed(tmp_path: Path) -> None:
    first, second = private(tmp_path / "first", "1"), private(tmp_path / "second", "2")
    link = tmp_path / "token"
    link.symlink_to(first)
    source = sources(tmp_path).make("file", "token")
    assert isinstance(source, Watched)
    await source.fetch()
    assert not source.changed()
    (tmp_path / "next").symlink_to(second)
    (tmp_path / "next").rename(link)  # as mounted secrets are replaced
    assert source.changed()
    assert values(await source.fetch()) == {"": "2"}
    assert not source.changed()
    second.chmod(0o644)
    assert source.changed()
    assert await refusal(source) == "open_to_others"
    assert not source.changed()
    link.unlink()
    assert source.changed()
    assert await refusal(source) == "not_found"
    assert not source.changed()


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, ("path",)),
        ({"path": ""}, ("path",)),
        ({"path": "a\0b"}, ("path",)),
        ({"path": "a", "format": "xml"}, ("format",)),
        ({"path": "a", "key": "k"}, ("key",)),
        ({"path": "a", "allow_permissive": "yes"}, ("allow_permissive",)),
        ({"path": "a", "canary": 1}, ("canary",)),
    ],
)
def test_files_that_cannot_be(tmp_path: Path, fields: dict[str, object], path: tuple[str, ...]) -> None:
    assert fault(tmp_path, "file", fields)[0] == path


# nested and unknown --------------------------------------------------------------------------------------------------


async def test_a_source_inside_another(tmp_path: Path) -> None:
    private(tmp_path / "a.json", json.dumps({"k": {"v": "deep"}}))
    nested = sources(tmp_path).nested({"file": "a.json", "json": "/k/v"})
    assert values(await nested.fetch()) == {"": "deep"}


@pytest.mark.parametrize("given", ["token", {}, {"file": "a", "env": "B"}, {"nowhere": 1}, {"json": "/a"}, None])
def test_nested_sources_that_are_none(tmp_path: Path, given: object) -> None:
    with pytest.raises(BadSpec):
        sources(tmp_path).nested(given)


async def test_a_library_that_hangs_takes_one_thread(tmp_path: Path) -> None:
    context = sources(tmp_path).context()
    held = asyncio.Event()
    loop = asyncio.get_running_loop()
    import threading

    release = threading.Event()

    def hang() -> None:
        loop.call_soon_threadsafe(held.set)
        release.wait(10)

    first = asyncio.create_task(context.run_blocking(hang))
    await held.wait()
    first.cancel()  # the deadline of the value came
    with pytest.raises(SourceUnavailable, match="still_running"):
        await context.run_blocking(hang)
    release.set()
