"""The `aws_session` source: what its specification may say, and how replies are read."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from egress.credentials.aws.session import SessionSpec, aws_session, read_spec
from egress.model.secret import Secret
from egress.sdk.http import NO_HEADERS, HttpFailure, HttpReply, TlsOptions
from egress.sdk.secrets import BadSpec, Fetched, SecretSource, SourceContext, SourceUnavailable
from tests.unit.credentials.aws.judge import accepts
from tests.unit.credentials.aws.samples import ACCESS, NOW, SECRET

ROLE = "arn:aws:iam::111122223333:role/team/reader"
KEYS: dict[str, object] = {
    "role_arn": ROLE, "access_key_id": Secret(ACCESS), "secret_access_key": Secret(SECRET),
}  # fmt: skip
REPLY = b"""<AssumeRoleResponse><AssumeRoleResult><AssumedRoleUser><Arn>x</Arn></AssumedRoleUser><Credentials>
<AccessKeyId>ASIAX</AccessKeyId><SecretAccessKey>s/+=</SecretAccessKey><SessionToken>a&amp;b==</SessionToken>
<Expiration>2026-01-02T04:04:05Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""


class Clock:
    def now(self) -> float:
        return NOW

    def monotonic(self) -> float:
        return 0.0


@dataclass
class Endpoint:
    """A token service that answers every request alike and keeps them."""

    reply: HttpReply | HttpFailure
    asked: list[tuple[str, str, Mapping[str, str], bytes]] = field(default_factory=list)

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        body: bytes = b"",
        timeout: float,
        max_bytes: int,
        tls: TlsOptions | None = None,
    ) -> HttpReply:
        assert timeout
        assert max_bytes
        assert tls is None
        self.asked.append((method, url, headers, body))
        if isinstance(self.reply, HttpFailure):
            raise self.reply
        return self.reply


class Threads:
    async def __call__[T](self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.to_thread(call, *arguments)


@dataclass(frozen=True)
class Value:
    secret: Secret

    async def fetch(self) -> Fetched:
        return Fetched({"": self.secret})


def context(endpoint: Endpoint | None = None) -> SourceContext:
    def source(spec: object) -> SecretSource:
        assert isinstance(spec, dict)
        return Value(Secret(spec["env"]))

    answering = endpoint or Endpoint(HttpReply(200, (), REPLY))
    return SourceContext(answering, {}, Clock(), Path("base"), Path("state"), Threads(), source)


def test_a_whole_specification() -> None:
    spec = read_spec(
        {"profile": "data", "role_arn": ROLE, "external_id": "x:1", "session_name": "me@host", "duration": "1h",
         "region": "eu-west-1", "endpoint_url": "https://sts.internal.test:8443"}
    )  # fmt: skip
    assert spec == SessionSpec("data", ROLE, "x:1", "me@host", 3600, "eu-west-1", "https://sts.internal.test:8443")
    assert read_spec({}) == SessionSpec()


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"proflie": "x"}, "proflie"),
        ({"profile": ""}, "profile"),
        ({"profile": 3}, "profile"),
        ({"role_arn": "reader"}, "role_arn"),
        ({"role_arn": "arn:aws:iam::1:role/x"}, "role_arn"),
        ({"role_arn": ROLE, "session_name": "a b"}, "session_name"),
        ({"role_arn": ROLE, "external_id": "\n"}, "external_id"),
        ({"role_arn": ROLE, "duration": "1m"}, "duration"),
        ({"role_arn": ROLE, "duration": "13h"}, "duration"),
        ({"role_arn": ROLE, "duration": "soon"}, "duration"),
        ({"session_name": "me"}, "session_name"),
        ({"duration": "1h"}, "duration"),
        ({"region": "nowhere"}, "region"),
        ({"region": "a/b", "endpoint_url": "https://sts.test"}, "region"),
        ({"endpoint_url": "sts.test"}, "endpoint_url"),
        ({"endpoint_url": "https://sts.test/path"}, "endpoint_url"),
        ({"endpoint_url": "https://u@sts.test"}, "endpoint_url"),
        ({"endpoint_url": "ftp://sts.test"}, "endpoint_url"),
        ({"endpoint_url": "https://sts.test:99999"}, "endpoint_url"),
        ({"role_arn": ROLE, "access_key_id": Secret("a")}, "access_key_id"),
        ({"role_arn": ROLE, "session_token": Secret("a")}, "session_token"),
        ({**KEYS, "profile": "x"}, "access_key_id"),
        ({"access_key_id": Secret("a"), "secret_access_key": Secret("b")}, "access_key_id"),
        ({**KEYS, "secret_access_key": "literal"}, "secret_access_key"),
    ],
)
def test_a_specification_that_cannot_work_names_its_key(fields: dict[str, object], key: str) -> None:
    with pytest.raises(BadSpec) as refused:
        aws_session(fields, context())
    assert refused.value.path == (key,)
    assert "literal" not in refused.value.message


async def test_a_role_is_taken_with_keys_of_other_sources() -> None:
    endpoint = Endpoint(HttpReply(200, (), REPLY))
    fields = {**KEYS, "secret_access_key": {"env": SECRET}, "external_id": "x1", "region": "cn-north-1"}
    fetched = await aws_session(fields, context(endpoint)).fetch()
    assert {key: value.reveal() for key, value in fetched.values.items()} == {
        "AWS_ACCESS_KEY_ID": "ASIAX", "AWS_SECRET_ACCESS_KEY": "s/+=", "AWS_SESSION_TOKEN": "a&b==",
    }  # fmt: skip
    assert fetched.expires == NOW + 3600
    ((method, url, headers, body),) = endpoint.asked
    assert (method, url) == ("POST", "https://sts.cn-north-1.amazonaws.com.cn/")
    assert b"ExternalId=x1" in body
    assert b"DurationSeconds=3600" in body
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    wire = f"POST / HTTP/1.1\r\nHost: sts.cn-north-1.amazonaws.com.cn\r\n{lines}\r\n".encode() + body
    assert accepts(wire, SECRET)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (HttpFailure("no route"), "unreachable"),
        (HttpReply(403, (), REPLY), "rejected"),
        (HttpReply(302, (), REPLY), "rejected"),
        (HttpReply(200, (), b"{}"), "malformed"),
        (HttpReply(200, (), REPLY.replace(b"2026-01-02T04:04:05Z", b"later")), "malformed"),
        (HttpReply(200, (), REPLY.replace(b"SessionToken", b"Session")), "malformed"),
    ],
)
async def test_no_role_no_keys(reply: HttpReply | HttpFailure, kind: str) -> None:
    with pytest.raises(SourceUnavailable) as unavailable:
        await aws_session(KEYS, context(Endpoint(reply))).fetch()
    assert unavailable.value.kind == kind


async def test_a_literal_only_where_literals_are_allowed() -> None:
    allowing = replace(context(), allow_literal=True)
    fetched = await aws_session({**KEYS, "secret_access_key": SECRET}, allowing).fetch()
    assert len(fetched.values) == 3
