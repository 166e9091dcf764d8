"""The `aws_session` source over the configuration files of the AWS tools, and a role from an AWS that checks."""

import asyncio
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from egress.credentials.aws.session import aws_session
from egress.model.clock import SystemClock
from egress.sdk.http import HttpReply
from egress.sdk.secrets import SecretSource, SourceContext, SourceUnavailable
from tests.support.moto_cloud import ALL, Cloud, client, judging_cloud
from tests.unit.credentials.aws.test_session import Threads


class PlainClient:
    """One request over a socket."""

    async def request(self, method: str, url: str, *, headers, body, timeout, max_bytes, tls=None) -> HttpReply:
        return await asyncio.to_thread(self._request, method, url, headers, body, timeout, max_bytes)

    def _request(self, method: str, url: str, headers, body: bytes, timeout: float, max_bytes: int) -> HttpReply:
        connection = HTTPConnection(urlsplit(url).netloc, timeout=timeout)
        connection.request(method, urlsplit(url).path, body, dict(headers))
        response = connection.getresponse()
        return HttpReply(response.status, tuple(response.getheaders()), response.read(max_bytes))


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with judging_cloud() as made:
        iam = client("iam", made.port, made.keys.access.reveal(), made.keys.secret.reveal())
        iam.create_role(RoleName="reader", AssumeRolePolicyDocument=ALL)
        yield made


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cloud: Cloud) -> Path:
    (tmp_path / "config").write_text("[profile data]\nregion = us-east-1\n[profile empty]\n")
    (tmp_path / "credentials").write_text(
        f"[data]\naws_access_key_id = {cloud.keys.access.reveal()}\n"
        f"aws_secret_access_key = {cloud.keys.secret.reveal()}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def source(home: Path, fields: dict[str, object]) -> SecretSource:
    def nested(spec: object) -> SecretSource:
        raise AssertionError(spec)

    return aws_session(fields, SourceContext(PlainClient(), {}, SystemClock(), home, home, Threads(), nested))


async def test_the_keys_of_a_profile(home: Path, cloud: Cloud) -> None:
    fetched = await source(home, {"profile": "data"}).fetch()
    assert fetched.values == {"AWS_ACCESS_KEY_ID": cloud.keys.access, "AWS_SECRET_ACCESS_KEY": cloud.keys.secret}
    assert fetched.expires is None


async def test_a_role_that_the_keys_of_a_profile_may_take(home: Path, cloud: Cloud) -> None:
    fields = {
        "profile": "data", "role_arn": "arn:aws:iam::123456789012:role/reader", "duration": "15m",
        "endpoint_url": f"http://127.0.0.1:{cloud.port}",
    }  # fmt: skip
    fetched = await source(home, fields).fetch()
    assert set(fetched.values) == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}
    assert fetched.values["AWS_ACCESS_KEY_ID"].reveal().startswith("ASIA")
    assert fetched.expires is not None
    assert 800 < fetched.expires - SystemClock().now() <= 900


@pytest.mark.parametrize(("profile", "kind"), [("empty", "no_credentials"), ("missing", "ProfileNotFound")])
async def test_a_profile_without_keys(home: Path, profile: str, kind: str) -> None:
    with pytest.raises(SourceUnavailable) as unavailable:
        await source(home, {"profile": profile}).fetch()
    assert unavailable.value.kind == kind


async def test_a_role_that_may_not_be_taken(home: Path, cloud: Cloud) -> None:
    (home / "credentials").write_text("[data]\naws_access_key_id = AKIAX\naws_secret_access_key = wrong\n")
    fields = {
        "profile": "data", "role_arn": "arn:aws:iam::123456789012:role/reader",
        "endpoint_url": f"http://127.0.0.1:{cloud.port}",
    }  # fmt: skip
    with pytest.raises(SourceUnavailable) as unavailable:
        await source(home, fields).fetch()
    assert unavailable.value.kind == "rejected"
