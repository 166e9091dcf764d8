"""Tokens of token grants: one exchange for all who wait, kept as long as they are good, never obtained twice for
nothing, and failures that are told once and tried again later."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from egress.credentials.assertions import Assertions
from egress.credentials.grant_rules import AssertionSpec, GrantChoice, GrantSpec
from egress.credentials.grants import GrantExchanged, GrantStore
from egress.model.limits import Limits
from egress.model.secret import Secret
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage
from egress.sdk.http import HttpFailure, HttpReply, TlsOptions
from egress.sdk.secrets import SecretSource, SourceUnavailable

ENDPOINT = "https://sso.test/realms/mesh/protocol/openid-connect/token"
SPEC = GrantSpec("mesh", "mesh_token", ENDPOINT, audience="orders", scopes=("orders.read",))
KEY = "orders.test\t443\t\tmesh:mesh_token"
CHOICE = GrantChoice(KEY, SPEC, "orders", ("orders.read",))


class Time:
    def __init__(self) -> None:
        self.value = 1_700_000_000.0

    def now(self) -> float:
        return self.value

    def monotonic(self) -> float:
        return self.value


class Agent:
    """Identity documents."""

    def __init__(self, clock: Time) -> None:
        self.clock = clock
        self.asked: list[str] = []
        self.failure: Exception | None = None
        self.life: float | None = None

    async def fetch(self, audience: str) -> tuple[Secret, float | None]:
        self.asked.append(audience)
        if self.failure is not None:
            raise self.failure
        expires = None if self.life is None else self.clock.now() + self.life
        return Secret(f"eyJ.document.{len(self.asked)}"), expires


class Endpoint:
    """The other end of the HTTP port: a token endpoint that numbers its tokens."""

    def __init__(self) -> None:
        self.forms: list[dict[str, list[str]]] = []
        self.urls: list[str] = []
        self.answer: Callable[[int], tuple[int, object]] = lambda number: (
            200, {"access_token": f"token-{number}", "expires_in": 330, "token_type": "Bearer"},
        )  # fmt: skip
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.tls: TlsOptions | None = None

    async def request(self, method, url, *, headers=None, body=b"", timeout, max_bytes, tls=None) -> HttpReply:
        assert (method, timeout, max_bytes) == ("POST", 30.0, 64 * 1024)
        assert "authorization" not in {name.lower() for name in headers}
        assert headers["Content-Type"] == "application/x-www-form-urlencoded"
        self.forms.append(parse_qs(body.decode(), strict_parsing=True))
        self.urls.append(url)
        self.tls = tls
        number = len(self.forms)
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        status, answer = self.answer(number)
        return HttpReply(status, (), answer if isinstance(answer, bytes) else json.dumps(answer).encode())


class Setting:
    def __init__(self) -> None:
        self.clock = Time()
        self.agent = Agent(self.clock)
        self.endpoint = Endpoint()
        self.events: list[GrantExchanged] = []
        assertions = Assertions({"spiffe": self.agent}, no_source, self.clock)
        self.store = GrantStore(self.endpoint, assertions, self.clock, self.events.append)

    async def ask(self, choice: GrantChoice = CHOICE) -> str:
        """The token, or the reason code of the refusal."""
        found = await self.store.token(choice)
        if isinstance(found, Secret):
            return found.reveal()
        assert found.reason_code is not None
        return found.reason_code.value

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


def no_source(spec: object, base: Path) -> SecretSource:
    raise AssertionError(spec)


@pytest.fixture
async def setting() -> Setting:
    return Setting()


async def test_an_exchange(setting: Setting) -> None:
    assert await setting.ask() == "token-1"
    assert setting.agent.asked == ["https://sso.test/realms/mesh"]
    assert setting.endpoint.urls == [ENDPOINT]
    assert setting.endpoint.forms == [
        {
            "grant_type": ["client_credentials"],
            "client_assertion_type": ["urn:ietf:params:oauth:client-assertion-type:jwt-bearer"],
            "client_assertion": ["eyJ.document.1"],
            "audience": ["orders"],
            "scope": ["orders.read"],
        }
    ]
    assert setting.events == [GrantExchanged("orders.test_443__mesh:mesh_token", "sso.test:443")]


async def test_everything_that_a_grant_may_say(setting: Setting) -> None:
    tls = TlsOptions(client_cert=Path("c.pem"))
    spec = replace(
        SPEC, grant="token_exchange", client_id="egress", resource="https://r.test", requested_token_type="urn:x",
        jwt_svid_audience="spiffe://sso", tls=tls, token_endpoint="http://sso.auth.svc/token",
    )  # fmt: skip
    await setting.ask(replace(CHOICE, spec=spec, audience="", scopes=()))
    (form,) = setting.endpoint.forms
    assert form == {
        "grant_type": ["urn:ietf:params:oauth:grant-type:token-exchange"],
        "subject_token": ["eyJ.document.1"],
        "subject_token_type": ["urn:ietf:params:oauth:token-type:jwt"],
        "requested_token_type": ["urn:x"],
        "client_id": ["egress"],
        "resource": ["https://r.test"],
    }
    assert setting.agent.asked == ["spiffe://sso"]
    assert setting.endpoint.tls == tls
    assert setting.events == [GrantExchanged("orders.test_443__mesh:mesh_token", "sso.auth.svc:80")]


async def test_all_who_wait_share_one_exchange(setting: Setting) -> None:
    setting.endpoint.gate.clear()
    waiting = [asyncio.ensure_future(setting.ask()) for _ in range(50)]
    await setting.settle()
    waiting[0].cancel()  # the one that started it
    await setting.settle()
    setting.endpoint.gate.set()
    assert await asyncio.gather(*waiting[1:]) == ["token-1"] * 49
    assert waiting[0].cancelled()
    assert len(setting.endpoint.forms) == 1


async def test_a_choice_of_its_own_has_a_token_of_its_own(setting: Setting) -> None:
    others = [
        replace(CHOICE, audience="other"),
        replace(CHOICE, scopes=("orders.write",)),
        replace(CHOICE, key="other.test\t443\t\tmesh:mesh_token"),
        replace(CHOICE, spec=replace(SPEC, client_assertion_type="urn:x:jwt-spiffe")),
        replace(CHOICE, spec=replace(SPEC, jwt_svid_audience="spiffe://sso")),
        replace(CHOICE, spec=replace(SPEC, token_endpoint="https://other.test/token")),
    ]  # fmt: skip
    found = [await setting.ask(choice) for choice in (CHOICE, *others)]
    assert found == [f"token-{number}" for number in range(1, 8)]
    assert [await setting.ask(choice) for choice in (CHOICE, *others)] == found


class TestTime:
    async def test_a_token_is_kept_and_renewed_in_the_background(self, setting: Setting) -> None:
        await setting.ask()
        setting.clock.value += 0.8 * 300 - 0.1
        assert await setting.ask() == "token-1"
        await setting.settle()
        assert len(setting.endpoint.forms) == 1
        setting.clock.value += 0.2
        setting.endpoint.gate.clear()
        assert [await setting.ask() for _ in range(5)] == ["token-1"] * 5
        setting.endpoint.gate.set()
        await setting.settle()
        assert len(setting.endpoint.forms) == 2
        assert await setting.ask() == "token-2"

    async def test_one_that_is_over_is_obtained_again(self, setting: Setting) -> None:
        await setting.ask()
        setting.clock.value += 300
        assert await setting.ask() == "token-2"

    async def test_a_renewal_that_fails_leaves_the_token_until_its_end(self, setting: Setting) -> None:
        await setting.ask()
        setting.endpoint.answer = lambda number: (503, b"")
        setting.clock.value += 250
        for _ in range(3):
            assert await setting.ask() == "token-1"
            await setting.settle()
        assert len(setting.endpoint.forms) == 2  # the back-off holds for renewals too
        setting.clock.value += 50
        assert await setting.ask() == "rejected"

    async def test_the_profile_says_how_long(self, setting: Setting) -> None:
        trusted = replace(CHOICE, spec=replace(SPEC, cache_ttl=900, cache_ttl_trust=True))
        capped = replace(CHOICE, spec=replace(SPEC, cache_ttl=900))
        assert [await setting.ask(trusted), await setting.ask(capped)] == ["token-1", "token-2"]
        setting.clock.value += 300
        assert [await setting.ask(trusted), await setting.ask(capped)] == ["token-1", "token-3"]


class TestFailures:
    @pytest.mark.parametrize(
        ("answer", "code", "reason"),
        [
            ((302, b""), "rejected", "token grant failed with status 302 Found"),
            ((401, {"error": "invalid_client"}), "rejected", "status 401 Unauthorized: error=invalid_client"),
            ((200, b"<html>"), "malformed_token", "token grant reply is no JSON object"),
            ((200, {"access_token": "a b"}), "malformed_token", "token grant returned a malformed access token"),
        ],
    )
    async def test_of_the_endpoint(self, setting: Setting, answer: tuple[int, object], code: str, reason: str) -> None:
        setting.endpoint.answer = lambda number: answer
        found = await setting.store.token(CHOICE)
        assert isinstance(found, Denial)
        assert (found.stage, found.code, found.reason) == (
            Stage.CREDENTIALS, DenialCode.TOKEN_GRANT_FAILED, "dynamic token grant failed",
        )  # fmt: skip
        assert found.reason_code is ReasonCode(code)
        assert found.log_reason is not None
        assert found.log_reason.startswith("token grant orders.test_443__mesh:mesh_token: ")
        assert found.log_reason.endswith(reason)
        (event,) = setting.events
        assert (event.code, event.reason.endswith(reason)) == (ReasonCode(code), True)

    async def test_an_endpoint_that_is_away(self, setting: Setting) -> None:
        setting.endpoint.failure = HttpFailure("connection refused")
        assert await setting.ask() == "endpoint_unreachable"
        assert setting.events[0].reason == "token endpoint not reached: connection refused"

    async def test_no_document(self, setting: Setting) -> None:
        setting.agent.failure = SourceUnavailable("unreachable")
        assert await setting.ask() == "svid_unavailable"
        assert setting.events[0].reason == "identity document not available: unreachable"
        assert setting.endpoint.forms == []

    async def test_no_plugin(self, setting: Setting) -> None:
        choice = replace(CHOICE, spec=replace(SPEC, assertion=AssertionSpec("other")))
        assert await setting.ask(choice) == "svid_unavailable"

    async def test_a_bug_is_a_refusal_without_its_text(self, setting: Setting) -> None:
        setting.agent.failure = RuntimeError("eyJ.document.secret")
        assert await setting.ask() == "rejected"
        assert setting.events[0].reason == "token grant broke: RuntimeError"

    async def test_an_endpoint_that_may_not_be_asked(self, setting: Setting) -> None:
        choice = replace(CHOICE, spec=replace(SPEC, token_endpoint="http://sso.test/token"))
        assert await setting.ask(choice) == "endpoint_unreachable"
        assert (setting.agent.asked, setting.endpoint.forms) == ([], [])

    async def test_the_back_off_doubles_up_to_half_a_minute_and_ends_with_success(self, setting: Setting) -> None:
        good = setting.endpoint.answer
        setting.endpoint.answer = lambda number: (500, b"")
        for wait in (1, 2, 4, 8, 16, 30, 30):
            await setting.ask()
            asked = len(setting.endpoint.forms)
            setting.clock.value += wait - 0.01
            assert await setting.ask() == "rejected"
            assert len(setting.endpoint.forms) == asked
            setting.clock.value += 0.01
        setting.endpoint.answer = good
        assert await setting.ask() == "token-8"
        setting.clock.value += 300
        setting.endpoint.answer = lambda number: (500, b"")
        assert await setting.ask() == "rejected"
        setting.clock.value += 1
        setting.endpoint.answer = good
        assert await setting.ask() == "token-10"


class TestForgetting:
    async def test_a_refused_token_is_replaced(self, setting: Setting) -> None:
        await setting.ask()
        setting.clock.value += 10
        setting.store.evict(CHOICE, Secret("token-1"))
        assert await setting.ask() == "token-2"

    async def test_one_that_was_replaced_meanwhile_stays(self, setting: Setting) -> None:
        await setting.ask()
        setting.clock.value += 10
        setting.store.evict(CHOICE, Secret("token-0"))
        setting.store.evict(replace(CHOICE, audience="other"), Secret("token-1"))
        assert await setting.ask() == "token-1"

    async def test_an_origin_cannot_make_us_ask_at_its_own_pace(self, setting: Setting) -> None:
        for _ in range(20):
            token = await setting.ask()
            setting.store.evict(CHOICE, Secret(token))
            setting.clock.value += 0.9
        assert len(setting.endpoint.forms) == 2

    async def test_purge(self, setting: Setting) -> None:
        other = replace(CHOICE, audience="other")
        await setting.ask()
        await setting.ask(other)
        setting.store.purge(keep=(other,))
        assert [await setting.ask(other), await setting.ask()] == ["token-2", "token-3"]

    async def test_purged_while_it_is_obtained(self, setting: Setting) -> None:
        setting.endpoint.gate.clear()
        waiting = asyncio.ensure_future(setting.ask())
        await setting.settle()
        setting.store.purge()
        assert await waiting == "rejected"
        assert setting.events == []

    async def test_the_longest_unused_goes_first(self, setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("egress.credentials.grants.LIMITS", Limits(granted_tokens=4))
        choices = [replace(CHOICE, audience=str(number)) for number in range(4)]
        for choice in choices:
            await setting.ask(choice)
        await setting.ask(choices[0])
        await setting.ask(replace(CHOICE, audience="one more"))
        asked = len(setting.endpoint.forms)
        await setting.ask(choices[0])
        assert len(setting.endpoint.forms) == asked
        await setting.ask(choices[1])
        assert len(setting.endpoint.forms) == asked + 1

    async def test_close_ends_what_is_under_way(self, setting: Setting) -> None:
        setting.endpoint.gate.clear()
        waiting = asyncio.ensure_future(setting.ask())
        await setting.settle()
        await setting.store.close()
        assert await waiting == "rejected"
        assert len(asyncio.all_tasks()) == 1


async def test_a_slow_exchange_ends(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("egress.credentials.grants.TIMEOUT", 0.01)

    async def never(audience: str) -> tuple[Secret, float | None]:
        await asyncio.sleep(10)
        raise AssertionError

    setting.agent.fetch = never  # type: ignore[method-assign]
    assert await setting.ask() == "endpoint_unreachable"


async def test_documents_are_used_until_half_of_their_life(setting: Setting) -> None:
    setting.agent.life = 300
    other = replace(CHOICE, audience="other")
    elsewhere = replace(CHOICE, spec=replace(SPEC, jwt_svid_audience="spiffe://sso"))
    for choice in (CHOICE, other, elsewhere):
        await setting.ask(choice)
    assert setting.agent.asked == ["https://sso.test/realms/mesh", "spiffe://sso"]
    setting.clock.value += 150
    setting.store.purge()
    await setting.ask()
    assert len(setting.agent.asked) == 3
