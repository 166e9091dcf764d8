"""The plugin against moto, which from its fifth call on checks every signature itself."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from egress_secrets_aws.plugin import egress_secret_sources

from egress.credentials.sources.registry import Sources, Surroundings
from egress.destination.resolver import NameResolver, ResolverSettings
from egress.destination.validate import DestinationSettings, OwnListeners
from egress.engine.carried import OriginStream
from egress.model.clock import SystemClock
from egress.own_calls import own_client
from egress.sdk.http import HttpClient, HttpReply
from egress.sdk.secrets import BadSpec, Fetched, SecretSource, SourceUnavailable
from egress.tls.profile import TlsProfile
from egress.upstream.chain import ChainDialer
from egress.upstream.client import OwnClient
from egress.upstream.dial import Dialer, DialTimes
from egress.upstream.health import Health

ALL = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}'
BLOB = {"token": "from json", "nested": {"deep": "value"}}


@dataclass(frozen=True)
class Cloud:
    url: str
    access: str
    secret: str
    arn: str


def client(service: str, url: str, access: str = "any", secret: str = "any") -> Any:
    return boto3.client(service, endpoint_url=url, region_name="eu-west-1", aws_access_key_id=access,
                        aws_secret_access_key=secret, config=Config(retries={"total_max_attempts": 1}))  # fmt: skip


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        env=os.environ | {"INITIAL_NO_AUTH_ACTION_COUNT": "4"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait(port)
        url = f"http://127.0.0.1:{port}"
        iam = client("iam", url)
        iam.create_user(UserName="proxy")
        made = iam.create_access_key(UserName="proxy")["AccessKey"]
        policy = iam.create_policy(PolicyName="all", PolicyDocument=ALL)["Policy"]["Arn"]
        iam.attach_user_policy(UserName="proxy", PolicyArn=policy)
        keys = (made["AccessKeyId"], made["SecretAccessKey"])
        manager = client("secretsmanager", url, *keys)
        arn = manager.create_secret(Name="desk/token", SecretString="plain-1")["ARN"]
        manager.put_secret_value(SecretId="desk/token", SecretString="plain-2")
        manager.create_secret(Name="desk/json", SecretString=json.dumps(BLOB))
        manager.create_secret(Name="desk/text", SecretBinary=b"binary text")
        manager.create_secret(Name="desk/binary", SecretBinary=b"\xff\xfe")
        yield Cloud(url, *keys, arn)
    finally:
        process.kill()
        process.wait()


def _wait(port: int) -> None:
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError


class Reach:
    names = NameResolver(ResolverSettings())
    destinations = DestinationSettings()

    def own_listeners(self) -> OwnListeners:
        return frozenset()


def http() -> OwnClient:
    loop = asyncio.get_running_loop()
    dialer = ChainDialer(Dialer(lambda: OriginStream(loop), DialTimes()), Health(loop.time, lambda *_: None), loop)
    profile = TlsProfile()
    return own_client(Reach, dialer, lambda: profile)


@pytest.fixture
def signed_in(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """The user's keys where the AWS tools look for them."""
    file = tmp_path / "aws"
    file.write_text(f"[work]\naws_access_key_id={cloud.access}\naws_secret_access_key={cloud.secret}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return cloud


def make(
    base: Path,
    fields: Mapping[str, object],
    environment: Mapping[str, str] | None = None,
    own: HttpClient | None = None,
) -> SecretSource:
    around = Surroundings(own or http(), SystemClock(), base / "state", environment or {})
    return Sources(around, base, dict(egress_secret_sources())).make("aws_secrets_manager", fields)


def fields(cloud: Cloud, secret: str, **more: object) -> dict[str, object]:
    return {"secret_id": secret, "region": "eu-west-1", "profile": "work", "endpoint_url": cloud.url, **more}


def values(fetched: Fetched) -> dict[str, str]:
    return {key: secret.reveal() for key, secret in fetched.values.items()}


async def refusal(source: SecretSource) -> str:
    with pytest.raises(SourceUnavailable) as caught:
        await source.fetch()
    assert caught.value.__cause__ is None
    return caught.value.kind


async def test_a_secret_and_its_stages(signed_in: Cloud, tmp_path: Path) -> None:
    assert values(await make(tmp_path, fields(signed_in, "desk/token")).fetch()) == {"": "plain-2"}
    previous = fields(signed_in, "desk/token", version_stage="AWSPREVIOUS")
    assert values(await make(tmp_path, previous).fetch()) == {"": "plain-1"}


async def test_the_region_of_an_arn(signed_in: Cloud, tmp_path: Path) -> None:
    given = fields(signed_in, signed_in.arn)
    del given["region"]
    assert values(await make(tmp_path, given).fetch()) == {"": "plain-2"}


async def test_json(signed_in: Cloud, tmp_path: Path) -> None:
    found = await make(tmp_path, fields(signed_in, "desk/json")).fetch()
    assert values(found) == {"": json.dumps(BLOB), "token": "from json"}
    assert found.document is not None
    assert json.loads(found.document.reveal()) == BLOB


async def test_binary(signed_in: Cloud, tmp_path: Path) -> None:
    assert values(await make(tmp_path, fields(signed_in, "desk/text")).fetch()) == {"": "binary text"}
    assert await refusal(make(tmp_path, fields(signed_in, "desk/binary"))) == "not_text"


async def test_what_is_not_there(signed_in: Cloud, tmp_path: Path) -> None:
    assert await refusal(make(tmp_path, fields(signed_in, "desk/none"))) == "not_found"
    assert await refusal(make(tmp_path, fields(signed_in, "desk/token", profile="other"))) == "ProfileNotFound"
    nobody = fields(signed_in, "desk/token", endpoint_url="http://127.0.0.1:1")
    assert await refusal(make(tmp_path, nobody)) == "unreachable"


async def test_keys_that_are_wrong(signed_in: Cloud, tmp_path: Path) -> None:
    file = Path(os.environ["AWS_SHARED_CREDENTIALS_FILE"])
    file.write_text(file.read_text().replace(signed_in.secret, "x" * 40))
    assert await refusal(make(tmp_path, fields(signed_in, "desk/token"))) in ("denied", "http_403")


class Answering:
    def __init__(self, status: int, body: bytes) -> None:
        self.reply = HttpReply(status, (), body)

    async def request(self, method: str, url: str, **more: Any) -> HttpReply:
        return self.reply


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, b'{"__type": "com.amazonaws.secretsmanager#AccessDeniedException", "Message": "canary"}', "denied"),
        (400, b'{"__type": "ThrottlingException"}', "throttled"),
        (500, b"canary", "http_500"),
        (400, b'{"__type": "Canary"}', "http_400"),
        (200, b"canary", "malformed_reply"),
        (200, b"{}", "not_text"),
        (200, b'{"SecretBinary": "&&&"}', "not_text"),
    ],
)
async def test_replies_that_give_nothing(signed_in: Cloud, tmp_path: Path, status: int, body: bytes, kind: str) -> None:
    own: Any = Answering(status, body)
    assert await refusal(make(tmp_path, fields(signed_in, "desk/token"), own=own)) == kind


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({}, ("secret_id",)),
        ({"secret_id": "a"}, ("region",)),
        ({"secret_id": "a", "region": "nowhere"}, ("region",)),
        ({"secret_id": "a", "region": "eu-west-1", "endpoint_url": "http://corp.test"}, ("endpoint_url",)),
        ({"secret_id": "a", "region": "eu-west-1", "role_arn": "reader"}, ("role_arn",)),
        ({"secret_id": "a", "region": "eu-west-1", "canary": "b"}, ("canary",)),
    ],
)
async def test_specifications_that_cannot_be(tmp_path: Path, given: dict[str, object], path: tuple[str, ...]) -> None:
    with pytest.raises(BadSpec) as caught:
        make(tmp_path, given)
    assert caught.value.path == path


async def test_the_region_of_the_environment(tmp_path: Path) -> None:
    make(tmp_path, {"secret_id": "a"}, {"AWS_REGION": "eu-west-1"})
