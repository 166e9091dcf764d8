"""boto3 and the AWS command line with worthless keys, signed again by the proxy, judged by moto."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]

from egress.credentials.aws.keys import AwsKeys
from egress.model.secret import Secret
from tests.support.authorities import OriginAuthority
from tests.support.moto_cloud import ALL, Cloud, client, judging_cloud
from tests.support.origins import Conversation, OriginLoop, RawOrigin
from tests.support.proxy import LANES, EgressProcess, policy_text, rest
from tests.support.raw import eventually
from tests.support.workload import Workload

S3 = "s3.us-east-1.amazonaws.com"
BUCKET_HOST = f"things.{S3}"
STS = "sts.us-east-1.amazonaws.com"
GUEST = "sts.eu-west-1.amazonaws.com"
BEDROCK = "bedrock-runtime.us-east-1.amazonaws.com"
HOSTS = {S3: "s3", BUCKET_HOST: "s3", STS: "sts", GUEST: "sts", BEDROCK: "bedrock"}
"""`GUEST` is for another identity, a role with temporary keys."""

DUMMIES = {
    "AWS_ACCESS_KEY_ID": "AKIADUMMYDUMMYDUMMY1", "AWS_SECRET_ACCESS_KEY": "dummy", "AWS_SESSION_TOKEN": "worthless",
}  # fmt: skip
AWS = str(Path(sys.executable).with_name("aws"))
ODD = "ünï/a b+c (1)!*'$&,=:@~#?%25"
MODELS = (
    "anthropic.claude-3-sonnet-20240229-v1:0",
    "arn:aws:bedrock:us-east-1:111122223333:inference-profile/us.meta.llama3:0",
)

OBJECTS = """
import boto3, io, json, sys
from boto3.s3.transfer import TransferConfig
from botocore.config import Config  # type: ignore[import-untyped]
odd, style, *hashes = sys.argv[1:]
s3 = boto3.client("s3", config=Config(s3={"addressing_style": style}, retries={"total_max_attempts": 1}))
told = {}
s3.put_object(Bucket="things", Key=odd, Body=b"odd", Metadata={"kind": "a  b"})
told["odd"] = s3.get_object(Bucket="things", Key=odd)["Body"].read().decode()
told["range"] = s3.get_object(Bucket="things", Key=odd, Range="bytes=1-2")["Body"].read().decode()
with open("large.bin", "rb") as large:
    s3.put_object(Bucket="things", Key="streamed", Body=large)

class Pipe(io.RawIOBase):
    "Cannot be read twice."
    def __init__(self, inner): self.inner = inner
    def readable(self): return True
    def readinto(self, room):
        data = self.inner.read(len(room)); room[:len(data)] = data; return len(data)

parts = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20, max_concurrency=2)
with open("large.bin", "rb") as large:
    s3.upload_fileobj(Pipe(large), "things", "parts/" + odd, Config=parts)
s3.download_file("things", "parts/" + odd, "returned.bin", Config=parts)
told["parts"] = s3.head_object(Bucket="things", Key="parts/" + odd)["ETag"].strip('"').rpartition("-")[2]
told["same"] = open("returned.bin", "rb").read() == open("large.bin", "rb").read()
s3.copy_object(Bucket="things", Key="copy of " + odd, CopySource={"Bucket": "things", "Key": odd})
told["listed"] = [one["Key"] for one in s3.list_objects_v2(Bucket="things", Delimiter="|")["Contents"]]
s3.delete_objects(Bucket="things", Delete={"Objects": [{"Key": "copy of " + odd}]})
s3.delete_object(Bucket="things", Key=odd)
told["left"] = [one["Key"] for page in s3.get_paginator("list_objects_v2").paginate(
    Bucket="things", PaginationConfig={"PageSize": 1}) for one in page.get("Contents", ())]
print(json.dumps(told))
"""

CALLS = """
import boto3, json, sys
told = [boto3.client("sts").get_caller_identity()["Arn"]]
runtime = boto3.client("bedrock-runtime")
for model in sys.argv[1:]:
    reply = runtime.invoke_model(modelId=model, body=json.dumps({"prompt": "hello"}))
    told.append([reply["ResponseMetadata"]["HTTPStatusCode"], bool(reply["body"].read())])
print(json.dumps(told))
"""

ASSUME = """
import boto3  # type: ignore[import-untyped]
boto3.client("sts").assume_role(RoleArn="arn:aws:iam::123456789012:role/reader", RoleSessionName="me")
"""


@dataclass
class Site:
    proxy: EgressProcess
    workload: Workload
    front: RawOrigin
    cloud: Cloud

    def run(
        self, keys: Mapping[str, str], *command: str, feed: bytes | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """A client that takes `keys` for its own."""
        return self.workload.run(*command, feed=feed, **keys)

    def stored(self, key: str) -> bytes:
        """An object, asked for without the proxy, with the real keys."""
        found: bytes = self.direct().get_object(Bucket="things", Key=key)["Body"].read()
        return found

    def fresh_bucket(self) -> None:
        direct = self.direct()
        for one in direct.list_objects_v2(Bucket="things").get("Contents", ()):
            direct.delete_object(Bucket="things", Key=one["Key"])
        self.front.take()

    def direct(self) -> Any:
        return client("s3", self.cloud.port, *two(self.cloud.keys))


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with judging_cloud() as made:
        client("s3", made.port, *two(made.keys)).create_bucket(Bucket="things")
        yield made


@pytest.fixture(scope="module")
def guest(cloud: Cloud) -> AwsKeys:
    """Temporary keys of a role."""
    iam, sts = (client(name, cloud.port, *two(cloud.keys)) for name in ("iam", "sts"))
    role = iam.create_role(RoleName="guest", AssumeRolePolicyDocument=ALL)["Role"]["Arn"]
    iam.put_role_policy(RoleName="guest", PolicyName="all", PolicyDocument=ALL)
    made = sts.assume_role(RoleArn=role, RoleSessionName="visit")["Credentials"]
    return AwsKeys(*(Secret(made[name]) for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")))


def two(keys: AwsKeys) -> tuple[str, str]:
    return keys.access.reveal(), keys.secret.reveal()


def variables(name: str, keys: AwsKeys) -> dict[str, str]:
    """The proxy's environment for an identity: `LAKE_AWS_SECRET_ACCESS_KEY` and so on."""
    token = {} if keys.token is None else {"AWS_SESSION_TOKEN": keys.token}
    held = {"AWS_ACCESS_KEY_ID": keys.access, "AWS_SECRET_ACCESS_KEY": keys.secret, **token}
    return {f"{name.upper()}_{key}": secret.reveal() for key, secret in held.items()}


def aws_provider(name: str, keys: AwsKeys) -> dict[str, Any]:
    values = {variable.partition("_")[2]: {"env": variable} for variable in variables(name, keys)}
    return {"name": name, "profile": "aws", "values": values}


@pytest.fixture(scope="module", params=LANES)
def site(
    request: pytest.FixtureRequest, origin_loop: OriginLoop, authority: OriginAuthority, cloud: Cloud, guest: AwsKeys,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:  # fmt: skip
    """moto behind TLS that proves to be AWS; nothing of the real keys in the workload's environment."""

    async def forward(talk: Conversation) -> None:
        await talk.splice("127.0.0.1", cloud.port)

    front = RawOrigin(origin_loop, authority.server_context(*HOSTS))
    front.script = forward
    endpoints = [
        rest(
            host, front.port, credential_signing="sigv4", signing_service=service, allow_encoded_slash=True,
            credential_binding={"provider": "guest" if host == GUEST else "lake"},
        )
        for host, service in HOSTS.items()
    ]  # fmt: skip
    identities = {"lake": cloud.keys, "guest": guest}
    with EgressProcess(
        policy_text(*endpoints),
        aliases=dict.fromkeys(HOSTS, "127.0.0.1"), trust=authority.ca_file, settings=LANES[request.param],
        providers={"version": 1, "providers": [aws_provider(*one) for one in identities.items()]},
        environment={name: text for one, held in identities.items() for name, text in variables(one, held).items()},
    ) as proxy:  # fmt: skip
        workload = Workload(proxy, tmp_path_factory.mktemp("work"))
        workload.environment |= {
            "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", "AWS_MAX_ATTEMPTS": "1",
            **{
                f"AWS_ENDPOINT_URL_{name}": f"https://{host}:{front.port}"
                for name, host in (("S3", S3), ("STS", STS), ("BEDROCK_RUNTIME", BEDROCK))
            },
        }  # fmt: skip
        (workload.directory / "large.bin").write_bytes(os.urandom((9 << 20) + 7))
        yield Site(proxy, workload, front, cloud)
    front.stop()


@pytest.fixture(params=["placeholders", "dummies"])
def keys(request: pytest.FixtureRequest, site: Site) -> dict[str, str]:
    """What the client takes for its keys."""
    return DUMMIES if request.param == "dummies" else placeholders(site)


def placeholders(site: Site) -> dict[str, str]:
    done = site.proxy.command("env", "--format", "json", "--ready-file", str(site.proxy.ready_file))
    assert done.returncode == 0, done.stderr
    return {key: value for key, value in json.loads(done.stdout).items() if key.startswith("AWS_") and "KEY" in key}


def test_boto3_keeps_objects(site: Site, keys: dict[str, str]) -> None:
    """With the bucket in the path, and in the host."""
    site.fresh_bucket()
    style = "path" if keys is DUMMIES else "virtual"
    done = site.run(keys, sys.executable, "-c", OBJECTS, ODD, style)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "odd": "odd", "range": "dd", "parts": "2", "same": True, "left": [f"parts/{ODD}", "streamed"],
        "listed": sorted([f"copy of {ODD}", f"parts/{ODD}", "streamed", ODD], key=str.encode),
    }  # fmt: skip
    large = (site.workload.directory / "large.bin").read_bytes()
    assert site.stored("streamed") == large
    assert site.stored(f"parts/{ODD}") == large
    sent = site.front.take()
    assert sent.count(b"Credential=" + site.cloud.keys.access.reveal().encode()) >= 12
    assert keys["AWS_ACCESS_KEY_ID"].encode() not in sent
    assert b"worthless" not in sent
    assert (b"Host: " + BUCKET_HOST.encode() in sent) is (style == "virtual")
    assert b"X-Amz-Content-SHA256: STREAMING-UNSIGNED-PAYLOAD-TRAILER" in sent


def test_sts_and_bedrock_through_boto3(site: Site, keys: dict[str, str]) -> None:
    """A model id has a colon in it, an inference profile a slash."""
    done = site.run(keys, sys.executable, "-c", CALLS, *MODELS)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["arn:aws:iam::123456789012:user/proxy", [200, True], [200, True]]
    assert b"%3Ainference-profile%2Fus.meta.llama3%3A0/invoke HTTP/1.1" in site.front.take()


def test_the_command_line(site: Site) -> None:
    """A file in parts, a stream of unknown length, a listing, who am I."""
    keys = placeholders(site)
    site.fresh_bucket()
    large = (site.workload.directory / "large.bin").read_bytes()

    def aws(*words: str, feed: bytes | None = None) -> str:
        done = site.run(keys, AWS, *words, feed=feed)
        assert done.returncode == 0, done.stderr
        return done.stdout

    aws("s3", "cp", "--only-show-errors", "large.bin", f"s3://things/{ODD}")
    aws("s3", "cp", "--only-show-errors", "-", "s3://things/piped", feed=large[:1_000_000])
    assert site.stored(ODD) == large
    assert site.stored("piped") == large[:1_000_000]
    assert [line.split()[2:] for line in aws("s3", "ls", "s3://things/").splitlines() if "piped" in line] == [
        ["1000000", "piped"]
    ]
    aws("s3", "cp", "--only-show-errors", f"s3://things/{ODD}", "again.bin")
    assert (site.workload.directory / "again.bin").read_bytes() == large
    assert json.loads(aws("sts", "get-caller-identity"))["Arn"] == "arn:aws:iam::123456789012:user/proxy"


def test_identities_by_host_for_a_client_that_signs_nothing(site: Site) -> None:
    who = {}
    for host in (STS, GUEST):
        words = [
            "curl",
            "-sS",
            "-d",
            "Action=GetCallerIdentity&Version=2011-06-15",
            f"https://{host}:{site.front.port}/",
        ]
        who[host] = site.run({}, *words).stdout.partition("<Arn>")[2].partition("</Arn>")[0]
    account = "123456789012"
    assert who == {
        STS: f"arn:aws:iam::{account}:user/proxy", GUEST: f"arn:aws:sts::{account}:assumed-role/guest/visit",
    }  # fmt: skip


@pytest.mark.parametrize("version", ["s3v4", "s3"])
def test_a_presigned_url_of_worthless_keys(site: Site, version: str) -> None:
    site.direct().put_object(Bucket="things", Key=ODD, Body=b"shared")
    site.front.take()
    signer = boto3.client(
        "s3", endpoint_url=f"https://{S3}:{site.front.port}", region_name="us-east-1", aws_access_key_id="AKIADUMMY",
        aws_secret_access_key="dummy", config=Config(s3={"addressing_style": "path"}, signature_version=version),
    )  # fmt: skip
    url = signer.generate_presigned_url("get_object", Params={"Bucket": "things", "Key": ODD})
    assert "AKIADUMMY" in url
    assert site.run({}, "curl", "-sS", url).stdout == "shared"
    assert b"AKIADUMMY" not in site.front.take()


def test_moto_refuses_these_keys_when_nobody_signs_again(site: Site) -> None:
    direct = {"AWS_ENDPOINT_URL_STS": f"http://127.0.0.1:{site.cloud.port}"}
    done = site.run(DUMMIES | direct, sys.executable, "-c", CALLS)
    assert done.returncode != 0
    assert "InvalidClientTokenId" in done.stderr


def test_fresh_keys_are_refused(site: Site) -> None:
    """They would come back unmasked; STS never hears of it."""
    site.front.take()
    before = len(site.proxy.events())
    for command in ([sys.executable, "-c", ASSUME], [AWS, "sts", "get-session-token"]):
        done = site.run(DUMMIES, *command)
        assert done.returncode != 0
        assert "credential_minting_denied" in done.stderr
    assert b"Action=" not in site.front.take()

    def told() -> bool:
        new = [json.dumps(event) for event in site.proxy.events()[before:]]
        return sum("credential_minting_denied" in text for text in new) == 2

    assert eventually(told)
