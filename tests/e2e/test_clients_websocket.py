"""Real WebSocket clients through the installed command: compression, long-lived sockets, reloads."""

import asyncio
import json
import shutil
import signal
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory

from tests.support.authorities import OriginAuthority
from tests.support.origins import OriginLoop
from tests.support.proxy import LANES, EgressProcess, Endpoint, plain_environment, policy_text, rest
from tests.support.raw import client_context, eventually
from tests.support.websockets import WebSocketOrigin

HOST = "ws.test"
NODE_WS = "ws@8.23.0"


async def phoenix(peer: ServerConnection) -> None:
    """Answers joins and heartbeats as Phoenix channels do, and echoes the rest."""
    try:
        async for message in peer:
            if isinstance(message, str) and message.startswith("["):
                joined, reference, topic, _, _ = json.loads(message)
                answer = [joined, reference, topic, "phx_reply", {"status": "ok", "response": {}}]
                await peer.send(json.dumps(answer))
            else:
                await peer.send(message)
    except ConnectionClosed:
        pass


class Site:
    def __init__(self, proxy: EgressProcess, origin: WebSocketOrigin) -> None:
        self.proxy = proxy
        self.origin = origin
        self.url = f"wss://{HOST}:{origin.port}/socket/websocket"
        self.context: ssl.SSLContext = client_context(proxy.ca)

    def policy(self, access: str, *, extra: bool = False) -> str:
        endpoints = [Endpoint(HOST, self.origin.port, {"protocol": "websocket", "access": access})]
        return policy_text(*endpoints, *([rest("elsewhere.test", 443)] if extra else []))

    def reload(self, text: str) -> None:
        loaded = self.loads()
        self.proxy.policy_file.write_text(text)
        self.proxy.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: self.loads() > loaded)

    def loads(self) -> int:
        return sum(event.get("unmapped", {}).get("state") == "loaded" for event in self.proxy.events())

    def client(self, **options: Any) -> connect:
        settings: dict[str, Any] = {"proxy": self.proxy.url, "ssl": self.context, "max_size": None, **options}
        return connect(self.url, **settings)


@pytest.fixture(scope="module")
def origin(origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[WebSocketOrigin]:
    server = WebSocketOrigin(origin_loop, phoenix, authority.server_context(HOST))
    yield server
    server.stop()


@pytest.fixture(scope="module", params=LANES)
def site(request: pytest.FixtureRequest, origin: WebSocketOrigin, authority: OriginAuthority) -> Iterator[Site]:
    first = policy_text(Endpoint(HOST, origin.port, {"protocol": "websocket", "access": "full"}))
    aliases = {HOST: "127.0.0.1"}
    with EgressProcess(first, aliases=aliases, trust=authority.ca_file, settings=LANES[request.param]) as proxy:
        yield Site(proxy, origin)


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"server_no_context_takeover": True},
        {"client_no_context_takeover": True, "server_no_context_takeover": True},
        {"server_max_window_bits": 10, "client_max_window_bits": 9},
    ],
    ids=str,
)
def test_python_client_with_compression(site: Site, terms: dict[str, Any]) -> None:
    words = ["", "short", "the same again", "the same again", "ünïcödé 😀 " * 2000, "x" * 300_000]

    async def talk() -> list[str | bytes]:
        deflate = ClientPerMessageDeflateFactory(**{"client_max_window_bits": True} | terms)
        async with site.client(compression=None, extensions=[deflate]) as peer:
            assert [extension.name for extension in peer.protocol.extensions] == ["permessage-deflate"]
            answers = []
            for word in words:
                await peer.send(word)
                answers.append(await peer.recv())
            await peer.send(["in ", "three ", "parts"])
            answers.append(await peer.recv())
            await peer.send(b"\x00\xff" * 70_000)
            answers.append(await peer.recv())
            await (await peer.ping())
            return answers

    assert asyncio.run(asyncio.wait_for(talk(), 20)) == [*words, "in three parts", b"\x00\xff" * 70_000]


def test_a_phoenix_socket_lives_through_reloads_that_do_not_concern_it(site: Site) -> None:
    """Heartbeats go on across two reloads; the third takes the permission away and says so."""

    async def beat(peer: ClientConnection, number: int) -> None:
        await peer.send(json.dumps([None, str(number), "phoenix", "heartbeat", {}]))
        answer = json.loads(await asyncio.wait_for(peer.recv(), 5))
        assert answer == [None, str(number), "phoenix", "phx_reply", {"status": "ok", "response": {}}]

    async def live() -> tuple[int | None, str | None]:
        async with site.client() as peer:
            await peer.send(json.dumps(["1", "1", "room:lobby", "phx_join", {}]))
            assert json.loads(await peer.recv())[3] == "phx_reply"
            for extra in (True, False):
                for number in range(5):
                    await beat(peer, number)
                await asyncio.to_thread(site.reload, site.policy("full", extra=extra))
            await beat(peer, 99)
            await asyncio.to_thread(site.reload, site.policy("read-only"))
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(peer.recv(), 5)
            return peer.close_code, peer.close_reason

    try:
        assert asyncio.run(live()) == (1012, "policy_denied")
    finally:
        site.reload(site.policy("full"))


NODE_CLIENT = """
const [modules, proxy, url, ca] = process.argv.slice(1);
const WebSocket = require(modules + '/ws');
const http = require('http'), https = require('https'), tls = require('tls'), fs = require('fs');
const target = new URL(url);
class Tunnel extends https.Agent {
  createConnection(options, done) {
    const { hostname, port } = new URL(proxy);
    const headers = { host: target.host };
    const asked = http.request({ hostname, port, method: 'CONNECT', path: target.host, headers });
    asked.on('connect', (reply, socket) => {
      if (reply.statusCode !== 200) return done(new Error('CONNECT ' + reply.statusCode));
      done(null, tls.connect({ socket, servername: target.hostname, ca: fs.readFileSync(ca) }));
    });
    asked.on('error', done);
    asked.end();
  }
}
const peer = new WebSocket(url, { agent: new Tunnel(), perMessageDeflate: { threshold: 0 } });
const sent = ['hello', 'hello', '', 'x'.repeat(200000), JSON.stringify({ list: Array(2000).fill('same') })];
const came = [];
let ponged = false;
peer.on('open', () => {
  for (const one of sent) peer.send(one);
  peer.send('in ', { fin: false }); peer.send('parts', { fin: true });
  peer.send(Buffer.alloc(100000, 7));
  peer.ping('?');
});
peer.on('pong', data => { ponged = data.toString() === '?'; });
peer.on('message', (data, binary) => {
  came.push(binary ? data.length : data.toString());
  if (came.length === sent.length + 2) setTimeout(() => peer.close(4001, 'done'), 100);
});
peer.on('error', error => { console.error(error.message); process.exit(1); });
peer.on('close', (code, reason) => {
  const same = JSON.stringify(came) === JSON.stringify([...sent, 'in parts', 100000]);
  console.log(JSON.stringify({ same, ponged, code, reason: reason.toString(), extensions: peer.extensions }));
});
"""


@pytest.fixture(scope="module")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`ws`, from the registry that this machine uses."""
    npm = shutil.which("npm")
    assert npm is not None, "npm is needed for this test"
    home = tmp_path_factory.mktemp("node")
    done = subprocess.run(
        [npm, "install", "--prefix", home, "--no-audit", "--no-fund", "--fetch-retries", "0", NODE_WS],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if done.returncode:
        pytest.skip("the registry of this machine cannot be reached")
    return home / "node_modules"


def test_node_ws_with_compression(site: Site, node_modules: Path) -> None:
    done = subprocess.run(
        ["node", "-e", NODE_CLIENT, "--", node_modules, site.proxy.url, site.url, site.proxy.ca],
        capture_output=True, text=True, timeout=20, env=plain_environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["extensions"].startswith("permessage-deflate")
    assert said | {"extensions": ""} == {
        "same": True, "ponged": True, "code": 4001, "reason": "done", "extensions": ""
    }  # fmt: skip
