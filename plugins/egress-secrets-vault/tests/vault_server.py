"""The part of Vault's HTTP API that the plugin uses, over real sockets: logins, both key-value versions, leases."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

ROOT = "s.root-token"


@dataclass
class Call:
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class Vault:
    """`secrets` answers GETs by path. `tokens` are good; logins add to them."""

    secrets: dict[str, dict[str, Any]] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=lambda: {ROOT})
    logins: dict[str, dict[str, str]] = field(default_factory=dict)
    login_lease: int = 3600
    renewals: dict[str, dict[str, Any]] = field(default_factory=dict)
    sealed: bool = False
    calls: list[Call] = field(default_factory=list)

    def __enter__(self) -> Self:
        vault = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None: ...

            def _serve(self) -> None:
                data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                body = json.loads(data) if data else None
                call = Call(self.command, self.path, {name.lower(): text for name, text in self.headers.items()}, body)
                vault.calls.append(call)
                status, found = vault.answer(call)
                reply = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            do_GET = do_POST = do_PUT = _serve

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, call: Call) -> tuple[int, object]:
        if self.sealed:
            return 503, {"errors": ["Vault is sealed"]}
        path = call.path.removeprefix("/v1/")
        if path.startswith("auth/"):
            return self._login(path, call.body)
        if call.headers.get("x-vault-token") not in self.tokens:
            return 403, {"errors": ["permission denied"]}
        if path == "sys/leases/renew":
            found = self.renewals.get(call.body["lease_id"])
            return (200, found) if found else (400, {"errors": ["lease not found"]})
        found = self.secrets.get(path)
        return (200, found) if found else (404, {"errors": []})

    def _login(self, path: str, body: Mapping[str, str]) -> tuple[int, object]:
        if self.logins.get(path) != body:
            return 400, {"errors": [f"invalid login with {body}"]}
        token = f"hvs.{len(self.tokens)}"
        self.tokens.add(token)
        return 200, {"auth": {"client_token": token, "lease_duration": self.login_lease, "renewable": True}}


def kv2(data: Mapping[str, Any]) -> dict[str, Any]:
    return {"lease_duration": 0, "lease_id": "", "renewable": False, "data": {"data": data, "metadata": {"version": 3}}}


def kv1(data: Mapping[str, Any], lease: int = 2_764_800) -> dict[str, Any]:
    return {"lease_duration": lease, "lease_id": "", "renewable": False, "data": data}


def leased(
    lease: str, seconds: int, data: Mapping[str, Any] | None = None, *, renewable: bool = True
) -> dict[str, Any]:
    return {"lease_duration": seconds, "lease_id": lease, "renewable": renewable, "data": data}
