"""The end of a connection whose peer may still be sending: closed with bytes unread, it would be reset and our last
words lost (RFC 9112 section 9.6)."""

import asyncio

from egress.engine.stream import DeadlineExceeded, End, Stream
from egress.model.errors import PeerError
from egress.model.limits import LIMITS

_LIMIT = "drain"


async def linger(client: Stream) -> None:
    """Say that no more comes, drop a little of what still does, and close when the client has, or after a while.

    Past the little, nothing is read any more: a client that can send no further looks at what it was told.
    """
    client.write_eof()
    dropped = len(client.take())
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LIMITS.refusal_drain_seconds
    gone = asyncio.Event()
    try:
        while dropped < LIMITS.refusal_drain_bytes and await client.more(max(0.0, deadline - loop.time()), _LIMIT):
            dropped += len(client.take())
        if client.end is End.OPEN:
            client.on_gone = gone.set
            async with asyncio.timeout_at(deadline):
                await gone.wait()
    except (DeadlineExceeded, PeerError, TimeoutError):
        pass
    client.on_gone = None
    client.close()
