"""How bodies are covered, from what the client announced."""

import pytest

from egress.credentials.aws.payload import BODY_CEILING, Chunks, Payload, PayloadMode, without_chunk_coding
from egress.model.address import Scheme
from egress.model.body import CHUNKED, NO_BODY, Framing, of_length
from egress.model.message import RequestHead
from egress.model.verdict import DenialCode
from tests.unit.credentials.aws.samples import BEDROCK, S3, STS, planned, refusal, request

BODY, UNSIGNED, TRAILER = PayloadMode.BODY, PayloadMode.UNSIGNED, PayloadMode.TRAILER
HELD = Payload(BODY, BODY_CEILING)
SIGNED_CHUNKS = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"


def put(announced: str | None, framing: Framing, host: str = S3, **fields: str) -> RequestHead:
    more = {} if announced is None else {"X-Amz-Content-SHA256": announced}
    names = {name.replace("_", "-"): value for name, value in fields.items()}
    return request("PUT", host, "/k", {**more, **names}, framing)


@pytest.mark.parametrize(
    ("announced", "framing", "payload"),
    [
        ("0" * 64, of_length(3), HELD),
        ("0" * 64, CHUNKED, HELD),
        ("0" * 64, NO_BODY, Payload(BODY)),
        ("0" * 64, of_length(0), Payload(BODY)),
        ("anything", of_length(3), HELD),
        ("UNSIGNED-PAYLOAD", of_length(3), Payload(UNSIGNED)),
        ("unsigned-payload", CHUNKED, Payload(UNSIGNED)),
        ("UNSIGNED-PAYLOAD", NO_BODY, Payload(UNSIGNED)),
        ("STREAMING-UNSIGNED-PAYLOAD-TRAILER", CHUNKED, Payload(TRAILER)),
        ("streaming-unsigned-payload-trailer", of_length(90), Payload(TRAILER)),
        (None, of_length(3), HELD),
        (None, of_length(0), Payload(BODY)),
        (None, NO_BODY, Payload(BODY)),
        (None, CHUNKED, Payload(UNSIGNED)),
    ],
)
def test_what_the_client_announced(announced: str | None, framing: Framing, payload: Payload) -> None:
    assert planned(put(announced, framing)).payload == payload


@pytest.mark.parametrize("announced", [None, "0" * 64, "UNSIGNED-PAYLOAD"])
def test_overrides_do_not_ask_the_client(announced: str | None) -> None:
    assert planned(put(announced, of_length(3)), "sigv4:body").payload == HELD
    assert planned(put(announced, CHUNKED), "sigv4:body").payload == HELD
    assert planned(put(announced, NO_BODY), "sigv4:body").payload == Payload(BODY)
    assert planned(put(announced, of_length(3)), "sigv4:no_body").payload == Payload(UNSIGNED)
    assert planned(put(announced, NO_BODY), "sigv4:no_body").payload == Payload(UNSIGNED)


@pytest.mark.parametrize(
    "announced",
    [
        SIGNED_CHUNKS, SIGNED_CHUNKS.lower(), SIGNED_CHUNKS + "-TRAILER", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD",
        "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER",
    ],
)  # fmt: skip
def test_signed_chunks_are_refused_with_the_way_out(announced: str) -> None:
    denial = refusal(put(announced, CHUNKED, x_amz_decoded_content_length="3"))
    assert denial.code is DenialCode.SIGV4_STREAMING_UNSUPPORTED
    assert announced.lower() in denial.reason
    assert "credential_signing: sigv4:no_body" in denial.reason


@pytest.mark.parametrize("mode", ["sigv4", "sigv4:body", "sigv4:no_body"])
@pytest.mark.parametrize("announced", ["STREAMING-AWS4-HMAC-SHA256-EVENTS", "STREAMING-something-new", "streaming-"])
def test_other_streams_are_refused_in_every_mode(mode: str, announced: str) -> None:
    denial = refusal(put(announced, CHUNKED), mode)
    assert denial.code is DenialCode.SIGV4_STREAMING_UNSUPPORTED
    assert "something-new" not in denial.reason


@pytest.mark.parametrize(
    ("announced", "payload"),
    [
        (SIGNED_CHUNKS, Payload(UNSIGNED, chunks=Chunks.UNWRAP, length=3)),
        (SIGNED_CHUNKS + "-TRAILER", Payload(TRAILER, chunks=Chunks.REWRAP, length=3)),
        ("STREAMING-UNSIGNED-PAYLOAD-TRAILER", Payload(TRAILER)),
    ],
)
def test_no_body_takes_the_chunks_off(announced: str, payload: Payload) -> None:
    head = put(announced, of_length(99), x_amz_decoded_content_length="3")
    assert planned(head, "sigv4:no_body").payload == payload


@pytest.mark.parametrize("announced", [SIGNED_CHUNKS, SIGNED_CHUNKS + "-TRAILER", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"])
def test_body_takes_the_chunks_off_and_signs_the_payload(announced: str) -> None:
    head = put(announced, of_length(99), x_amz_decoded_content_length="3")
    assert planned(head, "sigv4:body").payload == Payload(BODY, BODY_CEILING, Chunks.UNWRAP, 3)


@pytest.mark.parametrize("length", [None, "", "-1", "3x", "1" * 19])
@pytest.mark.parametrize("mode", ["sigv4:body", "sigv4:no_body"])
def test_chunks_need_the_length_of_the_payload(mode: str, length: str | None) -> None:
    fields = {} if length is None else {"x_amz_decoded_content_length": length}
    assert refusal(put(SIGNED_CHUNKS, CHUNKED, **fields), mode).code is DenialCode.MALFORMED_REQUEST


def test_a_body_over_the_limit_is_refused_before_it_is_read() -> None:
    denial = refusal(put("0" * 64, of_length(BODY_CEILING + 1)))
    assert denial.code is DenialCode.SIGV4_BODY_TOO_LARGE
    assert planned(put("0" * 64, of_length(BODY_CEILING))).hold == BODY_CEILING
    assert refusal(put("0" * 64, of_length(11)), max_body_bytes=10).code is DenialCode.SIGV4_BODY_TOO_LARGE
    plan = planned(put("0" * 64, CHUNKED), max_body_bytes=10)
    assert plan.hold == 10
    assert plan.too_large().code is DenialCode.SIGV4_BODY_TOO_LARGE


def test_a_large_body_may_go_unsigned_to_object_services_over_tls() -> None:
    large = of_length(BODY_CEILING + 1)
    assert planned(put("0" * 64, large), oversize="unsigned").payload == Payload(UNSIGNED)
    too_large = DenialCode.SIGV4_BODY_TOO_LARGE
    assert refusal(put("0" * 64, large, BEDROCK), oversize="unsigned").code is too_large
    assert refusal(put("0" * 64, large), "sigv4:body", oversize="unsigned").code is too_large
    plain = request("PUT", S3, "/k", {}, large, port=80, scheme=Scheme.HTTP)
    assert refusal(plain, oversize="unsigned").code is too_large


def test_a_form_for_sts_is_held_for_the_minting_look_in_every_mode() -> None:
    form = request("POST", STS, "/", {"content-type": "application/x-www-form-urlencoded"}, of_length(3))
    assert planned(form, "sigv4:no_body").hold == 64 * 1024
    assert planned(form, "sigv4:no_body", deny_minting=False).hold is None


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"aws-chunked", b""), (b"gzip, aws-chunked", b"gzip"), (b"AWS-Chunked,gzip", b"gzip"), (b"gzip", b"gzip")],
)
def test_the_chunk_coding_is_taken_off_the_field(before: bytes, after: bytes) -> None:
    assert without_chunk_coding(before) == after
