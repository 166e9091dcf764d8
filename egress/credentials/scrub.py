"""Masks secrets of ours in what an origin sends back. Every match becomes as many `*`, so lengths stay true.

It says which replies are read, and how; whoever asks is told the indexes of the secrets that were seen, never a value.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import re2  # type: ignore[import-untyped]

from egress.credentials.forms import Form, forms_of, search_pattern, tail_pattern
from egress.http.coding import Decoder, decoder
from egress.http.fields import list_members, without
from egress.model.body import FramingKind
from egress.model.errors import LimitExceeded
from egress.model.limits import MIB
from egress.model.message import FieldLine, Malformed, ResponseHead
from egress.model.secret import Secret
from egress.model.verdict import Denial, DenialCode, Stage

MIN_SECRET_BYTES = 8
"""Shorter values would be found everywhere; they are not scrubbed."""

_TEXT = re.compile(
    rb"(?:text|multipart)/|[^/]*/(?:.*[+.-])?(?:json|jsonl|jsonlines|ndjson|xml|javascript|ecmascript|yaml|graphql"
    rb"|x-www-form-urlencoded)(?:[+.-].*)?\Z",
    re.DOTALL,
)
"""Media types that carry text, lower case and without parameters: `application/x-amz-json-1.1` is one of them."""
_DECODED = frozenset((b"gzip", b"x-gzip", b"deflate", b"br", b"zstd", b"identity"))
"""Content codings that are undone."""
_OF_THE_CODED_BODY = frozenset(
    (b"content-encoding", b"content-md5", b"content-digest", b"digest", b"repr-digest", b"accept-ranges")
)
"""What a reply says of its coded bytes; it holds no more once they are decoded."""

_REMEMBERED = 16
_MATCHER_BYTES = 32 * MIB
"""What RE2 may keep of the states that a text has led to. Texts made of spellings of twenty secrets lead to 24 MiB of
them; with less it would forget and find them over and over."""


class Scrubber:
    """The search for one set of secrets. Made once per set: `Scrubber.of`."""

    __slots__ = ("_by_first", "_longest", "_search", "_tail")

    def __init__(self, secrets: tuple[Secret, ...]) -> None:
        forms = [
            form
            for index, secret in enumerate(secrets)
            if len(secret.reveal().encode("utf-8", "surrogateescape")) >= MIN_SECRET_BYTES
            for form in forms_of(index, secret.reveal())
        ]
        self._longest = max((form.longest for form in forms), default=0)
        self._by_first: dict[int, list[Form]] = {}
        for form in forms:
            for byte in {written[0] for written in form.units[0]}:
                self._by_first.setdefault(byte, []).append(form)
        self._search = _compile(search_pattern(forms)) if forms else None
        self._tail = _compile(tail_pattern(forms)) if forms else None

    @staticmethod
    def of(secrets: tuple[Secret, ...]) -> "Scrubber":
        """The scrubber of these secrets, whose places in the tuple are their indexes."""
        return _remembered(secrets)

    @property
    def idle(self) -> bool:
        """True when there is nothing to look for."""
        return self._search is None

    def field(self, value: bytes, hits: set[int] | None = None) -> bytes:
        """A field value, or whatever else is at hand whole."""
        return self.whole(value, hits)

    def fields(self, lines: tuple[FieldLine, ...], hits: set[int] | None = None) -> tuple[FieldLine, ...]:
        """Header or trailer lines, names included; the same object when nothing was found, which one search tells."""
        block = b"\n".join([part for line in lines for part in line])
        if self._search is None or self._search.search(block) is None:
            return lines
        return tuple([(self.whole(name, hits), self.whole(value, hits)) for name, value in lines])

    def whole(self, data: bytes, hits: set[int] | None = None) -> bytes:
        """`data` masked; the same object when nothing was found."""
        spans = list(self.spans(data, set() if hits is None else hits))
        return masked(data, spans) if spans else data

    def message(self, text: str, hits: set[int] | None = None) -> str:
        """A whole text message."""
        data = text.encode()
        clean = self.whole(data, hits)
        return text if clean is data else clean.decode()

    def stream(self, hits: set[int] | None = None, undo: Decoder | None = None) -> "ScrubStream":
        """For a body that comes in pieces, `undo` its content coding."""
        return ScrubStream(self, set() if hits is None else hits, undo)

    def spans(self, data: bytes, hits: set[int]) -> Iterator[tuple[int, int]]:
        """Every match, in the order of their beginnings: the longest at each place. They may overlap."""
        if self._search is None:
            return
        at = 0
        while (found := self._search.search(data, at)) is not None:
            start: int = found.start()
            end = 0
            for form in self._by_first[data[start]]:
                complete, _ = form.read(data, start)
                if complete:
                    hits.add(form.secret)
                    end = max(end, complete)
            if end:
                yield start, end
            at = start + 1

    def open_from(self, data: bytes) -> int:
        """Where the longest end of `data` begins that more data could make a match; its length when none could."""
        if self._tail is None:
            return len(data)
        at = max(0, len(data) - self._longest + 1)
        while (found := self._tail.search(data, at)) is not None:
            start: int = found.start()
            if any(form.read(data, start)[1] for form in self._by_first[data[start]]):
                return start
            at = start + 1
        return len(data)


class ScrubStream:
    """One body, piece by piece. What might still become a match is held back, and kept in mind when it is released.

    `keeps_length` is False when a coding is undone. `hits` grows with the secrets that were seen.
    """

    ceiling: int | None = None

    __slots__ = ("_covered", "_kept", "_scrubber", "_sent", "_undo", "hits")

    def __init__(self, scrubber: Scrubber, hits: set[int], undo: Decoder | None) -> None:
        self.hits = hits
        self._scrubber = scrubber
        self._undo = undo
        self._kept = b""
        """The end of the body so far that might still become a match, as it came."""
        self._sent = 0
        """Bytes of `_kept` that were released already."""
        self._covered = 0
        """Bytes of `_kept` that belong to a match which began before it."""

    @property
    def keeps_length(self) -> bool:
        return self._undo is None

    @property
    def held(self) -> int:
        """Bytes that wait for what comes."""
        return len(self._kept) - self._sent

    def feed(self, data: bytes) -> bytes | Malformed:
        if self._undo is None:
            return self._feed(data)
        plain = self._undo.feed(data)
        return plain if isinstance(plain, Malformed) else self._feed(plain)

    def _feed(self, data: bytes) -> bytes:
        if not data:
            return b""
        data = self._kept + data if self._kept else data
        hold = self._scrubber.open_from(data)
        spans = [span for span in self._scrubber.spans(data, self.hits) if span[0] < hold]
        out = self._out(data, spans, hold)
        covered = max([self._covered, *[end for _, end in spans]])
        self._covered = max(0, covered - hold)
        self._kept = data[hold:]
        self._sent = max(0, self._sent - hold)
        return out

    def release(self) -> bytes:
        """Let go of what is held. A match that is completed later is masked from there on."""
        out = self._out(self._kept, [], len(self._kept))
        self._sent = len(self._kept)
        return out

    def finish(self) -> bytes | Malformed:
        fault = self._undo.end() if self._undo is not None else None
        if fault is not None:
            return fault
        kept = self._kept
        out = self._out(kept, list(self._scrubber.spans(kept, self.hits)), len(kept))
        self._kept, self._sent, self._covered = b"", 0, 0
        return out

    def trailers(self, lines: tuple[FieldLine, ...]) -> tuple[FieldLine, ...]:
        return self._scrubber.fields(lines, self.hits)

    def _out(self, data: bytes, spans: list[tuple[int, int]], end: int) -> bytes:
        """`data` up to `end`, masked, without what was sent already."""
        if self._covered:
            spans = [(0, self._covered), *spans]
        return (masked(data, spans) if spans else data)[self._sent : end]


class TrailerScrub:
    """For a body that is not read: only what follows it is."""

    ceiling: int | None = None
    keeps_length = True
    held = 0

    __slots__ = ("_scrubber", "hits")

    def __init__(self, scrubber: Scrubber, hits: set[int]) -> None:
        self._scrubber = scrubber
        self.hits = hits

    def feed(self, data: bytes) -> bytes | Malformed:
        return data

    def release(self) -> bytes:
        return b""

    def finish(self) -> bytes | Malformed:
        return b""

    def trailers(self, lines: tuple[FieldLine, ...]) -> tuple[FieldLine, ...]:
        return self._scrubber.fields(lines, self.hits)


@dataclass(frozen=True, slots=True)
class ScrubPlan:
    """What the client gets instead of `head` as it came. `hits` grows while the body passes; `findings` say what could
    not be read."""

    head: ResponseHead
    transform: ScrubStream | TrailerScrub | None
    hits: set[int]
    findings: tuple[str, ...] = ()

    @property
    def keeps_length(self) -> bool:
        return self.transform is None or self.transform.keeps_length


def plan_reply(response: ResponseHead, request_method: str, scrubber: Scrubber, mode: str) -> ScrubPlan | Denial:
    """How one final response is scrubbed; `mode` is `redact_responses` of the endpoint."""
    hits: set[int] = set()
    if mode == "off" or scrubber.idle:
        return ScrubPlan(response, None, hits)
    head = _scrubbed_head(response, scrubber, hits)
    if request_method == "HEAD" or response.framing.kind is FramingKind.NONE:
        return ScrubPlan(head, None, hits)
    if mode == "headers" or not _carries_text(response):
        return ScrubPlan(head, TrailerScrub(scrubber, hits), hits)
    codings = [
        coding
        for name, value in response.fields
        if name.lower() == b"content-encoding"
        for coding in list_members(value)
        if coding != b"identity"
    ]
    if not codings:
        return ScrubPlan(head, scrubber.stream(hits), hits)
    undo = decoder(codings, None)
    if isinstance(undo, Decoder) and response.status != 206:
        decoded = replace(head, fields=without(head.fields, _OF_THE_CODED_BODY))
        return ScrubPlan(decoded, scrubber.stream(hits, undo), hits)
    reason = "part of a coded body" if isinstance(undo, Decoder) else undo.reason
    if mode == "strict":
        return Denial(Stage.UPSTREAM, DenialCode.UPSTREAM_PROTOCOL_ERROR, f"the reply cannot be scrubbed: {reason}")
    return ScrubPlan(head, TrailerScrub(scrubber, hits), hits, (reason,))


def accept_encoding(fields: tuple[FieldLine, ...]) -> tuple[FieldLine, ...]:
    """Request fields that ask for no coding which we could not undo. A request that names none is left alone: origins
    then send none (RFC 9110 section 12.5.3)."""
    names = {name.lower() for name, _ in fields}
    if b"accept-encoding" not in names:
        return fields
    if b"range" in names:
        # Part of a coded body could not be undone, and the client counts in the decoded bytes that it was sent.
        return (*without(fields, {b"accept-encoding"}), (b"Accept-Encoding", b"identity"))
    return tuple([(name, _decodable(value) if name.lower() == b"accept-encoding" else value) for name, value in fields])


def _decodable(value: bytes) -> bytes:
    members = [item.strip(b" \t") for item in value.split(b",")]
    kept = [member for member in members if member.partition(b";")[0].strip(b" \t").lower() in _DECODED]
    return b", ".join(kept) or b"identity"


def _scrubbed_head(response: ResponseHead, scrubber: Scrubber, hits: set[int]) -> ResponseHead:
    lines = (*response.fields, (b"", response.reason))
    clean = scrubber.fields(lines, hits)
    if clean is lines:
        return response
    return replace(response, fields=clean[:-1], reason=clean[-1][1])


def _carries_text(response: ResponseHead) -> bool:
    """Also a body of no type, or of something that is none: clients guess what they got."""
    types = [value for name, value in response.fields if name.lower() == b"content-type"]
    kinds = [value.partition(b";")[0].strip(b" \t").lower() for value in types]
    return not kinds or any(b"/" not in kind or _TEXT.match(kind) is not None for kind in kinds)


def masked(data: bytes, spans: list[tuple[int, int]]) -> bytes:
    """`data` with `*` over the spans; they end within it."""
    clean = bytearray(data)
    for start, end in spans:
        clean[start:end] = b"*" * (end - start)
    return bytes(clean)


@lru_cache(maxsize=_REMEMBERED)
def _remembered(secrets: tuple[Secret, ...]) -> Scrubber:
    return Scrubber(secrets)


def _compile(pattern: bytes) -> "re2._Regexp":
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = _MATCHER_BYTES
    options.never_capture = True
    options.log_errors = False  # its words hold the pattern
    try:
        return re2._Regexp(pattern, options)  # not `re2.compile`, which remembers patterns for ever
    except re2.error:
        # Without RE2's words, which may repeat the pattern.
        raise LimitExceeded("too many secrets to scrub") from None
