"""Placeholders in heads: where they become values, and that nothing like one leaves otherwise."""

import base64
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.credentials.placeholder import contains_marker
from egress.credentials.rewrite import Failure, denial_of, rewrite_head
from egress.credentials.snapshot import Fault
from egress.model.limits import LIMITS
from egress.model.message import FieldLine, RequestHead
from egress.model.verdict import DenialCode, Stage
from egress.policy.compiled import CredentialOptions
from tests.unit.credentials.samples import ELSEWHERE, NOW, A, P, bound, head, resolver, snapshot

PLAIN = CredentialOptions()
COOKIES = CredentialOptions(cookie_rewrite=True)
SUBSTRINGS = CredentialOptions(header_substring_rewrite=True)
VALUES = resolver(
    APP="app", API_KEY="se cr&t", DOTS="..", DOT=".", SLASH="a/b", BACK="a\\b", ASK="a?b", HASH="a#b", PARAM=";x",
    MARKED=f"x{P}APP", HIDDEN="x%6fpenshell:resolve:env:APP", COMMA="a,b", QUOTE='a"b', UMLAUT="ü", PAIR="user:pass",
    LONG="x" * 8192,
)  # fmt: skip


def failed(where: str, fault: Fault = Fault.UNAVAILABLE) -> Failure:
    return Failure(fault, where)


def target(text: str, options: CredentialOptions = PLAIN) -> str | Failure:
    before = head(text)
    after = rewrite_head(before, VALUES, options)
    if isinstance(after, Failure):
        return after
    assert replace(after, path=before.path, query=before.query) == before
    return after.target


def field(value: str | bytes, options: CredentialOptions = PLAIN, name: bytes = b"X") -> bytes | Failure:
    raw = value if isinstance(value, bytes) else value.encode()
    before = head("/a?b", (b"Accept", b"*/*"), (name, raw), (b"Z", b"%41"))
    after = rewrite_head(before, VALUES, options)
    if isinstance(after, Failure):
        return after
    assert (after.fields[0], after.fields[2]) == (before.fields[0], before.fields[2])
    assert replace(after, fields=before.fields) == before
    return after.fields[1][1]


# header values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (f"{P}APP", b"app"),
        (f"token    {P}APP", b"token app"),
        (f"Bearer\t{P}APP", b"Bearer app"),
        (f"{P}API_KEY", b"se cr&t"),
        (f"{P}UMLAUT", "ü".encode()),
        (f"v-{A}APP", b"app"),
        (f"Bearer sk-{A}APP", b"Bearer app"),
        (f"{P}v77_APP", b"app"),
        ("plain value", b"plain value"),
        ("100%25 sure %6f", b"100%25 sure %6f"),
        ("OpenShell/1.0", b"OpenShell/1.0"),
    ],
)
def test_a_value_that_is_a_placeholder_or_a_word_and_one(value: str, expected: bytes) -> None:
    assert field(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        f"{P}APP tail", f"Bearer {P}APP,x", f"Bearer {P}APP extra", f"a b {P}APP", f's="{P}APP"', f"{A}APP",
        "openshell%3Aresolve%3Aenv%3AAPP", f"openshell%3Aresolve%3Aenv%3AAPP {P}APP", f"{P}APP {P}APP",
        f"{P}APP{P}APP", f"{P}NOBODYS", P, f"{P}MARKED", f"{P}HIDDEN", "%%6fpenshell:resolve:env:APP",
        f"sk-{A}APP.", "Digest x openshell:resolve:env:APP",
    ],
)  # fmt: skip
@pytest.mark.parametrize("options", [PLAIN, COOKIES], ids=["plain", "cookies"])
def test_anything_else_is_a_failure(value: str, options: CredentialOptions) -> None:
    assert field(value, options) == failed("header")


@pytest.mark.parametrize("name", [f"X-{A}APP", "X-%4fPENSHELL-RESOLVE-ENV-APP"])
def test_no_placeholder_stands_in_a_name(name: str) -> None:
    assert field("x", name=name.encode()) == failed("header")
    assert field(f"{P}APP", name=name.encode()) == failed("header")


@pytest.mark.parametrize("scheme", [b"Basic", b"basic", b"BASIC", b"bAsIc"])
@pytest.mark.parametrize("name", [b"Authorization", b"Proxy-Authorization", b"X-Any"])
def test_basic_is_looked_into(scheme: bytes, name: bytes) -> None:
    sent = base64.b64encode(f"user:{P}APP".encode())
    assert field(scheme + b" " + sent, name=name) == scheme + b" " + base64.b64encode(b"user:app")


@pytest.mark.parametrize("filler", ["", "x", "xx"])
def test_basic_is_sent_on_in_the_form_received(filler: str) -> None:
    text = f"\u00fb\u00ff?>{filler}:{P}APP".encode()  # in base64 both alphabets differ for these
    plain = f"\u00fb\u00ff?>{filler}:app".encode()
    urlsafe = base64.urlsafe_b64encode(text)
    assert (b"-" in urlsafe) or (b"_" in urlsafe)
    assert field(b"Basic " + urlsafe) == b"Basic " + base64.urlsafe_b64encode(plain)
    if urlsafe.endswith(b"="):
        unpadded = base64.urlsafe_b64encode(plain).rstrip(b"=")
        assert field(b"Basic " + urlsafe.rstrip(b"=")) == b"Basic " + unpadded


@pytest.mark.parametrize(
    ("plain", "expected"),
    [
        (f"{P}PAIR", b"user:pass"),
        (f"{P}APP:{P}API_KEY", b"app:se cr&t"),
        (f"a-{A}APP:x", b"app:x"),
        (b"\xff\xfe:openshell:resolve:env:APP", b"\xff\xfe:app"),  # bytes that are no text stay what they are
    ],
)
def test_what_basic_may_hold(plain: str | bytes, expected: bytes) -> None:
    raw = plain if isinstance(plain, bytes) else plain.encode()
    assert field(b"Basic " + base64.b64encode(raw)) == b"Basic " + base64.b64encode(expected)


@pytest.mark.parametrize(
    ("plain", "fault"),
    [
        (f"u:{P}NOBODYS", Fault.UNAVAILABLE),
        (f"u:{P}MARKED", Fault.UNAVAILABLE),
        ("u:openshell%3Aresolve%3Aenv%3AAPP", Fault.UNAVAILABLE),
        (f"{P}APP:openshell%3Aresolve%3Aenv%3AAPP", Fault.UNAVAILABLE),
        (f"u:{P}HIDDEN", Fault.UNAVAILABLE),
        (f"u:{P}", Fault.MALFORMED),
        (f"u:{A}APP", Fault.MALFORMED),
    ],
)
def test_what_basic_may_not_hold(plain: str, fault: Fault) -> None:
    assert field(b"Basic " + base64.b64encode(plain.encode())) == failed("header", fault)


@pytest.mark.parametrize("value", [b"Basic dXNlcjpwYXNz", b"Basic !!!", b"Basic", b"Basic  ", b"basically fine"])
def test_other_basic_values_stay(value: bytes) -> None:
    before = head("/", (b"Authorization", value))
    assert rewrite_head(before, VALUES, PLAIN) is before


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (f"s={P}APP", b"s=app"),
        (f"a=1;b=2 ;  s={P}APP ; c", b"a=1;b=2 ;  s=app ; c"),
        (f's="{P}APP"', b's="app"'),
        (f"s=x{P}APP!y", b"s=xapp!y"),
        (f"s={P}APP{P}APP", b"s=appapp"),
    ],
)
def test_cookies_where_the_endpoint_says_so(value: str, expected: bytes) -> None:
    assert field(value, COOKIES, b"Cookie") == expected
    assert field(value, PLAIN, b"Cookie") == failed("header")
    assert field(value, COOKIES, b"X") == failed("header")


@pytest.mark.parametrize(
    "value",
    [f"s={P}API_KEY", f"s={P}COMMA", f"s={P}QUOTE", f"s={P}UMLAUT", f"s={P}PARAM", f"{P}APP=s", f"x{P}APP",
     "s=openshell%3Aresolve%3Aenv%3AAPP", f"t={P}APP; s=openshell%3Aresolve%3Aenv%3AAPP", f"s={P}HIDDEN"],
)  # fmt: skip
def test_cookies_that_would_become_something_else(value: str) -> None:
    assert field(value, COOKIES, b"Cookie") == failed("header")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (f'Token token="{P}APP", x=1', b'Token token="app", x=1'),
        (f"a {P}APP, {P}APP b", b"a app, app b"),
        (f"k=sk-{A}APP!", b"k=app!"),
        (f"{P}APP {P}APP", b"app app"),
        (f'token="{P}API_KEY"', failed("header")),
        (f'token="{P}QUOTE"', failed("header")),
        (f"token={P}COMMA;x", failed("header")),
        (f"a {P}APP openshell%3Aresolve%3Aenv%3AAPP", failed("header")),
        (f"a {P} b", failed("header", Fault.MALFORMED)),
    ],
)
def test_substrings_where_the_endpoint_says_so(value: str, expected: bytes | Failure) -> None:
    assert field(value, SUBSTRINGS) == expected


# targets -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"/{P}APP", "/app"),
        (f"/{P}APP{P}APP", "/appapp"),
        (f"/bot{P}APP/sendMessage", "/botapp/sendMessage"),
        (f"/{P}API_KEY%2Fz%3f/w%20x", "/se%20cr&t%2Fz%3F/w%20x"),
        (f"/%FF{P}APP/%7e", "/%FFapp/%7e"),  # bytes that are no text stay what they are
        (f"/{P}UMLAUT", "/%C3%BC"),
        (f"/sk-{A}APP/x", "/app/x"),
        ("/openshell%3Aresolve%3Aenv%3AAPP", "/app"),
        (f"/?k={P}APP{P}APP", "/?k=appapp"),
        (f"/?k={P}API_KEY&z=%7e", "/?k=se%20cr%26t&z=%7e"),
        (f"/?k=a+{P}APP+b%20c%2B", "/?k=a+app+b%20c%2B"),
        (f"/?k=%FF{P}APP&&=&x", "/?k=%FFapp&&=&x"),
        (f"/?k=openshell%3Aresolve%3Aenv%3AAPP&k={P}APP=", "/?k=app&k=app%3D"),
        (f"/?k={P}SLASH", "/?k=a%2Fb"),
        (f"/{P}APP?k={P}APP", "/app?k=app"),
        (f"/{P}DOT{P}APP", "/.app"),
    ],
)
def test_targets(text: str, expected: str) -> None:
    assert target(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *[
            (f"/{P}{key}", failed("path"))
            for key in ("DOTS", "DOT", "SLASH", "BACK", "ASK", "HASH", "MARKED", "NOBODYS")
        ],
        (f"/.{P}DOT/x", failed("path")),
        (f"/a%2F.{P}DOT/x", failed("path")),
        (f"/..{P}PARAM/x", failed("path")),
        (f"/x{P}DOTS", failed("path")),
        (f"/{P}APP_x", failed("path")),
        (f"/sk-{A}APP.json", failed("path", Fault.MALFORMED)),
        (f"/{P}", failed("path", Fault.MALFORMED)),
        (f"/?k={P}APP_x", failed("query_param")),
        (f"/?{P}APP=1", failed("query_param")),
        (f"/?{P}APP", failed("query_param")),
        (f"/?%6fpenshell:resolve:env:APP=1&k={P}APP", failed("query_param")),
        (f"/?k={P}MARKED", failed("query_param")),
        (f"/?k={P}", failed("query_param", Fault.MALFORMED)),
    ],
)
def test_targets_that_fail(text: str, expected: Failure) -> None:
    assert target(text) == expected


def test_the_path_as_written_goes_with_the_placeholder() -> None:
    before = replace(head(f"/{P}APP"), raw_path=f"//{P}APP")
    after = rewrite_head(before, VALUES, PLAIN)
    assert isinstance(after, RequestHead)
    assert (after.path, after.raw_path) == ("/app", None)
    untouched = replace(head(f"/x?k={P}APP"), raw_path="//x")
    after = rewrite_head(untouched, VALUES, PLAIN)
    assert isinstance(after, RequestHead)
    assert after.raw_path == "//x"


# all of it -----------------------------------------------------------------------------------------------------------


def test_a_head_without_any_stays_the_same_object() -> None:
    before = head("/a%6f?b=%20c", (b"A", b"%6f%70"), (b"Authorization", b"Basic dXNlcjpwYXNz"), (b"Cookie", b"a=%7B"))
    assert rewrite_head(before, VALUES, PLAIN) is before
    assert rewrite_head(before, None, PLAIN) is before


@pytest.mark.parametrize(
    ("text", "fields", "where"),
    [
        (f"/{P}APP", (), "path"),
        (f"/?k={P}APP", (), "query_param"),
        ("/", ((b"X", f"{P}APP".encode()),), "header"),
        ("/", ((b"X", b"%4fPENSHELL-RESOLVE-ENV-"),), "header"),
        ("/", ((b"X", b"Basic " + base64.b64encode(f"{P}APP".encode())),), "header"),
        ("/", (*[(b"Filler", b"x" * 400)] * 38, (b"X", f"Bearer {P}APP".encode())), "header"),
    ],
)
def test_where_nothing_is_configured_none_leaves(text: str, fields: tuple[FieldLine, ...], where: str) -> None:
    assert rewrite_head(head(text, *fields), None, PLAIN) == failed(where)


def test_elsewhere_is_a_mismatch() -> None:
    made = snapshot(bound("KEY", "text"))
    away = made.resolver(ELSEWHERE, NOW)
    token = made.placeholders("default")["KEY"].encode()
    assert rewrite_head(head("/", (b"X", token)), away, PLAIN) == failed("header", Fault.MISMATCH)
    assert rewrite_head(head(f"/{token.decode()}"), away, PLAIN) == failed("path", Fault.MISMATCH)


def test_values_do_not_grow_a_head_without_end() -> None:
    crowd = "!".join([f"{P}LONG"] * (LIMITS.placed_bytes // 8192 + 1))
    assert field(crowd, SUBSTRINGS) == failed("header")
    assert isinstance(field(f"{P}LONG!{P}LONG", SUBSTRINGS), bytes)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault.MISMATCH, DenialCode.CREDENTIAL_ENDPOINT_MISMATCH),
        (Fault.UNAVAILABLE, DenialCode.CREDENTIAL_UNAVAILABLE),
        (Fault.MALFORMED, DenialCode.CREDENTIAL_UNAVAILABLE),
    ],
)
def test_what_the_client_is_told(fault: Fault, code: DenialCode) -> None:
    denial = denial_of(failed("header", fault))
    assert (denial.stage, denial.code) == (Stage.CREDENTIALS, code)


PARTS = [P + "APP", P + "NOBODYS", f"sk-{A}APP", P, A, "openshell%3Aresolve%3Aenv%3AAPP", "%6f", "%", "x", " ", ";",
         ",", '"', "=", "Bearer ", "Basic ", "&", "+", "/", ".", "%2F"]  # fmt: skip
TEXT = st.lists(st.sampled_from(PARTS), max_size=6).map("".join)
OPTIONS = st.sampled_from([PLAIN, COOKIES, SUBSTRINGS])


@given(TEXT, TEXT, st.sampled_from([b"X", b"Cookie", b"Authorization"]), TEXT, OPTIONS, st.booleans())
def test_nothing_like_a_placeholder_is_left_and_the_rest_is_as_it_was(
    path: str, query: str, name: bytes, value: str, options: CredentialOptions, encoded: bool
) -> None:
    text = value.strip().encode()
    if encoded:
        text = b"Basic " + base64.b64encode(text)
    before = head(f"/{path}?{query}", (name, text))
    after = rewrite_head(before, VALUES, options)
    if isinstance(after, Failure):
        assert contains_marker(before.target.encode()) or contains_marker(text) or encoded
        return
    (line,) = after.fields
    block = after.target.encode() + b"\n" + line[0] + b"\n" + line[1]
    assert not contains_marker(block)
    if encoded:
        assert not contains_marker(base64.b64decode(line[1][6:]))
    if after is before:
        return
    assert after.path.count("/") == before.path.count("/")
    assert str(after.query).count("&") == str(before.query).count("&")
    untouched = [item for item in str(before.query).split("&") if not contains_marker(item.encode())]
    assert [item for item in str(after.query).split("&") if item in untouched] == untouched
