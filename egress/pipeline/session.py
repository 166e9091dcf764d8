"""The client messages of one WebSocket, judged one by one under the generation that is current then."""

from dataclasses import dataclass

from egress.l7 import websocket
from egress.model.message import RequestHead
from egress.model.verdict import Audited, Denial, DenialCode, ReasonCode, Stage
from egress.pipeline.connection import OpenedConnection
from egress.pipeline.revalidate import revalidate
from egress.policy.compiled import Endpoint
from egress.websocket.handshake import Deflate

RULE, BINARY_REFUSED, POLICY_CHANGE, INTERNAL, CAPACITY = 1008, 1003, 1012, 1011, 1013
"""Close codes of denial-codes.md section 3."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message that ends the WebSocket: the denial, the close code, and the synthetic method it was judged as."""

    denial: Denial
    code: int
    method: str


class Session:
    """Asked for each client message, in order."""

    def __init__(
        self, connection: OpenedConnection, endpoint: Endpoint, head: RequestHead, deflate: Deflate | None
    ) -> None:
        self._connection = connection
        self._endpoint = endpoint
        self._head = head
        self.deflate = deflate

    def text(self, data: str) -> Refusal | None:
        """One whole text message."""
        stale = self.stale()
        if stale is not None:
            return stale
        return self._judge(websocket.TEXT, RULE)

    def binary(self) -> Refusal | None:
        """The beginning of a binary message; its content is not looked at."""
        stale = self.stale()
        if stale is not None:
            return stale
        return self._judge(websocket.BINARY, BINARY_REFUSED)

    def stale(self) -> Refusal | None:
        """Between messages: does the current generation still allow this session?"""
        denial = revalidate(self._connection)
        return None if denial is None else Refusal(denial, POLICY_CHANGE, websocket.TEXT)

    def _judge(self, method: str, code: int) -> Refusal | None:
        verdict = websocket.judge_message(self._connection.authorization, self._endpoint, self._head, method)
        if isinstance(verdict, Denial):
            return Refusal(verdict, code, method)
        if isinstance(verdict, Audited) and code == BINARY_REFUSED:
            # Audit never softens a binary message (decision 34): what it holds was not even looked at.
            return Refusal(verdict.denial, code, method)
        return None


def overloaded() -> Denial:
    """Too many messages are being put together at once."""
    return Denial(Stage.L7, DenialCode.OVERLOADED, "too many unfinished messages", ReasonCode.CONNECTIONS)
