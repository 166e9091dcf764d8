"""Requests as this proxy signs and writes them, judged by moto: it checks every signature after the first four calls.

Clients know worthless keys only.
"""

import socket
import zlib
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection, HTTPResponse
from time import time

import pytest

from egress.credentials.aws.keys import AwsKeys
from egress.credentials.aws.sign import opaque_path, plan_signing, sign, strip
from egress.http.serialize import request_bytes
from egress.http.target import read_target
from egress.model.address import Origin, Port, Scheme, parse_host
from egress.model.body import CHUNKED, NO_BODY, FramingKind, of_length
from egress.model.message import FieldLine, Malformed, RequestHead
from egress.model.secret import Secret
from egress.model.verdict import Denial
from egress.policy.compiled import CredentialOptions, Signing
from tests.support.moto_cloud import ALL, Cloud, client, judging_cloud


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with judging_cloud() as made:
        yield made


def send(
    cloud: Cloud,
    method: str,
    target: str,
    fields: dict[str, str] | None = None,
    body: bytes | None = None,
    *,
    service: str = "s3",
    mode: str = "sigv4",
    chunked: bool = False,
    keys: AwsKeys | None = None,
    object_keys: str = "canonical",
) -> tuple[int, bytes]:
    """What moto says to the request after the proxy's signer had it."""
    read = read_target(target.encode())
    assert not isinstance(read, Malformed)
    lines: tuple[FieldLine, ...] = tuple((key.encode(), value.encode()) for key, value in (fields or {}).items())
    framing = NO_BODY if body is None else CHUNKED if chunked else of_length(len(body))
    origin = Origin(Scheme.HTTP, parse_host("127.0.0.1"), Port(cloud.port))
    head = RequestHead(method, origin, read.path.text, read.query, lines, framing, raw_path=read.raw_path)
    if object_keys == "opaque":
        head = replace(head, path=opaque_path(head))
    signing = Signing(mode, service, "us-east-1", object_keys=object_keys)
    plan = plan_signing(head, CredentialOptions(signing=signing))
    assert not isinstance(plan, Denial), plan
    held = body if plan.hold is not None else None
    sent = sign(plan, strip(plan, head), held, keys or cloud.keys, time())
    assert not isinstance(sent, Denial), sent
    payload = body if held is None else sent[1]
    stream = plan.stream()
    if stream is not None and body is not None:
        parts = (stream.feed(body), stream.finish())
        payload = b"".join(part for part in parts if isinstance(part, bytes))
    rechunked = sent[0].framing.kind is FramingKind.CHUNKED
    return exchange(cloud.port, request_bytes(sent[0]), payload or b"", chunked=rechunked)


def exchange(port: int, head: bytes, body: bytes, *, chunked: bool) -> tuple[int, bytes]:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        wire = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body
        connection.sendall(head + wire)
        response = HTTPResponse(connection)
        response.begin()
        return response.status, response.read()


@pytest.fixture(scope="module")
def bucket(cloud: Cloud) -> str:
    assert send(cloud, "PUT", "/things")[0] == 200
    return "/things"


def stored(cloud: Cloud, key: str) -> bytes:
    """An object, asked for by a client with the real keys and by its own name for it."""
    s3 = client("s3", cloud.port, cloud.keys.access.reveal(), cloud.keys.secret.reveal())
    found: bytes = s3.get_object(Bucket="things", Key=key)["Body"].read()
    return found


def test_moto_judges(cloud: Cloud, bucket: str) -> None:
    wrong = AwsKeys(cloud.keys.access, Secret("wrong"))
    status, reply = send(cloud, "GET", f"{bucket}?list-type=2", keys=wrong)
    assert status == 403
    assert b"SignatureDoesNotMatch" in reply
    assert send(cloud, "GET", f"{bucket}?list-type=2")[0] == 200


def test_the_signature_of_a_client_with_worthless_keys_is_replaced(cloud: Cloud) -> None:
    body = b"Action=GetCallerIdentity&Version=2011-06-15"
    fields = {
        "Content-Type": "application/x-www-form-urlencoded; charset=utf-8",
        "Authorization": "AWS4-HMAC-SHA256 Credential=placeholder/20200101/us-east-1/sts/aws4_request, Signature=0",
        "X-Amz-Date": "20200101T000000Z",
        "X-Amz-Security-Token": "stale",
        "Date": "Wed, 01 Jan 2020 00:00:00 GMT",
    }
    status, reply = send(cloud, "POST", "/", fields, body, service="sts")
    assert status == 200
    assert b"user/proxy" in reply


@pytest.mark.parametrize(
    ("wire", "key"),
    [
        ("a%20b%2Bc.txt", "a b+c.txt"),
        ("%C3%BCn%C3%AF/%CF%80.bin", "ünï/π.bin"),
        ("(1)!*'$&,=:@~", "(1)!*'$&,=:@~"),
        ("x%2525.txt", "x%25.txt"),
    ],
)
def test_odd_object_keys(cloud: Cloud, bucket: str, wire: str, key: str) -> None:
    assert send(cloud, "PUT", f"{bucket}/{wire}", {}, b"content of " + wire.encode())[0] == 200
    assert stored(cloud, key) == b"content of " + wire.encode()
    assert send(cloud, "GET", f"{bucket}/{wire}") == (200, b"content of " + wire.encode())


def test_queries_in_any_spelling(cloud: Cloud, bucket: str) -> None:
    assert send(cloud, "PUT", f"{bucket}/q%20q/1", {}, b"x")[0] == 200
    for query in ("prefix=q+q%2f&list-type=2", "list-type=2&prefix=q%20q/&delimiter", "prefix=q%20q/&list-type=2&&"):
        status, reply = send(cloud, "GET", f"{bucket}?{query}")
        assert status == 200
        assert b"q q/1" in reply


def test_bodies_signed_unsigned_and_chunked(cloud: Cloud, bucket: str) -> None:
    for number, (mode, announced, chunked) in enumerate(
        [("sigv4", "0" * 64, False), ("sigv4", "0" * 64, True), ("sigv4", "UNSIGNED-PAYLOAD", False),
         ("sigv4:body", "UNSIGNED-PAYLOAD", False), ("sigv4:no_body", "0" * 64, False)]
    ):  # fmt: skip
        fields = {"X-Amz-Content-SHA256": announced, "X-Amz-Meta-Name": "a   b"}
        target = f"{bucket}/body{number}"
        assert send(cloud, "PUT", target, fields, b"payload", mode=mode, chunked=chunked)[0] == 200
        assert stored(cloud, f"body{number}") == b"payload"


CHECKSUM = b64encode(zlib.crc32(b"payload").to_bytes(4)).decode()
FRAMING = {"Content-Encoding": "aws-chunked", "X-Amz-Decoded-Content-Length": "7"}
TRAILING = {**FRAMING, "X-Amz-Trailer": "x-amz-checksum-crc32"}
SIGNED = b"7;chunk-signature=" + b"a" * 64 + b"\r\npayload\r\n0;chunk-signature=" + b"b" * 64 + b"\r\n"


def test_trailing_checksums_stream_as_they_are(cloud: Cloud, bucket: str) -> None:
    fields = {**TRAILING, "X-Amz-Content-SHA256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER"}
    body = f"7\r\npayload\r\n0\r\nx-amz-checksum-crc32:{CHECKSUM}\r\n\r\n".encode()
    assert send(cloud, "PUT", f"{bucket}/trailing", fields, body)[0] == 200
    assert stored(cloud, "trailing") == b"payload"


def test_signed_chunks_arrive_as_payload(cloud: Cloud, bucket: str) -> None:
    fields = {**FRAMING, "X-Amz-Content-SHA256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}
    assert send(cloud, "PUT", f"{bucket}/chunks", fields, SIGNED + b"\r\n", mode="sigv4:no_body")[0] == 200
    assert stored(cloud, "chunks") == b"payload"
    assert send(cloud, "PUT", f"{bucket}/chunks2", fields, SIGNED + b"\r\n", mode="sigv4:body")[0] == 200
    assert stored(cloud, "chunks2") == b"payload"


def test_signed_chunks_with_checksums_keep_them(cloud: Cloud, bucket: str) -> None:
    fields = {**TRAILING, "X-Amz-Content-SHA256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"}
    trailer = f"x-amz-checksum-crc32:{CHECKSUM}\r\nx-amz-trailer-signature:{'c' * 64}\r\n\r\n".encode()
    assert send(cloud, "PUT", f"{bucket}/rewrapped", fields, SIGNED + trailer, mode="sigv4:no_body")[0] == 200
    assert stored(cloud, "rewrapped") == b"payload"


def test_presigned_urls_of_boto3_with_worthless_keys(cloud: Cloud, bucket: str) -> None:
    assert send(cloud, "PUT", f"{bucket}/shared", {}, b"payload")[0] == 200
    for access in ("placeholder", "AKIAIOSFODNN7EXAMPLE"):
        s3 = client("s3", cloud.port, access, "worthless")
        url = s3.generate_presigned_url("get_object", Params={"Bucket": "things", "Key": "shared"})
        target = url.removeprefix(f"http://127.0.0.1:{cloud.port}")
        assert send(cloud, "GET", target) == (200, b"payload")


def test_opaque_keys(cloud: Cloud, bucket: str) -> None:
    assert send(cloud, "PUT", f"{bucket}/a//b;c", {}, b"opaque", object_keys="opaque")[0] == 200
    assert stored(cloud, "a//b;c") == b"opaque"


def test_temporary_keys(cloud: Cloud, bucket: str) -> None:
    sts = client("sts", cloud.port, cloud.keys.access.reveal(), cloud.keys.secret.reveal())
    iam = client("iam", cloud.port, cloud.keys.access.reveal(), cloud.keys.secret.reveal())
    role = iam.create_role(RoleName="reader", AssumeRolePolicyDocument=ALL)["Role"]["Arn"]
    iam.put_role_policy(RoleName="reader", PolicyName="all", PolicyDocument=ALL)
    made = sts.assume_role(RoleArn=role, RoleSessionName="test")["Credentials"]
    keys = AwsKeys(*(Secret(made[name]) for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")))
    assert send(cloud, "GET", f"{bucket}?list-type=2", keys=keys)[0] == 200


def test_a_client_that_signs_nothing_at_all(cloud: Cloud) -> None:
    connection = HTTPConnection("127.0.0.1", cloud.port, timeout=20)
    connection.request("GET", "/?Action=ListUsers&Version=2010-05-08")
    assert connection.getresponse().status >= 400
    status, reply = send(cloud, "GET", "/?Action=ListUsers&Version=2010-05-08", service="iam")
    assert (status, b"<UserName>proxy</UserName>" in reply) == (200, True)
