"""The operator's Unix socket: status, credentials, upstream proxies, reload (control-plane.md B7).

Who may connect is what the kernel says of the peer: root, the proxy's own user, and those that are listed.
"""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from egress.admin.http import HEAD_BYTES, Answer, document, problem, serve
from egress.admin.metrics import CONTENT_TYPE
from egress.model.errors import EgressError

log = logging.getLogger(__name__)

_CREDENTIALS = struct.Struct("=iII")
_FORBIDDEN = problem(403, "forbidden", "this user may not operate the proxy")
_UNKNOWN = problem(404, "not_found", "there is no such resource")


class Operated(Protocol):
    """What an operator may ask of a running proxy. Nothing that it answers holds a secret."""

    def status(self) -> Mapping[str, object]: ...

    def upstream(self) -> Mapping[str, object]: ...

    def credentials(self) -> list[Mapping[str, object]]: ...

    async def refresh_credentials(self, name: str) -> bool:
        """Fetch anew; False when nothing has that name."""
        ...

    async def revoke_credentials(self, name: str) -> bool: ...

    def environment(self, agent: str) -> Mapping[str, str]:
        """Placeholders for a workload's environment."""
        ...

    def reload(self) -> None: ...


class OperatorSocket:
    """Serves `operated` on a Unix socket. `close` removes the socket."""

    def __init__(
        self, path: Path, mode: int, uids: Collection[int], agents: Callable[[], Collection[int]], operated: Operated,
        metrics: Callable[[], bytes],
    ) -> None:  # fmt: skip
        self._path = path
        self._mode = mode
        self._uids = frozenset((0, os.geteuid(), *uids))
        self._agents = agents
        self._operated = operated
        self._metrics = metrics
        self._server: asyncio.Server | None = None

    async def start(self) -> bool:
        """Listen. False, with a warning in the log, when the path cannot be had: traffic does not depend on it."""
        try:
            sock = self._bind()
        except OSError as error:
            log.warning("no operator socket", extra={"path": str(self._path), "reason": error.strerror})
            return False
        self._server = await asyncio.start_unix_server(self._serve, sock=sock, limit=HEAD_BYTES)
        return True

    def _bind(self) -> socket.socket:
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if self._path.is_socket() and not _answers(self._path):
                self._path.unlink()
            umask = os.umask(0o777 & ~self._mode)
            try:
                sock.bind(str(self._path))
            finally:
                os.umask(umask)
        except OSError:
            sock.close()
            raise
        return sock

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("socket")
        _, uid, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        allowed = uid in self._uids and (uid in (0, os.geteuid()) or uid not in self._agents())
        await serve(reader, writer, self._handle if allowed else _forbid)

    async def _handle(self, method: str, path: str) -> Answer:
        try:
            return await self._route(method, [unquote(part) for part in path.split("/") if part])
        except EgressError as error:
            return problem(503, "failed", str(error))
        except Exception as error:  # the operator learns that it failed; the log says where
            log.error("operator request failed", extra={"error": type(error).__name__})  # noqa: TRY400
            return problem(500, "internal_error", "the proxy failed on this request")

    async def _route(self, method: str, parts: list[str]) -> Answer:
        operated = self._operated
        match method, parts:
            case "GET", ["healthz" | "readyz"]:
                return Answer(200, b"ok\n", b"text/plain")
            case "GET", ["metrics"]:
                return Answer(200, self._metrics(), CONTENT_TYPE)
            case "GET", ["v1", "status"]:
                return document(operated.status())
            case "GET", ["v1", "upstream"]:
                return document(operated.upstream())
            case "GET", ["v1", "credentials"]:
                return document({"credentials": operated.credentials()})
            case "GET", ["v1", "environment", agent]:
                return document(operated.environment(agent))
            case "POST", ["v1", "credentials", name, "refresh"]:
                return await _done(operated.refresh_credentials(name))
            case "POST", ["v1", "credentials", name, "revoke"]:
                return await _done(operated.revoke_credentials(name))
            case "POST", ["v1", "reload"]:
                operated.reload()
                return document({"reload": "started"}, 202)
        return _UNKNOWN


async def _done(work: Awaitable[bool]) -> Answer:
    return document({"done": True}) if await work else _UNKNOWN


async def _forbid(_method: str, _path: str) -> Answer:
    return _FORBIDDEN


def _answers(path: Path) -> bool:
    """Is somebody listening there?"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex(str(path)) == 0
