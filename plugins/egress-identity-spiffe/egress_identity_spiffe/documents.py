"""JWT-SVIDs from the Workload API. The client library blocks, so every call runs on a thread, with a deadline."""

import asyncio
import threading
from pathlib import PurePosixPath
from urllib.parse import urlsplit

import grpc  # type: ignore[import-untyped]
from spiffe import JwtSvid, WorkloadApiClient
from spiffe.errors import PySpiffeError

from egress.sdk.secrets import RunBlocking, Secret, SourceUnavailable

TIMEOUT = 5.0
"""Seconds for one SVID."""

_KINDS = {
    grpc.StatusCode.UNAVAILABLE: "unreachable",
    grpc.StatusCode.DEADLINE_EXCEEDED: "timeout",
    grpc.StatusCode.PERMISSION_DENIED: "no_identity",
}


def read_endpoint(text: str) -> str:
    """The address of a Workload API as the library wants it. Raises `ValueError`, which repeats nothing of `text`."""
    address = text.strip()
    if address.startswith("tcp:"):
        raise ValueError("only Unix sockets are supported for the Workload API")
    path = PurePosixPath(urlsplit(address).path if address.startswith("unix:") else address)
    if not path.is_absolute() or ".." in path.parts:
        raise ValueError("the Workload API socket must be an absolute path")
    if path.parent == PurePosixPath("/"):
        raise ValueError("the Workload API socket must be in a directory of its own")
    return f"unix:{path}"


class SpiffeDocuments:
    """The default identity, asked for one audience at a time."""

    def __init__(self, endpoint: str, run: RunBlocking, *, timeout: float = TIMEOUT) -> None:
        self._endpoint = read_endpoint(endpoint)
        self._run = run
        self._timeout = timeout
        self._lock = threading.Lock()
        self._client: WorkloadApiClient | None = None

    async def fetch(self, audience: str) -> tuple[Secret, float | None]:
        """A document and when it ends, in seconds since the epoch. Raises `SourceUnavailable`."""
        svid = await self._run(self._fetch, audience)
        return Secret(svid.token), float(svid.expiry)

    async def close(self) -> None:
        """Give the connection back."""
        await asyncio.to_thread(self._drop, self._client)

    def _fetch(self, audience: str) -> JwtSvid:
        """On a thread. The library's messages may quote what it was sent: only the kind of a failure is passed on."""
        client = None
        try:
            client = self._connected()
            return client.fetch_jwt_svid({audience})
        except PySpiffeError as error:
            self._drop(client)
            raise SourceUnavailable(_kind(error)) from None

    def _connected(self) -> WorkloadApiClient:
        with self._lock:
            if self._client is None:
                self._client = WorkloadApiClient(self._endpoint, default_timeout=self._timeout)
            return self._client

    def _drop(self, client: WorkloadApiClient | None) -> None:
        """A channel that failed would wait up to minutes before it tries again; a new one tries at once."""
        if client is None:
            return
        with self._lock:
            if self._client is client:
                self._client = None
        client.close()


def _kind(error: PySpiffeError) -> str:
    cause = error.__cause__
    if isinstance(cause, grpc.RpcError) and isinstance(cause, grpc.Call):
        return _KINDS.get(cause.code(), "refused")
    return "no_socket" if "socket" in str(error).lower() else "malformed"
