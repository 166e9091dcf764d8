"""Signatures: fixed vectors and what is signed and sent."""

from dataclasses import replace

import pytest

from egress.credentials.aws.sign import load, opaque_path, plan_signing, sign, strip
from egress.model.address import Scheme
from egress.model.body import CHUNKED, NO_BODY, of_length
from egress.model.message import RequestHead
from egress.model.verdict import Denial, DenialCode
from tests.unit.credentials.aws.samples import (
    BEDROCK,
    KEYS,
    NOW,
    S3,
    STS,
    TEMPORARY,
    field,
    options,
    planned,
    refusal,
    request,
    signed,
)  # fmt: skip

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
PLAIN_NAMES = "host;x-amz-content-sha256;x-amz-date"


def authorization(names: str, signature: str, scope: str) -> str:
    return (
        f"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260102/{scope}/aws4_request, "
        f"SignedHeaders={names}, Signature={signature}"
    )


def test_vector_of_a_temporary_key() -> None:
    head = request("POST", BEDROCK, "/model/acme.m-v1%3A0/invoke", {"content-type": "application/json"}, of_length(2))
    sent, body = signed(head, b"{}", keys=TEMPORARY)
    assert sent.target == "/model/acme.m-v1%3A0/invoke"
    assert field(sent, "x-amz-security-token") == "SESSION"
    assert field(sent, "authorization") == authorization(
        "content-type;host;x-amz-content-sha256;x-amz-date;x-amz-security-token",
        "0468440c5b937c3119ca586a54b87d430ae6f96e489780bb8dd6708e3310c8da",
        "us-east-1/bedrock",
    )
    assert body == b"{}"


def test_vector_of_an_odd_object_key() -> None:
    head = request("GET", S3, "/a%20b/(1)%2B%C3%A9.txt?list-type=2&prefix=x/y&acl")
    sent, _ = signed(head)
    assert sent.target == "/a%20b/%281%29%2B%C3%A9.txt?list-type=2&prefix=x%2Fy&acl="
    assert field(sent, "x-amz-content-sha256") == EMPTY
    assert field(sent, "authorization") == authorization(
        PLAIN_NAMES, "ace1b7d06459a5e48e5738075ecddcda0d253ffa7124413054fc68dfdcd4c029", "eu-west-1/s3"
    )


def test_vector_of_an_unsigned_payload() -> None:
    head = request("PUT", S3, "/k", {"x-amz-content-sha256": "UNSIGNED-PAYLOAD"}, of_length(3))
    sent, _ = signed(head)
    assert field(sent, "x-amz-content-sha256") == "UNSIGNED-PAYLOAD"
    assert field(sent, "authorization") == authorization(
        PLAIN_NAMES, "fa6cb061226d85aafeebc7fa26160b8322ca040224ef984d169dae36c22bf861", "eu-west-1/s3"
    )


def test_vector_of_trailing_checksums() -> None:
    fields = {
        "content-encoding": "aws-chunked",
        "x-amz-decoded-content-length": "3",
        "x-amz-trailer": "x-amz-checksum-crc32",
        "X-Amz-Content-SHA256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
    }
    sent, _ = signed(request("PUT", S3, "/k", fields, CHUNKED))
    assert sent.framing == CHUNKED
    assert field(sent, "authorization") == authorization(
        "content-encoding;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-trailer",
        "fe818fb76250665a69e2fd78fcdbe68f3e4cd09789e82b90b724a3f92561f6f9",
        "eu-west-1/s3",
    )


def test_vector_of_a_form() -> None:
    body = b"Action=GetCallerIdentity&Version=2011-06-15"
    fields = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
    sent, _ = signed(request("POST", STS, "/", fields, of_length(len(body))), body)
    assert field(sent, "authorization") == authorization(
        "content-type;host;x-amz-content-sha256;x-amz-date",
        "cd564cade9ff02820faab1f4254403ad9da2d2b23c871c7cf4570f273c754dee",
        "us-east-1/sts",
    )


def test_the_signature_of_the_client_leaves_no_trace() -> None:
    fields = (
        (b"AUTHORIZATION", b"AWS4-HMAC-SHA256 Credential=openshell:resolve:env:v1_AWS_ACCESS_KEY_ID/x"),
        (b"authorization", b"Bearer x"),
        (b"X-AMZ-DATE", b"20200101T000000Z"),
        (b"X-Amz-Security-Token", b"stale"),
        (b"x-amz-security-token", b"stale"),
        (b"X-Amz-Content-Sha256", b"0" * 64),
        (b"x-amz-s3session-token", b"stale"),
        (b"Date", b"Thu, 01 Jan 2026 00:00:00 GMT"),
        (b"Authorization-Info", b"stays"),
        (b"X-Amz-Date-Of-Birth", b"stays"),
    )
    head = request("GET", S3, "/k", fields)
    stripped = strip(planned(head), head)
    assert stripped.fields == ((b"Authorization-Info", b"stays"), (b"X-Amz-Date-Of-Birth", b"stays"))
    sent, _ = signed(head)
    assert field(sent, "x-amz-security-token") is None
    assert field(sent, "x-amz-date") == "20260102T030405Z"
    assert field(sent, "x-amz-content-sha256") == EMPTY
    assert field(sent, "date") is None


def test_fields_that_a_hop_may_change_are_sent_and_not_signed() -> None:
    fields = {
        "User-Agent": "x", "Accept-Encoding": "gzip", "amz-sdk-invocation-id": "1", "amz-sdk-request": "attempt=1",
        "X-Amzn-Trace-Id": "Root=1", "Via": "1.1 egress", "TE": "trailers", "X-Amz-Meta-A": "1", "Cookie": "a=b",
        "X-Amz-User-Agent": "y",
    }  # fmt: skip
    sent, _ = signed(request("GET", S3, "/k", fields))
    assert sent.fields[: len(fields)] == tuple((key.encode(), value.encode()) for key, value in fields.items())
    names = "cookie;host;x-amz-content-sha256;x-amz-date;x-amz-meta-a;x-amz-user-agent"
    assert f"SignedHeaders={names}," in str(field(sent, "authorization"))


def test_values_are_folded_for_the_signature_and_sent_as_they_are() -> None:
    folded, _ = signed(request("GET", S3, "/k", ((b"X-Amz-Meta-A", b"a b"), (b"X-Amz-Meta-A", b"c"))))
    spaced, _ = signed(request("GET", S3, "/k", ((b"X-Amz-Meta-A", b"a   b"), (b"X-Amz-Meta-A", b"c"))))
    joined, _ = signed(request("GET", S3, "/k", ((b"X-Amz-Meta-A", b"a b,c"),)))
    assert spaced.fields[0] == (b"X-Amz-Meta-A", b"a   b")
    assert field(folded, "authorization") == field(spaced, "authorization") == field(joined, "authorization")


def test_a_field_that_is_no_text_cannot_be_signed() -> None:
    head = request("GET", S3, "/k", ((b"X-Amz-Meta-A", b"\xff"),))
    denial = sign(planned(head), head, None, KEYS, NOW)
    assert isinstance(denial, Denial)
    assert denial.code is DenialCode.MALFORMED_REQUEST


def test_the_port_is_signed_as_it_is_sent() -> None:
    plain, _ = signed(request("GET", "minio.test", "/k", port=443), service="s3", region="here")
    other, _ = signed(request("GET", "minio.test", "/k", port=9000), service="s3", region="here")
    local, _ = signed(request("GET", "minio.test", "/k", port=80, scheme=Scheme.HTTP), service="s3", region="here")
    assert field(plain, "authorization") == field(local, "authorization") != field(other, "authorization")


@pytest.mark.parametrize(
    ("wire", "sent"),
    [
        ("/a%20b%2Bc.txt", "/a%20b%2Bc.txt"),
        ("/%C3%BCn%C3%AF/%CF%80.bin", "/%C3%BCn%C3%AF/%CF%80.bin"),
        ("/x%2525.txt", "/x%2525.txt"),
        ("/(a)!*'$&,=:@~-._", "/%28a%29%21%2A%27%24%26%2C%3D%3A%40~-._"),
        ("/a%2Fb", "/a/b"),
        ("/a/", "/a/"),
        ("/%7e%41", "/~A"),
        ("/", "/"),
    ],
)
def test_an_object_key_is_encoded_once(wire: str, sent: str) -> None:
    assert signed(request("GET", S3, wire))[0].path == sent


@pytest.mark.parametrize("wire", ["/a//b", "//a", "/a/./b", "/a/../b", "/a;v=1/b", "/a%3Bb", "/a/.", "/./a"])
def test_a_key_that_the_canonical_path_does_not_hold_is_refused(wire: str) -> None:
    assert refusal(request("GET", S3, wire)).code is DenialCode.SIGV4_PATH_NOT_REPRESENTABLE


@pytest.mark.parametrize(
    ("wire", "path"),
    [("/a//b", "/a//b"), ("//a", "//a"), ("/a/../b", "/a/../b"), ("/a;v=1/b", "/a;v=1/b"), ("/a%2Bb", "/a+b")],
)
def test_opaque_keys_are_judged_and_sent_as_they_are(wire: str, path: str) -> None:
    head = request("GET", S3, wire)
    head = replace(head, path=opaque_path(head))
    assert head.path == path
    sent, _ = signed(head, object_keys="opaque")
    assert sent.path == wire.replace(";", "%3B").replace("=", "%3D")


@pytest.mark.parametrize("keys", ["canonical", "opaque"])
def test_a_bare_plus_in_a_key_is_refused_with_a_hint(keys: str) -> None:
    denial = refusal(request("GET", S3, "/a+b%28"), object_keys=keys)
    assert denial.code is DenialCode.SIGV4_PATH_NOT_REPRESENTABLE
    assert "%2B" in denial.hints[0]


def test_other_services_take_any_path() -> None:
    assert signed(request("GET", BEDROCK, "/a//b+c;d/%2F"))[0].path == "/a/b%2Bc/%2F"


@pytest.mark.parametrize(
    ("wire", "sent"),
    [
        ("a=1&b=2", "a=1&b=2"), ("b=2&a=1", "b=2&a=1"), ("flag", "flag="), ("a=x+y", "a=x%20y"),
        ("a=%2f%2F/", "a=%2F%2F%2F"), ("a=1&&b", "a=1&b="), ("a==", "a=%3D"), ("%61=%7e", "a=~"), ("a=%zz", "a=%25zz"),
        ("", None), ("&", None),
    ],
)  # fmt: skip
def test_the_query_is_sent_in_the_spelling_that_was_signed(wire: str, sent: str | None) -> None:
    assert signed(request("GET", S3, f"/k?{wire}"))[0].query == sent


def test_a_query_without_parameters_is_left_out() -> None:
    assert signed(request("GET", S3, "/k?"))[0].target == "/k"


def test_a_chunked_body_that_was_held_is_sent_with_its_length() -> None:
    sent, body = signed(request("PUT", S3, "/k", {"x-amz-content-sha256": "0" * 64}, CHUNKED), b"abc")
    assert sent.framing == of_length(3)
    assert body == b"abc"


def test_a_request_without_body_stays_one() -> None:
    assert signed(request("GET", S3, "/k"))[0].framing == NO_BODY
    assert signed(request("GET", S3, "/k"), b"")[0].framing == NO_BODY
    assert signed(request("POST", S3, "/k", framing=of_length(0)), b"")[0].framing == of_length(0)


@pytest.mark.parametrize(
    ("host", "more", "code"),
    [
        ("minio.internal", {}, DenialCode.SIGV4_SERVICE_MISSING),
        ("minio.internal", {"service": "s3"}, DenialCode.SIGV4_REGION_UNKNOWN),
        ("minio.internal", {"region": "us-east-1"}, DenialCode.SIGV4_SERVICE_MISSING),
        ("b.s3-accelerate.amazonaws.com", {}, DenialCode.SIGV4_REGION_UNKNOWN),
        ("x.foo-1.amazonaws.com", {"service": "s3"}, DenialCode.SIGV4_REGION_UNKNOWN),
        ("minio.internal", {"service": "s3", "region": "a/b"}, DenialCode.SIGV4_REGION_UNKNOWN),
        ("minio.internal", {"service": "s 3", "region": "a"}, DenialCode.SIGV4_SERVICE_MISSING),
        ("m.accesspoint.s3-global.amazonaws.com", {"service": "s3"}, DenialCode.SIGV4_UNSUPPORTED),
    ],
)
def test_nothing_is_guessed_for_a_host_that_tells_nothing(host: str, more: dict[str, str], code: DenialCode) -> None:
    assert refusal(request("GET", host, "/k"), **more).code is code


def test_where_the_region_came_from_is_known() -> None:
    assert planned(request("GET", S3, "/k")).derived_region
    assert not planned(request("GET", S3, "/k"), region="eu-west-1").derived_region


@pytest.mark.parametrize(
    "head",
    [
        request("POST", S3, "/", {"Content-Type": "Multipart/Form-Data; boundary=x"}, of_length(9)),
        request("GET", S3, "/k", {"Authorization": "AWS4-ECDSA-P256-SHA256 Credential=x"}),
        request("GET", S3, "/k", {"X-Amz-Region-Set": "*"}),
        request("GET", S3, "/k?X-Amz-Algorithm=AWS4-ECDSA-P256-SHA256&X-Amz-Credential=x&X-Amz-Signature=y"),
        replace(request("GET", BEDROCK, "/k?X-Amz-Credential=x&X-Amz-Signature=y"), upgrade="websocket"),
    ],
)
def test_what_cannot_be_signed_is_refused(head: RequestHead) -> None:
    assert refusal(head).code is DenialCode.SIGV4_UNSUPPORTED


def test_a_directory_bucket_is_signed_without_a_session() -> None:
    host = "b--use1-az4--x-s3.s3express-use1-az4.us-east-1.amazonaws.com"
    sent, _ = signed(request("GET", host, "/k", {"x-amz-s3session-token": "worthless"}))
    assert "/us-east-1/s3express/aws4_request" in str(field(sent, "authorization"))
    assert field(sent, "x-amz-s3session-token") is None


def test_equal_requests_have_equal_signatures_and_the_time_matters() -> None:
    head = request("GET", S3, "/k")
    plan = planned(head)
    first, again, later = (sign(plan, head, None, KEYS, now) for now in (NOW, NOW, NOW + 1))
    assert first == again
    assert first != later


def test_the_signers_are_told_to_keep_quiet() -> None:
    load()
    import logging

    assert not logging.getLogger("botocore.auth").isEnabledFor(logging.DEBUG)


def test_a_plan_needs_no_signer() -> None:
    assert not isinstance(plan_signing(request("GET", S3, "/k"), options()), Denial)
