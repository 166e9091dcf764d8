"""moto as an AWS that checks signatures: the first four calls make a user, from then on only right ones pass."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config

from egress.credentials.aws.keys import AwsKeys
from egress.model.secret import Secret
from tests.support.suites import free_port, wait_for_port

ALL = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}'


@dataclass(frozen=True)
class Cloud:
    """Where it listens, and the keys of its one user, who may do everything."""

    port: int
    keys: AwsKeys


@contextlib.contextmanager
def judging_cloud() -> Iterator[Cloud]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        env=os.environ | {"INITIAL_NO_AUTH_ACTION_COUNT": "4"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for_port(port)
        iam = client("iam", port, "any", "any")
        iam.create_user(UserName="proxy")
        made = iam.create_access_key(UserName="proxy")["AccessKey"]
        policy = iam.create_policy(PolicyName="all", PolicyDocument=ALL)["Policy"]["Arn"]
        iam.attach_user_policy(UserName="proxy", PolicyArn=policy)
        yield Cloud(port, AwsKeys(Secret(made["AccessKeyId"]), Secret(made["SecretAccessKey"])))
    finally:
        process.kill()
        process.wait()


def client(service: str, port: int, access: str, secret: str) -> Any:
    """A boto3 client that talks to the cloud directly."""
    return boto3.client(
        service, endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1", aws_access_key_id=access,
        aws_secret_access_key=secret, config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
    )  # fmt: skip
