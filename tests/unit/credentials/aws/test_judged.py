"""Signed requests as bytes on the wire, judged by an independent reading of the algorithm."""

import string

from hypothesis import given, settings
from hypothesis import strategies as st

from egress.credentials.aws.sign import plan_signing, sign, strip
from egress.http.serialize import request_bytes
from egress.model.address import Scheme
from egress.model.body import CHUNKED, NO_BODY, of_length
from egress.model.verdict import Denial, DenialCode
from tests.unit.credentials.aws.judge import accepts
from tests.unit.credentials.aws.samples import BEDROCK, NOW, S3, SECRET, STS, TEMPORARY, options, request

PATHS = st.lists(
    st.text(alphabet=string.ascii_letters + "-._~!$&'()*,:@=é ü%/+", min_size=1, max_size=8).filter(
        lambda segment: ".." not in segment and "./" not in segment and "/." not in segment
    ),
    max_size=4,
)
WORDS = st.text(alphabet=string.ascii_letters + "%+/=~é !'()*;:@?", max_size=8)
VALUES = st.text(alphabet=string.printable.strip() + "  é", max_size=12).map(str.strip)


def encoded(text: str) -> str:
    """Escaped as a careless client does it: only what cannot stand in a target."""
    return "".join(
        letter if letter in string.ascii_letters + string.digits + "-._~!$&'()*,:@=" else
        "".join(f"%{byte:02x}" for byte in letter.encode())
        for letter in text
    )  # fmt: skip


@given(
    host=st.sampled_from([S3, BEDROCK, STS, "xyz.lambda-url.us-east-1.on.aws"]),
    port=st.sampled_from([443, 8443]),
    segments=PATHS,
    pairs=st.lists(st.tuples(WORDS, WORDS), max_size=4),
    values=st.lists(VALUES, max_size=3),
    body=st.none() | st.binary(max_size=20),
    mode=st.sampled_from(["sigv4", "sigv4:body", "sigv4:no_body"]),
    chunked=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_every_signature_is_right_for_the_bytes_that_are_sent(
    host: str,
    port: int,
    segments: list[str],
    pairs: list[tuple[str, str]],
    values: list[str],
    body: bytes | None,
    mode: str,
    chunked: bool,
) -> None:
    path = "/" + "/".join(encoded(segment) for segment in segments)
    query = "&".join(f"{encoded(name)}={encoded(value)}" for name, value in pairs)
    framing = NO_BODY if body is None else CHUNKED if chunked else of_length(len(body))
    fields = (
        (b"Accept-Encoding", b"gzip"), (b"X-Amz-Date", b"stale"), *((b"X-Amz-Meta-V", v.encode()) for v in values),
    )  # fmt: skip
    head = request("POST", host, f"{path}?{query}", fields, framing, port=port)
    plan = plan_signing(head, options(mode))
    if isinstance(plan, Denial):
        assert plan.code is DenialCode.SIGV4_PATH_NOT_REPRESENTABLE
        assert any(not segment or segment in (".", "..") or ";" in segment for segment in path[1:].split("/"))
        return
    held = body if plan.hold is not None else None
    sent = sign(plan, strip(plan, head), held, TEMPORARY, NOW)
    assert not isinstance(sent, Denial)
    assert accepts(request_bytes(sent[0]) + (body or b""), SECRET)


def test_the_judge_refuses_what_was_changed_on_the_way() -> None:
    head = request("PUT", S3, "/a?b=c", {"X-Amz-Meta-A": "1"}, of_length(3), scheme=Scheme.HTTPS)
    plan = plan_signing(head, options())
    assert not isinstance(plan, Denial)
    sent = sign(plan, head, b"abc", TEMPORARY, NOW)
    assert not isinstance(sent, Denial)
    wire = request_bytes(sent[0]) + b"abc"
    assert accepts(wire, SECRET)
    for old, new in ((b"/a?", b"/b?"), (b"b=c", b"b=d"), (b"Meta-A: 1", b"Meta-A: 2"), (b"\nabc", b"\nabd")):
        assert not accepts(wire.replace(old, new), SECRET)
    assert not accepts(wire, SECRET + "x")
