"""Talks to a running proxy over its operator socket."""

import http.client
import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote

from egress.cli.terminal import ExitCode, fail

SECONDS = 60.0


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def ask(path: Path, method: str, *parts: str) -> Any:
    """The JSON that the proxy answers; leaves with a message and a fitting exit code when there is none."""
    connection = _UnixConnection(path)
    target = "/" + "/".join(quote(part, safe="") for part in parts)
    try:
        connection.request(method, target)
        reply = connection.getresponse()
        body = reply.read()
    except (FileNotFoundError, ConnectionRefusedError):
        fail(f"no proxy is running behind {path}", ExitCode.NOT_RUNNING)
    except OSError as error:
        fail(f"{path}: {error.strerror or error}", ExitCode.NOT_RUNNING)
    finally:
        connection.close()
    found = json.loads(body)
    if reply.status >= 400:
        code = ExitCode.REFUSED if reply.status == 403 else ExitCode.FAILURE
        fail(f"{found['error']}: {found['detail']}", code)
    return found
