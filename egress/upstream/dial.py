"""TCP to an origin, over its pinned addresses and nothing else."""

import asyncio
import errno
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from egress.model.address import IpAddress, Port
from egress.model.destination import PinnedDestination
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage
from egress.upstream.pool import Poolable

STAGGER_SECONDS = 0.25
"""Head start of an address over the next one (RFC 8305 section 5)."""

_NO_ROUTE = frozenset((errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT))
NO_DESCRIPTORS = frozenset((errno.EMFILE, errno.ENFILE))


@dataclass(frozen=True, slots=True)
class DialTimes:
    """Deadlines in seconds: for one address, and for all of them together."""

    address: float = 10.0
    total: float = 30.0


class Dialer[S: Poolable]:
    """Opens TCP connections whose protocol `make_stream` makes."""

    def __init__(self, make_stream: Callable[[], S], times: DialTimes) -> None:
        self._make_stream = make_stream
        self._times = times

    async def dial(self, pinned: PinnedDestination) -> S | Denial:
        """The first address that answers, each given a short head start over the next."""
        try:
            async with asyncio.timeout(self._times.total):
                return await self.race(pinned.addresses, pinned.origin.port)
        except TimeoutError:
            return _denial(pinned, TimeoutError())
        except OSError as error:
            return _denial(pinned, error)

    async def race(self, addresses: tuple[IpAddress, ...], port: Port) -> S:
        """The same without a deadline for all together. Raises `OSError`."""
        if len(addresses) == 1:
            return await self._attempt(addresses[0], port)
        first: asyncio.Future[S] = asyncio.get_running_loop().create_future()
        failures: list[OSError] = []
        failed = asyncio.Event()

        async def runner(index: int, address: IpAddress) -> None:
            if index:
                await _head_start(failed, index * STAGGER_SECONDS)
            try:
                stream = await self._attempt(address, port)
            except OSError as error:
                failures.append(error)
                failed.set()
                if len(failures) == len(addresses) and not first.done():
                    first.set_exception(failures[0])
                return
            if first.done():
                stream.abort()
            else:
                first.set_result(stream)

        try:
            async with asyncio.TaskGroup() as group:
                runners = [group.create_task(runner(index, address)) for index, address in enumerate(addresses)]
                await asyncio.wait((first,))
                for task in runners:
                    task.cancel()
        except BaseException:
            # Cancelled in the turn in which a connection came up: nobody will take it.
            if first.done() and first.exception() is None:
                first.result().abort()
            raise
        return first.result()

    async def _attempt(self, address: IpAddress, port: Port) -> S:
        loop = asyncio.get_running_loop()
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(self._times.address):
                await loop.sock_connect(sock, (str(address), port))
            _, protocol = await loop.create_connection(
                cast(Callable[[], asyncio.Protocol], self._make_stream), sock=sock
            )
        except BaseException:
            sock.close()
            raise
        return cast(S, protocol)


async def _head_start(failed: asyncio.Event, seconds: float) -> None:
    """Wait out the head start of earlier addresses, less when one of them has failed."""
    try:
        async with asyncio.timeout(seconds):
            await failed.wait()
    except TimeoutError:
        return


def _denial(pinned: PinnedDestination, error: OSError) -> Denial:
    code, reason_code = DenialCode.UPSTREAM_UNREACHABLE, ReasonCode.CONNECT_REFUSED
    if isinstance(error, TimeoutError):
        code, reason_code = DenialCode.UPSTREAM_TIMEOUT, ReasonCode.CONNECT_TIMEOUT
    elif error.errno in _NO_ROUTE:
        reason_code = ReasonCode.NO_ROUTE
    elif error.errno in NO_DESCRIPTORS:
        return Denial(Stage.UPSTREAM, DenialCode.OVERLOADED, "no free descriptor to dial with", ReasonCode.DESCRIPTORS)
    text = "timed out" if code is DenialCode.UPSTREAM_TIMEOUT else "failed"
    return Denial(Stage.UPSTREAM, code, f"connection to {pinned.origin} {text}", reason_code)
