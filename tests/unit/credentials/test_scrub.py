"""Scrubbing: every spelling is masked, nothing else is, and pieces of any size come out as the whole would."""

import base64
import html
import json
import re
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egress.credentials.scrub import Scrubber, ScrubStream
from egress.http.coding import Decoder, decoder
from egress.model.message import Malformed
from egress.model.secret import Secret

TOKEN = "ghp_Ab3dEf6hIj9lMn2pQr5t"
ODD = 'p/s+w"o\\r%2d é\U0001f511&=&amp;'


def scrubber(*texts: str) -> Scrubber:
    return Scrubber.of(tuple(map(Secret, texts)))


def spelled(text: str) -> dict[str, str]:
    """Independent encoders' spellings of a whole text."""
    data = text.encode()
    return {
        "raw": text,
        "percent": quote(text, safe=""),
        "percent with slashes": quote(text),
        "percent lower case": re.sub("%..", lambda code: code[0].lower(), quote(text, safe="")),
        "every byte percent-encoded": "".join(f"%{byte:02X}" for byte in data),
        "form data": quote_plus(text),
        "json": json.dumps(text)[1:-1],
        "json as utf-8": json.dumps(text, ensure_ascii=False)[1:-1],
        "json with escaped slashes": json.dumps(text)[1:-1].replace("/", "\\/"),
        "json, all escaped": "".join(f"\\u{ord(character):04X}" for character in TOKEN) if text == TOKEN else text,
        "markup": html.escape(text),
        "markup by numbers": "".join(f"&#{ord(one)};" if one in "\"&'<>+/=" else one for one in text),
        "markup by upper-case numbers": "".join(f"&#x{ord(one):X};" if one in "\"&'<>+/=" else one for one in text),
        "hex": data.hex(),
        "upper-case hex": data.hex().upper(),
    }


@pytest.mark.parametrize("text", [TOKEN, ODD])
@pytest.mark.parametrize("name", spelled(TOKEN))
def test_every_spelling_is_masked_byte_by_byte(text: str, name: str) -> None:
    spelling = spelled(text)[name].encode()
    hits: set[int] = set()
    assert scrubber("another secret", text).whole(b'{"a":"' + spelling + b'"}', hits) == (
        b'{"a":"' + b"*" * len(spelling) + b'"}'
    )
    assert hits == {1}


@pytest.mark.parametrize("text", [TOKEN, ODD])
@pytest.mark.parametrize("after", [b"", b"\xff", b"xy"])
@pytest.mark.parametrize("before", [b"", b"u", b"u:", b"usr", b"user:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_in_every_alignment_with_or_without_padding(
    text: str, before: bytes, after: bytes, encode: object
) -> None:
    encoded: bytes = encode(before + text.encode() + after)  # type: ignore[operator]
    found = scrubber(text)
    clean = found.whole(encoded)
    first, last = -(-8 * len(before) // 6), 8 * len(before + text.encode()) // 6
    assert clean == encoded[:first] + b"*" * (last - first) + encoded[last:]
    assert found.whole(encoded.rstrip(b"=")) == clean[: len(encoded.rstrip(b"="))]


@pytest.mark.parametrize(
    "escape",
    [
        lambda text: text.replace("/", "\\/"),
        lambda text: quote(text, safe=""),
        lambda text: text.replace("+", "&#43;").replace("/", "&#x2F;"),
    ],
)
def test_base64_may_be_escaped_by_what_carries_it(escape: object) -> None:
    text = "\xfb\xef\xbe\xff\xfe?>~subjects!!!"
    encoded: str = escape(base64.b64encode(text.encode()).decode())  # type: ignore[operator]
    assert {"/", "+"} & set(base64.b64encode(text.encode()).decode())
    clean = scrubber(text).whole(encoded.encode())
    assert clean == b"*" * len(encoded)


def test_a_mixture_of_escapes() -> None:
    assert scrubber(TOKEN).whole(b"<ghp%5f\\u0041b3%64Ef6hIj9lMn2pQr5t>") == b"<" + b"*" * 33 + b">"


def test_short_values_are_left_alone() -> None:
    found = scrubber("1234567", "")
    assert found.idle
    assert found.whole(b"1234567") == b"1234567"
    assert scrubber("1234567", "12345678").whole(b"12345678 1234567") == b"******** 1234567"
    # Counted in bytes, as it stands on the wire.
    assert scrubber("1234é678").whole("1234é678".encode()) == b"*" * 9


def test_what_overlaps_is_masked_to_its_end() -> None:
    found = scrubber("abcdefgh12", "12-and-on", "abcdefgh")
    hits: set[int] = set()
    assert found.whole(b"abcdefgh12-and-on!", hits) == b"*" * 17 + b"!"
    assert hits == {0, 1, 2}


def test_a_long_secret_is_read_to_its_end() -> None:
    """A secret shares its first characters with others: only the whole of it is one."""
    token = "eyJhbGciOiJSUzI1NiJ9." + "k" * 300
    assert scrubber(token).whole(token.encode()) == b"*" * len(token)
    for other in (token[:-1] + "x", token[:-1]):
        assert scrubber(token).whole(other.encode()) == other.encode()
        assert scrubber(token).stream().feed(other.encode() + b"\n") == other.encode() + b"\n"
    assert scrubber(token).whole("".join(f"%{ord(one):02x}" for one in token).encode()) == b"*" * len(token) * 3


def test_nothing_found_is_the_same_object() -> None:
    data, text, lines = b"nothing here", "nothing here", ((b"X-A", b"nothing"),)
    found = scrubber(TOKEN)
    assert found.whole(data) is data
    assert found.message(text) is text
    assert found.fields(lines) is lines


def test_fields_are_masked_names_included() -> None:
    hits: set[int] = set()
    lines = ((b"Set-Cookie", b"t=" + TOKEN.encode()), (b"X-" + TOKEN.encode(), b"1"), (b"ETag", b'"x"'))
    assert scrubber(TOKEN).fields(lines, hits) == (
        (b"Set-Cookie", b"t=" + b"*" * 24),
        (b"X-" + b"*" * 24, b"1"),
        (b"ETag", b'"x"'),
    )
    assert hits == {0}
    assert scrubber(TOKEN).field(b"Bearer " + TOKEN.encode()) == b"Bearer " + b"*" * 24


def test_messages_stay_text() -> None:
    assert scrubber("pässwörd").message("é pässwörd ü") == "é ********** ü"


def test_the_same_secrets_are_compiled_once() -> None:
    assert scrubber(TOKEN, ODD) is scrubber(TOKEN, ODD)
    assert TOKEN not in repr(scrubber(TOKEN)) + repr(scrubber(TOKEN)._by_first)


# streams -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", spelled(TOKEN))
@pytest.mark.parametrize("text", [TOKEN, ODD])
def test_a_border_at_every_place_of_a_spelling(text: str, name: str) -> None:
    spelling = spelled(text)[name].encode()
    body = b"before " + spelling + b" after"
    clean = b"before " + b"*" * len(spelling) + b" after"
    for border in range(len(body)):
        stream = scrubber(text).stream()
        out = [stream.feed(body[:border]), stream.feed(body[border:]), stream.finish()]
        assert b"".join(out) == clean  # type: ignore[arg-type]
        assert stream.hits == {0}


def test_byte_by_byte() -> None:
    stream = scrubber(TOKEN).stream()
    body = b"data: " + TOKEN.encode() + b"\n\n"
    out = [stream.feed(body[at : at + 1]) for at in range(len(body))]
    # The blank behind `data:` ends nothing; what looks like the token waits; its last byte lets all of it go.
    assert out[6:-3] == [b""] * 23
    assert out[-3:] == [b"*" * 24, b"\n", b"\n"]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\0", b" "])
def test_what_cannot_go_on_is_not_held(end: bytes) -> None:
    stream = scrubber(TOKEN).stream()
    assert stream.feed(b"ghp_Ab3d") == b""
    assert stream.held == 8
    assert stream.feed(end) == b"ghp_Ab3d" + end
    assert stream.held == 0


def test_a_part_that_was_released_is_judged_with_what_follows() -> None:
    stream = scrubber(TOKEN).stream()
    assert stream.feed(b"see ghp_") == b"see "
    assert (stream.held, stream.release(), stream.held, stream.release()) == (4, b"ghp_", 0, b"")
    assert stream.feed(b"Ab3d") == b""
    assert stream.held == 4
    assert stream.feed(b"Ef6hIj9lMn2pQr5t!") == b"*" * 20 + b"!"
    assert stream.hits == {0}
    assert stream.finish() == b""


def test_the_end_of_a_match_stays_masked_when_it_begins_another() -> None:
    stream = scrubber("abcdefgh12", "12-and-on").stream()
    assert stream.feed(b"abcdefgh12") == b"*" * 8
    assert stream.held == 2
    assert stream.release() == b"**"
    assert stream.feed(b"-an") == b""
    assert stream.finish() == b"-an"
    again = scrubber("abcdefgh12", "12-and-on").stream()
    assert [again.feed(b"abcdefgh12"), again.finish()] == [b"*" * 8, b"**"]


def test_a_secret_that_begins_another_waits_for_it() -> None:
    stream = scrubber("abcdefgh", "abcdefghijkl").stream()
    assert stream.feed(b"abcdefgh") == b""
    assert stream.feed(b"ij!") == b"********ij!"
    assert stream.hits == {0}
    assert stream.feed(b"abcdefgh") == b""
    assert stream.finish() == b"********"


def test_nothing_to_look_for_passes() -> None:
    stream = scrubber("short").stream()
    assert [stream.feed(b"short"), stream.held, stream.finish()] == [b"short", 0, b""]


def test_a_coded_body_is_undone_and_its_faults_are_told() -> None:
    import gzip

    coded = gzip.compress(b"<" + TOKEN.encode() + b">" * 100)
    stream = scrubber(TOKEN).stream(None, undoing(b"gzip"))
    assert not stream.keeps_length
    pieces = [stream.feed(coded[at : at + 3]) for at in range(0, len(coded), 3)]
    assert b"".join([*pieces, stream.finish()]) == b"<" + b"*" * 24 + b">" * 100  # type: ignore[list-item]
    cut = scrubber(TOKEN).stream(None, undoing(b"gzip"))
    cut.feed(coded[:-9])
    assert isinstance(cut.finish(), Malformed)
    assert isinstance(scrubber(TOKEN).stream(None, undoing(b"br")).feed(b"no brotli at all"), Malformed)


def undoing(coding: bytes) -> Decoder:
    made = decoder([coding], None)
    assert isinstance(made, Decoder)
    return made


# properties --------------------------------------------------------------------------------------------------------

secrets = st.lists(st.text("ab%/+\\ é2&", min_size=8, max_size=12), min_size=1, max_size=4)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[list[str], bytes]:
    """Secrets, and a body of whole and broken spellings of them and of what looks like them."""
    texts = draw(secrets)
    pieces: list[bytes] = []
    for _ in range(draw(st.integers(1, 6))):
        text = draw(st.sampled_from(texts))
        written = draw(st.sampled_from([*spelled(text).values(), base64.b64encode(b"xx" + text.encode()).decode()]))
        start, end = draw(st.integers(0, 4)), draw(st.integers(1, 80))
        whole = draw(st.booleans())
        pieces.append(written.encode() if whole else written.encode()[start:end])
        pieces.append(draw(st.binary(max_size=3) | st.sampled_from([b"", b"%", b"\\u00", b"\n", b"ab"])))
    return texts, b"".join(pieces)


def expected(texts: list[str], body: bytes) -> bytes:
    """The same by backtracking over each place of the body in turn."""
    clean = bytearray(body)
    for text in texts:
        if len(text.encode()) < 8:
            continue
        for pattern in patterns(text):
            for at in range(len(body)):
                ends = [match.end() for match in [pattern.match(body, at)] if match is not None]
                for end in ends:
                    clean[at:end] = b"*" * (end - at)
    return bytes(clean)


def patterns(text: str) -> list["re.Pattern[bytes]"]:
    short = {
        '"': rb"\\\"|&quot;|&#34;|&#x22;", "\\": rb"\\\\", "/": rb"\\/|&sol;|&#47;|(?i:&#x2f;)", " ": rb"\+",
        "&": b"&amp;|&#38;|&#x26;", "+": b"&plus;|&#43;|(?i:&#x2b;)", "=": b"&equals;|&#61;|(?i:&#x3d;)",
    }  # fmt: skip
    units: list[bytes] = []
    for character in text:
        raw = character.encode()
        percent = b"".join(b"(?i:%%%02x)" % byte for byte in raw)
        escaped = rb"\\u(?i:%04x)" % ord(character)
        options = [percent, escaped, *([short[character]] if character in short else []), re.escape(raw)]
        units.append(b"(?:" + b"|".join(options) + b")")
    forms = [b"".join(units), b"(?i:" + text.encode().hex().encode() + b")"]
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + text.encode())
        core = re.escape(encoded[-(-8 * before // 6) : 8 * (before + len(text.encode())) // 6])
        core = core.replace(rb"\+", rb"(?:\+|-|(?i:%2b)|\\u002(?i:b)|&plus;|&#43;|&#x2(?i:b);)").replace(
            rb"/", rb"(?:/|_|\\/|(?i:%2f)|\\u002(?i:f)|&sol;|&#47;|&#x2(?i:f);)"
        )
        forms.append(core)
    return [re.compile(form) for form in forms]


@settings(max_examples=150, deadline=None)
@given(bodies())
def test_what_is_masked_is_what_a_slow_reading_finds(case: tuple[list[str], bytes]) -> None:
    texts, body = case
    assert scrubber(*texts).whole(body) == expected(texts, body)


def in_pieces(stream: ScrubStream, body: bytes, sizes: list[int]) -> list[bytes]:
    out: list[bytes] = []
    at = 0
    for size in [*sizes, len(body)]:
        piece = stream.feed(body[at : at + size])
        assert isinstance(piece, bytes)
        out.append(piece)
        at += size
    end = stream.finish()
    assert isinstance(end, bytes)
    return [*out, end]


@settings(max_examples=150, deadline=None)
@given(bodies(), st.lists(st.integers(0, 30), max_size=30))
def test_any_pieces_come_out_as_the_whole(case: tuple[list[str], bytes], sizes: list[int]) -> None:
    texts, body = case
    hits: set[int] = set()
    whole = scrubber(*texts).whole(body, hits)
    stream = scrubber(*texts).stream()
    assert b"".join(in_pieces(stream, body, sizes)) == whole
    assert stream.hits == hits


@settings(max_examples=100, deadline=None)
@given(bodies(), st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=40))
def test_releases_cost_no_more_than_what_they_let_go(
    case: tuple[list[str], bytes], steps: list[tuple[int, bool]]
) -> None:
    """A released byte is as it came or masked; every other byte is as in the whole; nothing is lost or moved."""
    texts, body = case
    found = scrubber(*texts)
    whole = found.whole(body)
    stream = found.stream()
    out = b""
    released: set[int] = set()
    at = 0
    for size, let_go in [*steps, (len(body), False)]:
        out += stream.feed(body[at : at + size])  # type: ignore[operator]
        at += size
        assert stream.held == min(at, len(body)) - len(out)
        assert stream.held < found._longest
        if let_go:
            released |= set(range(len(out), len(out) + stream.held))
            out += stream.release()
    out += stream.finish()  # type: ignore[operator]
    assert len(out) == len(body)
    for place, byte in enumerate(out):
        assert byte == whole[place] or (place in released and byte == body[place])
