"""Requests that ask for fresh credentials."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.credentials.aws.minting import LOOK_BYTES, FormWatch, mint_hold, minting
from egress.model.body import CHUNKED, NO_BODY, of_length
from egress.model.message import RequestHead
from egress.model.verdict import Denial, DenialCode
from tests.unit.credentials.aws.samples import S3, STS, request

FORM = "application/x-www-form-urlencoded"
HOST = "login.example.test"


def post(body: bytes, kind: str = FORM, *, host: str = HOST, target: str = "/", **fields: str) -> RequestHead:
    more = {name.replace("_", "-"): value for name, value in fields.items()}
    return request("POST", host, target, {"Content-Type": kind, **more}, of_length(len(body)))


def refused(head: RequestHead, body: bytes | None = None, service: str = "") -> bool:
    denial = minting(head, body, service)
    assert denial is None or denial.code is DenialCode.CREDENTIAL_MINTING_DENIED
    return denial is not None


@pytest.mark.parametrize(
    "body",
    [
        b"grant_type=client_credentials", b"a=b&grant_type=refresh_token", b"grant_type", b"%67rant%5Ftype=x",
        b"a=1&GRANT_TYPE=x", b"a&+grant_type=x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [FORM, FORM + "; charset=utf-8", FORM.upper()])
def test_token_requests_are_refused(body: bytes, kind: str) -> None:
    head = post(body, kind)
    assert mint_hold(head) == LOOK_BYTES
    denial = minting(head, body)
    assert denial is not None
    assert denial.code is DenialCode.CREDENTIAL_MINTING_DENIED
    assert "oauth2" in denial.reason


@pytest.mark.parametrize("body", [b"", b"a=grant_type", b"grant_types=x", b"a=b&c=%26grant_type=1"])
def test_other_forms_are_not(body: bytes) -> None:
    assert not refused(post(body), body)


def test_only_forms_by_post_are_token_requests() -> None:
    body = b"grant_type=x"
    assert not refused(post(body, "application/json"), body)
    assert not refused(request("PUT", HOST, "/", {"content-type": FORM}, of_length(9)), body)
    assert mint_hold(post(body, "application/json")) is None
    assert mint_hold(request("PUT", HOST, "/", {"content-type": FORM}, of_length(9))) is None
    assert refused(post(b"", "text/plain", target="/token?grant_type=x"))
    assert not refused(request("GET", HOST, "/token?grant_type=x"))


def test_long_forms_are_not_held() -> None:
    assert mint_hold(request("POST", HOST, "/", {"content-type": FORM}, of_length(LOOK_BYTES))) == LOOK_BYTES
    assert mint_hold(request("POST", HOST, "/", {"content-type": FORM}, of_length(LOOK_BYTES + 1))) is None
    assert mint_hold(request("POST", HOST, "/", {"content-type": FORM}, CHUNKED)) is None
    assert mint_hold(request("POST", HOST, "/", {"content-type": FORM}, NO_BODY)) is None


@given(
    before=st.lists(st.sampled_from([b"a=1", b"b", b"", b"c=grant_type", b"x" * 90 + b"=1", b"=y"]), max_size=4),
    name=st.sampled_from([b"grant_type", b"%67%72%61%6e%74%5f%74%79%70%65", b"+grant_type"]),
    cuts=st.lists(st.integers(0, 400), max_size=8),
)
def test_a_watch_stops_a_long_form_at_the_name(before: list[bytes], name: bytes, cuts: list[int]) -> None:
    wire = b"&".join([*before, name + b"=client_credentials&scope=x"])
    watch, start, passed = FormWatch(), 0, b""
    for end in [*sorted(cut % (len(wire) + 1) for cut in cuts), len(wire)]:
        step = watch.feed(wire[start:end])
        if isinstance(step, Denial):
            assert b"client_credentials" not in passed
            return
        passed, start = passed + step, end
    pytest.fail("a token request passed")


@given(form=st.lists(st.sampled_from([b"a=1", b"grant_types=1", b"c=grant_type", b"x" * 90]), max_size=5),
       size=st.integers(1, 40))  # fmt: skip
def test_a_watch_lets_other_forms_pass(form: list[bytes], size: int) -> None:
    wire, watch = b"&".join(form), FormWatch()
    for start in range(0, len(wire), size):
        assert watch.feed(wire[start : start + size]) == wire[start : start + size]


def test_a_watch_reads_byte_by_byte() -> None:
    watch = FormWatch()
    steps = [watch.feed(bytes([byte])) for byte in b"ab=1&&grant_type="]
    assert [isinstance(step, Denial) for step in steps] == [False] * (len(steps) - 1) + [True]


def test_a_watch_is_for_plain_forms() -> None:
    assert FormWatch.of(post(b"a=1")) is not None
    assert FormWatch.of(post(b"a=1", "text/plain")) is None
    assert FormWatch.of(post(b"a=1", Content_Encoding="gzip")) is None


@pytest.mark.parametrize(
    "action",
    ["AssumeRole", "AssumeRoleWithSAML", "AssumeRoleWithWebIdentity", "AssumeRoot", "GetSessionToken",
     "GetFederationToken", "assumerole", "Assume%52ole"],
)  # fmt: skip
def test_sts_calls_for_credentials_are_refused(action: str) -> None:
    body = f"Version=2011-06-15&Action={action}&RoleArn=x".encode()
    assert mint_hold(post(body, host=STS), "sts") == LOOK_BYTES
    assert refused(post(body, host=STS), body, "sts")
    assert refused(post(body, "text/plain", host=STS), body, "sts")
    assert refused(request("GET", STS, f"/?Action={action}"), None, "sts")
    assert not refused(post(body, host=STS), body, "s3")


def test_the_refusal_names_the_way() -> None:
    denial = minting(request("GET", STS, "/?Action=GetSessionToken"), None, "sts")
    assert denial is not None
    assert "aws_session" in denial.reason


def test_other_calls_pass() -> None:
    body = b"Action=GetCallerIdentity&Note=Action%3DAssumeRole"
    assert not refused(post(body, host=STS), body, "sts")
    assert not refused(request("GET", S3, "/k?sessions&a=session"), None, "s3")
    assert not refused(request("PUT", S3, "/k?session"), None, "s3")
    assert not refused(post(b"{}", "application/x-amz-json-1.1", X_Amz_Target="X_1.ListImages"), b"{}", "ecr")


def test_a_form_that_cannot_be_read_may_ask_for_anything() -> None:
    assert refused(post(b"\x1f\x8b", host=STS, Content_Encoding="gzip"), b"\x1f\x8b", "sts")


@pytest.mark.parametrize(
    ("service", "target"),
    [
        ("ecr", "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"),
        ("ecr-public", "SpencerFrontendService.GetAuthorizationToken"),
        ("cognito-identity", "AWSCognitoIdentityService.GetCredentialsForIdentity"),
        ("redshift-serverless", "RedshiftServerless.GetCredentials"),
    ],
)
def test_calls_by_target_are_refused(service: str, target: str) -> None:
    assert refused(post(b"{}", "application/x-amz-json-1.1", X_Amz_Target=target), None, service)
    operation = target.rpartition(".")[2]
    assert refused(post(b"", "application/cbor", target=f"/service/X/operation/{operation}"), None, service)


@pytest.mark.parametrize(
    ("service", "method", "target"),
    [
        ("s3", "GET", "/?session"),
        ("s3", "GET", "/bucket?a&%73ession=1"),
        ("s3express", "GET", "/?session"),
        ("s3", "GET", "/v20180820/accessgrantsinstance/dataaccess?target=x"),
        ("awsssoportal", "GET", "/federation/credentials?role_name=x"),
        ("awsssoportal", "GET", "/federation/credentials/"),
        ("codeartifact", "POST", "/v1/authorization-token"),
        ("eks-auth", "POST", "/clusters/c/assume-role-for-pod-identity"),
        ("iam", "POST", "/?Action=CreateAccessKey"),
        ("redshift", "GET", "/?Action=GetClusterCredentials&DbUser=x"),
    ],
)
def test_calls_by_path_or_query_are_refused(service: str, method: str, target: str) -> None:
    assert refused(request(method, S3, target), None, service)
