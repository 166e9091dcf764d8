"""The request state after the verdict."""

from dataclasses import dataclass

from egress.model.message import RequestHead


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """A request that passed every stage; the only type a lane may write out. Its repr prints no content.

    `body` is the whole payload where it had to be held, None where it streams from the client.
    """

    head: RequestHead
    body: bytes | None = None

    def __repr__(self) -> str:
        return f"UpstreamRequest({self.head.method})"
