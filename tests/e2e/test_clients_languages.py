"""HTTP clients of Python and Node, steered by the printed environment."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.origins import Conversation, Origin, OriginLoop
from tests.support.proxy import EgressProcess, policy_text, rest
from tests.support.workload import Workload

REQUESTS = """
import json, sys, requests
url = sys.argv[1]
session = requests.Session()
told = [session.get(url + "/get?a=b").text, session.post(url + "/post", data=b"x" * 100_000).text]
told.append(session.post(url + "/chunked", data=iter([b"x" * 50_000] * 2)).text)
denied = session.delete(url + "/get")
print(json.dumps([told, denied.status_code, denied.json()["error"]]))
"""

HTTPX2 = """
import json, sys, httpx2
url = sys.argv[1]
with httpx2.Client() as client:
    told = [client.get(url + "/get?a=b").text, client.post(url + "/post", content=b"x" * 100_000).text]
    told.append(client.post(url + "/chunked", content=iter([b"x" * 50_000] * 2)).text)
    denied = client.delete(url + "/get")
print(json.dumps([told, denied.status_code, denied.json()["error"]]))
"""

AIOHTTP = """
import asyncio, json, sys, aiohttp
url = sys.argv[1]

async def pieces():
    for _ in range(2):
        yield b"x" * 50_000

async def main():
    async with aiohttp.ClientSession(trust_env=True) as session:
        told = []
        for call in (
            session.get(url + "/get?a=b"), session.post(url + "/post", data=b"x" * 100_000),
            session.post(url + "/chunked", data=pieces()),
        ):
            async with call as reply:
                told.append(await reply.text())
        async with session.delete(url + "/get") as denied:
            print(json.dumps([told, denied.status, (await denied.json())["error"]]))

asyncio.run(main())
"""

NODE_FETCH = """
const { fetch, EnvHttpProxyAgent, setGlobalDispatcher } = require(process.argv[1]);
setGlobalDispatcher(new EnvHttpProxyAgent());
const url = process.argv[2];
const ask = async (path, options) => (await fetch(url + path, options)).text();
async function* pieces() { for (let i = 0; i < 2; i++) yield Buffer.alloc(50000, "x"); }
(async () => {
  const told = [
    await ask("/get?a=b"),
    await ask("/post", { method: "POST", body: Buffer.alloc(100000, "x") }),
    await ask("/chunked", { method: "POST", body: pieces(), duplex: "half" }),
  ];
  const denied = await fetch(url + "/get", { method: "DELETE" });
  console.log(JSON.stringify([told, denied.status, (await denied.json()).error]));
})();
"""

TOLD = [
    "GET /get?a=b 0",
    f"POST /post {hashlib.sha256(b'x' * 100_000).hexdigest()}",
    f"POST /chunked {hashlib.sha256(b'x' * 100_000).hexdigest()}",
]


@dataclass
class Site:
    workload: Workload
    tls: Origin
    plain: Origin


async def repeat(talk: Conversation) -> None:
    """Answer with the method, the target and a digest of the body, whatever its framing."""
    assert talk.request is not None
    raw = await talk.body()
    payload = unchunked(raw) if talk.request.values(b"transfer-encoding") else raw
    digest = hashlib.sha256(payload).hexdigest() if payload else "0"
    text = b" ".join((talk.request.method, talk.request.target, digest.encode()))
    await talk.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text))


def unchunked(raw: bytes) -> bytes:
    payload = b""
    while (size := int(raw[: raw.index(b"\r\n")].split(b";")[0], 16)) > 0:
        start = raw.index(b"\r\n") + 2
        payload, raw = payload + raw[start : start + size], raw[start + size + 2 :]
    return payload


@pytest.fixture(scope="module")
def site(
    origin_loop: OriginLoop, authority: OriginAuthority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    tls, plain = Origin(origin_loop, authority.server_context("api.test")), Origin(origin_loop)
    tls.script = plain.script = repeat
    rules = (("GET", "/get"), ("POST", "/post"), ("POST", "/chunked"))
    policy = policy_text(rest("api.test", tls.port, *rules), rest("api.test", plain.port, *rules))
    with EgressProcess(policy, aliases={"api.test": "127.0.0.1"}, trust=authority.ca_file) as proxy:
        yield Site(Workload(proxy, tmp_path_factory.mktemp("languages")), tls, plain)
    tls.stop()
    plain.stop()


def urls(site: Site) -> tuple[str, str]:
    return f"https://api.test:{site.tls.port}", f"http://api.test:{site.plain.port}"


def undici() -> Path:
    """The undici that comes with npm, so that nothing has to be downloaded."""
    npm = shutil.which("npm")
    assert npm is not None, "npm is needed for this test"
    root = subprocess.run([npm, "root", "-g"], capture_output=True, text=True, check=True).stdout.strip()
    found = Path(root) / "npm" / "node_modules" / "undici"
    assert found.exists(), "an npm that brings undici is needed for this test"
    return found


@pytest.mark.parametrize("script", [REQUESTS, HTTPX2, AIOHTTP], ids=["requests", "httpx2", "aiohttp"])
@pytest.mark.parametrize("scheme", [0, 1], ids=["https", "http"])
def test_python_client(site: Site, script: str, scheme: int) -> None:
    done = site.workload.python(script, urls(site)[scheme])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [TOLD, 403, "policy_denied"]


@pytest.mark.parametrize("scheme", [0, 1], ids=["https", "http"])
def test_node_fetch(site: Site, scheme: int) -> None:
    """O-58: for http URLs undici opens a CONNECT tunnel too, with plain HTTP inside."""
    done = site.workload.run("node", "-e", NODE_FETCH, "--", undici(), urls(site)[scheme])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [TOLD, 403, "policy_denied"]


def test_python_with_strict_certificate_checks(site: Site) -> None:
    """O-16: what Python 3.13 turned on by default."""
    script = """
import ssl, sys, urllib.request
context = ssl.create_default_context()
context.verify_flags |= ssl.VERIFY_X509_STRICT
print(urllib.request.urlopen(sys.argv[1] + "/get?a=b", context=context).read().decode())
"""
    done = site.workload.python(script, urls(site)[0])
    assert (done.returncode, done.stdout.strip()) == (0, "GET /get?a=b 0"), done.stderr
