"""One admitted exchange over HTTP/1.1: request out, response back, both streaming."""

import asyncio
from enum import Enum

from egress.engine.carried import proxy_lines
from egress.engine.http1.body import BodyReader, BodyWriter
from egress.engine.origin import H1_ALPN, OriginLink, proxy_refusal
from egress.engine.stream import DeadlineExceeded, Stream
from egress.engine.tunnel import Timeouts
from egress.http.head import interpret_response
from egress.http.lexer import NeedMore, WireStatus, find_head, lex_response
from egress.http.serialize import CONTINUE, close_line, interim_bytes, request_bytes, response_bytes
from egress.model.body import CHUNKED, UNTIL_CLOSE, Framing, FramingKind, of_length
from egress.model.errors import PeerError, Side
from egress.model.limits import LIMITS
from egress.model.message import FieldLine, Malformed, RequestHead, ResponseHead
from egress.model.outcome import ByteCounts, RelayOutcome
from egress.model.request import UploadFilter
from egress.model.verdict import Denial, DenialCode, Stage
from egress.pipeline.exchange import Exchange
from egress.pipeline.revalidate import POLICY_CHANGED
from egress.pipeline.transform import TAIL_SECONDS, Masked, ReplyTransform


def _client_gone() -> PeerError:
    return PeerError(Side.DOWNSTREAM, "client is gone")


class After(Enum):
    """What becomes of the client connection."""

    KEEP = "keep"
    CLOSE = "close"
    CUT = "cut"
    UPGRADE = "upgrade"


def _protocol_error(reason: str) -> Denial:
    return Denial(Stage.UPSTREAM, DenialCode.UPSTREAM_PROTOCOL_ERROR, reason)


class Relay:
    """Moves one exchange between `client` and an origin connection. Use once."""

    def __init__(self, client: Stream, link: OriginLink, exchange: Exchange, timeouts: Timeouts) -> None:
        self._client = client
        self._link = link
        self._exchange = exchange
        self._timeouts = timeouts
        self._http10 = exchange.head is not None and exchange.head.http10
        self._origin: Stream | None = None
        self._failure: Denial | None = None
        """Why the exchange must end without the origin's answer."""
        self._may_send_body: asyncio.Event | None = None
        self._body: BodyReader | None = None
        self._mask: Masked | None = None
        self._filter: UploadFilter | None = None
        self.received = 0
        self.status: int | None = None
        self.outcome = RelayOutcome.COMPLETE
        self.limit: str | None = None
        self.origin_after_upgrade: Stream | None = None

    @property
    def counts(self) -> ByteCounts:
        return ByteCounts(self._body.size if self._body is not None else 0, self.received)

    @property
    def body_complete(self) -> bool:
        """True when the whole request body was read."""
        return self._body is None or self._body.complete

    def stop(self, limit: str) -> None:
        """End now: with a refusal while the client was told nothing, else by cutting the reply off."""
        self.limit = limit
        self._failure = POLICY_CHANGED
        failure = PeerError(Side.DOWNSTREAM, limit)
        if self.status is not None:
            self._client.interrupt(failure)
        if self._origin is not None:
            self._origin.interrupt(failure)

    async def run(self) -> After | Denial:
        """Relay the exchange; a denial is for the client, nothing was written to it yet."""
        refused = await self._before()
        if refused is not None:
            return refused
        origin = self._link.warm() or await self._link.fresh(H1_ALPN)
        if isinstance(origin, Denial):
            return origin
        request = self._exchange.send()
        if isinstance(request, Denial):
            self._link.release(origin)
            return request
        if self._body is None:
            assert self._exchange.head is not None
            self._body = BodyReader(self._client, self._exchange.head.framing)
        self._filter = request.upload
        held = request.body if request.body is not None else await self._held_body(request.head)
        if isinstance(held, Denial):
            self._link.release(origin)
            return held
        may_retry = origin.received > 0 and self._body.complete
        result = await self._attempt(origin, request.head, held)
        if result is None and may_retry:
            result = await self._retry(held)
        if result is None:
            return _protocol_error("the origin closed the connection without a reply")
        return result

    async def _before(self) -> Denial | None:
        """What comes before a connection to the origin is wanted."""
        exchange = self._exchange
        refused = await self._hold(exchange.hold) if exchange.hold is not None else None
        return await exchange.prepare() if refused is None and exchange.waits else refused

    async def _retry(self, held: bytes) -> After | Denial | None:
        """The warm connection died before a byte of reply; what was sent is at hand and can be sent once more."""
        fresh = await self._link.fresh(H1_ALPN)
        if isinstance(fresh, Denial):
            return fresh
        if self._failure is not None:
            fresh.close()
            return self._failure
        # Anew: what was placed before may have been revoked meanwhile.
        request = self._exchange.send()
        if isinstance(request, Denial):
            self._link.release(fresh)
            return request
        return await self._attempt(fresh, request.head, held if request.body is None else request.body)

    async def _hold(self, ceiling: int) -> Denial | None:
        """Read the whole body and have it judged, before anything goes upstream."""
        head = self._exchange.head
        assert head is not None
        self._body = body = BodyReader(self._client, head.framing)
        if (head.framing.length or 0) > ceiling:
            return self._exchange.too_large()
        if head.expect_continue and not body.complete and not self._client.buffer:
            self._client.write(CONTINUE)
        pieces: list[bytes] = []
        try:
            while piece := await body.next(self._timeouts.body_idle, "timeouts.body_idle"):
                if isinstance(piece, Malformed):
                    return Denial(Stage.L7, piece.code, piece.reason)
                pieces.append(piece)
                if body.size > ceiling:
                    return self._exchange.too_large()
        except DeadlineExceeded:
            return Denial(Stage.L7, DenialCode.REQUEST_TIMEOUT, "the request body stalled")
        if body.trailers:
            return Denial(Stage.L7, DenialCode.MALFORMED_REQUEST, "trailers beside a body that is inspected")
        return self._exchange.admit(b"".join(pieces))

    async def _held_body(self, head: RequestHead) -> bytes | Denial:
        """A body that has arrived whole already; it goes out with the head in one write. Where the body is looked at,
        the head waits for the first of it."""
        body = self._body
        assert body is not None
        payload: bytes | Malformed = b""
        framing = body.framing
        if not framing.empty and not head.expect_continue:
            if framing.kind is FramingKind.CHUNKED or (framing.length or 0) <= len(self._client.buffer):
                payload = body.buffered()
            elif self._filter is not None:
                try:
                    payload = await body.next(self._timeouts.body_idle, "timeouts.body_idle")
                except DeadlineExceeded:
                    return Denial(Stage.L7, DenialCode.REQUEST_TIMEOUT, "the request body stalled")
        if isinstance(payload, Malformed):
            return Denial(Stage.L7, payload.code, payload.reason)
        passed = self._passed(payload)
        if isinstance(passed, Denial):
            return passed
        writer = BodyWriter(head.framing)
        wire = writer.encode(passed)
        return wire + writer.end(body.trailers) if body.complete and not framing.empty else wire

    def _passed(self, payload: bytes) -> bytes | Denial:
        """What the filter lets out of `payload`, and of what it held once the body is complete."""
        if self._filter is None:
            return payload
        assert self._body is not None
        passed = self._filter.feed(payload) if payload else b""
        if isinstance(passed, Denial) or not self._body.complete:
            return passed
        rest = self._filter.finish(self._body.trailers)
        self._filter = None
        return rest if isinstance(rest, Denial) else passed + rest

    async def _attempt(self, origin: Stream, head: RequestHead, held: bytes) -> After | Denial | None:
        """One try on one connection; None when it died before any byte of a reply."""
        assert self._body is not None
        self._origin = origin
        self._client.on_gone = lambda: origin.interrupt(_client_gone())
        expect = None
        if head.expect_continue and not self._body.complete:
            expect = b"100-continue"
            self._may_send_body = asyncio.Event()
        origin.write(request_bytes(head, expect=expect, proxy=proxy_lines(origin)) + held)
        try:
            if self._body.complete:
                return await self._answer(origin, head)
            async with asyncio.TaskGroup() as group:
                upload = group.create_task(self._upload(origin, head))
                try:
                    return await self._answer(origin, head)
                finally:
                    upload.cancel()
        except BaseException:
            origin.abort()
            raise
        finally:
            self._client.on_gone = None

    # request body ----------------------------------------------------------------------------------------------

    async def _upload(self, origin: Stream, head: RequestHead) -> None:
        """Pump the request body; whatever goes wrong ends the wait for the answer, which then tells."""
        assert self._body is not None
        try:
            if self._may_send_body is not None:
                await self._wait_for_continue(self._may_send_body)
            await self._pump_request(origin, head)
        except DeadlineExceeded as error:
            origin_stalls = error.limit == "timeouts.response_idle"
            code = DenialCode.UPSTREAM_TIMEOUT if origin_stalls else DenialCode.REQUEST_TIMEOUT
            self._fail_upload(origin, Denial(Stage.L7, code, "the request body stalled"))
        except PeerError as error:
            if error.side is Side.DOWNSTREAM:
                origin.interrupt(error)

    async def _pump_request(self, origin: Stream, head: RequestHead) -> None:
        assert self._body is not None
        writer = BodyWriter(head.framing)
        while payload := await self._body.next(self._timeouts.body_idle, "timeouts.body_idle"):
            if isinstance(payload, Malformed):
                self._fail_upload(origin, Denial(Stage.L7, payload.code, payload.reason))
                return
            if not self._send_piece(origin, writer, payload):
                return
            if origin.congested:
                await origin.drain(self._timeouts.response_idle, "timeouts.response_idle")
        if self._send_piece(origin, writer, b""):
            origin.write(writer.end(self._body.trailers))

    def _send_piece(self, origin: Stream, writer: BodyWriter, payload: bytes) -> bool:
        passed = self._passed(payload)
        if isinstance(passed, Denial):
            self._fail_upload(origin, passed)
            return False
        if passed:
            origin.write(writer.encode(passed))
        return True

    async def _wait_for_continue(self, may_send: asyncio.Event) -> None:
        """Give the origin a moment to answer `Expect`; a client that sends anyway is not made to wait."""
        if self._client.buffer:
            may_send.set()
            return
        self._client.on_data = may_send.set
        try:
            async with asyncio.timeout(LIMITS.expect_wait_seconds):
                await may_send.wait()
        except TimeoutError:
            may_send.set()
            self._client.write(CONTINUE)
        finally:
            self._client.on_data = None

    def _fail_upload(self, origin: Stream, denial: Denial) -> None:
        self._failure = denial
        origin.interrupt(PeerError(Side.DOWNSTREAM, denial.reason))

    # response --------------------------------------------------------------------------------------------------

    async def _answer(self, origin: Stream, head: RequestHead) -> After | Denial | None:
        seen = origin.received
        try:
            response = await self._read_response(origin, head)
        except DeadlineExceeded:
            origin.abort()
            return Denial(Stage.UPSTREAM, DenialCode.UPSTREAM_TIMEOUT, "the origin did not answer in time")
        except PeerError as error:
            origin.abort()
            if self._failure is not None:
                return self._failure
            if error.side is Side.DOWNSTREAM:
                return self._cut(RelayOutcome.CLIENT_GONE)
            return None if origin.received == seen else _protocol_error("the origin broke off its reply")
        if response is None:
            origin.abort()
            return None if origin.received == seen else _protocol_error("the origin broke off its reply")
        if isinstance(response, Malformed):
            checked: ResponseHead | Denial = _protocol_error(response.reason)
        else:
            checked = proxy_refusal(origin, response) or self._exchange.respond(response)
        if isinstance(checked, Denial):
            origin.abort()
            return checked
        if checked.status == 101:
            return self._switch(origin, checked)
        return await self._relay_response(origin, head, checked)

    async def _read_response(self, origin: Stream, head: RequestHead) -> ResponseHead | Malformed | None:
        """The final head, interim ones passed on before it; None when the origin ended without one."""
        for _ in range(LIMITS.interim_responses):
            wire = await self._read_status(origin)
            if wire is None or isinstance(wire, Malformed):
                return wire
            response = interpret_response(wire, head.method)
            if isinstance(response, Malformed) or response.status >= 200 or response.status == 101:
                return response
            self._pass_interim(response)
        return Malformed("the origin sent too many interim replies")

    async def _read_status(self, origin: Stream) -> WireStatus | Malformed | None:
        seconds, name = self._timeouts.response_head, "timeouts.response_head"
        scanned = 0
        while isinstance(found := find_head(origin.buffer, LIMITS.tunnel_head_bytes, scanned), NeedMore):
            scanned = len(origin.buffer)
            # The clock of the answer starts when the request is out; an upload has deadlines of its own.
            asked = self._body is None or self._body.complete
            try:
                if not await origin.more(seconds, name):
                    return None
            except DeadlineExceeded:
                if asked:
                    raise
        return found if isinstance(found, Malformed) else lex_response(origin.take(found))

    def _pass_interim(self, response: ResponseHead) -> None:
        if response.status != 100:
            if not self._http10:
                self._client.write(interim_bytes(self._exchange.interim(response)))
        elif self._may_send_body is not None and not self._may_send_body.is_set():
            self._client.write(CONTINUE)
            self._may_send_body.set()

    async def _relay_response(self, origin: Stream, head: RequestHead, response: ResponseHead) -> After | Denial:
        assert self._body is not None
        reader = BodyReader(origin, response.framing)
        transform = self._exchange.transform
        self._mask = mask = transform if isinstance(transform, Masked) else None
        whole = b""
        framing = _client_framing(response.framing, http10=self._http10)
        if transform is not None and transform.ceiling is not None:
            held = await self._hold_reply(origin, reader, transform, transform.ceiling)
            if not isinstance(held, bytes):
                return held
            whole, framing = held, of_length(len(held))
        elif transform is not None and (mask is None or not mask.keeps_length):
            framing = UNTIL_CLOSE if self._http10 else CHUNKED
        keep = head.keep_alive and not self._http10 and self._body.complete
        self.status = response.status
        wire = response_bytes(response, framing, extra=b"" if keep else close_line())
        try:
            await self._copy(reader, BodyWriter(framing), wire + whole)
        except DeadlineExceeded as error:
            origin.abort()
            self.limit = error.limit
            return self._cut(RelayOutcome.CUT)
        except PeerError as error:
            origin.abort()
            if self._failure is not None:
                return self._cut(RelayOutcome.CUT)
            gone = error.side is Side.DOWNSTREAM
            return self._cut(RelayOutcome.CLIENT_GONE if gone else RelayOutcome.UPSTREAM_GONE)
        if response.keep_alive and self._body.complete and response.framing.kind is not FramingKind.UNTIL_CLOSE:
            self._link.release(origin)
        else:
            origin.close()
        return After.KEEP if keep else After.CLOSE

    async def _hold_reply(
        self, origin: Stream, reader: BodyReader, transform: ReplyTransform, ceiling: int
    ) -> bytes | Denial | After:
        """A whole reply that must be read before anything of it is sent; a denial when it cannot be."""
        pieces: list[bytes] = []
        fault: str | None = None
        try:
            while piece := await reader.next(self._timeouts.response_idle, "timeouts.response_idle"):
                if isinstance(piece, Malformed):
                    fault = piece.reason
                    break
                pieces.append(piece)
                if reader.size > ceiling:
                    fault = "a reply that must be read is too large"
                    break
        except DeadlineExceeded:
            fault = "the origin stalled in a reply that must be read"
        except PeerError as error:
            if error.side is Side.DOWNSTREAM:
                origin.abort()
                return self._cut(RelayOutcome.CLIENT_GONE)
            fault = "the origin broke off its reply"
        changed = transform.feed(b"".join(pieces)) if fault is None else Malformed(fault)
        end = transform.finish() if isinstance(changed, bytes) else b""
        if isinstance(changed, Malformed) or isinstance(end, Malformed):
            origin.abort()
            return _protocol_error(changed.reason if isinstance(changed, Malformed) else "the reply ends early")
        return changed + end

    def _cut(self, outcome: RelayOutcome) -> After:
        self.outcome = outcome
        return After.CUT

    async def _copy(self, reader: BodyReader, writer: BodyWriter, wire: bytes) -> None:
        """Head and body to the client; the head leaves with the first payload that is at hand."""
        client = self._client
        idle = (self._timeouts.response_idle, "timeouts.response_idle")
        while True:
            payload = self._changed(reader.buffered(), reader)
            if isinstance(payload, Malformed):
                client.write(wire)
                raise PeerError(Side.UPSTREAM, payload.reason)
            wire += writer.encode(payload)
            if reader.complete:
                client.write(wire + writer.end(self._trailers(reader)))
                self.received = reader.size
                return
            if wire:
                client.write(wire)
                wire = b""
            self.received = reader.size
            if client.congested:
                await client.drain(*idle)
            if client.lost:
                raise _client_gone()
            if self._mask is not None and self._mask.waits and not reader.stream.buffer:
                wire = await self._tail(reader, writer, self._mask)
            elif not reader.stream.buffer and not await reader.stream.more(*idle):
                reader.ended()

    async def _tail(self, reader: BodyReader, writer: BodyWriter, mask: Masked) -> bytes:
        """Wait for what follows the short end that a mask holds back, but not for long: then it is let go."""
        try:
            if not await reader.stream.more(TAIL_SECONDS, ""):
                reader.ended()
        except DeadlineExceeded:
            return writer.encode(mask.release())
        return b""

    def _trailers(self, reader: BodyReader) -> tuple[FieldLine, ...]:
        return reader.trailers if self._mask is None else self._mask.trailers(reader.trailers)

    def _changed(self, payload: bytes | Malformed, reader: BodyReader) -> bytes | Malformed:
        """What a streamed reply's payload becomes for the client."""
        transform = self._exchange.transform
        if transform is None or transform.ceiling is not None or isinstance(payload, Malformed):
            return payload
        changed = transform.feed(payload) if payload else b""
        if isinstance(changed, Malformed) or not reader.complete:
            return changed
        end = transform.finish()
        return end if isinstance(end, Malformed) else changed + end

    def _switch(self, origin: Stream, response: ResponseHead) -> After:
        head = self._exchange.head
        assert head is not None
        assert head.upgrade is not None
        line = b"Connection: Upgrade\r\nUpgrade: %b\r\n" % head.upgrade.encode("ascii")
        self._client.write(response_bytes(response, UNTIL_CLOSE, extra=line))
        self.status = response.status
        self.origin_after_upgrade = origin
        return After.UPGRADE


def _client_framing(framing: Framing, *, http10: bool) -> Framing:
    """A body that runs until close is chunked for a client that can read it, so that a cut shows."""
    if framing.kind in (FramingKind.CHUNKED, FramingKind.UNTIL_CLOSE):
        return UNTIL_CLOSE if http10 else CHUNKED
    return framing
