"""Placeholders in bodies and messages, by what kind of text they stand in."""

import gzip
import json
import zlib
from collections.abc import Callable
from urllib.parse import parse_qsl, urlencode

import brotli  # type: ignore[import-untyped]
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from egress.credentials.rewrite import Failure
from egress.credentials.rewrite_body import rewrite_body, rewrite_text
from egress.credentials.scan import marked
from egress.credentials.snapshot import Fault
from egress.model.limits import LIMITS
from egress.model.message import FieldLine
from egress.model.verdict import Denial, DenialCode
from egress.policy.compiled import CredentialOptions
from tests.unit.credentials.samples import ELSEWHERE, NOW, A, P, bound, resolver, snapshot

OPTIONS = CredentialOptions(body_rewrite=True)
TRICKY = 'q"b\\s\tü'
VALUES = resolver(APP="app", FORM="a b~&=*ü", TRICKY=TRICKY, MARKED=f"x{P}APP", LONG="x" * 8192, QUOTES='"', PLUS="+")
INVALID = DenialCode.CREDENTIAL_BODY_INVALID
UNSUPPORTED = DenialCode.CREDENTIAL_BODY_UNSUPPORTED
UNAVAILABLE = DenialCode.CREDENTIAL_UNAVAILABLE

JSON_KINDS = ["application/json", "Application/JSON; charset=utf-8", "application/vnd.api+json", "application/x-ndjson"]
TEXT_KINDS = ["text/plain", "text/x-any;a=b", "application/xml", "image/svg+xml", "application/graphql"]


def body(data: str | bytes, kind: str = "application/json", *more: FieldLine) -> bytes | DenialCode:
    raw = data if isinstance(data, bytes) else data.encode()
    fields = ((b"A", b"b"), (b"content-TYPE", kind.encode()), (b"Content-Type", b"image/png"), *more)
    after = rewrite_body(fields, raw, VALUES, OPTIONS)
    if isinstance(after, Denial):
        assert after.surface == ("http-request-body" if "BODY" in after.code.name else None)
        return after.code
    assert after[0] == fields
    return after[1]


# JSON ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", JSON_KINDS)
def test_values_are_escaped_inside_strings(kind: str) -> None:
    data = body(f'{{"a": "<{P}TRICKY>", "b": "x-{A}APP", "{P}APP": [1]}}', kind)
    assert isinstance(data, bytes)
    assert json.loads(data) == {"a": f"<{TRICKY}>", "b": "app", "app": [1]}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (f"[{P}APP]", "[app]"),
        (f'"\\"{P}APP\\""', '"\\"app\\""'),
        (f'{{"a":"\\\\"}} {P}QUOTES', '{"a":"\\\\"} "'),  # the escaped backslash does not hide the end of its string
        (f'{{"a":"\\\\\\" {P}QUOTES"}}', '{"a":"\\\\\\" \\""}'),
        (f'{{"a":"line\\nsk-{A}APP"}}', '{"a":"line\\napp"}'),  # the letter of an escape is no part of the alias
        (f'{{"a":"line\\u000ask-{A}APP"}}', '{"a":"line\\u000aapp"}'),
        (f'{{"a":"\\\\sk-{A}APP"}}', '{"a":"\\\\app"}'),
        (f'{{"a": "é\\u00e9\\/ {P}APP" }}\n{{"b":1}}\n', '{"a": "é\\u00e9\\/ app" }\n{"b":1}\n'),
        (f'{{"a": "{P}QUOTES', '{"a": "\\"'),  # nothing closes it
    ],
)
def test_json_texts(data: str, expected: str) -> None:
    assert body(data) == expected.encode()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('{"a": "openshell%3Aresolve%3Aenv%3AAPP"}', INVALID),
        ('{"a": "\\u006fpenshell:resolve:env:APP"}', INVALID),
        (f'{{"a": "{P}APP", "b": "openshell:resolve:\\u0065nv:APP"}}', INVALID),
        (f'{{"a": "{P}NOBODYS"}}', UNAVAILABLE),
        (f'{{"a": "{P}MARKED"}}', UNAVAILABLE),
        (f'{{"a": "{A}APP"}}', UNAVAILABLE),
        (f'{{"a": "\\n{A}APP"}}', UNAVAILABLE),
        (b'{"a": "\xff"}', INVALID),
        ('{"a": "b3BlbnNoZWxsOnJlc29sdmU6ZW52OkFQUA=="}', INVALID),  # base64 of a placeholder
    ],
)
def test_json_that_is_refused(data: str | bytes, expected: DenialCode) -> None:
    assert body(data) is expected


def test_a_body_of_quotes_is_read_once() -> None:
    """A reader that begins anew at each quote would take minutes over this."""
    data = '"' + '\\"' * 100_000 + f" {P}APP"
    assert body(data) == ('"' + '\\"' * 100_000 + " app").encode()


# text and forms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TEXT_KINDS)
def test_text_gets_values_as_they_are(kind: str) -> None:
    assert body(f"<a>{P}TRICKY</a>{P}APP{P}APP", kind) == f"<a>{TRICKY}</a>appapp".encode()


@pytest.mark.parametrize("kind", TEXT_KINDS)
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (f"{P}APP %6fpenshell:resolve:env:APP", INVALID),
        ("openshell%3Aresolve%3Aenv%3AAPP", INVALID),
        (b"\xff\xfe", INVALID),
        (f"{P}APP_x", UNAVAILABLE),
        (P, UNAVAILABLE),
    ],
)
def test_text_that_is_refused(kind: str, data: str | bytes, expected: DenialCode) -> None:
    assert body(data, kind) is expected


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (f"a={P}FORM&b=%7e+x&c&=d&&", "a=a+b%7E%26%3D*%C3%BC&b=%7e+x&c&=d&&"),
        (f"a=x+y%2B{P}APP", "a=x+y%2Bapp"),
        ("a=openshell%3Aresolve%3Aenv%3AAPP", "a=app"),
        (f"a=b={P}APP", "a=b%3Dapp"),
        (f"a={P}PLUS", "a=%2B"),
        (f"a={P}APP{P}APP&b=sk-{A}APP", "a=appapp&b=app"),
        (f"a=%FF{P}APP", "a=%FFapp"),
    ],
)
def test_forms(data: str, expected: str) -> None:
    assert body(data, FORM) == expected.encode()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (f"{P}APP=x", INVALID),
        (f"a=b&{P}APP", INVALID),
        ("%6fpenshell:resolve:env:APP=x", INVALID),
        ("a=b3BlbnNoZWxsOnJlc29sdmU6ZW52OkFQUA==", INVALID),
        (f"a={P}APP_x", UNAVAILABLE),
        (b"a=\xff", INVALID),
    ],
)
def test_forms_that_are_refused(data: str | bytes, expected: DenialCode) -> None:
    assert body(data, FORM) is expected


# multipart -----------------------------------------------------------------------------------------------------------

MULTI = 'multipart/form-data; boundary="b-1"'


def parts(*texts: str | bytes, end: bytes = b"--\r\n") -> bytes:
    raw = [text if isinstance(text, bytes) else text.encode() for text in texts]
    return b"".join(b"--b-1\r\n" + text + b"\r\n" for text in raw) + b"--b-1" + end


def test_text_parts_get_values_by_their_type_and_others_stay() -> None:
    sent = parts(
        f'Content-Disposition: form-data; name="a"\r\n\r\n{P}TRICKY',
        f'Content-Disposition: form-data; name="b"\r\nContent-Type: application/json\r\n\r\n{{"k": "{P}TRICKY"}}',
        b"Content-Type: image/png\r\n\r\n\x89PNG\xff\x00--b-1",
        f"\r\n{P}APP",
        end=b"--\r\nafter",
    )
    quoted = json.dumps({"k": TRICKY}, ensure_ascii=False)
    assert body(sent, MULTI) == parts(
        f'Content-Disposition: form-data; name="a"\r\n\r\n{TRICKY}',
        f'Content-Disposition: form-data; name="b"\r\nContent-Type: application/json\r\n\r\n{quoted}',
        b"Content-Type: image/png\r\n\r\n\x89PNG\xff\x00--b-1",
        "\r\napp",
        end=b"--\r\nafter",
    )


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (parts(f"Content-Type: image/png\r\n\r\n{P}APP"), UNSUPPORTED),
        (parts(f'Content-Disposition: form-data; name="{P}APP"\r\n\r\nx'), UNSUPPORTED),
        (parts(f"Content-Transfer-Encoding: base64\r\n\r\n{P}APP"), UNSUPPORTED),
        (parts(f"Content-Type: multipart/mixed; boundary=x\r\n\r\n{P}APP"), UNSUPPORTED),
        (parts(b"\r\n\xff openshell:resolve:env:APP"), INVALID),
        (parts(f"\r\n{P}NOBODYS"), UNAVAILABLE),
        (f"{P}APP\r\n".encode() + parts("\r\nx"), UNSUPPORTED),
        (parts("\r\nx", end=f"--\r\n{P}APP".encode()), UNSUPPORTED),
        (parts(f"no end {P}APP"), UNSUPPORTED),
    ],
)
def test_placeholders_elsewhere_in_a_multipart_body(data: bytes, expected: DenialCode) -> None:
    assert body(data, MULTI) is expected


@pytest.mark.parametrize(
    "kind", ["multipart/form-data", 'multipart/form-data; boundary=""', "multipart/form-data; boundary=a b"]
)
def test_a_multipart_body_needs_a_boundary_only_where_a_placeholder_is(kind: str) -> None:
    assert body(parts(f"\r\n{P}APP"), kind) is INVALID
    assert body(b"\xff\xfe anything", kind) == b"\xff\xfe anything"


@pytest.mark.parametrize("spelled", ["boundary=b-1", 'BOUNDARY="b-1"; x=y', 'charset=utf-8; boundary="b-1"'])
def test_spellings_of_a_boundary(spelled: str) -> None:
    assert body(parts(f"\r\n{P}APP"), f"multipart/form-data; {spelled}") == parts("\r\napp")


# any type ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["application/octet-stream", "image/png", "", "multipart/mixed", "application/jsonp"])
def test_other_types_pass_without_a_placeholder_alone(kind: str) -> None:
    assert body(b"\xff\x00 anything", kind) == b"\xff\x00 anything"
    assert body(f"{P}APP", kind) is UNSUPPORTED
    assert body("openshell%3Aresolve%3Aenv%3AAPP", kind) is UNSUPPORTED


def test_without_a_type_too() -> None:
    assert rewrite_body((), b"x", VALUES, OPTIONS) == ((), b"x")
    refused = rewrite_body((), f"{P}APP".encode(), VALUES, OPTIONS)
    assert isinstance(refused, Denial)
    assert refused.code is UNSUPPORTED


@pytest.mark.parametrize("kind", [*JSON_KINDS, *TEXT_KINDS, FORM, MULTI, "image/png"])
def test_what_holds_none_comes_back_as_it_was(kind: str) -> None:
    data = b'{"a": "%41 \\u0041"} a=%7e+b&c \xc3\xa9'
    fields = ((b"Content-Type", kind.encode()), (b"Content-Encoding", b"gzip"))
    packed = gzip.compress(data)
    after = rewrite_body(fields, packed, VALUES, OPTIONS)
    assert not isinstance(after, Denial)
    assert after[0] is fields
    assert after[1] is packed


def test_elsewhere_is_a_mismatch_and_without_credentials_unavailable() -> None:
    made = snapshot(bound("KEY", "text"))
    data = json.dumps(made.placeholders("default")["KEY"]).encode()
    fields = ((b"Content-Type", b"application/json"),)
    for view, code in (
        (made.resolver(ELSEWHERE, NOW), DenialCode.CREDENTIAL_ENDPOINT_MISMATCH),
        (None, UNAVAILABLE),
    ):
        refused = rewrite_body(fields, data, view, OPTIONS)
        assert isinstance(refused, Denial)
        assert refused.code is code


def test_values_do_not_grow_a_body_without_end() -> None:
    assert body(f"{P}LONG " * (LIMITS.placed_bytes // 8192), "text/plain") == b"%s " % (b"x" * 8192) * 128
    assert body(f"{P}LONG " * (LIMITS.placed_bytes // 8192 + 1), "text/plain") is UNAVAILABLE


# content codings -----------------------------------------------------------------------------------------------------

CODINGS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    "gzip": (gzip.compress, gzip.decompress),
    "x-gzip": (gzip.compress, gzip.decompress),
    "deflate": (zlib.compress, zlib.decompress),
    "br": (brotli.compress, brotli.decompress),
    "zstd": (zstd.compress, zstd.decompress),
    "identity": (bytes, bytes),
}


@pytest.mark.parametrize("coding", CODINGS)
def test_coded_bodies_are_coded_again(coding: str) -> None:
    pack, unpack = CODINGS[coding]
    after = body(pack(f'{{"a": "{P}APP"}}'.encode()), "application/json", (b"Content-Encoding", coding.encode()))
    assert isinstance(after, bytes)
    assert unpack(after) == b'{"a": "app"}'


def test_stacked_codings_keep_their_order() -> None:
    packed = gzip.compress(zlib.compress(f"{P}APP".encode()))
    after = body(packed, "text/plain", (b"Content-Encoding", b"deflate"), (b"content-encoding", b"GZIP"))
    assert isinstance(after, bytes)
    assert zlib.decompress(gzip.decompress(after)) == b"app"


@pytest.mark.parametrize(
    ("coding", "data", "expected"),
    [
        (b"sdch", b"x", UNSUPPORTED),
        (b"gzip, gzip, gzip", b"x", UNSUPPORTED),
        (b"gzip", b"no gzip", INVALID),
        (b"gzip", gzip.compress(b"x" * 100)[:-4], INVALID),
        (b"gzip", gzip.compress(b"x" * 300_000), DenialCode.CREDENTIAL_BODY_TOO_LARGE),
    ],
)
def test_codings_that_cannot_be_undone(coding: bytes, data: bytes, expected: DenialCode) -> None:
    assert body(data, "text/plain", (b"Content-Encoding", coding)) is expected


# messages ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello", "hello"),
        (f"token {P}TRICKY!", f"token {TRICKY}!"),
        (f' {{"t":"{P}TRICKY"}}', f' {{"t":{json.dumps(TRICKY, ensure_ascii=False)}}}'),
        (f'"{P}QUOTES"', '"\\""'),
        (f"[{P}APP]", "[app]"),
        (f"{P}NOBODYS", Failure(Fault.UNAVAILABLE, "websocket")),
        (f"{P}APP %6fpenshell:resolve:env:APP", Failure(Fault.UNAVAILABLE, "websocket")),
        ("openshell%3Aresolve%3Aenv%3AAPP", Failure(Fault.UNAVAILABLE, "websocket")),
        (f"{P}", Failure(Fault.MALFORMED, "websocket")),
    ],
)
def test_messages(text: str, expected: str | Failure) -> None:
    assert rewrite_text(text, VALUES) == expected


def test_messages_where_nothing_is_configured() -> None:
    assert rewrite_text(f"{P}APP", None) == Failure(Fault.UNAVAILABLE, "websocket")


# properties ----------------------------------------------------------------------------------------------------------

JUNK = st.sampled_from(
    ['"', "\\", "\\\\", "\\n", "{", "}", ":", " ", "a", "é", "%", "%6f", "\n", "openshell", "&", "=", "+"]
)
TOKENS = st.sampled_from([P + "APP.", P + "TRICKY.", f" sk-{A}APP "])
STRINGS = st.recursive(
    st.lists(st.one_of(JUNK, TOKENS), max_size=6).map("".join),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)),
    max_leaves=5,
)  # fmt: skip


def expected(text: str) -> str:
    return text.replace(P + "APP.", "app.").replace(P + "TRICKY.", TRICKY + ".").replace(f" sk-{A}APP ", " app ")


def mapped(value: object) -> object:
    if isinstance(value, str):
        return expected(value)
    if isinstance(value, list):
        return [mapped(item) for item in value]
    assert isinstance(value, dict)
    return {key: mapped(item) for key, item in value.items()}


@given(STRINGS)
def test_json_means_the_same_with_the_values_in_it(value: object) -> None:
    after = body(json.dumps(value, ensure_ascii=False))
    assert isinstance(after, bytes)
    assert json.loads(after) == mapped(value)


@given(st.lists(st.one_of(JUNK, TOKENS), max_size=12).map("".join))
def test_text_is_its_own_with_the_values_in_it(text: str) -> None:
    assert body(text, "text/plain") == expected(text).encode()


@given(st.lists(st.tuples(st.sampled_from(["a", "b c", "%"]), st.one_of(JUNK, TOKENS)), max_size=5))
def test_forms_mean_the_same_with_the_values_in_them(pairs: list[tuple[str, str]]) -> None:
    after = body(urlencode(pairs), FORM)
    assert isinstance(after, bytes)
    assert parse_qsl(after.decode(), keep_blank_values=True) == [(name, expected(text)) for name, text in pairs]


@given(
    st.lists(
        st.sampled_from([P, A, "APP", "NOBODYS", "sk-", "%6f", "penshell:resolve:env:", '"', "\\", "\\u006f", "=", "&",
                         "b3BlbnNoZWxsOnJlc29sdmU6ZW52Og", "\r\n--b-1\r\n", "\r\n\r\n", " "]),
        max_size=8,
    ).map("".join),
    st.sampled_from(["application/json", "text/plain", FORM, MULTI, "image/png"]),
)  # fmt: skip
def test_nothing_like_a_placeholder_is_left(text: str, kind: str) -> None:
    after = body(text, kind)
    assert isinstance(after, DenialCode) or not marked(after)
