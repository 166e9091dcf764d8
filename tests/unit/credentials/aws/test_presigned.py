"""Signatures in the query."""

import pytest

from egress.credentials.aws.payload import PayloadMode
from egress.credentials.aws.presigned import Presigned
from egress.credentials.aws.sign import sign, strip
from egress.model.body import of_length
from egress.model.verdict import DenialCode
from tests.unit.credentials.aws.samples import BEDROCK, KEYS, NOW, S3, field, planned, refusal, request, signed

AUTH = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={}%2F20260102%2Feu-west-1%2Fs3%2Faws4_request" \
    "&X-Amz-Date=20260102T030405Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Security-Token=t" \
    "&X-Amz-Signature=00"  # fmt: skip
LIVE = "AKIA" + "Q3M7WXYZ2345ABCD"
PLACEHOLDER = "openshell%3Aresolve%3Aenv%3Av1_AWS_ACCESS_KEY_ID"


@pytest.mark.parametrize(
    "key", [PLACEHOLDER, "placeholder", "dummy", "AKIAIOSFODNN7EXAMPLE", "AKIDEXAMPLE", "akia" + "q" * 16, ""]
)
def test_the_own_signature_is_replaced(key: str) -> None:
    head = request("GET", S3, f"/k?a=1&{AUTH.format(key)}&versionId=2")
    assert planned(head).presigned is Presigned.OWN
    assert strip(planned(head), head).query == "a=1&versionId=2"
    sent, _ = signed(head)
    assert sent.query == "a=1&versionId=2"
    assert field(sent, "authorization") is not None


@pytest.mark.parametrize("key", [LIVE, "ASIA" + "Q3M7WXYZ2345ABCD"])
def test_other_peoples_signatures_pass_untouched(key: str) -> None:
    head = request("GET", S3, f"/k+1?{AUTH.format(key)}", {"x-amz-date": "theirs"})
    plan = planned(head)
    assert plan.passes
    assert plan.hold is None
    assert strip(plan, head) == head
    assert sign(plan, head, b"x", KEYS, NOW) == (head, b"x")


def test_the_endpoint_can_let_all_pass_or_none() -> None:
    own, foreign = (request("GET", S3, f"/k?{AUTH.format(key)}") for key in ("dummy", LIVE))
    assert planned(own, presigned="passthrough").passes
    assert refusal(own, presigned="reject").code is DenialCode.SIGV4_UNSUPPORTED
    assert refusal(foreign, presigned="reject").code is DenialCode.SIGV4_UNSUPPORTED
    assert planned(request("GET", S3, "/k?a=1"), presigned="reject").presigned is Presigned.NO


def test_the_old_signature_is_replaced_too() -> None:
    head = request("GET", S3, "/k?AWSAccessKeyId=dummy&Signature=x%3D&Expires=1&versionId=2")
    assert signed(head)[0].query == "versionId=2"
    assert planned(request("GET", S3, f"/k?AWSAccessKeyId={LIVE}&Signature=x&Expires=1")).passes


@pytest.mark.parametrize("query", ["Expires=1&Signature=x", "AWSAccessKeyId=x", "x=X-Amz-Signature", "Signature"])
def test_parameters_of_other_meaning_stay(query: str) -> None:
    head = request("GET", S3, f"/k?{query}")
    assert planned(head).presigned is Presigned.NO
    assert strip(planned(head), head).query == query


@pytest.mark.parametrize("name", ["X-Amz-Signature", "x-amz-signature", "X-Amz-%53ignature", "X-Amz-Credential"])
def test_a_part_of_a_signature_is_one(name: str) -> None:
    head = request("GET", S3, f"/k?{name}=x")
    assert signed(head)[0].query is None


def test_what_a_presigned_url_uploads_streams_to_object_services_only() -> None:
    upload = request("PUT", S3, f"/k?{AUTH.format('dummy')}", {}, of_length(3))
    assert planned(upload).payload.mode is PayloadMode.UNSIGNED
    other = request("PUT", BEDROCK, f"/k?{AUTH.format('dummy')}", {}, of_length(3))
    assert planned(other).payload.mode is PayloadMode.BODY
