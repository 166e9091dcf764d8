"""GraphQL requests read: operations that a server would execute, exact refusals, bounds. The tables of tests/policies
hold the breadth of judgement."""

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egress.l7 import graphql
from egress.l7.graphql import MAX_REMEMBERED_LENGTH, read_document, read_payload, read_request
from egress.model.body import NO_BODY, of_length
from egress.model.message import FieldLine, Malformed, RequestHead
from egress.model.operation import GraphqlOperation, GraphqlOperations
from egress.model.verdict import Denial, DenialCode, Stage
from egress.policy.compiled import Endpoint
from tests.unit.policy.samples import entries, granted, intent

JSON: FieldLine = (b"Content-Type", b"application/json")
REGISTRY = "{aa: {operation_type: query, operation_name: A, fields: [viewer]}, zz: {operation_type: mutation}}"


def endpoint(more: str = "access: full") -> Endpoint:
    text = f"e: {{endpoints: [{{host: a.test, port: 443, protocol: graphql, {more}}}], binaries: [{{path: /**}}]}}"
    (found,) = granted(entries(text), "a.test").endpoints
    return found


FULL = endpoint()
REGISTERED = endpoint(f"access: full, persisted_queries: allow_registered, graphql_persisted_queries: {REGISTRY}")


def post(body: bytes, *fields: FieldLine, query: str | None = None, method: str = "POST") -> RequestHead:
    return RequestHead(method, intent("a.test").origin, "/graphql", query, fields or (JSON,), of_length(len(body)))


def get(query: str | None) -> RequestHead:
    return RequestHead("GET", intent("a.test").origin, "/graphql", query, (), NO_BODY)


def read(value: object) -> GraphqlOperations | Denial:
    body = json.dumps(value).encode()
    return read_request(FULL, post(body), body)


def refused(reason: str, code: DenialCode = DenialCode.INVALID_GRAPHQL_REQUEST) -> Denial:
    return Denial(Stage.L7, code, f"GraphQL request rejected: {reason}", entry="e")


def fault(reason: str) -> Malformed:
    return Malformed(reason, DenialCode.INVALID_GRAPHQL_REQUEST)


def test_one_operation() -> None:
    operation = GraphqlOperation("query", "Q", ("a", "b"))
    assert read({"query": "query Q { b a x: a }"}) == GraphqlOperations((operation,))


def test_a_batch_keeps_its_order() -> None:
    found = read([{"query": "mutation M { m }"}, {"query": "{ q }"}])
    assert found == GraphqlOperations(
        (GraphqlOperation("mutation", "M", ("m",)), GraphqlOperation("query", "", ("q",)))
    )


def test_over_get() -> None:
    expected = GraphqlOperations((GraphqlOperation("mutation", "", ("m",)),), over_get=True)
    assert read_request(FULL, get("query=mutation%7Bm%7D"), b"") == expected


def test_denials_are_hard() -> None:
    found = read({})
    assert isinstance(found, Denial)
    assert found.hard


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "invalid JSON"),
        (b"nope", "invalid JSON"),
        (b"\xef\xbb\xbf{}", "invalid JSON"),
        (b"[" * 1000, "JSON is nested deeper than 200 levels"),
        (b'{"query":"{a}","query":"{a}"}', "duplicate JSON key"),
        (b'{"query":"{a}","variables":1e999}', "JSON number out of range"),
        (b"[]", "empty batch"),
        (b"1", "request is not a JSON object"),
        (b"[{}, 1]", "request is not a JSON object"),
        (b"{}", "neither a document nor a persisted query"),
        (b'{"Query":"{a}"}', "key in unusual letter case"),
        (b'{"query":1}', "`query` is not a string"),
        (b'{"query":"{a}","operationName":1}', "`operationName` is not a string"),
        (b'{"query":"{a}","extensions":1}', "`extensions` is not an object"),
        (b'{"id":"a","queryId":"b"}', "more than one persisted query"),
        (
            b'{"query":"{a}","extensions":{"persistedQuery":{"sha256Hash":"0"}}}',
            "`sha256Hash` is not the hash of the document",
        ),
        (b'{"query":"{a}","extensions":{"persistedQuery":{"Sha256Hash":"0"}}}', "key in unusual letter case"),
        (b'{"query":"{a}","extensions":{"persistedquery":{}}}', "key in unusual letter case"),
        (b'{"query":"{a"}', "document cannot be parsed at line 1, column 3"),
        (b'{"query":"{\\n  a(\\n}"}', "document cannot be parsed at line 3, column 1"),
        (b'{"query":"{a} # \\u2028"}', "comment whose end is ambiguous"),
        (b'{"query":"scalar A"}', "document holds type definitions"),
        (b'{"query":"fragment F on Q {a}"}', "document does not hold exactly one operation"),
        (b'{"query":"query A {a} query B {a}"}', "document does not hold exactly one operation"),
        (b'{"query":"query A {a}","operationName":"B"}', "no operation of that name"),
        (b'{"query":"query A {a} query A {a}"}', "duplicate operation or fragment name"),
        (b'{"query":"{...F}"}', "spread of an unknown fragment"),
    ],
)  # fmt: skip
def test_exact_reasons(body: bytes, reason: str) -> None:
    assert read_request(FULL, post(body), body) == refused(reason)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (None, "neither a document nor a persisted query"),
        ("query={a}&query={a}", "control parameter given more than once"),
        ("query={a}&QUERY={a}", "control parameter that servers read differently"),
        ("x=1;query={a}", "control parameter that servers read differently"),
        ("id=a&queryId=a", "more than one persisted query"),
        ("query={a}&extensions={", "`extensions`: invalid JSON"),
    ],
)
def test_exact_reasons_over_get(query: str | None, reason: str) -> None:
    assert read_request(FULL, get(query), b"") == refused(reason)


def test_query_string_that_cannot_be_read() -> None:
    expected = refused("query holds a bad percent escape", DenialCode.INVALID_REQUEST_TARGET)
    assert read_request(FULL, get("query=%zz"), b"") == expected
    body = b'{"query":"{a}"}'
    assert read_request(FULL, post(body, query="x=%zz"), body) == expected


def test_a_body_on_get() -> None:
    assert read_request(FULL, post(b"x", query="query={a}", method="GET"), b"x") == refused("GET with a body")


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "Post", "QUERY"])
def test_other_methods(method: str) -> None:
    body = b'{"query":"{a}"}'
    assert read_request(FULL, post(body, method=method), body) == refused("method is neither GET nor POST")


def test_control_parameters_beside_a_body() -> None:
    body = b'{"query":"{a}"}'
    for query in ("query={b}", "operationName=", "x=1&documentId=2"):
        assert read_request(FULL, post(body, query=query), body) == refused("control parameter in the URL of a POST")


@pytest.mark.parametrize(
    ("content_types", "reason"),
    [
        ([], "no content type"),
        ([b"application/json", b"application/json"], "more than one content type"),
        ([b""], "content type is neither JSON nor application/graphql"),
        ([b"json"], "content type is neither JSON nor application/graphql"),
        ([b"application/jsonp"], "content type is neither JSON nor application/graphql"),
        ([b"application/json+x"], "content type is neither JSON nor application/graphql"),
        ([b"text/plain"], "content type is neither JSON nor application/graphql"),
        ([b"multipart/mixed; boundary=x"], "content type is neither JSON nor application/graphql"),
        ([b"application/json, text/plain"], "content type is neither JSON nor application/graphql"),
        ([b"application/x-www-form-urlencoded"], "content type is neither JSON nor application/graphql"),
    ],
)
def test_content_types_refused(content_types: list[bytes], reason: str) -> None:
    body = b'{"query":"{a}"}'
    head = post(body, *[(b"content-type", value) for value in content_types], (b"accept", b"*/*"))
    assert read_request(FULL, head, body) == refused(reason)


@pytest.mark.parametrize("charset", [b"utf-16", b"latin1", b"utf-7", b'"utf-32"', b""])
def test_charsets_refused(charset: bytes) -> None:
    body = b'{"query":"{a}"}'
    head = post(body, (b"Content-Type", b"application/json; charset=" + charset))
    assert read_request(FULL, head, body) == refused("charset is not UTF-8", DenialCode.UNSUPPORTED_ENCODING)


@pytest.mark.parametrize(
    "content_type",
    [b"application/json", b"APPLICATION/JSON;", b'application/json ; charset="utf-8"', b"application/vnd.acme-v1+json"],
)
def test_content_types_read(content_type: bytes) -> None:
    body = b'{"query":"{a}"}'
    head = post(body, (b"CONTENT-TYPE", content_type))
    assert read_request(FULL, head, body) == GraphqlOperations((GraphqlOperation("query", "", ("a",)),))


def test_a_document_body() -> None:
    body = "mutation Ü".encode()
    head = post(body, (b"Content-Type", b"application/graphql; charset=utf-8"))
    assert read_request(FULL, head, b"mutation M { m }") == GraphqlOperations(
        (GraphqlOperation("mutation", "M", ("m",)),)
    )
    assert read_request(FULL, head, b"{ a } # \xff") == refused("body is not UTF-8")


def test_an_upgrade_is_no_request() -> None:
    head = RequestHead("GET", intent("a.test").origin, "/graphql", "query={a}", (), NO_BODY, upgrade="websocket")
    said = "a WebSocket needs an endpoint with `protocol: websocket`"
    assert read_request(FULL, head, b"") == Denial(Stage.L7, DenialCode.UPGRADE_REFUSED, said, entry="e")


class TestPersisted:
    def test_registered(self) -> None:
        assert read_payload(REGISTERED, {"id": "aa"}) == GraphqlOperation("query", "A", ("viewer",))
        assert read_payload(REGISTERED, {"queryId": "zz"}) == GraphqlOperation("mutation", "", ())

    @pytest.mark.parametrize("key", ["a", "ab", "zzz", "0", "~", "AA"])
    def test_unknown(self, key: str) -> None:
        assert read_payload(REGISTERED, {"id": key}) == GraphqlOperation("", "", (), registered=False)

    def test_no_registry(self) -> None:
        assert read_payload(FULL, {"id": "aa"}) == GraphqlOperation("", "", (), registered=False)

    def test_the_name_picks_no_other_operation_of_the_document(self) -> None:
        unregistered = GraphqlOperation("", "", (), registered=False)
        assert read_payload(REGISTERED, {"id": "aa", "operationName": "B"}) == unregistered
        assert read_payload(REGISTERED, {"id": "aa", "operationName": "A"}) == GraphqlOperation(
            "query", "A", ("viewer",)
        )

    def test_a_document_needs_no_registry(self) -> None:
        assert read_payload(FULL, {"id": "aa", "query": "{ a }"}) == GraphqlOperation("query", "", ("a",))


class TestBounds:
    def test_tokens(self) -> None:
        assert read_document("{" + "a " * 19_000 + "}", "") == GraphqlOperation("query", "", ("a",))
        many = read_document("{" + "a " * 20_001 + "}", "")
        assert isinstance(many, Malformed)
        assert many.reason.startswith("document cannot be parsed")

    @pytest.mark.parametrize(
        "document",
        ["{a" * 3000, "{a" * 3000 + "}" * 3000, "{a(x:" + "[" * 9000, "{a(x:" + "{a:" * 4000, "query(" + "$a:[" * 3000],
    )
    def test_nesting(self, document: str) -> None:
        found = read_document(document, "")
        assert isinstance(found, Malformed)
        assert found.reason.startswith("document cannot be parsed")

    def test_fragments_that_explode(self) -> None:
        """Each named fragment is expanded once, or this would take 2**60 steps."""
        fragments = [f"fragment F{n} on Q {{ ...F{n + 1} ...F{n + 1} }}" for n in range(60)]
        document = " ".join(["{ ...F0 }", *fragments, "fragment F60 on Q { deep }"])
        assert read_document(document, "") == GraphqlOperation("query", "", ("deep",))

    def test_a_cycle_ends(self) -> None:
        document = "{ ...A } fragment A on Q { ...B } fragment B on Q { ...A x }"
        assert read_document(document, "") == GraphqlOperation("query", "", ("x",))


class TestMemory:
    def test_a_document_is_parsed_once(self) -> None:
        graphql._remembered.cache_clear()
        for _ in range(3):
            read_document("{ remembered }", "")
        read_document("{ broken", "")
        read_document("{ broken", "")
        info = graphql._remembered.cache_info()
        assert (info.misses, info.hits) == (2, 3)

    def test_the_name_belongs_to_the_key(self) -> None:
        document = "query A { a } mutation B { b }"
        assert read_document(document, "A") == GraphqlOperation("query", "A", ("a",))
        assert read_document(document, "B") == GraphqlOperation("mutation", "B", ("b",))
        assert read_document(document, "") == fault("document does not hold exactly one operation")

    def test_long_documents_are_not_kept(self) -> None:
        graphql._remembered.cache_clear()
        read_document("{ a } #" + "x" * MAX_REMEMBERED_LENGTH, "")
        assert graphql._remembered.cache_info().currsize == 0

    def test_bounded(self) -> None:
        assert graphql._remembered.cache_info().maxsize == 1024


def test_the_parser_is_imported_when_it_is_needed() -> None:
    code = "import sys, egress.l7.inspect; print('graphql' in sys.modules); "
    code += "egress.l7.graphql.load_parser(); print('graphql' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\nTrue\n"


NAMES = st.sampled_from(["a", "b", "viewer", "deleteAll", "__typename", "on", "query", "fragment"])
DIRECTIVES = st.sampled_from(["", "@skip(if: true)", "@include(if: $v)", "@a @b(c: {d: [1]})"])


@st.composite
def selections(draw: st.DrawFn, depth: int = 3) -> tuple[str, set[str], set[str]]:
    """Text of a selection set, its direct fields (through inline fragments), and the fragments it spreads."""
    parts, fields, spreads = [], set(), set()
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["field", "alias", "inline", "spread"] if depth else ["field", "alias"]))
        if kind in ("field", "alias"):
            name = draw(NAMES)
            below = draw(selections(depth=depth - 1))[0] if depth and draw(st.booleans()) else ""
            alias = f"{draw(NAMES)}: " if kind == "alias" else ""
            arguments = draw(st.sampled_from(["", '(x: "{ deleteAll }")', '(x: """ } deleteAll { """)', "(on: $v)"]))
            parts.append(f"{alias}{name}{arguments} {draw(DIRECTIVES)} {below}")
            fields.add(name)
        elif kind == "inline":
            text, inner, below_spreads = draw(selections(depth=depth - 1))
            parts.append(f"...{draw(st.sampled_from(['', ' on T']))} {draw(DIRECTIVES)} {text}")
            fields |= inner
            spreads |= below_spreads
        else:
            name = draw(st.sampled_from(["F0", "F1", "F2"]))
            parts.append(f"...{name} {draw(DIRECTIVES)}")
            spreads.add(name)
    separator = draw(st.sampled_from([" ", ", ", "\n# comment { deleteAll }\n", "\r\n"]))
    return "{" + separator.join(parts) + " }", fields, spreads


@settings(max_examples=60, deadline=None)
@given(st.lists(selections(), min_size=4, max_size=4), st.sampled_from(["query", "mutation", "subscription"]))
def test_root_fields_equal_a_naive_reading(drawn: list[tuple[str, set[str], set[str]]], kind: str) -> None:
    (text, fields, spreads), *fragments = drawn
    reached: set[str] = set()
    while missing := spreads - reached:
        name = missing.pop()
        reached.add(name)
        fields = fields | fragments[int(name[1])][1]
        spreads = spreads | fragments[int(name[1])][2]
    document = f"{kind} Q {text}" + "".join(f"\nfragment F{n} on T {one[0]}" for n, one in enumerate(fragments))
    assert read_document(document, "Q") == GraphqlOperation(kind, "Q", tuple(sorted(fields)))


PIECES = [
    *"{}()[]:\\#1-|&=!\"\r\n\0é\ufeff\u2028", "...", "on", "query", "mutation", "fragment", "F", "a", '"""', "$v", "@d",
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=25).map(" ".join))
def test_any_text_has_an_answer(document: str) -> None:
    assert isinstance(read_document(document, ""), GraphqlOperation | Malformed)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_any_body_has_an_answer(body: bytes) -> None:
    assert isinstance(read_request(FULL, post(body), body), GraphqlOperations | Denial)


def test_reasons_quote_nothing() -> None:
    for value in (
        {"query": "{ s3cret("},
        {"query": "s3cret"},
        {"s3cret": 1},
        {"query": "{a}", "operationName": "s3cret"},
    ):
        found = read(value)
        assert isinstance(found, Denial)
        assert "s3cret" not in found.reason
