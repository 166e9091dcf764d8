"""Marked values from every source, placed wherever a placeholder may stand and sent back in every spelling: the origin
gets them, and nobody else does: neither the client nor an event, a log, a metric, a file or an operator's answer."""

import base64
import gzip
import hashlib
import json
import shlex
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.origins import Conversation, Origin, OriginLoop, Script, say_ok
from tests.support.proxy import LANES, EgressProcess, policy_text, rest
from tests.support.raw import Connection, EndOfStream, Reply, client_context, dial, eventually, open_tunnel, start_tls
from tests.support.spellings import reflected, spellings
from tests.support.websockets import ACCEPT, CLOSE, TEXT, closing, frame, handshake, parse, switching, upgrade

HOST, OTHER, DOWN = "origin.test", "other.test", "down.test"
WORDS = ("Env", "Text", "Json", "Dotenv", "Coded", "Command", "Descriptor", "Literal", "Granted")
MARKED = {f"{word.upper()}_KEY": f"Zq7vX{word}k9Wd-8+w=&<'k!~" for word in WORDS}
"""A value of each source, which any place can hold but no place holds as it is: it is escaped in one way or another."""
HARD = 'Zq7vXHardk9Wd "quoted" \\ and/or ünï %41'
NEVER_PLACED = {
    "client secret": "Zq7vXClientk9Wd-3~s+c",
    "neighbour": "Zq7vXNeighbourk9Wd/in=the&same;file",
    "told by a failing command": "Zq7vXToldk9Wd!failing",
    "two lines": "Zq7vXFirstk9Wd\nZq7vXSecondk9Wd",
}
SECRETS = {**MARKED, "HARD_KEY": HARD}


CORES = tuple(text.partition("k9Wd")[0].encode() for text in (*SECRETS.values(), *NEVER_PLACED.values()))
"""What is left of a value by any escaping, and by being cut."""
SPELLED = tuple(
    {
        spelling
        for text in (*SECRETS.values(), *NEVER_PLACED.values())
        for spelling in (*spellings(text), hashlib.sha256(text.encode()).hexdigest().encode())
    }
    | {b"Zq7vXSecond", *CORES}
)


def leaks(data: bytes) -> list[bytes]:
    """Where a value stands in these bytes, in whatever spelling."""
    places = [(data.find(spelling), spelling) for spelling in SPELLED]
    return [data[max(0, at - 80) : at + len(spelling) + 20] for at, spelling in places if at >= 0]


# the site ----------------------------------------------------------------------------------------------------------


@dataclass
class Site:
    proxy: EgressProcess
    origin: Origin
    plain: Origin
    tokens: dict[str, str]

    def tunnel(self, host: str = HOST) -> Connection:
        tunnel = open_tunnel(self.proxy.port, f"{host}:{self.origin.port}")
        return start_tls(tunnel, client_context(self.proxy.ca), host)

    def ask(self, head: str, body: bytes = b"", *, host: str = HOST) -> Reply:
        """One request, whose reply holds no value; `head` without `Host` and length."""
        line, _, rest_of = head.partition("\r\n")
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        with self.tunnel(host) as client:
            client.send(f"{line} HTTP/1.1\r\nHost: {host}:{self.origin.port}\r\n{length}{rest_of}\r\n".encode() + body)
            reply = client.reply(line.partition(" ")[0])
        assert leaks(shown(reply)) == []
        return reply

    def forward(self, port: int, head: str, *, host: str = HOST) -> Reply:
        """The same in absolute form."""
        line, _, rest_of = head.partition("\r\n")
        method, _, path = line.partition(" ")
        with dial(self.proxy.port) as client:
            client.send(
                f"{method} http://{host}:{port}{path} HTTP/1.1\r\nHost: {host}:{port}\r\n{rest_of}\r\n".encode()
            )
            reply = client.reply(method)
        assert leaks(shown(reply)) == []
        return reply

    def files(self) -> list[Path]:
        """All that the proxy has written, besides the documents that it was given."""
        given = self.proxy.config_file.parent
        return [
            path for path in self.proxy.directory.rglob("*") if path.is_file() and not path.is_relative_to(given)
        ]  # fmt: skip

    def metrics(self) -> bytes:
        address = json.loads(self.proxy.ready_file.read_text())["metrics"]
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            found: bytes = answer.read()
        return found

    def answers(self) -> bytes:
        """All that an operator may ask of it."""
        asked = ("/v1/status", "/v1/credentials", "/v1/upstream", "/v1/environment/default", "/metrics")
        return repr([self.proxy.asked(target) for target in asked]).encode()

    def quiet(self, after: int) -> None:
        """Nothing that anybody may read holds a value."""
        assert self.proxy.wait_events(1, after=after), "nothing was told, so nothing was proven"
        names = {path.name for path in self.files()}
        assert {"events.jsonl", "stderr.txt", "ready.json"} <= names
        assert {path.name: found for path in self.files() if (found := leaks(path.read_bytes()))} == {}
        assert leaks(self.metrics()) == []
        assert leaks(self.answers()) == []


def shown(reply: Reply) -> bytes:
    """Every byte that a client was sent."""
    trailers = "".join(f"{name}: {value}\r\n" for name, value in reply.trailers).encode("latin-1")
    return b"".join(one.head for one in reply.interim) + reply.head + reply.body + trailers


async def grant(talk: Conversation) -> None:
    """A token endpoint."""
    assert b"client_secret=" in await talk.body()
    await talk.send(json_reply({"access_token": MARKED["GRANTED_KEY"], "expires_in": 3600}))


def json_reply(what: object) -> bytes:
    body = json.dumps(what).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def private(directory: Path, name: str, text: str) -> str:
    path = directory / name
    path.touch(mode=0o600)
    path.write_text(text)
    return str(path)


def sources(directory: Path, token_port: int) -> dict[str, dict[str, Any]]:
    """By environment key."""
    document = {"deep": {"token": MARKED["JSON_KEY"]}, "other": NEVER_PLACED["neighbour"]}
    variables = f"# mine\nTOKEN='{MARKED['DOTENV_KEY']}'\nOTHER={NEVER_PLACED['neighbour']}\n"
    coded = base64.b64encode(MARKED["CODED_KEY"].encode()).decode()
    script = private(directory, "say.sh", f"printf %s {shlex.quote(MARKED['COMMAND_KEY'])}")
    client_secret = private(directory, "client", NEVER_PLACED["client secret"])
    return {
        "ENV_KEY": {"env": "GIVEN_TOKEN"},
        "TEXT_KEY": {"file": {"path": private(directory, "text", MARKED["TEXT_KEY"] + "\n")}},
        "JSON_KEY": {
            "file": {"path": private(directory, "json", json.dumps(document)), "format": "json"},
            "json": "/deep/token",
        },
        "DOTENV_KEY": {
            "file": {"path": private(directory, "dotenv", variables), "format": "dotenv", "key": "TOKEN"}
        },
        "CODED_KEY": {"file": {"path": private(directory, "coded", coded)}, "base64": True},
        "COMMAND_KEY": {"command": ["sh", script]},
        "DESCRIPTOR_KEY": {"fd": 9},
        "LITERAL_KEY": {"literal": MARKED["LITERAL_KEY"]},
        "GRANTED_KEY": {
            "oauth2": {
                "token_url": f"http://127.0.0.1:{token_port}/token", "client_id": "me",
                "client_secret": {"file": client_secret},
            }
        },
        "HARD_KEY": {"file": {"path": private(directory, "hard", HARD)}},
    }  # fmt: skip


def failing(directory: Path) -> dict[str, dict[str, Any]]:
    """Sources that see a value and give none."""
    told = shlex.quote(NEVER_PLACED["told by a failing command"])
    script = private(directory, "fail.sh", f"echo {told}; echo {told} >&2; exit 3")
    return {
        "TOLD_KEY": {"command": ["sh", script]},
        "LINES_KEY": {"file": {"path": private(directory, "lines", NEVER_PLACED["two lines"])}},
        "ABSENT_KEY": {
            "file": {"path": private(directory, "one", json.dumps({"x": NEVER_PLACED["neighbour"]})), "format": "json"},
            "json": "/y",
        },
    }  # fmt: skip


def provider(name: str, values: dict[str, dict[str, Any]], endpoints: list[dict[str, Any]]) -> dict[str, Any]:
    credentials = [
        {"name": key.lower(), "env_vars": [key], "auth_style": "bearer", "header_name": "Authorization"}
        for key in values
    ]  # fmt: skip
    inline = {"id": name, "display_name": name, "credentials": credentials, "endpoints": endpoints}
    return {"name": name, "profile": inline, "values": values}


def documents(directory: Path, origin: Origin, plain: Origin, tokens: Origin) -> dict[str, Any]:
    places = [(HOST, origin.port), (HOST, plain.port), (DOWN, 9)]
    options = {
        "protocol": "rest", "access": "full", "allow_upgrade": True, "request_body_credential_rewrite": True,
        "websocket_credential_rewrite": True, "cookie_credential_rewrite": True, "header_substring_rewrite": True,
    }  # fmt: skip
    endpoints = [{"host": host, "port": port, **options} for host, port in places]
    providers = [provider("safe", sources(directory, tokens.port), endpoints)]
    providers += [provider(key.lower()[:-4], {key: one}, endpoints) for key, one in failing(directory).items()]
    found: dict[str, Any] = json.loads(json.dumps({"version": 1, "providers": providers}))
    return found


@pytest.fixture(scope="module", params=LANES)
def running(
    request: pytest.FixtureRequest, origin_loop: OriginLoop, authority: OriginAuthority,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:  # fmt: skip
    directory = tmp_path_factory.mktemp("values")
    plain, tls = Origin(origin_loop), Origin(origin_loop, authority.server_context(HOST, OTHER))
    endpoint = Origin(origin_loop)
    endpoint.script = grant
    descriptor = private(directory, "descriptor", MARKED["DESCRIPTOR_KEY"])
    settings = {**LANES[request.param], "logs": {"level": "debug"}, "metrics": {"address": "127.0.0.1:0"}}
    with EgressProcess(
        policy_text(rest(OTHER, tls.port, ("GET", "/**"))), aliases=dict.fromkeys((HOST, OTHER, DOWN), "127.0.0.1"),
        trust=authority.ca_file, settings=settings, providers=documents(directory, tls, plain, endpoint),
        environment={"GIVEN_TOKEN": MARKED["ENV_KEY"]}, flags=("--allow-literal-secrets",),
        launcher=("sh", "-c", f'exec 9<{descriptor}; exec "$@"', "sh"),
    ) as proxy:  # fmt: skip
        states = {one["key"]: (one["state"], one["error"]) for one in proxy.asked("/v1/credentials")["credentials"]}
        assert {key for key, (state, _) in states.items() if state == "ok"} == set(SECRETS), states
        yield Site(proxy, tls, plain, proxy.asked("/v1/environment/default"))
    for origin in (plain, tls, endpoint):
        origin.stop()


@pytest.fixture
def site(running: Site) -> Iterator[Site]:
    """Whatever a test does, nobody hears of a value."""
    running.origin.script = running.plain.script = say_ok
    running.origin.take()
    running.plain.take()
    before = len(running.proxy.events())
    yield running
    running.quiet(before)


# requests ----------------------------------------------------------------------------------------------------------

type Place = Callable[[str], tuple[str, bytes]]
"""Head and body of a request with this text in one place."""


def quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def basic(text: str) -> str:
    return base64.b64encode(f"user:{text}".encode()).decode()


def form_of(text: str) -> bytes:
    return f"a=1&key={urllib.parse.quote_plus(text, safe='*').replace('~', '%7E')}".encode()


def parts_of(text: str) -> bytes:
    return b'--b\r\nContent-Disposition: form-data; name="key"\r\n\r\n' + text.encode() + b"\r\n--b--\r\n"


def body_of(kind: str, body: bytes, *more: str) -> tuple[str, bytes]:
    return "POST /x\r\n" + "".join(f"{line}\r\n" for line in (f"Content-Type: {kind}", *more)), body


HARD_PLACES: dict[str, Place] = {
    "query": lambda text: (f"GET /x?a=b&key={quoted(text)}\r\n", b""),
    "basic": lambda text: (f"GET /x\r\nAuthorization: Basic {basic(text)}\r\n", b""),
    "json": lambda text: body_of("application/json", json.dumps({"key": text}, ensure_ascii=False).encode()),
    "form": lambda text: body_of("application/x-www-form-urlencoded", form_of(text)),
    "text": lambda text: body_of("text/plain", text.encode()),
    "multipart": lambda text: body_of("multipart/form-data; boundary=b", parts_of(text)),
}
PLACES: dict[str, Place] = HARD_PLACES | {
    "path": lambda text: (f"GET /bot{urllib.parse.quote(text, safe="!$&'()*+,;=:@~")}/send\r\n", b""),
    "header": lambda text: (f"GET /x\r\nX-Api-Key: {text}\r\n", b""),
    "bearer": lambda text: (f"GET /x\r\nAuthorization: Bearer {text}\r\n", b""),
    "substring": lambda text: (f"GET /x\r\nX-Signed: id=7, token={text}, v=1\r\n", b""),
    "cookie": lambda text: (f"GET /x\r\nCookie: a=b; session={text}; c=d\r\n", b""),
}  # fmt: skip


def arrived(data: bytes, head: str, body: bytes) -> bool:
    """Did the origin get the lines of this head and this body?"""
    line, *fields = head.encode().split(b"\r\n")
    return line + b" HTTP/1.1\r\n" in data and all(field in data for field in fields) and data.endswith(body)


@pytest.mark.parametrize("place", PLACES)
def test_a_value_in_every_place(site: Site, place: str) -> None:
    make = PLACES[place]
    secrets = SECRETS if place in HARD_PLACES else MARKED
    for key, secret in secrets.items():
        head, body = make(site.tokens[key])
        assert site.ask(head, body).status == 200, key
        received = site.origin.take()
        assert arrived(received, *make(secret)), (key, received)


def test_in_a_body_that_is_coded(site: Site) -> None:
    for key, secret in SECRETS.items():
        body = gzip.compress(json.dumps({"key": site.tokens[key]}).encode())
        head, _ = body_of("application/json", b"", "Content-Encoding: gzip")
        assert site.ask(head, body).status == 200
        _, _, received = site.origin.take().partition(b"\r\n\r\n")
        assert json.loads(gzip.decompress(received)) == {"key": secret}


def test_in_absolute_form(site: Site) -> None:
    for key, secret in MARKED.items():
        assert (
            site.forward(site.plain.port, f"GET /x?key={site.tokens[key]}\r\nX-Key: {site.tokens[key]}\r\n").status
            == 200
        )
        received = site.plain.take()
        assert quoted(secret).encode() in received
        assert b"X-Key: " + secret.encode() in received


# what comes back ---------------------------------------------------------------------------------------------------


def as_headers(written: list[bytes]) -> bytes:
    lines = [b"X-%d: a%b-" % (number, text) for number, text in enumerate(written) if not set(text) & set(b"\r\n")]
    lines += [b"Set-Cookie: s=%b; Secure" % written[0], b"Location: https://origin.test/?k=%b" % written[0]]
    return b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n" + b"\r\n".join(lines) + b"\r\n\r\n"


def as_body(kind: bytes, coding: bytes = b"", code: Callable[[bytes], bytes] = bytes) -> Callable[[list[bytes]], bytes]:
    def reply(written: list[bytes]) -> bytes:
        body = code(b"<" + b">\n<".join(written) + b">")
        head = b"HTTP/1.1 500 Oops\r\nContent-Type: %b\r\nContent-Length: %d\r\n" % (kind, len(body))
        return head + (b"Content-Encoding: %b\r\n" % coding if coding else b"") + b"\r\n" + body

    return reply


def as_chunks(written: list[bytes]) -> bytes:
    """Chunks end within each value; it stands in a trailer as well."""
    text = b"data: " + b"\n\ndata: ".join(written) + b"\n\n"
    pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
    return head + chunks + b"0\r\nX-Sum: %b\r\n\r\n" % written[0]


def as_hints(written: list[bytes]) -> bytes:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </%b>; rel=preload\r\n\r\n" % written[0]
    return hints + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def as_reason(written: list[bytes]) -> bytes:
    return b"HTTP/1.1 401 no such key %b\r\nContent-Length: 0\r\n\r\n" % written[0]


def as_extension(written: list[bytes]) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b'2;k="%b"\r\nok\r\n0;k="%b"\r\n\r\n' % (written[0], written[0])


SHAPES: dict[str, Callable[[list[bytes]], bytes]] = {
    "headers": as_headers, "hints": as_hints, "reason": as_reason, "chunks": as_chunks, "extension": as_extension,
    "json": as_body(b"application/json"), "html": as_body(b"text/html; charset=utf-8"),
    "form": as_body(b"application/x-www-form-urlencoded"),
    "gzip": as_body(b"application/json", b"gzip", gzip.compress),
    "deflate": as_body(b"text/plain", b"deflate", zlib.compress),
}  # fmt: skip


def reply_of(shape: str, secret: str) -> Script:
    async def script(talk: Conversation) -> None:
        await talk.body()
        raw = secret.encode()
        await talk.send(SHAPES[shape]([raw, *(text for text in reflected(secret) if text != raw)]))

    return script


@pytest.mark.parametrize("shape", SHAPES)
def test_a_value_that_comes_back(site: Site, shape: str) -> None:
    """The one that was placed, and the others that its provider has for this endpoint."""
    for secret in MARKED.values():
        site.origin.script = reply_of(shape, secret)
        reply = site.ask(f"GET /x\r\nAuthorization: Bearer {site.tokens['ENV_KEY']}\r\n")
        assert reply.complete
        assert reply.status in (200, 302, 401, 500)
        assert reply.error is None
        assert (b"*" * len(secret) in shown(reply)) == (shape != "extension")  # what nobody needs is left out


def test_a_value_that_comes_back_as_a_message(site: Site) -> None:
    with site.tunnel() as client:
        site.origin.script = say_values
        _, wire = upgrade(client, handshake(f"{HOST}:{site.origin.port}"))
        for key in SECRETS:
            wire.send(frame(TEXT, json.dumps({"token": site.tokens[key]}).encode()))
            heard = wire.message()
            assert heard.startswith(b"<***")
            assert leaks(heard) == []
        wire.send(closing(1000))
        last = wire.receive()
        assert last.opcode == CLOSE
        assert leaks(last.payload) == []


async def say_values(talk: Conversation) -> None:
    """Repeats the token of each message in every spelling, and the last one in its Close."""
    assert talk.request is not None
    await talk.send(switching(sec_websocket_accept=ACCEPT))
    token = ""
    while (got := await client_frame(talk)) is not None:
        if got.opcode == CLOSE:
            await talk.send(closing(1000, token[:100], masked=False))
            talk.close()
            return
        token = json.loads(got.payload)["token"]
        assert token in SECRETS.values()
        raw = token.encode()
        written = [raw, *(text for text in reflected(token) if text != raw)]
        await talk.send(frame(TEXT, b"<" + b"> <".join(written) + b">", masked=False))


async def client_frame(talk: Conversation) -> Any:
    start = await talk.exactly(2)
    if len(start) < 2:
        return None
    width = {126: 2, 127: 8}.get(start[1] & 0x7F, 0)
    more = await talk.exactly(width)
    size = int.from_bytes(more) if width else start[1] & 0x7F
    return parse(start + more + await talk.exactly(4 + size))[0]


# what goes wrong ---------------------------------------------------------------------------------------------------


def broken(reply: bytes) -> Script:
    async def script(talk: Conversation) -> None:
        await talk.body()
        await talk.send(reply)
        talk.close()

    return script


@pytest.mark.parametrize(
    "reply",
    [
        b"%b\r\n\r\n",
        b"HTTP/1.1 %b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n%b : x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: %b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%b\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: %b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Encoding: %b\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 90\r\n\r\n%b",
        b"",
    ],
    ids=["no-reply", "status", "field", "length", "framing", "chunk", "upgrade", "coding", "gzip", "silence"],
)
def test_a_reply_that_breaks_on_a_value(site: Site, reply: bytes) -> None:
    secret = MARKED["ENV_KEY"].encode()
    site.origin.script = broken(reply.replace(b"%b", secret))
    token = site.tokens["ENV_KEY"]
    with site.tunnel() as client:
        head = f"GET /{token}?k={token} HTTP/1.1\r\nHost: {HOST}:{site.origin.port}\r\nX-Key: {token}\r\n"
        client.send(f"{head}Connection: close\r\n\r\n".encode())
        try:
            got = shown(client.reply())
        except EndOfStream:
            got = b""
        assert leaks(got + client.rest()) == []
    assert secret in site.origin.take()


def test_requests_that_are_refused(site: Site) -> None:
    token = site.tokens["ENV_KEY"]
    assert site.forward(9, f"GET /{token}?k={token}\r\nX-Key: {token}\r\n", host=DOWN).status == 502
    refusals = [
        site.ask(f"GET /{token}\r\n", host=OTHER),
        site.ask("POST /x\r\nContent-Type: text/plain\r\n", token.encode(), host=OTHER),
        site.ask(f"GET /x\r\nX-Key: {token}\r\nX-Other: {token}_no\r\n"),
        site.ask(f"GET /{site.tokens['HARD_KEY']}\r\n"),
        site.ask(f"GET /x\r\nCookie: s={site.tokens['HARD_KEY']}\r\n"),
        site.ask("POST /x\r\nContent-Type: application/json\r\n", b'{"k": "' + token.encode() + b'", "\xff": 1}'),
    ]
    assert {reply.status for reply in refusals} <= {400, 403, 500}
    assert all(reply.error for reply in refusals)
    for key in ("TOLD_KEY", "LINES_KEY", "ABSENT_KEY"):
        reply = site.ask(f"GET /x\r\nX-Key: {site.tokens[key]}\r\n")
        assert (reply.status, reply.error) == (500, "credential_unavailable")
    assert site.origin.take() == b""


def test_documents_that_are_refused(site: Site) -> None:
    """A diagnostic quotes no value, whatever is wrong beside it."""
    file = site.proxy.config_file.with_name("providers.yaml")
    good = file.read_text()
    literal = next(line for line in good.splitlines() if "literal:" in line)
    indent = literal[: literal.index("literal")]
    try:
        for wrong in (
            literal.replace("literal:", "litteral:"),
            literal.replace("literal:", "env:") + f"\n{indent}file: x",
            f"{literal}\n{indent}colour: {NEVER_PLACED['neighbour']}",
            literal.replace("literal: ", "literal: ["),
            literal.replace("literal: ", "literal: &"),
        ):
            before = len(site.proxy.events())
            file.write_text(good.replace(literal, wrong))
            assert eventually(lambda before=before: "is invalid" in told(site, before)), wrong  # type: ignore[misc]
            done = site.proxy.command("check")
            assert done.returncode == 2
            assert leaks((done.stdout + done.stderr).encode()) == []
            file.write_text(good)
            assert eventually(lambda: serves(site)), wrong
    finally:
        file.write_text(good)
    assert eventually(lambda: serves(site))


def serves(site: Site) -> bool:
    return site.ask(f"GET /x\r\nX-Key: {site.tokens['LITERAL_KEY']}\r\n").status == 200


def told(site: Site, after: int) -> str:
    return json.dumps(site.proxy.events()[after:])


# what operators see ------------------------------------------------------------------------------------------------


def test_commands(site: Site) -> None:
    site.ask(f"GET /x\r\nX-Key: {site.tokens['ENV_KEY']}\r\n")
    ready = ("--ready-file", str(site.proxy.ready_file))
    listed = site.proxy.command("credentials", "list", "--json")
    states = {one["key"]: one["state"] for one in json.loads(listed.stdout)}
    assert {key for key, state in states.items() if state == "ok"} == set(SECRETS)
    done = [
        listed,
        site.proxy.command("credentials", "list"),
        site.proxy.command("credentials", "refresh", "safe"),
        site.proxy.command("credentials", "refresh", "told"),
        *(site.proxy.command("env", "--format", form, *ready) for form in ("sh", "fish", "dotenv", "json")),
    ]
    assert [one.returncode for one in done] == [0] * len(done)
    assert leaks("".join(one.stdout + one.stderr for one in done).encode()) == []
    offline = [site.proxy.command("credentials", "check"), site.proxy.command("check")]
    assert leaks("".join(one.stdout + one.stderr for one in offline).encode()) == []


def test_no_core_is_left(site: Site) -> None:
    site.ask(f"GET /x\r\nX-Key: {site.tokens['ENV_KEY']}\r\n")
    limits = Path(f"/proc/{site.proxy.pid}/limits").read_text().splitlines()
    (core,) = [line.split() for line in limits if line.startswith("Max core file size")]
    assert core[4:6] == ["0", "0"]


def test_the_search_finds_what_it_looks_for() -> None:
    """A canary that nobody would hear proves nothing."""
    for secret in (*SECRETS.values(), *NEVER_PLACED.values()):
        for spelling in spellings(secret):
            assert leaks(b'{"message": "' + spelling + b'"}'), spelling
        for before in (b"", b"u", b"u:", b"user:"):
            assert leaks(base64.b64encode(before + secret.encode() + b"!"))
    assert leaks(json.dumps(dict.fromkeys(MARKED, "openshell:resolve:env:ENV_KEY")).encode()) == []
