"""Replies that are changed: held ones show nothing before their end, streamed ones lose their length."""

from dataclasses import dataclass

from egress.credentials.scrub import Scrubber
from egress.engine.mitm.reply import ChangedReply
from egress.model.body import CHUNKED, of_length
from egress.model.message import Malformed, ResponseHead
from egress.model.secret import Secret
from egress.pipeline.transform import Masked

HEAD = ResponseHead(200, b"OK", ((b"a", b"b"),), of_length(6))


@dataclass
class Upper:
    """Upper-cases; refuses `!`; adds a full stop at the end."""

    ceiling: int | None

    def feed(self, data: bytes) -> bytes | Malformed:
        return Malformed("no") if b"!" in data else data.upper()

    def finish(self) -> bytes | Malformed:
        return b"."


def test_a_stream_goes_on_piece_by_piece_without_a_length() -> None:
    reply = ChangedReply(HEAD, Upper(None))
    assert reply.head == ResponseHead(200, b"OK", ((b"a", b"b"),), CHUNKED)
    assert (reply.feed(b"ab"), reply.feed(b"c"), reply.finish()) == (b"AB", b"C", b".")


def test_a_held_reply_shows_nothing_before_its_end_and_then_its_length() -> None:
    reply = ChangedReply(HEAD, Upper(6))
    assert (reply.head, reply.feed(b"abc"), reply.feed(b"def"), reply.head) == (None, b"", b"", None)
    assert reply.finish() == b"ABCDEF."
    assert reply.head == ResponseHead(200, b"OK", ((b"a", b"b"),), of_length(7))


def test_a_held_reply_beyond_its_ceiling() -> None:
    reply = ChangedReply(HEAD, Upper(3))
    assert reply.feed(b"abc") == b""
    assert isinstance(reply.feed(b"d"), Malformed)
    assert reply.head is None


def test_what_cannot_be_read() -> None:
    held, streamed = ChangedReply(HEAD, Upper(9)), ChangedReply(HEAD, Upper(None))
    held.feed(b"ab!")
    assert isinstance(held.finish(), Malformed)
    assert held.head is None
    assert isinstance(streamed.feed(b"!"), Malformed)


SCRUBBER = Scrubber.of((Secret("SECRET-VALUE"),))


def test_a_masked_reply_keeps_its_length_and_lets_short_ends_go() -> None:
    reply = ChangedReply(HEAD, Masked(SCRUBBER.stream()))
    assert reply.head is HEAD
    assert (reply.feed(b"a SECRET-"), reply.waits) == (b"a ", True)
    assert (reply.release(), reply.waits) == (b"SECRET-", False)
    assert (reply.feed(b"VALUE!"), reply.finish()) == (b"*****!", b"")
    assert reply.trailers(((b"X", b"SECRET-VALUE"),)) == ((b"X", b"*" * 12),)


def test_a_filtered_reply_is_masked_without_its_length() -> None:
    streamed, held = ChangedReply(HEAD, Masked(SCRUBBER.stream(), Upper(None))), Masked(SCRUBBER.stream(), Upper(20))
    assert streamed.head == ResponseHead(200, b"OK", ((b"a", b"b"),), CHUNKED)
    reply = ChangedReply(HEAD, held)
    assert (reply.head, reply.feed(b"secret-"), reply.feed(b"value"), reply.waits) == (None, b"", b"", False)
    assert reply.finish() == b"************."
    assert reply.head == ResponseHead(200, b"OK", ((b"a", b"b"),), of_length(13))


def test_other_transforms_hold_nothing_back_and_read_no_trailers() -> None:
    reply, lines = ChangedReply(HEAD, Upper(None)), ((b"X", b"SECRET-VALUE"),)
    assert (reply.waits, reply.release(), reply.keeps_length) == (False, b"", False)
    assert reply.trailers(lines) is lines
