"""HTTP calls of the proxy itself: token endpoints, secret stores. They take the same way out as everything else, to
addresses that were checked, and trust what origins are trusted by. The only importer of httpx2.

Each call has a client and a connection of its own: no cookie and no warm connection outlives it. Codings are not
undone, so that a reply is as large as what was read of it."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpcore2
import httpx2

from egress.model.address import DEFAULT_PORTS, InvalidAddress, Origin, Port, Scheme, parse_host
from egress.model.errors import EgressError
from egress.model.verdict import Denial
from egress.sdk.http import NO_HEADERS, HttpFailure, HttpReply, TlsOptions

READ_BYTES = 65_536
_LIMIT = "timeouts of the proxy's own calls"
_NO_OPTIONS = TlsOptions()


class OwnStream(Protocol):
    """What a connection of ours has to do."""

    buffer: bytes

    async def more(self, seconds: float | None, limit: str) -> bool: ...
    def take(self, size: int | None = None) -> bytes: ...
    def write(self, data: bytes) -> None: ...
    async def drain(self, seconds: float | None, limit: str) -> None: ...
    async def start_tls(
        self, context: ssl.SSLContext, *, server_side: bool, server_hostname: str | None = None
    ) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


type Open = Callable[[Origin], Awaitable[OwnStream | Denial]]
"""Resolve, check the addresses, dial: directly or through the corporate proxies. TLS is left to the caller."""


class OwnClient:
    """An `HttpClient` of `egress.sdk.http`. `trust` makes the context for a server, with what its options add; it may
    block."""

    def __init__(self, open_: Open, trust: Callable[[TlsOptions], ssl.SSLContext]) -> None:
        self._open = open_
        self._trust = trust

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        body: bytes = b"",
        timeout: float,  # noqa: ASYNC109 - for the whole exchange, by the port
        max_bytes: int,
        tls: TlsOptions | None = None,
    ) -> HttpReply:
        """One exchange on a connection of its own. Raises `HttpFailure` and nothing else."""
        try:
            async with asyncio.timeout(timeout):
                return await self._exchange(method, url, headers, body, max_bytes, tls or _NO_OPTIONS)
        except HttpFailure:
            raise
        except TimeoutError:
            raise HttpFailure("took too long") from None
        except ssl.SSLCertVerificationError as error:
            raise HttpFailure(f"the certificate is not trusted: {error.verify_message}") from None
        except (OSError, EgressError):
            raise HttpFailure("the connection failed") from None
        except httpx2.ProtocolError:
            raise HttpFailure("no HTTP that can be read") from None
        except Exception as error:  # texts of others may quote what was sent
            raise HttpFailure(f"failed: {type(error).__name__}") from None

    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, max_bytes: int, tls: TlsOptions
    ) -> HttpReply:
        origin = origin_of(url)
        context = await asyncio.to_thread(self._trust, tls) if origin.scheme is Scheme.HTTPS else None
        fields = {"User-Agent": "egress", "Accept-Encoding": "identity", **headers}
        async with (
            httpx2.AsyncClient(
                transport=_Transport(context, _Backend(self._open, origin)),
                trust_env=False,
                follow_redirects=False,
                timeout=None,  # ours holds for everything together
            ) as client,
            client.stream(method, url, headers=fields, content=body) as reply,
        ):
            pieces, size = [], 0
            async for piece in reply.aiter_raw():
                size += len(piece)
                if size > max_bytes:
                    raise HttpFailure(f"the reply is larger than {max_bytes} bytes")
                pieces.append(piece)
            return HttpReply(reply.status_code, tuple(reply.headers.multi_items()), b"".join(pieces))


def origin_of(url: str) -> Origin:
    """Where a URL leads. Raises `HttpFailure`."""
    try:
        parts = urlsplit(url)
        scheme = Scheme(parts.scheme)
        origin = Origin(scheme, parse_host(parts.hostname or ""), Port(parts.port or DEFAULT_PORTS[scheme]))
    except (ValueError, KeyError, InvalidAddress):
        raise HttpFailure("is no http or https URL") from None
    if parts.username is not None or not url.isascii() or not url.isprintable() or " " in url:
        raise HttpFailure("is no plain URL")
    return origin


class _Transport(httpx2.AsyncHTTPTransport):
    """The library's transport over our way out. The library's own would be made first, with trust of its own, so that
    one is not."""

    def __init__(self, context: ssl.SSLContext | None, backend: "_Backend") -> None:
        self._pool = httpcore2.AsyncConnectionPool(ssl_context=context, network_backend=backend, max_connections=1)


class _Backend(httpcore2.AsyncNetworkBackend):
    """Connects to one origin, whatever it is asked for."""

    def __init__(self, open_: Open, origin: Origin) -> None:
        self._open = open_
        self._origin = origin

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's signature
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        del host, port, timeout, local_address, socket_options
        opened = await self._open(self._origin)
        if isinstance(opened, Denial):
            raise HttpFailure(opened.reason_code.value if opened.reason_code is not None else opened.code.word)
        return _Stream(opened)

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        raise HttpFailure("Unix sockets are not called")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Stream(httpcore2.AsyncNetworkStream):
    def __init__(self, stream: OwnStream) -> None:
        self._stream = stream
        self._tls: ssl.SSLObject | None = None

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        while not self._stream.buffer:
            if not await self._stream.more(timeout, _LIMIT):
                return b""
        return self._stream.take(min(max_bytes, READ_BYTES))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        if buffer:
            self._stream.write(buffer)
            await self._stream.drain(timeout, _LIMIT)

    async def aclose(self) -> None:
        with suppress(OSError):
            self._stream.close()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore2.AsyncNetworkStream:
        del timeout
        try:
            await self._stream.start_tls(ssl_context, server_side=False, server_hostname=server_hostname)
        except BaseException:  # the library does not close what it could not secure
            self._stream.abort()
            raise
        self._tls = getattr(self._stream, "tls", None)
        return self

    def get_extra_info(self, info: str) -> Any:
        return self._tls if info == "ssl_object" else None
