"""The request state after the verdict."""

from dataclasses import dataclass
from typing import Protocol

from egress.model.message import FieldLine, RequestHead
from egress.model.verdict import Denial


class UploadFilter(Protocol):
    """Looks at a request body while it streams, and may hold back or change a little of it.

    A denial ends the exchange: nothing more of the body is sent.
    """

    def feed(self, data: bytes) -> bytes | Denial:
        """What of `data`, and of what was held back before, may be sent."""
        ...

    def finish(self, trailers: tuple[FieldLine, ...]) -> bytes | Denial:
        """What is left at the end of the body, called once; `trailers` are to follow it."""
        ...


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """A request that passed every stage; the only type a lane may write out. Its repr prints no content.

    `body` is the whole payload where it had to be held, None where it streams from the client: through `upload` then,
    if there is one. A head whose body streams is not written before some of a body of known length has passed.
    """

    head: RequestHead
    body: bytes | None = None
    upload: UploadFilter | None = None

    def __repr__(self) -> str:
        return f"UpstreamRequest({self.head.method})"
