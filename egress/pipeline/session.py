"""The client messages of one WebSocket, judged one by one under the generation that is current then."""

from dataclasses import dataclass

from egress.l7 import websocket
from egress.model.message import RequestHead
from egress.model.verdict import Audited, Denial, DenialCode, ReasonCode, Stage
from egress.pipeline.connection import OpenedConnection
from egress.pipeline.credentials import ExchangeCredentials, MessageScrub
from egress.pipeline.revalidate import revalidate
from egress.policy.compiled import Endpoint
from egress.websocket.handshake import Deflate

RULE, BINARY_REFUSED, POLICY_CHANGE, CAPACITY = 1008, 1003, 1012, 1013
INTERNAL, GOING_AWAY = 1011, 1001
"""Close codes of denial-codes.md section 3; 1001 when the proxy stops or a WebSocket was silent too long."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message that ends the WebSocket: the denial, the close code, and the synthetic method it was judged as."""

    denial: Denial
    code: int
    method: str


class Session:
    """Asked for each client message, in order."""

    def __init__(
        self,
        connection: OpenedConnection,
        endpoint: Endpoint,
        head: RequestHead,
        deflate: Deflate | None,
        credentials: ExchangeCredentials | None = None,
    ) -> None:
        """`head` is the upgrade request as policy saw it."""
        self._connection = connection
        self._endpoint = endpoint
        self._head = head
        self._credentials = credentials
        self._incoming: MessageScrub | None = None
        self.deflate = deflate

    def text(self, data: str) -> Refusal | Audited | None:
        """Judge one whole text message, placeholders in it as they are."""
        stale = self.stale()
        if stale is not None:
            return stale
        verdict = websocket.judge_text(self._connection.authorization, self._endpoint, self._head, data)
        if isinstance(verdict, Denial):
            return Refusal(verdict, RULE, websocket.TEXT)
        return verdict if isinstance(verdict, Audited) else None

    def placed(self, data: str) -> Refusal | str:
        """The message that `text` let pass as the origin gets it. To be written in the same turn of the loop."""
        if self._credentials is None:
            return data
        placed = self._credentials.place_message(data)
        return Refusal(placed, RULE, websocket.TEXT) if isinstance(placed, Denial) else placed

    def incoming(self, piece: str, *, last: bool) -> str:
        """Part of a text message of the origin, without what may not come back."""
        if self._credentials is None:
            return piece
        if self._incoming is None:
            self._incoming = self._credentials.scrub_message()
        if self._incoming is None:
            return piece
        shown = self._incoming.feed(piece, last=last)
        if last:
            self._incoming = None
        return shown

    def reason(self, text: str) -> str:
        """Why the origin closes, in its words, without what may not come back."""
        scrub = self._credentials.scrub_message() if self._credentials is not None else None
        return text if scrub is None else scrub.feed(text, last=True)

    def binary(self) -> Refusal | None:
        """The beginning of a binary message; its content is not looked at, so audit does not soften the verdict
        (decision 34)."""
        stale = self.stale()
        if stale is not None:
            return stale
        verdict = websocket.judge_binary(self._connection.authorization, self._endpoint, self._head)
        denial = verdict.denial if isinstance(verdict, Audited) else verdict
        if isinstance(denial, Denial):
            return Refusal(denial, BINARY_REFUSED, websocket.BINARY)
        unread = self._credentials.binary_message() if self._credentials is not None else None
        return Refusal(unread, RULE, websocket.BINARY) if unread is not None else None

    def stale(self) -> Refusal | None:
        """Between messages: does the current generation still allow this session?"""
        denial = revalidate(self._connection)
        return None if denial is None else Refusal(denial, POLICY_CHANGE, websocket.TEXT)


def overloaded() -> Denial:
    """Too many messages are being put together at once."""
    return Denial(Stage.L7, DenialCode.OVERLOADED, "too many unfinished messages", ReasonCode.CONNECTIONS)
