"""`egress demo`: a proxy, two TLS origins, a credential and five requests, on one screen and without a network."""

import asyncio
import json
import os
import secrets
import ssl
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from egress.app import Proxy, Ready
from egress.cli.environment import child_environment, proxy_url
from egress.cli.serve import run_loop
from egress.cli.terminal import ExitCode, complain
from egress.config.overrides import Flags
from egress.documents.diagnostic import Diagnostic
from egress.generation.prepare import Candidate, prepare
from egress.model.address import parse_host
from egress.model.clock import SystemClock
from egress.model.ids import GenerationNumber
from egress.model.intent import DEFAULT_AGENT
from egress.tls.ca import LocalAuthority
from egress.tls.cache import ContextCache
from egress.tls.profile import TlsProfile

TOTAL_SECONDS = 15.0
REQUEST_SECONDS = 5.0

_POLICY = """\
version: 1
network_policies:
  shop:
    endpoints:
      - host: api.shop.test
        port: {shop}
        protocol: rest
        enforcement: enforce
        rules:
          - allow: {{method: GET, path: "/items/**"}}
    binaries: [{{path: "{python}"}}]
  vault:
    endpoints:
      - {{host: vault.test, port: {vault}, protocol: rest, enforcement: enforce, access: full}}
    binaries: [{{path: /usr/bin/vault}}]
"""

_SETTINGS = """\
version: 1
listen: {{proxy: "127.0.0.1:0"}}
state_dir: {directory}/state
policy: {{file: policy.yaml}}
providers: {{file: providers.yaml}}
destinations: {{aliases: {{api.shop.test: 127.0.0.1, vault.test: 127.0.0.1}}}}
tls: {{upstream_ca_file: origins.pem, ephemeral: true}}
events: {{dir: {directory}/log, shorthand: {{stderr: "off"}}}}
reload: {{watch: false, check_origin: "off"}}
"""

_PROVIDERS = """\
version: 1
providers:
  - name: shop
    profile:
      credentials: [{{name: token, env_vars: [SHOP_TOKEN], auth_style: bearer, header_name: Authorization}}]
    endpoints: [{{host: api.shop.test, port: {shop}, path: /account, protocol: rest, access: read-only}}]
    binaries: ["{python}"]
    values: {{SHOP_TOKEN: {{file: shop-token}}}}
"""

_CLIENT = """\
import os, sys, urllib.error, urllib.request
fields = {"Authorization": "Bearer " + os.environ["SHOP_TOKEN"]} if sys.argv[2].endswith("/account") else {}
request = urllib.request.Request(sys.argv[2], method=sys.argv[1], headers=fields)
try:
    with urllib.request.urlopen(request, timeout=5) as answer:
        print(answer.status, answer.read().decode().strip())
except urllib.error.HTTPError as refusal:
    print(refusal.code, refusal.read().decode().strip())
except urllib.error.URLError as failure:
    print(failure.reason)
"""


@dataclass(frozen=True, slots=True)
class _Request:
    """One request of the show and what it is there to show."""

    title: str
    method: str
    url: str
    allowed: bool


def demo() -> int:
    """Show it; 0 when every verdict was the expected one."""
    with tempfile.TemporaryDirectory(prefix="egress-demo-") as directory:
        show = _Show(Path(directory))
        run_loop(show.run())
        return show.code


class _Show:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._console = Console(width=min(120, Console().width), highlight=False)
        self._told = 0
        self._secret = f"demo-{secrets.token_hex(8)}"
        self._seen: list[str] = []
        self._python = str(Path(sys.executable).resolve())
        self.code: int = ExitCode.FAILURE

    async def run(self) -> None:
        try:
            async with asyncio.timeout(TOTAL_SECONDS):
                await self._run()
        except TimeoutError:
            sys.stderr.write("egress: the demo took too long\n")

    async def _run(self) -> None:
        origins = [await self._start_origin(name) for name in ("api.shop.test", "vault.test")]
        shop, vault = (origin.sockets[0].getsockname()[1] for origin in origins)
        candidate = self._prepare(shop, vault)
        if not isinstance(candidate, Candidate):
            complain(candidate)
            return
        proxy = Proxy(candidate, Flags(config=self._directory / "egress.yaml"), os.environ, operated=False)
        ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        async with asyncio.TaskGroup() as group:
            group.create_task(proxy.run(ready.set_result))
            await self._perform(await ready, proxy, shop, vault)
            proxy.stop()
            proxy.stop()
        for origin in origins:
            origin.close()

    async def _start_origin(self, name: str) -> asyncio.Server:
        """A TLS origin that answers every request; its authority is the demo's, not the proxy's."""
        if not (self._directory / "origins.pem").exists():
            authority = LocalAuthority.create()
            (self._directory / "origins.pem").write_bytes(authority.pem)
            self._certificates = ContextCache(authority, 4, TlsProfile(), SystemClock())
        context = self._certificates.server_context(parse_host(name), ())
        return await asyncio.start_server(self._answer, "127.0.0.1", 0, ssl=context)

    def _prepare(self, shop: int, vault: int) -> Candidate | tuple[Diagnostic, ...]:
        (self._directory / "policy.yaml").write_text(_POLICY.format(shop=shop, vault=vault, python=self._python))
        (self._directory / "egress.yaml").write_text(_SETTINGS.format(directory=self._directory))
        (self._directory / "providers.yaml").write_text(_PROVIDERS.format(shop=shop, python=self._python))
        secret = self._directory / "shop-token"
        secret.touch(mode=0o600)
        secret.write_text(self._secret)
        (self._directory / "log").mkdir()
        return prepare(Flags(config=self._directory / "egress.yaml"), os.environ, GenerationNumber(1))

    async def _perform(self, ready: Ready, proxy: Proxy, shop: int, vault: int) -> None:
        assert ready.trust is not None
        environment = dict(os.environ) | dict(proxy.environment(DEFAULT_AGENT))
        environment |= child_environment(proxy_url(ready.proxy[0]), ready.trust.certificate, ready.trust.bundle)
        self._console.print(f"[bold]egress demo[/]: proxy on {ready.proxy[0]}, two TLS origins behind it, no network\n")
        requests = (
            _Request("allowed by a rule", "GET", f"https://api.shop.test:{shop}/items/7", allowed=True),
            _Request("a credential", "GET", f"https://api.shop.test:{shop}/account", allowed=True),
            _Request("denied: the method", "DELETE", f"https://api.shop.test:{shop}/items/7", allowed=False),
            _Request("denied: the destination", "GET", "https://paste.test/drop", allowed=False),
            _Request("denied: the program", "GET", f"https://vault.test:{vault}/v1/secret", allowed=False),
        )
        right = True
        for request in requests:
            right &= await self._show(request, environment)
        right &= self._seen == [f"Bearer {self._secret}"]
        self._console.print(
            "Each line in grey is what the proxy wrote to its event log; the same as OCSF JSON stands beside it.\n"
            "Next: write a policy of your own, `egress check` it, then `egress run --policy FILE -- COMMAND`."
        )
        self.code = ExitCode.FINE if right else ExitCode.FAILURE

    async def _show(self, request: _Request, environment: dict[str, str]) -> bool:
        client = await asyncio.create_subprocess_exec(
            self._python, "-I", "-c", _CLIENT, request.method, request.url,
            env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await client.communicate()
        line, record = await self._next_event(request)
        body = Text()
        body.append(f"{request.method} {request.url}\n", style="bold")
        if request.url.endswith("/account"):
            body.append(f"the program sent: Authorization: Bearer {environment['SHOP_TOKEN'][:40]}…\n")
            body.append(f"the origin got:   Authorization: {self._seen[-1] if self._seen else 'nothing'}\n")
        got = output.decode(errors="replace").strip()
        body.append(f"the program got:  {_shorten(got)}\n")
        body.append(f"decided by:       {_decider(record)}\n", style="green" if request.allowed else "red")
        body.append(line, style="grey50")
        self._console.print(Panel(body, title=request.title, title_align="left"))
        return (" ALLOWED " in line) is request.allowed and self._secret not in got

    async def _next_event(self, request: _Request) -> tuple[str, Mapping[str, Any]]:
        """The decision that this request caused: its shorthand line and its OCSF record."""
        wanted = f"HTTP:{request.method}" if "shop" in request.url else "NET:OPEN"
        async with asyncio.timeout(REQUEST_SECONDS):
            while True:
                lines = self._read("egress.*.log")
                records = self._read("egress-ocsf.*.log")
                for index in range(self._told, min(len(lines), len(records))):
                    if wanted in lines[index]:
                        self._told = index + 1
                        return lines[index], json.loads(records[index])
                await asyncio.sleep(0.05)

    def _read(self, pattern: str) -> list[str]:
        return [
            line for file in sorted((self._directory / "log").glob(pattern)) for line in file.read_text().splitlines()
        ]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer heads until the peer leaves, with all that was asked; good enough for clients that send no bodies."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")
                said = next((line.partition(": ")[2] for line in lines if line.startswith("Authorization: ")), None)
                answer = {"you asked for": lines[0].split(" ", 2)[1]}
                if said is not None:
                    self._seen.append(said)
                    answer["your credential"] = said
                body = json.dumps(answer).encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                    % (len(body), body)
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError, ssl.SSLError):
            pass
        finally:
            writer.close()


def _shorten(output: str) -> str:
    """Status and the telling keys of a refusal; anything else as it is."""
    status, _, body = output.partition(" ")
    try:
        refusal = json.loads(body)
    except ValueError:
        return output
    if "error" not in refusal:
        return output
    return f"{status} {json.dumps({key: refusal[key] for key in ('error', 'detail', 'reason_code') if key in refusal})}"


def _decider(record: Mapping[str, Any]) -> str:
    """The rule that allowed, or the code that denied and the entry it fell under."""
    unmapped = record.get("unmapped", {})
    if "decision_rule" in unmapped:
        return f"rule {unmapped['decision_rule']}"
    entry = record.get("firewall_rule", {}).get("name", "-")
    where = "no entry of the policy matches" if entry == "-" else f"no rule of entry `{entry}` matches"
    return f"{where} ({record.get('status_detail')}: {unmapped.get('reason_code')})"
