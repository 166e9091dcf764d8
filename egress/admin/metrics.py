"""The `metrics.address` listener: `GET /metrics` in the Prometheus text format, nothing else."""

import asyncio
from collections.abc import Callable
from socket import socket

from egress.admin.http import HEAD_BYTES, Answer, problem, serve

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class MetricsEndpoint:
    """Answers scrapes with what `render` gives."""

    def __init__(self, render: Callable[[], bytes]) -> None:
        self._render = render
        self._server: asyncio.Server | None = None

    async def start(self, sock: socket) -> None:
        self._server = await asyncio.start_server(self._serve, sock=sock, limit=HEAD_BYTES)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve(reader, writer, self._handle)

    async def _handle(self, method: str, path: str) -> Answer:
        if method != "GET" or path != "/metrics":
            return problem(404, "not_found", "only GET /metrics is answered here")
        return Answer(200, self._render(), CONTENT_TYPE)
