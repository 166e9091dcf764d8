"""One request and its response on whatever connections carry them: where mitmproxy's events meet the pipeline.

It forwards nothing that `Exchange` did not hand out, holds bytes only while the receiver is slow, and ends the
exchange once however it ends.
"""

import logging
import math
import traceback
from pathlib import Path
from typing import Any, ClassVar

from h2.errors import ErrorCodes
from mitmproxy.proxy.events import Start
from mitmproxy.proxy.layers.http import DropStream, SendHttp
from mitmproxy.proxy.layers.http._events import (
    RequestData,
    RequestEndOfMessage,
    RequestTrailers,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseTrailers,
)

from egress.engine.mitm.messages import (
    AcquireOrigin,
    ClientLost,
    Commands,
    Consumed,
    Expired,
    Handover,
    Interim,
    OriginLost,
    OriginReady,
    OriginRefused,
    Progress,
    Refusal,
    ReleaseOrigin,
    RequestArrived,
    RequestBroken,
    Reset,
    SendRequest,
    Site,
    StopClient,
    Superseded,
    Wire,
)
from egress.engine.mitm.reply import ChangedReply
from egress.engine.origin import proxy_refusal
from egress.model.body import FramingKind
from egress.model.limits import KIB, LIMITS
from egress.model.message import Malformed, RequestHead, ResponseHead
from egress.model.outcome import ByteCounts, RelayOutcome
from egress.model.request import UploadFilter, UpstreamRequest
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage
from egress.pipeline.exchange import Exchange
from egress.pipeline.revalidate import POLICY_CHANGED
from egress.pipeline.transform import TAIL_SECONDS

log = logging.getLogger(__name__)

NAME = "mitm"
REPLAY_BYTES = 64 * KIB
"""Request bytes kept until the first byte of a reply, for one more try on another connection."""
ATTEMPTS = 2

_TRAILERS = Denial(Stage.L7, DenialCode.MALFORMED_REQUEST, "trailers beside a body that is inspected")
_FAILED = Denial(Stage.L7, DenialCode.INTERNAL_ERROR, "the proxy failed on this request")


def where(error: Exception) -> dict[str, str]:
    """What a log may say of an unexpected error: its type and place, none of its text."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return {"error": type(error).__name__, "place": place}


def _protocol_error(reason: str) -> Denial:
    return Denial(Stage.UPSTREAM, DenialCode.UPSTREAM_PROTOCOL_ERROR, reason)


class ExchangeStream:
    """What mitmproxy's HTTP layer runs for one stream."""

    def __init__(self, site: Site, stream_id: int) -> None:
        self._site = site
        self.stream_id = stream_id
        self._exchange: Exchange | None = None
        self._wire: Wire | None = None
        self._attempts = 0
        self._grpc = False
        self._request: RequestHead | None = None
        self._upload: list[Any] | None = []
        self._filter: UploadFilter | None = None
        self._trailers: Any = None
        self._head_waits = False
        self._upload_bytes = 0
        self._request_ended = False
        self._held_up = 0
        self._holding: int | None = None
        self._pieces: list[bytes] = []
        self._sent = 0
        self._expecting = False
        self._expect_until = math.inf
        self._responding = False
        self._change: ChangedReply | None = None
        self._tail_until = math.inf
        self._response_ended = False
        self._held_down = 0
        self._received = 0
        self._status: int | None = None
        self._over = False
        self._deadline = math.inf
        self._limit = ""

    @property
    def due(self) -> float:
        return min(self._deadline, self._expect_until, self._tail_until)

    def handle_event(self, event: Any) -> Commands:
        """Fail closed: what goes wrong here ends this exchange and forwards nothing more."""
        if self._over or type(event) is Start:
            return
        try:
            yield from self._EVENTS[type(event)](self, event)
        except Exception as error:  # whatever a stage raised
            log.error("exchange failed", extra=where(error))  # noqa: TRY400, no content in logs
            yield from self._abandon(_FAILED, RelayOutcome.FAILED)

    def abort(self, outcome: RelayOutcome) -> None:
        """The tunnel ends under this exchange."""
        if not self._over:
            self._finish(outcome)

    # the request -----------------------------------------------------------------------------------------------

    def _arrived(self, event: RequestArrived) -> Commands:
        tunnel = self._site.tunnel
        tunnel.tally.exchanges += 1
        self._exchange = exchange = Exchange(
            tunnel.connection, tunnel.services, tunnel.origin, NAME, tunnel.tally.exchanges
        )
        head = exchange.begin(event.request)
        if isinstance(head, Denial):
            yield from self._refuse(head)
            return
        event.head = head
        self._grpc = _is_grpc(head)
        self._touch()
        if exchange.hold is None:
            yield self._acquire()
            return
        self._holding = exchange.hold
        if (head.framing.length or 0) > exchange.hold:
            yield from self._refuse(exchange.too_large())
        elif head.expect_continue:
            yield self._down(Interim(self.stream_id, None))

    def _acquire(self, *, fresh: bool = False) -> AcquireOrigin:
        assert self._exchange is not None
        prepare = self._exchange.prepare if self._exchange.waits else None
        return AcquireOrigin(self.stream_id, self._grpc, fresh, prepare)

    def _hold(self, event: Any) -> Commands:
        """Keep a body that is judged whole; nothing goes upstream before."""
        exchange, ceiling = self._exchange, self._holding
        assert exchange is not None
        assert ceiling is not None
        if type(event) is RequestData:
            self._sent += len(event.data)
            self._pieces.append(event.data)
            if self._sent > ceiling:
                yield from self._refuse(exchange.too_large())
                return
            self._touch()
            yield self._down(Consumed(self.stream_id, len(event.data)))
        elif type(event) is RequestTrailers:
            yield from self._refuse(_TRAILERS)
        else:
            self._request_ended = True
            denial = exchange.admit(b"".join(self._pieces))
            self._pieces.clear()
            if denial is not None:
                yield from self._refuse(denial)
                return
            self._holding = None
            self._touch()
            yield self._acquire()

    def _origin_ready(self, event: OriginReady) -> Commands:
        exchange = self._exchange
        assert exchange is not None
        # Anew for a second attempt: what was placed before may have been revoked meanwhile.
        admitted = exchange.send()
        refused = admitted if isinstance(admitted, Denial) else self._take(admitted)
        if refused is not None:
            if not event.wire.multiplexed:
                yield ReleaseOrigin(event.wire)
            yield from self._refuse(refused)
            return
        assert self._request is not None
        self._attempts += 1
        self._wire = event.wire
        framing = self._request.framing
        # A body that was held has been asked for by us already.
        expect = self._request.expect_continue and not framing.empty and exchange.hold is None
        self._expecting = expect and not self._upload
        if self._expecting:
            self._expect_until = self._site.now() + LIMITS.expect_wait_seconds
            self._site.arm(self._expect_until)
        elif self._filter is not None and not self._upload and framing.kind is FramingKind.LENGTH:
            self._head_waits = True
            self._touch()
            return
        yield from self._send_head(expect)
        self._touch()

    def _take(self, admitted: UpstreamRequest) -> Denial | None:
        """What is to be written; a denial when what has arrived of the body may not be."""
        self._request = admitted.head
        if admitted.body is not None:
            pieces = [RequestData(self.stream_id, admitted.body)] if admitted.body else []
            self._upload = [*pieces, RequestEndOfMessage(self.stream_id)]
        elif admitted.upload is not None and not self._attempts:
            self._filter = admitted.upload
            arrived, self._upload = self._upload or [], []
            for event in arrived:
                passed = self._pass(event)
                if isinstance(passed, Denial):
                    return passed
                self._upload += passed
        return None

    def _pass(self, event: Any) -> list[Any] | Denial:
        """What the filter lets out for an event of the upload."""
        if self._filter is None:
            return [event]
        if type(event) is RequestData:
            passed = self._filter.feed(event.data)
            if isinstance(passed, Denial):
                return passed
            return [RequestData(self.stream_id, passed)] if passed else []
        if type(event) is RequestTrailers:
            self._trailers = event
            return []
        trailers = self._trailers
        rest = self._filter.finish(tuple(trailers.trailers) if trailers is not None else ())
        if isinstance(rest, Denial):
            return rest
        self._filter = None
        data = [RequestData(self.stream_id, rest)] if rest else []
        return [*data, *([trailers] if trailers is not None else ()), event]

    def _send_head(self, expect: bool) -> Commands:
        assert self._request is not None
        self._head_waits = False
        yield self._up(SendRequest(self.stream_id, self._request, expect))
        for piece in tuple(self._upload or ()):
            if self._wire is not None:
                yield self._up(piece)
        self._bound_replay()
        yield from self._settle_up()

    def _origin_refused(self, event: OriginRefused) -> Commands:
        yield from self._refuse(event.denial)

    def _upload_event(self, event: Any) -> Commands:
        if self._holding is not None:
            yield from self._hold(event)
            return
        if type(event) is RequestData:
            size = len(event.data)
            self._sent += size
            self._held_up += size
            self._upload_bytes += size
            self._expecting = False
            self._expect_until = math.inf
        elif type(event) is RequestEndOfMessage:
            self._request_ended = True
        passed = self._pass(event)
        if isinstance(passed, Denial):
            yield from self._abandon(passed, RelayOutcome.DENIED)
            return
        if self._upload is not None:
            self._upload += passed
        if self._head_waits:
            if passed:
                yield from self._send_head(expect=False)
        elif self._wire is not None:
            for piece in passed:
                yield self._up(piece)
            self._bound_replay()
            yield from self._settle_up()
        self._touch()

    def _bound_replay(self) -> None:
        if self._upload_bytes > REPLAY_BYTES:
            self._upload = None

    def _broken(self, event: RequestBroken) -> Commands:
        yield from self._abandon(Denial(Stage.L7, event.fault.code, event.fault.reason), RelayOutcome.DENIED)

    def _client_lost(self, _event: ClientLost) -> Commands:
        yield from self._drop_origin()
        yield from self._done(RelayOutcome.CLIENT_GONE)

    # the response ----------------------------------------------------------------------------------------------

    def _interim(self, event: Interim) -> Commands:
        assert event.head is not None
        if event.head.status != 100:
            assert self._exchange is not None
            yield self._down(Interim(self.stream_id, self._exchange.interim(event.head)))
        elif self._expecting:
            yield from self._continue()

    def _continue(self) -> Commands:
        self._expecting = False
        self._expect_until = math.inf
        yield self._down(Interim(self.stream_id, None))

    def _response(self, event: ResponseHeaders) -> Commands:
        exchange = self._exchange
        assert exchange is not None
        response: Any = event.response
        refused = proxy_refusal(self._wire.stream, response) if self._wire is not None else None
        checked = refused or exchange.respond(response)
        if isinstance(checked, Denial):
            yield from self._drop_origin()
            yield from self._refuse(checked)
            return
        self._upload = None
        self._expecting = False
        self._expect_until = math.inf
        if exchange.transform is not None:
            self._change = ChangedReply(checked, exchange.transform)
            if self._change.head is None:
                self._touch()
            else:
                # A reply of trailers alone, as gRPC has it, must end with its head.
                yield self._answer(self._change.head, ended=event.end_stream and self._change.keeps_length)
            return
        yield self._answer(checked, ended=event.end_stream)
        if checked.status == 101:
            wire = self._wire
            assert wire is not None
            yield Handover(wire, wire.layer.rest, exchange, exchange.session())
            yield from self._done(RelayOutcome.COMPLETE)

    def _answer(self, head: ResponseHead, *, ended: bool) -> SendHttp:
        self._status = head.status
        self._responding = True
        self._touch()
        return self._down(ResponseHeaders(self.stream_id, head, ended))  # type: ignore[arg-type]

    def _response_data(self, event: ResponseData) -> Commands:
        size = len(event.data)
        self._received += size
        self._held_down += size
        self._touch()
        if self._change is None:
            yield self._down(event)
        else:
            changed = self._change.feed(event.data)
            if isinstance(changed, Malformed):
                yield from self._unreadable(changed)
                return
            if changed:
                yield self._down(ResponseData(self.stream_id, changed))
            self._watch_tail(self._change)
        yield from self._settle_down()

    def _watch_tail(self, change: ChangedReply) -> None:
        """Note until when a short end that is held back may wait for more."""
        self._tail_until = math.inf
        if change.waits:
            self._tail_until = self._site.now() + TAIL_SECONDS
            self._site.arm(self._tail_until)

    def _end_change(self, change: ChangedReply) -> Commands:
        """What is left of a changed reply, its head included where it was held."""
        self._tail_until = math.inf
        changed = change.finish()
        if isinstance(changed, Malformed):
            yield from self._unreadable(changed)
            return
        if not self._responding:
            assert change.head is not None
            yield self._answer(change.head, ended=not changed)
        if changed:
            yield self._down(ResponseData(self.stream_id, changed))

    def _unreadable(self, fault: Malformed) -> Commands:
        """A reply that must be read cannot be: nothing more of it is sent, nor a clean end."""
        yield from self._drop_origin()
        if self._responding:
            yield self._down(Reset(self.stream_id, ErrorCodes.INTERNAL_ERROR))
            yield from self._done(RelayOutcome.UPSTREAM_GONE)
        else:
            yield from self._refuse(_protocol_error(fault.reason))

    def _response_trailers(self, event: ResponseTrailers) -> Commands:
        if self._responding:
            if self._change is not None:
                event.trailers = self._change.trailers(event.trailers)  # type: ignore[arg-type, assignment]
            yield self._down(event)

    def _response_end(self, event: ResponseEndOfMessage) -> Commands:
        self._response_ended = True
        wire, self._wire = self._wire, None
        if wire is not None and not self._request_ended and wire.multiplexed:
            # RFC 9113 section 8.1: a complete response ends the interest in the rest of the request.
            yield SendHttp(Reset(self.stream_id, ErrorCodes.NO_ERROR), wire)  # type: ignore[arg-type]
        if self._change is not None:
            yield from self._end_change(self._change)
            if self._over:
                return
        if self._client.queued(self.stream_id):
            yield self._down(event)
            return
        # Told before the client connection is free for its next request.
        self._finish(RelayOutcome.COMPLETE)
        yield DropStream(self.stream_id)
        yield self._down(event)

    def _origin_lost(self, event: OriginLost) -> Commands:
        if self._response_ended:
            return
        wire, self._wire = self._wire, None
        if wire is None:
            self._attempts += 1  # lost before it could be used
        if self._responding:
            yield self._down(Reset(self.stream_id, event.code or ErrorCodes.INTERNAL_ERROR))
            yield from self._done(RelayOutcome.UPSTREAM_GONE)
        elif self._may_retry(event, wire):
            yield self._acquire(fresh=event.silent)
        elif event.code is not None:
            yield self._down(Reset(self.stream_id, event.code))
            yield from self._done(RelayOutcome.UPSTREAM_GONE)
        else:
            yield from self._refuse(_protocol_error(event.reason))

    def _may_retry(self, event: OriginLost, wire: Wire | None) -> bool:
        """Once, and only what the origin cannot have acted upon: a warm connection that died without a word, or a
        request that an HTTP/2 origin says it did not look at (RFC 9113 section 8.7)."""
        if self._attempts >= ATTEMPTS or self._upload is None:
            return False
        warm = wire is not None and wire.warm
        return event.unprocessed or (event.silent and warm and self._request_ended)

    # slow receivers --------------------------------------------------------------------------------------------

    def _settle_up(self) -> Commands:
        """Let the client send more for what the origin has taken."""
        wire = self._wire
        if wire is None or wire.stream.congested:
            return
        gone = self._held_up - wire.layer.queued(self.stream_id)
        if gone > 0:
            self._held_up -= gone
            yield self._down(Consumed(self.stream_id, gone))

    def _settle_down(self) -> Commands:
        """Let the origin send more for what the client has taken."""
        if self._site.client.stream.congested:
            return
        gone = self._held_down - self._client.queued(self.stream_id)
        if gone > 0:
            self._held_down -= gone
            if self._wire is not None:
                yield self._up(Consumed(self.stream_id, gone))

    def _progress(self, _event: Progress) -> Commands:
        before = (self._held_up, self._held_down)
        yield from self._settle_up()
        yield from self._settle_down()
        if (self._held_up, self._held_down) != before:
            self._touch()
        if self._response_ended and not self._client.queued(self.stream_id):
            yield from self._done(RelayOutcome.COMPLETE)

    # deadlines -------------------------------------------------------------------------------------------------

    def _touch(self) -> None:
        """Something moved; name what is waited for next, and until when."""
        timeouts = self._site.tunnel.timeouts
        if self._responding or self._change is not None:
            seconds, self._limit = timeouts.response_idle, "timeouts.response_idle"
        elif self._request_ended or self._grpc:
            # A gRPC call may stay open for messages that come much later; it is the origin's turn all along.
            seconds, self._limit = timeouts.response_head, "timeouts.response_head"
        elif self._held_up:
            seconds, self._limit = timeouts.response_idle, "timeouts.response_idle"
        else:
            seconds, self._limit = timeouts.body_idle, "timeouts.body_idle"
        if seconds is None:
            self._deadline = math.inf
        else:
            self._deadline = self._site.now() + seconds
            self._site.arm(self._deadline)

    def _expired(self, _event: Expired) -> Commands:
        if self._expecting and self._expect_until <= self._deadline:
            # The origin is silent about `Expect`: the client is told to go on (http-surface.md 10.1).
            yield from self._continue()
            return
        if self._change is not None and self._tail_until <= self._deadline:
            self._tail_until = math.inf
            yield self._down(ResponseData(self.stream_id, self._change.release()))
            return
        yield from self._drop_origin()
        if self._responding:
            self._tell_limit(self._limit)
            yield self._down(Reset(self.stream_id, ErrorCodes.CANCEL))
            yield from self._done(RelayOutcome.CUT)
            return
        if self._change is not None:
            yield from self._refuse(_protocol_error("the origin stalled in a reply that must be read"))
            return
        stalled = self._limit != "timeouts.response_head"
        code = DenialCode.REQUEST_TIMEOUT if self._limit == "timeouts.body_idle" else DenialCode.UPSTREAM_TIMEOUT
        reason = "the request body stalled" if stalled else "the origin did not answer in time"
        yield from self._refuse(Denial(Stage.L7 if stalled else Stage.UPSTREAM, code, reason))

    def _superseded(self, event: Superseded) -> Commands:
        yield from self._drop_origin()
        if not self._responding:
            yield from self._refuse(POLICY_CHANGED)
            return
        self._tell_limit(event.limit)
        yield self._down(Reset(self.stream_id, ErrorCodes.CANCEL))
        yield from self._done(RelayOutcome.CUT)

    def _tell_limit(self, limit: str) -> None:
        """What cut the exchange also ends an HTTP/1 connection."""
        if not self._site.h2:
            tally = self._site.tunnel.tally
            tally.limit, tally.outcome = limit, RelayOutcome.CUT

    # ends ------------------------------------------------------------------------------------------------------

    @property
    def _client(self) -> Any:
        return self._site.client.layer

    def _down(self, event: Any) -> SendHttp:
        return SendHttp(event, self._site.client)  # type: ignore[arg-type]

    def _up(self, event: Any) -> SendHttp:
        return SendHttp(event, self._wire)  # type: ignore[arg-type]

    def _drop_origin(self) -> Commands:
        wire, self._wire = self._wire, None
        if wire is not None:
            yield SendHttp(Reset(self.stream_id, ErrorCodes.CANCEL), wire)  # type: ignore[arg-type]

    def _abandon(self, denial: Denial, outcome: RelayOutcome) -> Commands:
        """Refuse while nothing of a response was sent; after that, cut."""
        yield from self._drop_origin()
        if self._responding:
            yield self._down(Reset(self.stream_id, ErrorCodes.PROTOCOL_ERROR))
            yield from self._done(RelayOutcome.CUT if outcome is RelayOutcome.DENIED else outcome)
        else:
            yield from self._refuse(denial, outcome)

    def _refuse(self, denial: Denial, outcome: RelayOutcome = RelayOutcome.DENIED) -> Commands:
        exchange = self._exchange
        assert exchange is not None
        reply = exchange.refuse(denial)
        self._status = reply.status
        self._finish(outcome)
        yield DropStream(self.stream_id)
        yield self._down(Refusal(self.stream_id, reply))
        if denial.reason_code is ReasonCode.POLICY_CHANGED:
            yield StopClient()

    def _done(self, outcome: RelayOutcome) -> Commands:
        self._finish(outcome)
        yield DropStream(self.stream_id)

    def _finish(self, outcome: RelayOutcome) -> None:
        self._over = True
        tally = self._site.tunnel.tally
        tally.sent += self._sent
        tally.received += self._received
        if self._exchange is not None:
            self._exchange.finish(outcome, self._status, ByteCounts(self._sent, self._received))

    _EVENTS: ClassVar[Any] = {
        RequestArrived: _arrived,
        RequestData: _upload_event,
        RequestTrailers: _upload_event,
        RequestEndOfMessage: _upload_event,
        RequestBroken: _broken,
        ClientLost: _client_lost,
        OriginReady: _origin_ready,
        OriginRefused: _origin_refused,
        OriginLost: _origin_lost,
        Interim: _interim,
        ResponseHeaders: _response,
        ResponseData: _response_data,
        ResponseTrailers: _response_trailers,
        ResponseEndOfMessage: _response_end,
        Progress: _progress,
        Expired: _expired,
        Superseded: _superseded,
    }


def _is_grpc(head: RequestHead) -> bool:
    return any(
        name.lower() == b"content-type" and value.lower().startswith(b"application/grpc") for name, value in head.fields
    )
