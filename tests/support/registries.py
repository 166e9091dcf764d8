"""Origins that real package managers and git talk to: smart HTTP git, an npm registry, a Python index."""

import base64
import hashlib
import io
import json
import os
import ssl
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

GIT_BACKEND = "/usr/lib/git-core/git-http-backend"


class TlsServer(ThreadingHTTPServer):
    """A threaded HTTP server behind TLS; handshakes happen in the worker, not in the accept loop."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__(("127.0.0.1", 0), handler)
        self.port: int = self.server_address[1]
        self.seen: list[str] = []
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(30)
        super().finish_request(self._context.wrap_socket(request, server_side=True), client_address)

    def handle_error(self, *_: Any) -> None:
        """Clients that leave are no news."""

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class _Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: TlsServer

    def log_message(self, *_: Any) -> None:
        self.server.seen.append(f"{self.command} {self.path.split('?')[0]}")

    def chunks(self) -> Iterator[bytes]:
        """The request body, decoded, piece by piece."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return
        left = int(self.headers.get("Content-Length") or 0)
        while left and (data := self.rfile.read(min(left, 65536))):
            left -= len(data)
            yield data


class _Git(_Quiet):
    root: Path
    basic: str

    def do_GET(self) -> None:
        wanted = f"Basic {base64.b64encode(self.basic.encode()).decode()}"
        if self.basic and self.headers.get("Authorization") != wanted:
            for _ in self.chunks():
                pass
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self._cgi()

    do_POST = do_GET

    def _cgi(self) -> None:
        path, _, query = self.path.partition("?")
        environment = os.environ | {
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_USER": "tester",
            "REMOTE_ADDR": "127.0.0.1",
        }
        process = subprocess.Popen([GIT_BACKEND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        assert process.stdin is not None
        assert process.stdout is not None
        feeding = threading.Thread(target=self._feed, args=(process.stdin,))
        feeding.start()
        self._relay(process.stdout)
        feeding.join()
        process.wait()

    def _feed(self, stdin: Any) -> None:
        try:
            for data in self.chunks():
                stdin.write(data)
        finally:
            stdin.close()

    def _relay(self, stdout: Any) -> None:
        status, fields = 200, []
        while (line := stdout.readline().strip()) != b"":
            name, _, value = line.decode().partition(":")
            if name.lower() == "status":
                status = int(value.split()[0])
            else:
                fields.append((name, value.strip()))
        self.send_response(status)
        for name, value in fields:
            self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while data := stdout.read1(65536):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")


def git_origin(root: Path, context: ssl.SSLContext, basic: str = "") -> TlsServer:
    """Serves every bare repository below `root` with `git http-backend`, pushes included; to whoever says
    `basic`, `user:password`, or to all."""
    return TlsServer(type("Git", (_Git,), {"root": root, "basic": basic}), context)


def npm_origin(context: ssl.SSLContext, host: str, package: str, version: str = "1.0.0") -> TlsServer:
    """A registry with one package, whose tarball is made here."""
    archive = _npm_tarball(package, version)

    class Registry(_Quiet):
        def do_GET(self) -> None:
            if self.path.endswith(".tgz"):
                self._answer(200, archive, "application/octet-stream")
            elif self.path.split("?")[0].lower().replace("%2f", "/") == f"/{package}":
                self._answer(200, self._packument(), "application/json")
            else:
                self._answer(404, b"{}", "application/json")

        def do_POST(self) -> None:
            for _ in self.chunks():
                pass
            self._answer(404, b"{}", "application/json")

        def _packument(self) -> bytes:
            tarball = f"https://{host}:{self.server.port}/{package}/-/archive-{version}.tgz"
            integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
            release = {"name": package, "version": version, "dist": {"tarball": tarball, "integrity": integrity}}
            document = {"name": package, "dist-tags": {"latest": version}, "versions": {version: release}}
            return json.dumps(document).encode()

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return TlsServer(Registry, context)


def _npm_tarball(package: str, version: str) -> bytes:
    files = {
        "package/package.json": json.dumps({"name": package, "version": version, "main": "index.js"}),
        "package/index.js": "module.exports = 'through the proxy';\n",
    }
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return raw.getvalue()


class _TlsWsgi(WSGIServer):
    context: ssl.SSLContext

    def get_request(self) -> Any:
        connection, address = super().get_request()
        return self.context.wrap_socket(connection, server_side=True), address

    def handle_error(self, *_: Any) -> None:
        """Clients that leave are no news."""


class _SilentWsgi(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


class PythonIndex:
    """`pypiserver` behind TLS with one wheel that is made here."""

    def __init__(self, directory: Path, context: ssl.SSLContext, package: str, version: str = "1.0") -> None:
        import pypiserver  # type: ignore[import-untyped]

        _wheel(directory, package, version)
        server = type("Index", (_TlsWsgi,), {"context": context})
        self._server = server(("127.0.0.1", 0), _SilentWsgi)
        self._server.set_app(pypiserver.app(roots=[directory], disable_fallback=True))
        self.port: int = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _wheel(directory: Path, package: str, version: str) -> None:
    info = f"{package}-{version}.dist-info"
    files = {
        f"{package}.py": "WHERE = 'through the proxy'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in files) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(directory / f"{package}-{version}-py3-none-any.whl", "w") as archive:
        for name, text in (files | {f"{info}/RECORD": record}).items():
            archive.writestr(name, text)
