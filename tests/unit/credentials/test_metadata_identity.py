"""Identity tokens: asked for with the account's own access token, only where that may go, and gone when it is."""

import json

import pytest

from egress.credentials.metadata_identity import KEPT, IdentityTokens
from egress.credentials.scope import Scope, Selector
from egress.credentials.snapshot import Credential, CredentialSnapshot
from egress.model.secret import Secret
from egress.sdk.http import HttpFailure, HttpReply

EMAIL = "robot@proj.iam.gserviceaccount.com"
AUDIENCE = "https://run.example"


class Time:
    def __init__(self) -> None:
        self.value = 1000.0

    def now(self) -> float:
        return self.value

    def monotonic(self) -> float:
        return self.value


class Google:
    """The other end of the HTTP port."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, dict[str, str], bytes]] = []
        self.reply: HttpReply | HttpFailure = HttpReply(200, (), b'{"token": "h.p.s"}')

    async def request(self, method, url, *, headers=None, body=b"", timeout, max_bytes, tls=None) -> HttpReply:
        assert timeout < 5
        self.calls.append((method, url, dict(headers), body))
        if isinstance(self.reply, HttpFailure):
            raise self.reply
        return self.reply


class Setting:
    def __init__(self, host: str = "*.googleapis.com", account: str = EMAIL) -> None:
        self.clock = Time()
        self.google = Google()
        scope = Scope((Selector.of(host, 443),))
        credential = Credential("gcp", "GCP_SA_ACCESS_TOKEN", Secret("ya29.real"), scope, identity="gcp:K")
        self.snapshot = CredentialSnapshot.empty().next([credential])
        self.tokens = IdentityTokens(self.google, lambda: self.snapshot, lambda: account, self.clock, "default")


async def test_a_token() -> None:
    setting = Setting()
    assert await setting.tokens.mint(AUDIENCE) == Secret("h.p.s")
    ((method, url, headers, body),) = setting.google.calls
    account = "v1/projects/-/serviceAccounts/robot@proj.iam.gserviceaccount.com:generateIdToken"
    assert (method, url) == ("POST", f"https://iamcredentials.googleapis.com/{account}")
    assert headers["Authorization"] == "Bearer ya29.real"
    assert json.loads(body) == {"audience": AUDIENCE, "includeEmail": True}


async def test_it_is_kept_for_a_while_per_audience() -> None:
    setting = Setting()
    for _ in range(3):
        await setting.tokens.mint(AUDIENCE)
    await setting.tokens.mint("https://other.example")
    assert len(setting.google.calls) == 2
    setting.clock.value += KEPT
    await setting.tokens.mint(AUDIENCE)
    assert len(setting.google.calls) == 3


async def test_it_goes_with_the_credential() -> None:
    setting = Setting()
    await setting.tokens.mint(AUDIENCE)
    setting.snapshot = setting.snapshot.revoked()
    assert await setting.tokens.mint(AUDIENCE) is None


async def test_an_access_token_that_may_not_go_there() -> None:
    setting = Setting("storage.googleapis.com")
    assert await setting.tokens.mint(AUDIENCE) is None
    assert setting.google.calls == []


async def test_no_account() -> None:
    setting = Setting(account="")
    assert await setting.tokens.mint(AUDIENCE) is None
    assert setting.google.calls == []


@pytest.mark.parametrize(
    "reply",
    [
        HttpFailure("away"),
        HttpReply(403, (), b'{"token": "h.p.s"}'),
        HttpReply(200, (), b"<html>"),
        HttpReply(200, (), b"[]"),
        HttpReply(200, (), b'{"token": "a\\r\\nb"}'),
        HttpReply(200, (), b'{"token": 7}'),
    ],
)
async def test_no_answer(reply: HttpReply | HttpFailure) -> None:
    setting = Setting()
    setting.google.reply = reply
    assert await setting.tokens.mint(AUDIENCE) is None
