"""The glob dialects: pinned examples, refusals, and a naive matcher as the reference."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.policy.globs import (
    MAX_PATTERN_LENGTH,
    CharacterClass,
    Choice,
    Dialect,
    GlobError,
    GlobIndex,
    PatternSet,
    Token,
    Wild,
    parse,
    translate,
)


def matches(pattern: str, text: str, dialect: Dialect | None = Dialect.PATH) -> bool:
    return list(GlobIndex([(pattern, dialect)]).match(text)) == [0]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("/repos/*/issues", "/repos/a/issues", True),
        ("/repos/*/issues", "/repos//issues", True),
        ("/repos/*/issues", "/repos/a/b/issues", False),
        ("/repos/**", "/repos/", True),
        ("/repos/**", "/repos/a/b", True),
        ("/repos/**", "/repos", False),
        ("/repos/**", "/Repos/a", False),
        ("/a/**/b", "/a/b", True),
        ("/a/**/b", "/a/x/y/b", True),
        ("/a/**/b", "/a/xb", False),
        ("/a**", "/abc", True),
        ("/a**", "/a/b", False),
        ("/*", "/", True),
        ("/*", "/a", True),
        ("/*", "/a/b", False),
        ("**", "/anything/at/all", True),
        ("/**", "/", True),
        ("**/node", "/usr/bin/node", True),
        ("**/node", "/node", True),
        ("**/node", "/usr/bin/xnode", False),
        ("**/python3.*", "/usr/bin/python3.12", True),
        ("**/python3.*", "/usr/bin/python3", False),
        ("/a/**/**/b", "/a/b", True),
        ("/a?c", "/abc", True),
        ("/a?c", "/a/c", False),
        ("/a?c", "/ac", False),
        ("/[ab]", "/a", True),
        ("/[ab]", "/c", False),
        ("/[a-c]x", "/bx", True),
        ("/[!a]", "/b", True),
        ("/[!a]", "/a", False),
        ("/[^a]", "/b", True),
        ("/x[!a]y", "/x/y", True),
        ("/{a,b}/c", "/a/c", True),
        ("/{a,b}/c", "/c/c", False),
        ("/{a,b/c}", "/b/c", True),
        ("/{a,{b,c}d}", "/cd", True),
        ("/x{,y}", "/x", True),
        ("/\\*", "/*", True),
        ("/\\*", "/a", False),
        ("/a.b", "/a.b", True),
        ("/a.b", "/axb", False),
        ("/v1", "/V1", False),
        ("/caf%C3%A9", "/caf%C3%A9", True),
        ("/\u00e9?", "/\u00e9x", True),
        ("/$(x)+^|", "/$(x)+^|", True),
        ("/**/info/refs*", "/o/r.git/info/refs", True),
    ],
)
def test_path_dialect(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("/admin/**", "/admin", True),
        ("/admin/**", "/admin/", True),
        ("/admin/**", "/admin/a/b", True),
        ("/admin/**", "/administrator", False),
        ("/a/*/b/**", "/a/x/b", True),
        ("/**", "/", True),
        ("/admin", "/admin/", False),
        ("/{a,b}/**", "/b", True),
    ],
)
def test_cover_dialect_takes_the_bare_prefix_too(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text, Dialect.COVER) is expected


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("1.*", "1.2.3", True),
        ("foo-*", "foo-a.b", True),
        ("foo-*", "FOO-a", False),
        ("*", "a.b", True),
        ("*", "", True),
        ("delete*", "delete.all", True),
        ("delete?all", "delete.all", True),
        ("git.**", "git.a.b", True),
        ("git.**", "git", False),
        ("a\nb", "a\nb", True),
        ("a*b", "a\n/b", True),
    ],
)
def test_value_dialect_crosses_everything(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text, Dialect.VALUE) is expected


def test_a_literal_has_no_wildcards() -> None:
    assert matches("/a[b]", "/a[b]", None)
    assert not matches("/a[b]", "/ab", None)


def test_names_that_are_not_utf_8_match() -> None:
    name = b"/opt/\xff\xfe/tool".decode("utf-8", "surrogateescape")
    assert matches("/opt/*/tool", name)
    assert matches("/opt/??/tool", name)
    assert not matches("/opt/?/tool", name)


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("/a[", "never closed"),
        ("/a[b", "never closed"),
        ("/a{b", "never closed"),
        ("/a]", "closes nothing"),
        ("/a}", "closes nothing"),
        ("/a\\", "lone"),
        ("/[]", "class"),
        ("/[!]", "class"),
        ("/[z-a]", "upside down"),
        ("/[\u00e9]", "ASCII"),
        ("/{{{{{a}}}}}", "nested deeper"),
        ("/" + "a" * MAX_PATTERN_LENGTH, "longer than"),
    ],
)
def test_invalid_globs_are_refused_with_a_reason(pattern: str, says: str) -> None:
    with pytest.raises(GlobError, match=says):
        translate(pattern, Dialect.PATH)


def test_an_index_gives_every_match_of_every_dialect() -> None:
    index = GlobIndex([
        ("/a/**", Dialect.PATH),
        ("/a/**", Dialect.COVER),
        ("/a", Dialect.PATH),
        ("**", Dialect.PATH),
        ("/b", Dialect.PATH),
        ("/[ab]", Dialect.PATH),
    ])  # fmt: skip
    assert sorted(index.match("/a")) == [1, 2, 3, 5]
    assert sorted(index.match("/a/x")) == [0, 1, 3]
    assert sorted(index.match("/b")) == [3, 4, 5]


def test_an_empty_index_matches_nothing() -> None:
    assert list(GlobIndex([]).match("/a")) == []


def test_hostile_patterns_and_texts_stay_linear() -> None:
    patterns = PatternSet([translate("/" + "*a" * 40, Dialect.PATH)])
    assert patterns.match("/" + "a" * 4000 + "b") == []


def test_patterns_too_large_to_match_together_are_refused() -> None:
    with pytest.raises(GlobError, match="too large"):
        PatternSet(["(?:" + "[^/]*x" * 400 + "){900}"])


# --- a naive reference -------------------------------------------------------------------------------------------


def naive(tokens: tuple[Token, ...], text: bytes, dialect: Dialect) -> bool:
    """Backtracking over the tokens, written from the description of the dialect."""
    separator = dialect.separator.encode()

    @cache
    def at(position: int, start: int) -> bool:
        if position == len(tokens):
            return start == len(text)
        token = tokens[position]
        rest = text[start:]
        match token:
            case Wild.ONE:
                return rest[:1] not in (b"", separator or b"\0\0") and at(position + 1, start + 1)
            case Wild.RUN:
                return any(
                    at(position + 1, start + length)
                    for length in range(len(rest) + 1)
                    if separator not in rest[:length]
                )
            case Wild.ANY_RUN:
                ends = tokens[position + 1 : position + 2] == ("/",) and dialect.separator == "/"
                if ends:  # zero or more whole segments, with the separator behind them
                    return at(position + 2, start) or any(
                        at(position + 2, start + length + 1)
                        for length in range(len(rest))
                        if rest[length : length + 1] == b"/"
                    )
                return any(at(position + 1, start + length) for length in range(len(rest) + 1))
            case CharacterClass(negated, ranges):
                inside = any(low.encode() <= rest[:1] <= high.encode() for low, high in ranges)
                return bool(rest) and inside is not negated and at(position + 1, start + 1)
            case Choice(options):
                return any(naive((*option, *tokens[position + 1 :]), rest, dialect) for option in options)
            case _:
                literal = token.encode()
                return rest.startswith(literal) and at(position + 1, start + len(literal))

    return at(0, 0)


pieces = st.sampled_from(
    ["a", "b", "/", "/", ".", "*", "**", "?", "[ab]", "[!a]", "{a,b/}", "{,a*}", "\\*", "/**", "**/"]
)
patterns = st.lists(pieces, max_size=7).map("".join)
texts = st.text("ab/.*", max_size=9)


@given(patterns, texts, st.sampled_from([Dialect.PATH, Dialect.VALUE]))
def test_matcher_equals_the_naive_reference(pattern: str, text: str, dialect: Dialect) -> None:
    if pattern == "/**" and not text.startswith("/"):
        return  # asked about absolute paths only
    assert matches(pattern, text, dialect) is naive(parse(pattern, dialect), text.encode(), dialect)


@given(patterns, texts)
def test_cover_is_the_path_dialect_and_the_bare_prefix(pattern: str, text: str) -> None:
    text = f"/{text}"
    prefix = pattern.removesuffix("/**") if pattern.endswith("/**") and pattern != "/**" else None
    expected = matches(pattern, text) or (prefix is not None and matches(prefix, text))
    assert matches(pattern, text, Dialect.COVER) is expected


@given(st.lists(st.tuples(patterns, st.sampled_from(list(Dialect))), max_size=6), texts)
def test_asking_together_is_asking_one_by_one(globs: list[tuple[str, Dialect]], text: str) -> None:
    text = f"/{text}"
    alone = [number for number, (pattern, dialect) in enumerate(globs) if matches(pattern, text, dialect)]
    assert sorted(GlobIndex(globs).match(text)) == alone
