"""Credentials on the path of a request: what policy sees, what leaves, what is refused, what does not come back."""

import base64
import gzip
import json

import pytest

from egress.credentials.placeholder import spell
from egress.credentials.scope import Scope, Selector
from egress.credentials.snapshot import Credential, CredentialSnapshot, Placement
from egress.events.event import Finding
from egress.model.body import CHUNKED, NO_BODY, Framing, of_length
from egress.model.message import FieldLine, RequestHead, ResponseHead, WireHead
from egress.model.outcome import ByteCounts, RelayOutcome
from egress.model.request import UpstreamRequest
from egress.model.secret import Secret
from egress.model.verdict import Denial, DenialCode
from egress.pipeline.exchange import Exchange
from tests.support.opened import HOST, Opened, opened, upgraded
from tests.unit.policy.samples import ANY, entries

VALUE = "tok-live-123456"
HANDLE = "ab" * 32
TOKEN = spell("API_TOKEN", handle=HANDLE)
FOREIGN = spell("OTHER_TOKEN", handle="cd" * 32)
RULES = "protocol: rest, rules: [{allow: {method: '*', path: /open/**}}]"


def credential(key: str = "API_TOKEN", host: str = HOST, handle: str = HANDLE, **more: object) -> Credential:
    scope = Scope((Selector.of(host, 443),))
    return Credential("desk", key, Secret(VALUE), scope, identity=f"refresh:{handle}", handle=handle, **more)  # type: ignore[arg-type]


def site(options: str = RULES, *credentials: Credential) -> Opened:
    ours = opened(entries(f"api: {{endpoints: [{{host: {HOST}, port: 443, {options}}}], {ANY}}}"))
    given = credentials or (credential(), credential("OTHER_TOKEN", "other.test", "cd" * 32))
    ours.services.runtime.refresh(CredentialSnapshot.empty().next(given))
    return ours


def exchange(ours: Opened) -> Exchange:
    return Exchange(ours.connection, ours.services, ours.connection.authorization.intent.origin, "http1", 1)


def wire(target: str = "/open/x", method: str = "GET", *lines: FieldLine) -> WireHead:
    return WireHead(method.encode(), target.encode(), b"HTTP/1.1", ((b"Host", HOST.encode()), *lines))


def sent(ours: Opened, head: WireHead, body: bytes = b"") -> UpstreamRequest | Denial:
    made = exchange(ours)
    begun = made.begin(head)
    if isinstance(begun, Denial):
        return begun
    if made.hold is not None:
        denial = made.too_large() if len(body) > made.hold else made.admit(body)
        if denial is not None:
            return denial
    assert not made.waits
    return made.send()


def placed(ours: Opened, head: WireHead, body: bytes = b"") -> UpstreamRequest:
    request = sent(ours, head, body)
    assert isinstance(request, UpstreamRequest), request
    return request


def code(ours: Opened, head: WireHead, body: bytes = b"") -> DenialCode:
    denial = sent(ours, head, body)
    assert isinstance(denial, Denial), denial
    assert VALUE not in repr(denial)
    assert "openshell" not in repr(denial)
    return denial.code


def test_a_header_gets_its_value() -> None:
    request = placed(site(), wire("/open/x", "GET", (b"Authorization", b"Bearer " + TOKEN.encode())))
    assert request.head.fields == ((b"Authorization", b"Bearer " + VALUE.encode()),)


def test_policy_and_events_see_the_word_alone() -> None:
    ours = site("protocol: rest, rules: [{allow: {method: GET, path: /bot*/send}}]")
    made = exchange(ours)
    head = made.begin(wire(f"/bot{TOKEN}/send?k={TOKEN}"))
    assert isinstance(head, RequestHead), head
    request = made.send()
    assert isinstance(request, UpstreamRequest)
    assert request.head.target == f"/bot{VALUE}/send?k={VALUE}"
    made.finish(RelayOutcome.COMPLETE, 200, ByteCounts())
    (told,) = ours.recorder.exchanges
    assert told.path == "/bot[CREDENTIAL]/send"
    assert "openshell" not in repr(told)


def test_a_denial_by_policy_says_nothing_of_credentials() -> None:
    assert code(site(), wire("/closed", "GET", (b"A", FOREIGN.encode()))) is DenialCode.POLICY_DENIED


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (FOREIGN, DenialCode.CREDENTIAL_ENDPOINT_MISMATCH),
        (spell("OTHER_TOKEN"), DenialCode.CREDENTIAL_ENDPOINT_MISMATCH),
        (spell("API_TOKEN"), DenialCode.CREDENTIAL_UNAVAILABLE),
        (spell("API_TOKEN", handle="ef" * 32), DenialCode.CREDENTIAL_UNAVAILABLE),
        (spell("API_TOKEN", revision=7), DenialCode.CREDENTIAL_UNAVAILABLE),
        (spell("NOBODYS"), DenialCode.CREDENTIAL_UNAVAILABLE),
        ("x" + TOKEN, DenialCode.CREDENTIAL_UNAVAILABLE),
        (TOKEN.replace(":", "%3A"), DenialCode.CREDENTIAL_UNAVAILABLE),
    ],
)  # fmt: skip
@pytest.mark.parametrize("where", ["header", "basic", "query", "path"])
def test_what_is_not_replaced_does_not_leave(token: str, expected: DenialCode, where: str) -> None:
    lines: dict[str, tuple[str, tuple[FieldLine, ...]]] = {
        "header": ("/open/x", ((b"X-Key", token.encode()),)),
        "basic": ("/open/x", ((b"Authorization", b"Basic " + base64.b64encode(b"u:" + token.encode())),)),
        "query": (f"/open/x?k={token}", ()),
        "path": (f"/open/{token}", ()),
    }
    target, fields = lines[where]
    decoded_there = token.startswith("x") and where != "header"
    if decoded_there or ("%3A" in token and where in ("query", "path")):
        assert placed(site(), wire(target, "GET", *fields))  # found inside a text, and decoded there
        return
    assert code(site(), wire(target, "GET", *fields)) is expected


def test_a_malformed_placeholder_in_the_target_is_not_even_judged() -> None:
    ours = site()
    assert code(ours, wire("/open/openshell:resolve:env:/x")) is DenialCode.CREDENTIAL_UNAVAILABLE
    made = exchange(ours)
    made.begin(wire("/open/openshell:resolve:env:/x"))
    made.finish(RelayOutcome.DENIED, 500, ByteCounts())
    assert ours.recorder.exchanges[-1].path == "/[INVALID_REQUEST_TARGET]"


def test_without_any_credentials_a_placeholder_goes_nowhere() -> None:
    ours = opened(entries(f"api: {{endpoints: [{{host: {HOST}, port: 443, {RULES}}}], {ANY}}}"))
    assert code(ours, wire("/open/x", "GET", (b"A", TOKEN.encode()))) is DenialCode.CREDENTIAL_UNAVAILABLE
    assert placed(ours, wire()).head.fields == ()


def test_an_expired_value_is_not_placed() -> None:
    ours = site(RULES, credential(expires=1.0))
    assert code(ours, wire("/open/x", "GET", (b"A", TOKEN.encode()))) is DenialCode.CREDENTIAL_UNAVAILABLE


def test_revoked_between_admission_and_writing() -> None:
    ours = site()
    made = exchange(ours)
    assert isinstance(made.begin(wire("/open/x", "GET", (b"A", TOKEN.encode()))), RequestHead)
    assert isinstance(made.send(), UpstreamRequest)
    ours.services.runtime.refresh(CredentialSnapshot.empty().next([credential()]).revoked())
    again = made.send()  # a second attempt on another connection
    assert isinstance(again, Denial)
    assert again.code is DenialCode.CREDENTIAL_GENERATION_CHANGED
    assert code(ours, wire("/open/x", "GET", (b"A", TOKEN.encode()))) is DenialCode.CREDENTIAL_ENDPOINT_MISMATCH


def test_a_value_that_nobody_asked_for_is_placed_where_its_profile_says() -> None:
    ours = site(RULES, credential(placement=Placement("header", "X-Desk-Key", when="if_absent")))
    assert placed(ours, wire()).head.fields == ((b"X-Desk-Key", VALUE.encode()),)
    kept = (b"x-desk-key", b"mine")
    assert placed(ours, wire("/open/x", "GET", kept)).head.fields == (kept,)


# bodies ---------------------------------------------------------------------------------------------------------------


def post(body: bytes, kind: bytes = b"application/json", *more: FieldLine, chunked: bool = False) -> WireHead:
    framing = (b"Transfer-Encoding", b"chunked") if chunked else (b"Content-Length", b"%d" % len(body))
    return wire("/open/x", "POST", (b"Content-Type", kind), framing, *more)


def test_a_body_is_not_touched_and_no_placeholder_passes_in_it() -> None:
    ours = site()
    body = json.dumps({"key": TOKEN}).encode()
    for hidden in (
        body,
        body.replace(b":resolve", b"%3Aresolve"),
        base64.b64encode(b"a" + body),
        b"[" + base64.urlsafe_b64encode(b"ab" + body) + b"]",
    ):
        assert code(ours, post(hidden), hidden) is DenialCode.CREDENTIAL_BODY_DENIED
    packed = gzip.compress(body)
    assert code(ours, post(packed, b"application/json", (b"Content-Encoding", b"gzip")), packed) is (
        DenialCode.CREDENTIAL_BODY_DENIED
    )
    clean = placed(ours, post(b"{}"), b"{}")
    assert (clean.body, clean.head.framing) == (b"{}", of_length(2))


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_a_streamed_body_is_watched_across_its_pieces(size: int) -> None:
    ours = site()
    head = post(b"", chunked=True)
    request = placed(ours, head)
    assert request.body is None
    assert request.upload is not None
    body = b"x" * 3000 + TOKEN.encode() + b"y" * 3000
    out = b""
    for start in range(0, len(body), size):
        passed = request.upload.feed(body[start : start + size])
        if isinstance(passed, Denial):
            assert passed.code is DenialCode.CREDENTIAL_BODY_DENIED
            break
        out += passed
    else:
        pytest.fail("the placeholder passed")
    assert b"openshell:" not in out
    clean = placed(ours, head).upload
    assert clean is not None
    first, last = clean.feed(b"z" * 100), clean.finish(())
    assert isinstance(first, bytes)
    assert isinstance(last, bytes)
    assert first + last == b"z" * 100


def test_a_placeholder_in_a_trailer_does_not_pass() -> None:
    upload = placed(site(), post(b"", chunked=True)).upload
    assert upload is not None
    assert isinstance(upload.finish(((b"X-Sum", TOKEN.encode()),)), Denial)


def test_values_are_placed_into_a_body_that_may_have_them() -> None:
    ours = site(RULES + ", request_body_credential_rewrite: true")
    body = json.dumps({"key": f"a {TOKEN}"}).encode()
    request = placed(ours, post(body), body)
    assert request.body == json.dumps({"key": f"a {VALUE}"}).encode()
    assert request.head.framing == of_length(len(request.body))
    foreign = json.dumps({"key": FOREIGN}).encode()
    assert code(ours, post(foreign), foreign) is DenialCode.CREDENTIAL_ENDPOINT_MISMATCH
    large = b"x" * (256 * 1024 + 1)
    assert code(ours, post(large), large) is DenialCode.CREDENTIAL_BODY_TOO_LARGE


def test_a_request_for_a_fresh_token_is_refused_where_ours_belong() -> None:
    form = b"grant_type=client_credentials&client_id=x"
    kind = b"application/x-www-form-urlencoded"
    assert code(site(), post(form, kind), form) is DenialCode.CREDENTIAL_MINTING_DENIED
    assert placed(site(RULES + ", deny_credential_minting: false"), post(form, kind), form).body == form
    elsewhere = site(RULES, credential("OTHER_TOKEN", "other.test"))
    assert placed(elsewhere, post(form, kind), form).body == form


# replies --------------------------------------------------------------------------------------------------------------


def reply(framing: Framing = NO_BODY, *fields: FieldLine) -> ResponseHead:
    return ResponseHead(200, b"OK", fields, framing)


def test_what_was_placed_does_not_come_back() -> None:
    ours = site()
    made = exchange(ours)
    made.begin(wire("/open/x", "GET", (b"A", TOKEN.encode())))
    assert isinstance(made.send(), UpstreamRequest)
    seen = made.respond(reply(CHUNKED, (b"X-Echo", VALUE.encode()), (b"Content-Type", b"text/plain")))
    assert isinstance(seen, ResponseHead)
    assert seen.fields[0] == (b"X-Echo", b"*" * len(VALUE))
    assert made.transform is not None
    shown = b""
    for byte in b"<" + VALUE.encode() + b">":
        piece = made.transform.feed(bytes([byte]))
        assert isinstance(piece, bytes)
        shown += piece
    end = made.transform.finish()
    assert isinstance(end, bytes)
    assert shown + end == b"<" + b"*" * len(VALUE) + b">"
    made.finish(RelayOutcome.COMPLETE, 200, ByteCounts())
    (finding,) = [event for event in ours.recorder.events if isinstance(event, Finding)]
    assert finding.type == "egress.credential.reflected"
    assert VALUE not in repr(finding)


def test_a_connection_that_placed_nothing_is_not_looked_into() -> None:
    made = exchange(site())
    made.begin(wire())
    made.send()
    assert made.respond(reply(CHUNKED, (b"X-Echo", VALUE.encode()))) == reply(CHUNKED, (b"X-Echo", VALUE.encode()))
    assert made.transform is None


def test_codings_that_cannot_be_looked_into_are_not_asked_for() -> None:
    ours = site()
    accept = (b"Accept-Encoding", b"gzip, sdch, br;q=0.5")
    assert placed(ours, wire("/open/x", "GET", accept)).head.fields == (accept,)
    request = placed(ours, wire("/open/x", "GET", (b"A", TOKEN.encode()), accept))
    assert request.head.fields[1] == (b"Accept-Encoding", b"gzip, br;q=0.5")


# WebSocket messages ---------------------------------------------------------------------------------------------------

MESSAGES = "protocol: websocket, access: full"


def test_messages_get_values_where_the_endpoint_says_so() -> None:
    _, session = upgraded(site(MESSAGES + ", websocket_credential_rewrite: true"))
    assert session.text(TOKEN) is None
    assert session.placed(f'{{"t":"{TOKEN}"}}') == f'{{"t":"{VALUE}"}}'
    assert session.incoming(f"you sent {VALUE}", last=True) == "you sent " + "*" * len(VALUE)
    refused = session.placed(FOREIGN)
    assert not isinstance(refused, str)
    assert (refused.code, refused.denial.code) == (1008, DenialCode.CREDENTIAL_ENDPOINT_MISMATCH)


def test_messages_are_refused_with_one_where_it_does_not() -> None:
    _, session = upgraded(site(MESSAGES))
    refused = session.placed(TOKEN)
    assert not isinstance(refused, str)
    assert (refused.code, refused.denial.code) == (1008, DenialCode.CREDENTIAL_BODY_DENIED)
    unread = session.binary()
    assert unread is not None
    assert unread.code == 1008
    assert session.placed("hello") == "hello"
