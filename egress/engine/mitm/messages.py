"""What the layers of this lane tell each other beside mitmproxy's own HTTP events, and what they ask of the dispatcher.

Every event names the stream that it is about; ids are those of the client's connection.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from mitmproxy.proxy.commands import Command
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.events import ConnectionEvent
from mitmproxy.proxy.layers.http._base import HttpEvent
from mitmproxy.proxy.layers.http._events import RequestHeaders

from egress.engine.stream import Stream
from egress.engine.tunnel import Tunnel
from egress.http.replies import Reply
from egress.model.message import Malformed, RequestHead, ResponseHead, WireHead
from egress.model.verdict import Denial
from egress.pipeline.exchange import Exchange
from egress.pipeline.session import Session

type Commands = Any
"""An iterable of mitmproxy commands; each is carried out before the next is asked for."""


class Wire:
    """One connection as mitmproxy's layers name it: a stream, and the layer that speaks on it."""

    __slots__ = ("closed", "draining", "layer", "multiplexed", "stream", "warm")

    def __init__(self, stream: Stream, *, multiplexed: bool = False) -> None:
        self.stream = stream
        self.multiplexed = multiplexed
        self.layer: Any = None
        """None again once the connection is no part of the tunnel any more."""
        self.warm = stream.received > 0
        self.closed = False
        self.draining = False


class LaneContext(Context):
    """mitmproxy's context without its global options and without a server of its own choosing."""

    def __init__(self, client: Wire) -> None:
        self.client: Any = client
        self.server: Any = None
        self.options: Any = None
        self.layers = []

    def fork(self) -> "LaneContext":
        return self


@dataclass(slots=True)
class Site:
    """What every layer of one tunnel knows. `arm` makes sure that the dispatcher looks at deadlines by then."""

    tunnel: Tunnel
    client: Wire
    h2: bool
    now: Callable[[], float]
    arm: Callable[[float], None]


# from a connection to its stream --------------------------------------------------------------------------------


@dataclass
class RequestArrived(RequestHeaders):
    """A request head, uninterpreted. The stream answers in `head`, which stays None when it refused."""

    request: WireHead | Malformed | RequestHead  # type: ignore[assignment]
    end_stream: bool = False
    head: RequestHead | None = None


@dataclass
class RequestBroken(HttpEvent):
    """The body of a request states nothing unambiguous."""

    fault: Malformed


@dataclass
class ClientLost(HttpEvent):
    """The client reset the stream or is gone."""


@dataclass
class OriginLost(HttpEvent):
    """The origin broke the exchange off. `unprocessed`: it said that it did nothing with the request; `silent`: the
    connection ended before any byte of a reply. `code` is that of its RST_STREAM, if it sent one."""

    reason: str
    unprocessed: bool = False
    silent: bool = False
    code: int | None = None


@dataclass
class Interim(HttpEvent):
    """A 1xx head other than 101; on its way to the client None stands for a bare 100."""

    head: ResponseHead | None


@dataclass
class Progress(HttpEvent):
    """Some of what was queued towards a slow receiver has left."""


# from the stream to a connection --------------------------------------------------------------------------------


@dataclass
class SendRequest(HttpEvent):
    """Write an admitted request head to the origin."""

    head: RequestHead
    expect: bool


@dataclass
class Refusal(HttpEvent):
    """Answer the request with a refusal; nothing of a response was sent."""

    reply: Reply


@dataclass
class Reset(HttpEvent):
    """End the exchange in a way that nobody takes for its end."""

    code: int


@dataclass
class Consumed(HttpEvent):
    """`size` payload bytes of this connection have left towards the other side."""

    size: int


# from the dispatcher --------------------------------------------------------------------------------------------


@dataclass
class OriginReady(HttpEvent):
    """This connection to the origin is for the stream."""

    wire: Wire


@dataclass
class OriginRefused(HttpEvent):
    """There is no connection to the origin."""

    denial: Denial


@dataclass
class Expired(HttpEvent):
    """The stream's deadline has passed."""


@dataclass
class Superseded(HttpEvent):
    """A newer generation does not allow the exchange any more."""

    limit: str


@dataclass
class Idle(ConnectionEvent):
    """The deadline of the client connection itself has passed."""


@dataclass
class Gone(ConnectionEvent):
    """The peer is gone for both directions."""


@dataclass
class Drained(ConnectionEvent):
    """The socket takes more again."""


@dataclass
class Stop(ConnectionEvent):
    """Accept no further request from the client; those that are open finish."""


# commands to the dispatcher -------------------------------------------------------------------------------------


@dataclass
class AcquireOrigin(Command):
    """Find a connection to the origin; answered with `OriginReady` or `OriginRefused`."""

    stream_id: int
    needs_h2: bool
    fresh: bool = False
    prepare: Callable[[], Awaitable[Denial | None]] | None = None
    """What the exchange waits for before it may be sent; its denial refuses the stream."""


@dataclass
class ReleaseOrigin(Command):
    """An HTTP/1 connection ended its exchange cleanly, or was not used, and can carry another."""

    wire: Wire


@dataclass
class DropOrigin(Command):
    """A connection to the origin is of no more use. `abort` drops what was not sent."""

    wire: Wire
    abort: bool


@dataclass
class OriginSettled(Command):
    """An HTTP/2 connection to the origin takes more, or fewer, streams than before."""


@dataclass
class Resume(Command):
    """Bytes of this connection that were left unread are wanted now."""

    wire: Wire


@dataclass
class StopClient(Command):
    """Make the client connection accept no further request."""


@dataclass
class Handover(Command):
    """The exchange became a relay with this origin, whose first bytes are `rest`: of messages, or raw."""

    wire: Wire
    rest: bytes
    exchange: Exchange
    session: Session | None


class Ending(Enum):
    """What becomes of the client connection. `KEEP`: others read on from it; `LINGER`: it may still be sending, and is
    given time to read; `CUT` and `RESET` end it so that nobody takes that for a clean end."""

    KEEP = "keep"
    CLOSE = "close"
    LINGER = "linger"
    CUT = "cut"
    RESET = "reset"


@dataclass
class EndClient(Command):
    """The client connection is done; `payload` is the last that it is sent, `rest` what it had sent beyond its end."""

    how: Ending
    payload: bytes = field(default=b"", repr=False)
    rest: bytes = field(default=b"", repr=False)
    limit: str | None = None
