"""A superseded connection: kept on equal terms, ended otherwise, and denied for as long as anyone asks."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from egress.generation.generation import AgentTerms, Generation
from egress.model.ids import GenerationNumber
from egress.model.intent import DEFAULT_AGENT
from egress.model.process import EvidenceUnavailable, IdentityMode, UnavailableReason
from egress.pipeline.revalidate import POLICY_CHANGED, revalidate
from egress.policy.compiled import CompiledPolicy
from tests.support.opened import HOST, Opened, opened
from tests.unit.policy.samples import ANY, entries

ENDPOINT = f"{{host: {HOST}, port: 443, protocol: rest, access: read-only}}"


def policy(endpoint: str = ENDPOINT, binaries: str = ANY, more: str = "") -> CompiledPolicy:
    return entries(f"api: {{endpoints: [{endpoint}], {binaries}}}\n{more}")


def installed(ours: Opened, new: CompiledPolicy | None) -> None:
    """Install inside a loop, as the proxy does."""

    async def work() -> None:
        ours.install(new)

    asyncio.run(work())


def test_a_current_lease_is_not_judged_again() -> None:
    ours = opened(policy())
    before = ours.connection.authorization
    assert revalidate(ours.connection) is None
    assert ours.connection.authorization is before


@pytest.mark.parametrize(
    "new",
    [
        lambda: policy(),
        lambda: policy(more=f"other: {{endpoints: [{{host: other.test, port: 443}}], {ANY}}}"),
        lambda: policy(binaries="binaries: [{path: /usr/bin/curl}]"),
    ],
    ids=["same", "unrelated entry", "another way to the same yes"],
)
def test_equal_terms_carry_on_under_the_new_number(new: Callable[[], CompiledPolicy]) -> None:
    ours = opened(policy())
    installed(ours, new())
    assert ours.connection.lease.superseded
    assert revalidate(ours.connection) is None
    assert not ours.connection.lease.superseded
    assert ours.connection.authorization.generation == 2


@pytest.mark.parametrize(
    "new",
    [
        lambda: policy(ENDPOINT.replace("read-only", "full")),
        lambda: policy(ENDPOINT.replace("443", "8443")),
        lambda: policy(ENDPOINT.replace(HOST, "other.test")),
        lambda: policy(ENDPOINT.replace("}", ", allowed_ips: [203.0.113.0/24]}")),
        lambda: policy(ENDPOINT.replace("}", ", enforcement: audit}")),
        lambda: policy(binaries="binaries: [{path: /usr/bin/wget}]"),
        lambda: policy(more=f"more: {{endpoints: [{ENDPOINT}], {ANY}}}".replace("read-only", "full")),
        lambda: None,
    ],
    ids=["rules", "port", "host", "addresses", "audit", "binary", "one more endpoint", "quarantine"],
)
def test_other_terms_end_it_however_often_it_is_asked(new: Callable[[], CompiledPolicy | None]) -> None:
    ours = opened(policy())
    before = ours.connection.authorization
    installed(ours, new())
    for _ in range(3):
        assert revalidate(ours.connection) == POLICY_CHANGED
    assert ours.connection.authorization is before
    assert ours.connection.lease.superseded


def test_terms_that_come_back_are_good_again() -> None:
    """A second install that undoes the first: what was never cut may go on."""
    ours = opened(policy())
    installed(ours, policy(ENDPOINT.replace("read-only", "full")))
    installed(ours, policy())
    assert revalidate(ours.connection) is None
    assert ours.connection.authorization.generation == 3


def test_an_agent_that_is_gone_ends_it() -> None:
    async def work() -> None:
        ours = opened(policy())
        ours.services.runtime.install(Generation(GenerationNumber(2), {}, "d"))
        assert revalidate(ours.connection) == POLICY_CHANGED

    asyncio.run(work())


def test_identity_that_is_required_now_ends_a_connection_without_evidence() -> None:
    async def work() -> None:
        ours = opened(policy())
        off = EvidenceUnavailable(UnavailableReason.OFF, "off")
        ours.connection.authorization = replace(ours.connection.authorization, evidence=off)
        terms = {DEFAULT_AGENT: AgentTerms(policy(), IdentityMode.OFF)}
        ours.services.runtime.install(Generation(GenerationNumber(2), terms, "d"))
        assert revalidate(ours.connection) is None
        terms = {DEFAULT_AGENT: AgentTerms(policy(), IdentityMode.REQUIRED)}
        ours.services.runtime.install(Generation(GenerationNumber(3), terms, "d"))
        assert revalidate(ours.connection) == POLICY_CHANGED

    asyncio.run(work())
