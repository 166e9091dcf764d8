"""The plugin against a Workload API over real gRPC."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import jwt
import pytest
from egress_identity_spiffe.documents import SpiffeDocuments, read_endpoint
from egress_identity_spiffe.plugin import egress_identity_documents, make
from spiffe_workload_api import SUBJECT, WorkloadApi, mint

from egress.model.clock import SystemClock
from egress.sdk.secrets import BadSpec, IdentityDocuments, SourceContext, SourceUnavailable

AUDIENCE = "https://sso.corp.test/realms/mesh"


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[WorkloadApi]:
    (tmp_path / "agent").mkdir()
    server = WorkloadApi(tmp_path / "agent" / "api.sock")
    yield server
    server.stop()


async def test_a_document_for_one_audience(agent: WorkloadApi) -> None:
    documents = SpiffeDocuments(str(agent.socket), asyncio.to_thread)
    secret, expires = await documents.fetch(AUDIENCE)
    await documents.close()
    claims = jwt.decode(secret.reveal(), options={"verify_signature": False})
    assert (claims["sub"], claims["aud"], claims["exp"]) == (SUBJECT, [AUDIENCE], expires)
    assert agent.asked == [AUDIENCE]


async def test_many_at_once(agent: WorkloadApi) -> None:
    documents = SpiffeDocuments(f"unix:{agent.socket}", asyncio.to_thread)
    audiences = [f"https://{number}.test" for number in range(8)]
    found = await asyncio.gather(*[documents.fetch(audience) for audience in audiences])
    await documents.close()
    seen = [jwt.decode(secret.reveal(), options={"verify_signature": False})["aud"] for secret, _ in found]
    assert seen == [[audience] for audience in audiences]


async def failure(documents: IdentityDocuments) -> str:
    with pytest.raises(SourceUnavailable) as caught:
        await documents.fetch(AUDIENCE)
    assert caught.value.__cause__ is None
    return caught.value.kind


async def test_no_socket(tmp_path: Path) -> None:
    assert await failure(SpiffeDocuments(str(tmp_path / "agent" / "api.sock"), asyncio.to_thread)) == "no_socket"


async def test_no_identity_for_us(agent: WorkloadApi) -> None:
    agent.answer = lambda _: None
    documents = SpiffeDocuments(str(agent.socket), asyncio.to_thread)
    assert await failure(documents) == "no_identity"
    await documents.close()


async def test_an_agent_that_hangs(agent: WorkloadApi) -> None:
    agent.pause = 0.5
    documents = SpiffeDocuments(str(agent.socket), asyncio.to_thread, timeout=0.1)
    begin = time.monotonic()
    assert await failure(documents) == "timeout"
    assert time.monotonic() - begin < 0.4
    await documents.close()


@pytest.mark.parametrize("token", ["", "eyJ.not.a-token", mint("https://someone.else"), mint(AUDIENCE, -60)])
async def test_documents_that_are_none(agent: WorkloadApi, token: str) -> None:
    agent.answer = lambda _: token
    documents = SpiffeDocuments(str(agent.socket), asyncio.to_thread)
    assert await failure(documents) == "malformed"
    await documents.close()


async def test_an_agent_that_restarts_is_found_at_once(agent: WorkloadApi) -> None:
    documents = SpiffeDocuments(str(agent.socket), asyncio.to_thread)
    await documents.fetch(AUDIENCE)
    agent.stop()
    assert await failure(documents) in ("no_socket", "unreachable")
    agent.restart()
    await documents.fetch(AUDIENCE)
    await documents.close()


def context(**environment: str) -> SourceContext:
    def no_source(spec: object) -> NoReturn:
        raise AssertionError(spec)

    here = Path("/nowhere")
    return SourceContext(None, environment, SystemClock(), here, here, asyncio.to_thread, no_source)  # type: ignore[arg-type]


async def test_the_settings_come_before_the_environment(agent: WorkloadApi) -> None:
    elsewhere = {"SPIFFE_ENDPOINT_SOCKET": "unix:/run/other/api.sock"}
    (make_documents,) = [make for name, make in egress_identity_documents().items() if name == "spiffe"]
    for settings, environment in (
        ({"workload_api": f"unix:{agent.socket}"}, elsewhere),
        ({"workload_api": None}, elsewhere | {"OPENSHELL_PROVIDER_SPIFFE_WORKLOAD_API_SOCKET": str(agent.socket)}),
        ({}, {"SPIFFE_ENDPOINT_SOCKET": str(agent.socket)}),
    ):
        documents = make_documents(settings, context(**environment))
        await documents.fetch(AUDIENCE)
        await documents.close()
    assert len(agent.asked) == 3


async def test_no_agent_is_named() -> None:
    assert await failure(make({"workload_api": " "}, context(SPIFFE_ENDPOINT_SOCKET=""))) == "not_configured"


def test_a_bad_address_is_located() -> None:
    with pytest.raises(BadSpec, match="absolute path") as caught:
        make({"workload_api": "api.sock"}, context())
    assert caught.value.path == ("workload_api",)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("/run/spire/api.sock", "unix:/run/spire/api.sock"),
        ("unix:/run/spire/api.sock", "unix:/run/spire/api.sock"),
        ("unix:///run/spire/api.sock", "unix:/run/spire/api.sock"),
    ],
)
def test_endpoints(text: str, endpoint: str) -> None:
    assert read_endpoint(text) == endpoint


@pytest.mark.parametrize(
    "text", ["", " ", "api.sock", "unix:api.sock", "/api.sock", "tcp://127.0.0.1:1", "/run/../api.sock"]
)
def test_endpoints_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="Workload API"):
        read_endpoint(text)
