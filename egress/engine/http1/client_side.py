"""Reads request heads from a client and writes refusals to it; shared by tunnels and the proxy port."""

import asyncio

from egress.engine.linger import linger
from egress.engine.stream import DeadlineExceeded, Stream
from egress.http.lexer import NeedMore, find_head, lex_request
from egress.http.replies import Reply
from egress.model.message import Malformed, WireHead
from egress.model.verdict import DenialCode


async def read_request_head(
    client: Stream, limit: int, *, first_byte: tuple[float | None, str], rest: tuple[float | None, str]
) -> WireHead | Malformed | None:
    """The next head, None when the client has none to send.

    `first_byte` and `rest` are (seconds, setting): how long a quiet client may idle, and how long a head that has
    begun may take. Idling too long raises `DeadlineExceeded`; a head that stalls is `request_timeout`.
    """
    if not client.buffer and not await client.more(*first_byte):
        return None
    seconds, name = rest
    deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
    scanned = 0
    while isinstance(found := find_head(client.buffer, limit, scanned), NeedMore):
        scanned = len(client.buffer)
        left = None if deadline is None else max(0.0, deadline - asyncio.get_running_loop().time())
        try:
            if not await client.more(left, name):
                return Malformed("the head ended early")
        except DeadlineExceeded:
            return Malformed("the head took too long", DenialCode.REQUEST_TIMEOUT)
    if isinstance(found, Malformed):
        return found
    return lex_request(client.take(found))


async def send_refusal(client: Stream, reply: Reply) -> None:
    """Write a refusal and close."""
    client.write(reply.http1())
    await linger(client)
