"""Clients that people use, with placeholders where their keys would be: git, GitHub's API, the SDKs of model makers."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.origins import Conversation, Origin, OriginLoop
from tests.support.proxy import LANES, EgressProcess, policy_text, rest
from tests.support.raw import eventually
from tests.support.registries import TlsServer, git_origin
from tests.support.workload import Workload

KEYS = {
    "GITHUB_TOKEN": "ghp_R3aLr3aLr3aLr3aLr3aLr3aLr3aLr3aLr3aL",
    "OPENAI_API_KEY": "sk-proj-real-Aa1Bb2Cc3Dd4Ee5Ff6Gg7Hh8",
    "ANTHROPIC_API_KEY": "sk-ant-api03-real-Zz9Yy8Xx7Ww6Vv5Uu4",
}
SHAPES = {"GITHUB_TOKEN": "ghp_", "OPENAI_API_KEY": "sk-proj-", "ANTHROPIC_API_KEY": "sk-ant-api03-"}
HOSTS = ("git.test", "api.github.test", "api.openai.test", "api.anthropic.test", "elsewhere.test")

HELPER = '!f() { test "$1" = get && echo username=x-access-token && echo "password=$GITHUB_TOKEN"; }; f'
"""What `gh auth setup-git` installs does the same."""

OPENAI = """
import json, sys, openai
client = openai.OpenAI(base_url=sys.argv[1], max_retries=0, timeout=20)
ask = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
told = [client.chat.completions.create(**ask).choices[0].message.content]
pieces = []
for event in client.chat.completions.create(**ask, stream=True):
    pieces.append(event.choices[0].delta.content)
    if len(pieces) == 1:
        told.append([one.id for one in client.models.list()])
try:
    openai.OpenAI(base_url=sys.argv[2], max_retries=0, timeout=20).models.list()
except openai.PermissionDeniedError as refused:
    told.append(refused.response.json()["error"])
print(json.dumps([*told, pieces]))
"""

ANTHROPIC = """
import json, sys, anthropic
client = anthropic.Anthropic(base_url=sys.argv[1], max_retries=0, timeout=20)
ask = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
told = [client.messages.create(**ask).content[0].text]
pieces = []
with client.messages.stream(**ask) as stream:
    for text in stream.text_stream:
        pieces.append(text)
        if len(pieces) == 1:
            told.append([one.id for one in client.models.list()])
try:
    anthropic.Anthropic(base_url=sys.argv[2], max_retries=0, timeout=20).models.list()
except anthropic.PermissionDeniedError as refused:
    told.append(refused.response.json()["error"])
print(json.dumps([*told, pieces]))
"""


def event(name: str, **data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()


def delta(text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return f"data: {json.dumps(chunk)}\n\n".encode()


def openai_stream(key: str) -> list[bytes]:
    return [delta("hello"), delta(f"so it is {key}, is it"), b"data: [DONE]\n\n"]


def anthropic_message(text: str | None) -> dict[str, Any]:
    content = [{"type": "text", "text": text}] if text is not None else []
    return {
        "id": "m", "type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": None,
        "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip


def anthropic_stream(key: str) -> list[bytes]:
    def text(what: str) -> bytes:
        return event("content_block_delta", index=0, delta={"type": "text_delta", "text": what})

    first = event("message_start", message=anthropic_message(None))
    first += event("content_block_start", index=0, content_block={"type": "text", "text": ""}) + text("hello")
    last = event("content_block_stop", index=0)
    last += event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2})
    return [first, text(f"so it is {key}, is it"), last + event("message_stop")]


@dataclass
class Models:
    """Both makers' APIs. Each repeats the key that it was given; a stream goes on once the list of models was asked."""

    keys: list[str] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, talk: Conversation) -> None:
        request = talk.request
        assert request is not None
        sent = await talk.body()
        own = bool(request.values(b"anthropic-version"))
        told = request.values(b"x-api-key") or request.values(b"authorization")  # SDKs differ by version
        key = told[0].removeprefix(b"Bearer ").decode()
        self.keys.append(key)
        asked = json.loads(sent) if sent else {}
        if request.method == b"GET":
            self.asked.set()
            listed = {"object": "list", "data": [{"id": key, "type": "model", "object": "model"}], "has_more": False}
            await self._say(talk, listed)
        elif asked.get("stream"):
            await self._stream(talk, anthropic_stream(key) if own else openai_stream(key), key.encode())
        elif own:
            await self._say(talk, anthropic_message(key))
        else:
            choice = {"index": 0, "message": {"role": "assistant", "content": key}, "finish_reason": "stop"}
            await self._say(talk, {"id": "c", "object": "chat.completion", "created": 1, "choices": [choice]})

    async def _say(self, talk: Conversation, what: object) -> None:
        body = json.dumps(what).encode()
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body))
        await talk.send(body)

    async def _stream(self, talk: Conversation, events: list[bytes], key: bytes) -> None:
        """Chunks that end within the key."""
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.asked.clear()
        first, second, last = events
        await self._chunk(talk, first)
        await asyncio.wait_for(self.asked.wait(), 10)
        middle = second.index(key) + len(key) // 2
        for piece in (second[:middle], second[middle:], last):
            await self._chunk(talk, piece)
            await talk.pause(0.02)
        await talk.send(b"0\r\n\r\n")

    async def _chunk(self, talk: Conversation, data: bytes) -> None:
        await talk.send(b"%x\r\n%s\r\n" % (len(data), data))


@dataclass
class Desk:
    proxy: EgressProcess
    workload: Workload
    origin: Origin
    forge: TlsServer
    models: Models

    def url(self, host: str, path: str = "") -> str:
        return f"https://{host}:{self.origin.port}{path}"


def commit(checkout: Path, name: str) -> None:
    """A file that does not compress."""
    (checkout / name).write_bytes(os.urandom(300_000))
    identity = ("-c", "user.name=tester", "-c", "user.email=tester@example.test")
    subprocess.run(["git", "add", "."], cwd=checkout, check=True)
    subprocess.run(["git", *identity, "commit", "-q", "-m", name], cwd=checkout, check=True)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare repository that takes pushes, in a directory of its own."""
    root = tmp_path_factory.mktemp("forge")
    subprocess.run(["git", "init", "-q", "-b", "main", "seed"], cwd=root, check=True)
    commit(root / "seed", "noise.bin")
    subprocess.run(["git", "clone", "-q", "--mirror", "seed", "own.git"], cwd=root, check=True)
    subprocess.run(["git", "config", "http.receivepack", "true"], cwd=root / "own.git", check=True)
    return root / "own.git"


def provider(key: str, credential: dict[str, str], *places: tuple[str, int]) -> dict[str, Any]:
    """A provider whose profile is its own."""
    name = key.split("_", maxsplit=1)[0].lower()
    declared = {"name": "key", "env_vars": [key], "placeholder_prefix": SHAPES[key], **credential}
    endpoints = [
        {"host": host, "port": port, "protocol": "rest", "access": "full", "enforcement": "enforce"}
        for host, port in places
    ]
    profile = {"id": name, "display_name": name, "credentials": [declared], "endpoints": endpoints}
    return {"name": name, "profile": profile, "values": {key: {"env": f"REAL_{key}"}}}


@pytest.fixture(scope="module", params=LANES)
def desk(
    request: pytest.FixtureRequest, origin_loop: OriginLoop, authority: OriginAuthority, repository: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Desk]:  # fmt: skip
    context = authority.server_context(*HOSTS)
    origin = Origin(origin_loop, context)
    forge = git_origin(repository.parent, context, f"x-access-token:{KEYS['GITHUB_TOKEN']}")
    bearer = {"auth_style": "bearer", "header_name": "Authorization"}
    listed = [
        provider("GITHUB_TOKEN", bearer, ("git.test", forge.port), ("api.github.test", origin.port)),
        provider("OPENAI_API_KEY", bearer, ("api.openai.test", origin.port)),
        provider(
            "ANTHROPIC_API_KEY", {"auth_style": "header", "header_name": "x-api-key"},
            ("api.anthropic.test", origin.port),
        ),
    ]  # fmt: skip
    with EgressProcess(
        policy_text(rest("elsewhere.test", origin.port)),
        aliases=dict.fromkeys(HOSTS, "127.0.0.1"), trust=authority.ca_file, settings=LANES[request.param],
        providers={"version": 1, "providers": listed},
        environment={f"REAL_{key}": value for key, value in KEYS.items()},
    ) as proxy:  # fmt: skip
        workload = Workload(proxy, tmp_path_factory.mktemp("work"))
        done = proxy.command("env", "--format", "json", "--ready-file", str(proxy.ready_file))
        assert done.returncode == 0, done.stderr
        workload.environment |= {key: json.loads(done.stdout)[key] for key in KEYS}
        models = Models()
        origin.script = models
        yield Desk(proxy, workload, origin, forge, models)
    forge.stop()
    origin.stop()


@pytest.mark.parametrize("key", KEYS)
def test_placeholders_have_the_shape_of_the_key(desk: Desk, key: str) -> None:
    assert desk.workload.environment[key].startswith(f"{SHAPES[key]}OPENSHELL-RESOLVE-ENV-s")


def test_git_clones_and_pushes_with_a_placeholder_for_a_password(desk: Desk, repository: Path) -> None:
    """git asks bare, hears 401, and repeats with Basic; what is larger than `http.postBuffer` goes up in chunks."""
    work, url = desk.workload, f"https://git.test:{desk.forge.port}/own.git"
    desk.forge.seen.clear()
    done = work.run("git", "-c", f"credential.helper={HELPER}", "clone", "-q", url, "copy")
    assert done.returncode == 0, done.stderr
    assert (work.directory / "copy" / "noise.bin").stat().st_size == 300_000
    commit(work.directory / "copy", "more.bin")
    branch = f"refs/heads/{work.directory.name}"
    push = ("-c", f"credential.helper={HELPER}", "-c", "http.postBuffer=1024", "push", "-q", "origin", f"HEAD:{branch}")
    done = work.run("git", "-C", "copy", *push)
    assert done.returncode == 0, done.stderr
    refs = subprocess.run(["git", "for-each-ref", branch], cwd=repository, capture_output=True, text=True, check=True)
    assert branch in refs.stdout
    assert "POST /own.git/git-receive-pack" in desk.forge.seen


def test_git_without_a_credential_is_refused_by_the_forge(desk: Desk) -> None:
    done = desk.workload.run("git", "clone", "-q", f"https://git.test:{desk.forge.port}/own.git", "none")
    assert done.returncode != 0
    assert "could not read Username" in done.stderr


@pytest.mark.parametrize("scheme", ["token", "Bearer"])
def test_the_api_of_a_forge_as_gh_asks_it(desk: Desk, scheme: str) -> None:
    """`gh` says `token`."""
    seen: list[bytes] = []

    async def whoami(talk: Conversation) -> None:
        assert talk.request is not None
        sent = await talk.body()
        seen.extend(talk.request.values(b"authorization"))
        value = talk.request.values(b"authorization")[0].split()[1]
        body = b'{"login": "me", "asked": %d, "token": "%s"}' % (len(sent), value)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        await talk.send(head + body)

    desk.origin.script = whoami
    try:
        words = ["curl", "-sS", "-H", f"Authorization: {scheme} {desk.workload.environment['GITHUB_TOKEN']}"]
        words += ["--json", '{"query": "{viewer{login}}"}', desk.url("api.github.test", "/graphql")]
        done = desk.workload.run(*words)
    finally:
        desk.origin.script = desk.models
    assert done.returncode == 0, done.stderr
    real = KEYS["GITHUB_TOKEN"]
    assert seen == [f"{scheme} {real}".encode()]
    assert json.loads(done.stdout) == {"login": "me", "asked": 28, "token": "*" * len(real)}


@pytest.mark.parametrize("form", ["grant_type=refresh_token&refresh_token=r", "a=1&gr%61nt_type=password"])
def test_a_token_form_is_refused(desk: Desk, form: str) -> None:
    """What it would bring is a secret that nobody could mask."""
    desk.origin.take()
    done = desk.workload.run("curl", "-sS", "-d", form, desk.url("api.github.test", "/login/oauth/access_token"))
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["error"] == "credential_minting_denied"
    assert desk.origin.take() == b""

    def told() -> bool:
        texts = map(json.dumps, desk.proxy.events())
        return any(answer["request_id"] in text and "credential_minting_denied" in text for text in texts)

    assert eventually(told)


@pytest.mark.parametrize(
    ("script", "key", "base"),
    [(OPENAI, "OPENAI_API_KEY", "https://api.openai.test:{port}/v1"),
     (ANTHROPIC, "ANTHROPIC_API_KEY", "https://api.anthropic.test:{port}")],
    ids=["openai", "anthropic"],
)  # fmt: skip
def test_the_sdks_of_model_makers(desk: Desk, script: str, key: str, base: str) -> None:
    """A reply, a stream whose first event arrives before the second is sent, and the refusal of another host."""
    desk.models.keys.clear()
    desk.origin.take()
    there = base.format(port=desk.origin.port)
    elsewhere = desk.url("elsewhere.test") + there.removeprefix(desk.url(there.split("/")[2].split(":")[0]))
    done = desk.workload.python(script, there, elsewhere)
    assert done.returncode == 0, done.stderr
    mask = "*" * len(KEYS[key])
    reply, models, refusal, pieces = json.loads(done.stdout)
    assert (reply, models, refusal) == (mask, [mask], "credential_endpoint_mismatch")
    assert pieces[:2] == ["hello", f"so it is {mask}, is it"]
    assert desk.models.keys == [KEYS[key]] * 3
    assert b"OPENSHELL" not in desk.origin.take()
