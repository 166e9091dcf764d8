"""Frames of either side to events and back: every rule of http-surface.md 12.3 by its close code, any chunking."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egress.websocket.codec import Close, Codec, Event, Piece, Ping, Pong, Text, Violation
from egress.websocket.handshake import Deflate
from egress.websocket.rules import Bounds, Side
from tests.support.websockets import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    RSV1,
    TEXT,
    Deflater,
    Frame,
    Inflater,
    closing,
    frame,
    header,
    masking,
    parse,
)

MIB = 1 << 20
SMALL = Bounds(fragments=4, text=64, frame=128, ratio=10, ratio_free=100, piece=16)
"""The same rules at sizes that a test can go through."""


def read(
    data: bytes, *, side: Side = Side.CLIENT, deflate: Deflate | None = None, bounds: Bounds = SMALL
) -> list[Event]:
    return list(Codec(side, deflate, bounds).feed(data))


def code(data: bytes, *, side: Side = Side.CLIENT, deflate: Deflate | None = None, bounds: Bounds = SMALL) -> int:
    """Close code that the last event asks for; fails when there is no violation."""
    *_, last = read(data, side=side, deflate=deflate, bounds=bounds)
    assert isinstance(last, Violation), last
    return last.code


def compressed(data: bytes, opcode: int = TEXT, *, masked: bool = True, fin: bool = True) -> bytes:
    return frame(opcode, Deflater().message(data), rsv=RSV1, masked=masked, fin=fin)


class TestFrames:
    def test_text_is_given_whole(self) -> None:
        assert read(frame(TEXT, "grüße".encode())) == [Text("grüße")]

    def test_fragments_are_joined(self) -> None:
        data = frame(TEXT, b"a", fin=False) + frame(CONTINUATION, b"", fin=False) + frame(CONTINUATION, b"b")
        assert read(data) == [Text("ab")]

    def test_control_frames_pass_between_fragments(self) -> None:
        data = frame(TEXT, b"a", fin=False) + frame(PING, b"p") + frame(PONG) + frame(CONTINUATION, b"b")
        assert read(data) == [Ping(b"p"), Pong(b""), Text("ab")]

    def test_binary_is_given_in_pieces(self) -> None:
        data = frame(BINARY, b"0123456789abcdefghij", fin=False) + frame(CONTINUATION, b"xyz")
        assert read(data) == [Piece(b"0123456789abcdefghij", True, False), Piece(b"xyz", False, True)]

    def test_text_of_the_origin_is_given_in_pieces(self) -> None:
        data = frame(TEXT, b"0123456789abcdefghij", masked=False, fin=False) + frame(CONTINUATION, b"z", masked=False)
        assert read(data, side=Side.ORIGIN) == [Piece("0123456789abcdefghij", True, False), Piece("z", False, True)]

    def test_small_parts_become_one_piece(self) -> None:
        codec = Codec(Side.ORIGIN, None, SMALL)
        events = [event for octet in frame(BINARY, b"0123456789", masked=False) for event in codec.feed(bytes([octet]))]
        assert events == [Piece(b"0123456789", True, True)]

    @pytest.mark.parametrize("opcode", [TEXT, BINARY])
    def test_empty_message(self, opcode: int) -> None:
        empty: Event = Text("") if opcode == TEXT else Piece(b"", True, True)
        assert read(frame(opcode)) == [empty]

    def test_large_lengths(self) -> None:
        for size in (125, 126, 65535, 65536):
            assert read(frame(TEXT, b"x" * size), bounds=Bounds()) == [Text("x" * size)]


class TestProtocol:
    """Everything that ends with 1002."""

    @pytest.mark.parametrize(
        "data",
        [
            pytest.param(frame(TEXT, b"x", masked=False), id="unmasked"),
            pytest.param(b"\x81\xfe\x00\x7d" + masking(b"x" * 125), id="16-bit length for 125"),
            pytest.param(b"\x81\xff" + (65535).to_bytes(8) + bytes(4), id="64-bit length for 65535"),
            pytest.param(b"\x82\xff" + (1 << 63).to_bytes(8) + bytes(4), id="length with its top bit set"),
            pytest.param(frame(TEXT, b"x", rsv=0x20), id="RSV2"),
            pytest.param(frame(TEXT, b"x", rsv=0x10), id="RSV3"),
            pytest.param(frame(TEXT, b"x", rsv=RSV1), id="RSV1 without deflate"),
            pytest.param(frame(0x3, b"x"), id="reserved data opcode"),
            pytest.param(frame(0xB, b"x"), id="reserved control opcode"),
            pytest.param(frame(PING, b"x", fin=False), id="fragmented ping"),
            pytest.param(frame(CLOSE, b"", fin=False), id="fragmented close"),
            pytest.param(header(PING, 126) + masking(b"x" * 126), id="ping of 126 bytes"),
            pytest.param(frame(CONTINUATION, b"x"), id="stray continuation"),
            pytest.param(frame(TEXT, b"x") + frame(CONTINUATION, b"x"), id="continuation after the end"),
            pytest.param(frame(TEXT, b"x", fin=False) + frame(TEXT, b"y"), id="message within a message"),
            pytest.param(frame(CLOSE, b"\x03"), id="close with half a code"),
            pytest.param(frame(CLOSE, b"\x03\xe8\xff"), id="close reason that is not UTF-8"),
        ],
    )
    def test_broken_frame(self, data: bytes) -> None:
        assert code(data) == 1002

    def test_masked_frame_of_an_origin(self) -> None:
        assert code(frame(TEXT, b"x"), side=Side.ORIGIN) == 1002

    @pytest.mark.parametrize("later", [CONTINUATION, PING])
    def test_rsv1_off_the_first_frame(self, later: int) -> None:
        data = compressed(b"abc", fin=False) + frame(later, b"x", rsv=RSV1)
        assert code(data, deflate=Deflate()) == 1002

    @pytest.mark.parametrize("number", [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535])
    def test_close_code_that_may_not_be_sent(self, number: int) -> None:
        assert code(closing(number)) == 1002

    @pytest.mark.parametrize("number", [1000, 1001, 1002, 1003, 1007, 1014, 3000, 4999])
    def test_close_code_that_may(self, number: int) -> None:
        assert read(closing(number, "bye")) == [Close(number, "bye")]

    def test_close_without_a_code(self) -> None:
        assert read(closing(None)) == [Close(None, "")]

    def test_fragments_up_to_the_bound(self) -> None:
        begun = frame(TEXT, b"a", fin=False) + frame(CONTINUATION, b"", fin=False) * 2
        assert read(begun + frame(CONTINUATION, b"b")) == [Text("ab")]
        assert code(begun + frame(CONTINUATION, b"", fin=False) + frame(CONTINUATION, b"b")) == 1002

    def test_4097_fragments(self) -> None:
        codec = Codec(Side.CLIENT, None)
        assert list(codec.feed(frame(TEXT, b"", fin=False) + frame(CONTINUATION, b"", fin=False) * 4095)) == []
        assert [type(event) for event in codec.feed(frame(CONTINUATION))] == [Violation]

    def test_fragments_are_counted_anew_for_each_message(self) -> None:
        message = frame(TEXT, b"", fin=False) + frame(CONTINUATION)
        assert read(message * 5) == [Text("")] * 5

    @pytest.mark.parametrize("side", Side)
    def test_frame_over_its_bound_is_not_even_begun(self, side: Side) -> None:
        masked = side is Side.CLIENT
        assert read(header(BINARY, 16 * MIB, masked=masked), side=side, bounds=Bounds()) == []
        assert code(header(BINARY, 16 * MIB + 1, masked=masked), side=side, bounds=Bounds()) == 1002

    def test_many_frames_may_be_longer_than_one(self) -> None:
        data = frame(BINARY, b"x" * 100, fin=False) + frame(CONTINUATION, b"y" * 100)
        assert read(data) == [Piece(b"x" * 100, True, False), Piece(b"y" * 100, False, True)]


class TestText:
    """1007 and 1009."""

    @pytest.mark.parametrize("bad", [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"])
    def test_invalid_utf8(self, bad: bytes) -> None:
        assert code(frame(TEXT, b"ok" + bad)) == 1007

    @pytest.mark.parametrize("side", Side)
    def test_invalid_utf8_across_fragments(self, side: Side) -> None:
        masked = side is Side.CLIENT
        data = frame(TEXT, b"\xe2\x82", fin=False, masked=masked) + frame(CONTINUATION, b"x", masked=masked)
        assert code(data, side=side) == 1007

    @pytest.mark.parametrize("side", Side)
    def test_character_across_fragments(self, side: Side) -> None:
        masked = side is Side.CLIENT
        data = frame(TEXT, b"\xe2\x82", fin=False, masked=masked) + frame(CONTINUATION, b"\xac", masked=masked)
        assert read(data, side=side) == [Text("€") if masked else Piece("€", True, True)]

    def test_bad_text_ends_with_its_first_bad_byte(self) -> None:
        assert code(frame(TEXT, b"ok\xff", fin=False)) == 1007

    def test_binary_is_no_text(self) -> None:
        assert read(frame(BINARY, b"\xff")) == [Piece(b"\xff", True, True)]

    def test_text_over_its_bound_is_not_even_begun(self) -> None:
        assert read(header(TEXT, 4 * MIB), bounds=Bounds()) == []
        assert code(header(TEXT, 4 * MIB + 1), bounds=Bounds()) == 1009

    def test_text_over_its_bound_in_fragments(self) -> None:
        assert code(frame(TEXT, b"x" * 60, fin=False) + frame(CONTINUATION, b"x" * 5)) == 1009

    def test_the_bound_is_in_bytes(self) -> None:
        """Seventeen characters of four bytes each."""
        assert code(frame(TEXT, "😀".encode() * 17)) == 1009

    def test_text_of_an_origin_has_the_bound_of_frames(self) -> None:
        data = frame(TEXT, b"x" * 100, masked=False)
        assert read(data, side=Side.ORIGIN) == [Piece("x" * 100, True, True)]


class TestDeflate:
    @pytest.mark.parametrize("side", Side)
    def test_context_is_kept(self, side: Side) -> None:
        deflater, masked = Deflater(), side is Side.CLIENT
        first, second = deflater.message(b"the same words"), deflater.message(b"the same words")
        assert len(second) < len(first)
        data = b"".join(frame(TEXT, one, rsv=RSV1, masked=masked) for one in (first, second))
        given: Event = Text("the same words") if masked else Piece("the same words", True, True)
        assert read(data, side=side, deflate=Deflate()) == [given, given]

    @pytest.mark.parametrize("side", Side)
    def test_context_is_dropped(self, side: Side) -> None:
        """A back reference into an earlier message is an error without context takeover."""
        deflater, masked = Deflater(), side is Side.CLIENT
        terms = Deflate(client_takeover=not masked, server_takeover=masked)
        data = b"".join(frame(TEXT, deflater.message(b"the same words"), rsv=RSV1, masked=masked) for _ in range(2))
        first, second = read(data, side=side, deflate=terms)
        assert not isinstance(first, Violation)
        assert second == Violation(1007, "the message is not valid text or not validly compressed")

    def test_control_frame_between_compressed_fragments(self) -> None:
        """wsproto's own extension takes what follows the control frame for plain bytes."""
        whole = Deflater().message(b"hello hello hello")
        data = frame(TEXT, whole[:4], rsv=RSV1, fin=False) + frame(PING, b"?") + frame(CONTINUATION, whole[4:])
        assert read(data, deflate=Deflate()) == [Ping(b"?"), Text("hello hello hello")]

    def test_plain_message_beside_compressed_ones(self) -> None:
        data = compressed(b"one") + frame(TEXT, b"two") + compressed(b"three", BINARY)
        assert read(data, deflate=Deflate(client_takeover=False)) == [
            Text("one"), Text("two"), Piece(b"three", True, True)
        ]  # fmt: skip

    def test_several_blocks_in_one_message(self) -> None:
        deflater = Deflater()
        data = frame(TEXT, deflater.message(b"Hel") + b"\x00\x00\xff\xff" + deflater.message(b"lo"), rsv=RSV1)
        assert read(data, deflate=Deflate()) == [Text("Hello")]

    def test_final_block(self) -> None:
        """The example of RFC 7692 section 7.2.3.4; the next message begins anew."""
        data = frame(TEXT, b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00", rsv=RSV1)
        assert read(data * 2, deflate=Deflate()) == [Text("Hello")] * 2

    @pytest.mark.parametrize("fin", [True, False])
    def test_data_after_a_final_block(self, fin: bool) -> None:
        final = b"\xf3\x48\xcd\xc9\xc9\x07\x00"
        data = frame(TEXT, final + b"\xf3\x48", rsv=RSV1)
        if not fin:
            data = frame(TEXT, final, rsv=RSV1, fin=False) + frame(CONTINUATION, b"\xf3\x48")
        assert code(data, deflate=Deflate()) == 1007

    @pytest.mark.parametrize("payload", [b"\xff\xff\xff", b"\x06\x00"])
    def test_not_deflate(self, payload: bytes) -> None:
        assert code(frame(TEXT, payload, rsv=RSV1), deflate=Deflate()) == 1007

    def test_empty_message(self) -> None:
        assert read(frame(TEXT, b"\x00", rsv=RSV1), deflate=Deflate()) == [Text("")]

    def test_text_too_large_once_inflated(self) -> None:
        noise = random.Random(1).randbytes(30).hex().encode()
        assert read(compressed(noise), deflate=Deflate()) == [Text(noise.decode())]
        assert code(compressed(noise + b"12345"), deflate=Deflate()) == 1009

    def test_text_too_large_before_inflating(self) -> None:
        """Empty stored blocks inflate to nothing and are bounded all the same."""
        blocks = b"\x00\x00\x00\xff\xff" * 13
        assert code(frame(TEXT, blocks, rsv=RSV1), deflate=Deflate()) == 1009

    @pytest.mark.parametrize("side", Side)
    def test_bomb(self, side: Side) -> None:
        """10 MiB in 10 KiB: beyond the free MiB, 100 to 1 is the most."""
        bomb = compressed(b"\x00" * (10 * MIB), BINARY, masked=side is Side.CLIENT)
        assert len(bomb) < 11_000
        codec = Codec(side, Deflate())
        seen = 0
        for event in codec.feed(bomb):
            if isinstance(event, Violation):
                assert event.code == 1009
                break
            assert isinstance(event, Piece)
            seen += len(event.data)
        else:
            pytest.fail("the bomb went through")
        assert seen <= MIB + 100 * len(bomb)

    @pytest.mark.parametrize("side", Side)
    def test_bomb_in_a_frame_that_announces_more(self, side: Side) -> None:
        """The ratio is to what came, not to what may come."""
        masked = side is Side.CLIENT
        squeezed = Deflater().message(b"\x00" * 600)
        begun = header(BINARY, 128, rsv=RSV1, masked=masked) + (masking(squeezed) if masked else squeezed)
        assert code(begun, side=side, deflate=Deflate()) == 1009

    @pytest.mark.parametrize("side", Side)
    def test_just_within_the_ratio(self, side: Side) -> None:
        repeated = compressed(b"\x00" * 100, BINARY, masked=side is Side.CLIENT)
        assert read(repeated, side=side, deflate=Deflate()) == [Piece(b"\x00" * 100, True, True)]

    @pytest.mark.parametrize("side", Side)
    def test_just_beyond_the_ratio(self, side: Side) -> None:
        bomb = compressed(b"\x00" * 1000, BINARY, masked=side is Side.CLIENT)
        assert code(bomb, side=side, deflate=Deflate()) == 1009


class TestEnds:
    @pytest.mark.parametrize("split", [False, True])
    def test_what_follows_a_close_is_dropped(self, split: bool) -> None:
        """RFC 6455 section 1.4."""
        codec = Codec(Side.CLIENT, None)
        parts = [closing(1000), frame(TEXT, b"late") + frame(PING)]
        feeds = parts if split else [b"".join(parts)]
        assert [event for data in feeds for event in codec.feed(data)] == [Close(1000, "")]
        assert codec.ended

    def test_what_follows_a_violation_is_dropped(self) -> None:
        codec = Codec(Side.CLIENT, None)
        events = [*codec.feed(frame(0x3) + frame(TEXT, b"late")), *codec.feed(frame(TEXT, b"later"))]
        assert [type(event) for event in events] == [Violation]
        assert not codec.ended

    def test_a_refused_close_is_no_end(self) -> None:
        codec = Codec(Side.CLIENT, None)
        assert [type(event) for event in codec.feed(closing(1005))] == [Violation]
        assert not codec.ended

    def test_nothing_is_written_behind_a_close(self) -> None:
        codec = Codec(Side.CLIENT, None)
        assert [one.opcode for one in parse(codec.close(1001))] == [CLOSE]
        late = (codec.data("x"), codec.data(b"x"), codec.ping(b""), codec.pong(b""), codec.close(1000))
        assert late == (b"",) * 5

    def test_holding_tells_of_text_that_is_kept(self) -> None:
        codec = Codec(Side.CLIENT, None)
        assert not codec.holding
        list(codec.feed(frame(TEXT, b"a", fin=False)))
        assert codec.holding
        list(codec.feed(frame(CONTINUATION, b"b")))
        assert not codec.holding

    def test_nothing_is_held_after_a_close(self) -> None:
        codec = Codec(Side.CLIENT, None)
        assert list(codec.feed(frame(TEXT, b"a", fin=False) + closing(1000))) == [Close(1000, "")]
        assert not codec.holding

    def test_nothing_is_held_of_binary_messages_and_origins(self) -> None:
        client, origin = Codec(Side.CLIENT, None), Codec(Side.ORIGIN, None)
        list(client.feed(frame(BINARY, b"a", fin=False)))
        list(origin.feed(frame(TEXT, b"a", fin=False, masked=False)))
        assert not client.holding
        assert not origin.holding


class TestWriting:
    def test_towards_an_origin_frames_are_masked(self) -> None:
        codec = Codec(Side.CLIENT, None)
        assert parse(codec.data("hi")) == [Frame(TEXT, b"hi", masked=True)]
        assert codec.data("hi") != codec.data("hi"), "every frame has a key of its own"

    def test_towards_a_client_they_are_not(self) -> None:
        codec = Codec(Side.ORIGIN, None)
        assert parse(codec.data(b"a", last=False) + codec.ping(b"p") + codec.data(b"b")) == [
            Frame(BINARY, b"a", fin=False), Frame(PING, b"p"), Frame(CONTINUATION, b"b")
        ]  # fmt: skip

    def test_closes(self) -> None:
        assert parse(Codec(Side.ORIGIN, None).close(None)) == [Frame(CLOSE, b"")]
        assert parse(Codec(Side.ORIGIN, None).close(4000, "why")) == [Frame(CLOSE, b"\x0f\xa0why")]

    @pytest.mark.parametrize("side", Side)
    def test_a_message_goes_on_compressed_when_it_came_so(self, side: Side) -> None:
        masked = side is Side.CLIENT
        deflater = Deflater()
        data = b"".join(
            frame(TEXT, deflater.message(word) if rsv else word, rsv=rsv, masked=masked)
            for word, rsv in ((b"squeezed", RSV1), (b"plain", 0), (b"squeezed", RSV1))
        )
        sent = parse(relayed(side, Deflate(), data))
        assert [one.rsv for one in sent] == [RSV1, 0, RSV1]
        inflater = Inflater()
        assert [inflater.message(one.payload) if one.rsv else one.payload for one in sent] == [
            b"squeezed", b"plain", b"squeezed"
        ]  # fmt: skip

    @pytest.mark.parametrize("side", Side)
    def test_context_of_what_is_written(self, side: Side) -> None:
        """With takeover the second message refers to the first; without it each stands alone."""
        data = compressed(b"one and the same sentence", masked=side is Side.CLIENT)
        alone = [one.payload for one in parse(relayed(side, Deflate(False, False), data * 2))]
        assert alone[0] == alone[1]
        assert Inflater().message(alone[1]) == b"one and the same sentence"
        deflater = Deflater()
        data = b"".join(
            frame(TEXT, deflater.message(b"one and the same sentence"), rsv=RSV1, masked=side is Side.CLIENT)
            for _ in range(2)
        )
        kept = [one.payload for one in parse(relayed(side, Deflate(), data))]
        assert len(kept[1]) < len(kept[0])
        inflater = Inflater()
        assert [inflater.message(one) for one in kept] == [b"one and the same sentence"] * 2

    @pytest.mark.parametrize("bits", [9, 10, 15])
    @pytest.mark.parametrize("side", Side)
    def test_the_agreed_window_is_enough_to_inflate(self, side: Side, bits: int) -> None:
        """Repeats at a distance that only a larger window than agreed could reach."""
        masked = side is Side.CLIENT
        noise = random.Random(bits).randbytes(700).hex().encode()
        deflater, data = Deflater(), b""
        for _ in range(3):
            data += frame(TEXT, deflater.message(noise), rsv=RSV1, masked=masked)
        sent = parse(relayed(side, Deflate(client_bits=bits, server_bits=bits), data))
        inflater = Inflater(bits)
        assert [inflater.message(one.payload) for one in sent] == [noise] * 3

    def test_fragments_of_a_compressed_message(self) -> None:
        """RSV1 stands on the first frame only."""
        words = random.Random(7).randbytes(60_000)
        sent = parse(relayed(Side.ORIGIN, Deflate(), compressed(words, BINARY, masked=False), step=10_000))
        assert len(sent) > 1
        assert [one.rsv for one in sent] == [RSV1, *[0] * (len(sent) - 1)]
        assert [one.fin for one in sent] == [*[False] * (len(sent) - 1), True]
        assert Inflater().message(b"".join(one.payload for one in sent)) == words


def relayed(side: Side, deflate: Deflate | None, data: bytes, step: int = 1 << 16) -> bytes:
    """What a codec writes of the messages that it reads."""
    codec, sent = Codec(side, deflate), b""
    for start in range(0, len(data), step):
        for event in codec.feed(data[start : start + step]):
            match event:
                case Text(text):
                    sent += codec.data(text)
                case Piece(part, _, last):
                    sent += codec.data(part, last=last)
                case _:
                    raise AssertionError(event)
    return sent


@st.composite
def conversations(draw: st.DrawFn) -> tuple[bytes, bool, Side]:
    """Frames of valid messages, some compressed, control frames among them, and now and then a fault at the end."""
    side = draw(st.sampled_from(list(Side)))
    masked = side is Side.CLIENT
    deflater, data = Deflater(), b""
    squeeze = draw(st.booleans())
    for _ in range(draw(st.integers(0, 4))):
        opcode = draw(st.sampled_from((TEXT, BINARY)))
        payload = draw(st.text(max_size=40)).encode() if opcode == TEXT else draw(st.binary(max_size=60))
        rsv = RSV1 if squeeze and draw(st.booleans()) else 0
        wire = deflater.message(payload) if rsv else payload
        cuts = sorted(draw(st.lists(st.integers(0, len(wire)), max_size=3)))
        parts = [wire[low:high] for low, high in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
        for index, part in enumerate(parts):
            first, last = index == 0, index == len(parts) - 1
            data += frame(opcode if first else CONTINUATION, part, fin=last, masked=masked, rsv=rsv if first else 0)
            if draw(st.booleans()):
                data += frame(draw(st.sampled_from((PING, PONG))), draw(st.binary(max_size=5)), masked=masked)
    end = draw(st.sampled_from(("none", "close", "fault", "utf8")))
    ends = {
        "none": b"",
        "close": closing(1000, "bye", masked=masked),
        "fault": frame(0x7, masked=masked),
        "utf8": frame(TEXT, b"\xc3\x28", masked=masked),
    }
    return data + ends[end], squeeze, side


def joined(events: list[Event]) -> list[object]:
    """Events with the pieces of one message put together: how they are cut may depend on how bytes arrive. Control
    frames stand before the message that they interrupt, since that holds for any cut."""
    whole: list[object] = []
    parts: list[str | bytes] = []
    for event in events:
        if not isinstance(event, Piece):
            whole.append(event)
            continue
        assert event.first is (not parts)
        parts.append(event.data)
        if event.last:
            whole.append(("" if isinstance(parts[0], str) else b"").join(parts))  # type: ignore[arg-type]
            parts = []
    return whole


@settings(max_examples=120, deadline=None)
@given(conversation=conversations(), steps=st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_any_chunking_gives_the_same_events(conversation: tuple[bytes, bool, Side], steps: list[int]) -> None:
    data, squeeze, side = conversation
    deflate = Deflate() if squeeze else None
    at_once = joined(list(Codec(side, deflate, Bounds(piece=16)).feed(data)))
    codec, chunked, start, turn = Codec(side, deflate, Bounds(piece=16)), [], 0, 0
    while start < len(data):
        step = steps[turn % len(steps)]
        chunked += list(codec.feed(data[start : start + step]))
        start, turn = start + step, turn + 1
    assert joined(chunked) == at_once


@settings(max_examples=120, deadline=None)
@given(noise=st.binary(max_size=200), side=st.sampled_from(list(Side)), squeeze=st.booleans())
def test_noise_never_raises(noise: bytes, side: Side, squeeze: bool) -> None:
    events = read(noise, side=side, deflate=Deflate() if squeeze else None)
    assert all(not isinstance(event, Violation | Close) for event in events[:-1])
