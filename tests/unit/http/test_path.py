"""Canonical paths: http-surface.md section 6, row by row, and the properties that policy relies on."""

from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.http.path import CanonicalPath, canonical_path
from egress.model.limits import LIMITS
from egress.model.message import Malformed, PathOddity
from egress.model.verdict import DenialCode

CHANGED = PathOddity.CHANGED
SLASH = PathOddity.ENCODED_SLASH
TWICE = PathOddity.DOUBLE_ESCAPE
BACKSLASH = PathOddity.BACKSLASH
NONE = PathOddity.NONE


@pytest.mark.parametrize(
    ("raw", "text", "oddities"),
    [
        ("", "/", CHANGED),
        ("/", "/", NONE),
        ("//", "/", CHANGED),
        ("/a/b", "/a/b", NONE),
        ("/a/./b", "/a/b", CHANGED),
        ("/a/b/.", "/a/b/", CHANGED),
        ("/a/b/..", "/a/", CHANGED),
        ("/a/..", "/", CHANGED),
        ("/a/%2E%2e/b", "/b", CHANGED),
        ("//p//../s", "/s", CHANGED),
        ("/p/.;/s", "/p/s", CHANGED),
        ("/f/http://h.test", "/f/http:/h.test", CHANGED),
        ("/pub/..;x/s", "/s", CHANGED),
        ("/pub/%2e%2e;/s", "/s", CHANGED),
        ("/pub/..%3B/s", "/s", CHANGED),
        ("/a;sid=1/b", "/a/b", CHANGED),
        ("/a;x%2Fy/b", "/a/b", CHANGED | SLASH),
        ("/u/%40me", "/u/@me", CHANGED),
        ("/caf%c3%a9", "/caf%C3%A9", CHANGED),
        ("/caf%C3%A9", "/caf%C3%A9", NONE),
        ("/a/%252F/b", "/a/%252F/b", TWICE),
        ("/a/%252e%252e/b", "/a/%252e%252e/b", TWICE),
        ("/a/%255c/b", "/a/%255c/b", TWICE),
        ("/a/%2541", "/a/%2541", NONE),
        ("/s/a%3Fb", "/s/a%3Fb", NONE),
        ("/a\\b", "/a%5Cb", CHANGED | BACKSLASH),
        ("/a%5Cb", "/a%5Cb", BACKSLASH),
        ("/a%2fb", "/a%2Fb", CHANGED | SLASH),
        ("/a%2Fb", "/a%2Fb", SLASH),
        ("/%2F", "/%2F", SLASH),
        ("/a/b;", "/a/b", CHANGED),
        ("/a/;b", "/a/", CHANGED),
        ("/.hidden/..x/...", "/.hidden/..x/...", NONE),
        ("/a/%2e", "/a/", CHANGED),
        ("/a/b/../../c/", "/c/", CHANGED),
        ("/-._~!$&'()*+,=:@", "/-._~!$&'()*+,=:@", NONE),
        ("/a%20b", "/a%20b", NONE),
        ("/a\"b", "/a%22b", CHANGED),
        ("/%ff", "/%FF", CHANGED),
    ],
)  # fmt: skip
def test_canonical_form(raw: str, text: str, oddities: PathOddity) -> None:
    assert canonical_path(raw) == CanonicalPath(text, oddities)


@pytest.mark.parametrize(
    "raw",
    [
        "/..", "/../a", "/a/../..", "/..;", "/%2e%2e", "/a/..%2fb", "/a%2f..", "/..%2f..", "/a/.%2fb", "/%2e%2fb",
        "/a%00", "/a%0d%0aX", "/a%7f", "/a%1F", "/a%", "/a%zz", "/a%2", "/a%2%66", "*", "a/b", "host:443", "?q",
        "/a\x7f", "/a\tb",
    ],
)  # fmt: skip
def test_refused(raw: str) -> None:
    refused = canonical_path(raw)
    assert isinstance(refused, Malformed)
    assert refused.code is DenialCode.INVALID_REQUEST_TARGET


def test_length_is_bounded() -> None:
    assert canonical_path("/" + "a" * (LIMITS.path_bytes - 1)) == CanonicalPath("/" + "a" * (LIMITS.path_bytes - 1))
    assert isinstance(canonical_path("/" + "a" * LIMITS.path_bytes), Malformed)


PIECES = st.lists(
    st.sampled_from(
        ["/", "//", ".", "..", "...", ";", "%2e", "%2E", "%2f", "%2F", "%5c", "\\", "%3b", "%25", "%252e", "%252f", "a",
         "B", "%41", "%c3%a9", "%ff", "~", "%7e", "@", ":", "=", "&", "+", "%20", "'", "|", "^"]
    ),
    max_size=14,
).map(lambda pieces: "/" + "".join(pieces))  # fmt: skip


@given(PIECES)
def test_canonicalising_twice_changes_nothing(raw: str) -> None:
    once = canonical_path(raw)
    if isinstance(once, Malformed):
        return
    again = canonical_path(once.text)
    assert isinstance(again, CanonicalPath)
    assert again.text == once.text
    assert CHANGED not in again.oddities
    assert (CHANGED in once.oddities) is (once.text != raw)


@given(PIECES)
def test_no_reading_of_a_canonical_path_leaves_what_was_judged(raw: str) -> None:
    path = canonical_path(raw)
    if isinstance(path, Malformed):
        return
    segments = path.text[1:].split("/")
    assert path.text.startswith("/")
    assert not any(segment in (".", "..") for segment in segments)
    assert "" not in segments[:-1]
    assert not any(";" in segment for segment in segments)
    decoded = [unquote_to_bytes(segment) for segment in segments]
    if not path.oddities & (SLASH | TWICE | BACKSLASH):
        twice = [unquote_to_bytes(piece) for piece in decoded]
        assert not any(b"/" in piece or b"\\" in piece or piece in (b".", b"..") for piece in [*decoded, *twice])


@given(PIECES)
def test_the_fast_way_and_the_slow_way_agree(raw: str) -> None:
    path = canonical_path(raw)
    if isinstance(path, CanonicalPath) and path.oddities is NONE:
        assert path.text == raw
