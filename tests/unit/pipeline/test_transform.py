"""A mask behind the filter of a protocol: what passes the filter is masked, and a fault of either ends the reply."""

from dataclasses import dataclass

import pytest

from egress.credentials.scrub import Scrubber
from egress.http.coding import Decoder, decoder
from egress.model.message import Malformed
from egress.model.secret import Secret
from egress.pipeline.transform import Masked

SCRUBBER = Scrubber.of((Secret("SECRET-VALUE"),))


@dataclass
class Upper:
    """Upper-cases; refuses `!`; ends with a secret."""

    ceiling: int | None = None
    fault: Malformed | None = None

    def feed(self, data: bytes) -> bytes | Malformed:
        return Malformed("no") if b"!" in data else data.upper()

    def finish(self) -> bytes | Malformed:
        return self.fault or b"value."


def undoing_gzip() -> Decoder:
    made = decoder([b"gzip"], None)
    assert isinstance(made, Decoder)
    return made


def test_a_mask_alone() -> None:
    reply = Masked(SCRUBBER.stream())
    assert (reply.ceiling, reply.keeps_length) == (None, True)
    assert [reply.feed(b"a SECRET-VALUE b"), reply.finish()] == [b"a ************ b", b""]
    assert reply.trailers(((b"X", b"SECRET-VALUE"),)) == ((b"X", b"*" * 12),)


def test_what_a_filter_makes_is_masked() -> None:
    reply = Masked(SCRUBBER.stream(), Upper(ceiling=9))
    assert (reply.ceiling, reply.keeps_length) == (9, False)
    assert [reply.feed(b"a secret-value secret-"), reply.finish()] == [b"A ************ ", b"SECRET-value."]


def test_a_filters_last_words_are_masked() -> None:
    stream = Scrubber.of((Secret("A-value."),)).stream()
    reply = Masked(stream, Upper())
    assert [reply.feed(b"a-"), reply.finish()] == [b"", b"********"]


@pytest.mark.parametrize(
    ("held", "waits"), [(b"", False), (b"S", True), (b"SECRET-", True), (b"SECRET-V", False), (b"SECRET-VALU", False)]
)
def test_a_short_end_waits(held: bytes, waits: bool) -> None:
    reply = Masked(SCRUBBER.stream())
    assert reply.feed(b"x " + held) == b"x "
    assert reply.waits is waits
    assert reply.release() == held
    assert not reply.waits


def test_faults() -> None:
    assert isinstance(Masked(SCRUBBER.stream(), Upper()).feed(b"!"), Malformed)
    assert isinstance(Masked(SCRUBBER.stream(), Upper(fault=Malformed("no"))).finish(), Malformed)
    coded = Masked(SCRUBBER.stream(None, undoing_gzip()))
    assert not coded.keeps_length
    assert isinstance(coded.feed(b"no gzip"), Malformed)
    cut = Masked(SCRUBBER.stream(None, undoing_gzip()))
    cut.feed(b"\x1f\x8b")
    assert isinstance(cut.finish(), Malformed)
    ends_in_noise = Masked(SCRUBBER.stream(None, undoing_gzip()), Upper())
    assert isinstance(ends_in_noise.finish(), Malformed)
