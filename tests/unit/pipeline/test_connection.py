"""The connection scope: its stages in order, each asked once, and what a refusal already knows."""

from dataclasses import dataclass, field, replace
from ipaddress import ip_address

import pytest

from egress.destination.validate import DestinationSettings, Plan
from egress.events.event import Event
from egress.generation.cell import RuntimeCell
from egress.generation.generation import AgentTerms, Generation
from egress.l7.mcp_sessions import SessionTable
from egress.model.address import IpAddress
from egress.model.clock import SystemClock
from egress.model.destination import DialMode
from egress.model.ids import GenerationNumber
from egress.model.intent import DEFAULT_AGENT, AgentName, SocketPair
from egress.model.process import Evidence, EvidenceUnavailable, IdentityMode, UnavailableReason
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage
from egress.pipeline.connection import OpenedConnection, Refused, open_connection
from egress.pipeline.ports import Services
from tests.unit.policy.samples import ANY, entries, evidence, intent

POLICY = entries(
    f"""
api: {{endpoints: [{{host: api.test, port: 443}}, {{host: 10.0.0.8, port: 443}}], {ANY}}}
curl: {{endpoints: [{{host: curl.test, port: 443}}], binaries: [{{path: /usr/bin/curl}}]}}
"""
)
NO_NAME = Denial(Stage.DESTINATION, DenialCode.DNS_FAILED, "no answer", ReasonCode.DNS_NO_ANSWER)


@dataclass
class World:
    """The ports as scripts; `asked` tells who was asked, in order."""

    evidence: Evidence = field(default_factory=evidence)
    answers: tuple[IpAddress, ...] | Denial = (ip_address("93.184.216.34"),)
    mode: IdentityMode = IdentityMode.REQUIRED
    asked: list[str] = field(default_factory=list)
    own: frozenset[tuple[IpAddress, int]] = frozenset()
    aliases: dict[str, IpAddress] = field(default_factory=dict)
    during_identity: Generation | None = None

    def __post_init__(self) -> None:
        self.cell = RuntimeCell(self.generation(1))

    def generation(self, number: int) -> Generation:
        terms = {DEFAULT_AGENT: AgentTerms(POLICY, self.mode)}
        return Generation(GenerationNumber(number), terms, f"digest {number}")

    async def identify(self, pair: SocketPair) -> Evidence:
        self.asked.append("identity")
        if self.during_identity is not None:
            self.cell.install(self.during_identity)
        return self.evidence

    async def recheck(self, pair: SocketPair) -> Evidence:
        raise AssertionError

    async def resolve(self, plan: Plan) -> tuple[IpAddress, ...] | Denial:
        self.asked.append("names")
        return self.answers

    def emit(self, event: Event) -> None:
        raise AssertionError("the connection scope tells nothing")

    def services(self) -> Services:
        clock = SystemClock()
        return Services(
            self.cell, self, self, self, clock, DestinationSettings(self.aliases), lambda: self.own,
            SessionTable(clock), None,
        )  # fmt: skip

    async def open(self, host: str = "api.test", port: int = 443) -> OpenedConnection | Refused:
        return await open_connection(intent(host, port), self.services())

    async def opened(self, host: str = "api.test") -> OpenedConnection:
        found = await self.open(host)
        assert isinstance(found, OpenedConnection), found
        return found

    async def refused(self, host: str = "api.test", port: int = 443) -> Refused:
        found = await self.open(host, port)
        assert isinstance(found, Refused), found
        return found


async def test_the_stages_in_order_each_once() -> None:
    world = World()
    connection = await world.opened()
    assert world.asked == ["identity", "names"]
    assert connection.authorization.entry == "api"
    assert connection.pinned.addresses == (ip_address("93.184.216.34"),)
    context = connection.context
    assert (context.entry, context.dial_mode, context.generation) == ("api", DialMode.DECLARED, 1)
    assert (context.evidence, context.policy_digest) == (world.evidence, "digest 1")
    assert not connection.lease.superseded


async def test_what_policy_refuses_is_not_looked_up() -> None:
    world = World()
    refused = await world.refused("other.test")
    assert refused.denial.reason_code is ReasonCode.HOST_NOT_LISTED
    assert world.asked == ["identity"]
    assert (refused.context.entry, refused.context.generation, refused.context.evidence) == (None, 1, world.evidence)


async def test_identity_is_not_asked_where_it_is_off() -> None:
    world = World(mode=IdentityMode.OFF)
    connection = await world.opened()
    assert world.asked == ["names"]
    assert connection.context.evidence == EvidenceUnavailable(UnavailableReason.OFF, "identity is off for this agent")
    refused = await world.refused("curl.test")
    assert refused.denial.reason_code is ReasonCode.BINARY_NOT_ALLOWED


async def test_no_evidence_where_it_is_required() -> None:
    world = World(evidence=EvidenceUnavailable(UnavailableReason.AMBIGUOUS, "two owners"))
    refused = await world.refused()
    assert (refused.denial.stage, refused.denial.reason_code) == (Stage.IDENTITY, ReasonCode.IDENTITY_AMBIGUOUS)
    assert world.asked == ["identity"]


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        (NO_NAME, DenialCode.DNS_FAILED),
        ((ip_address("127.0.0.1"),), DenialCode.SSRF_DENIED),
        ((ip_address("93.184.216.34"), ip_address("169.254.169.254")), DenialCode.SSRF_DENIED),
        ((ip_address("::1"),), DenialCode.SSRF_DENIED),
    ],
)
async def test_answers_that_may_not_be_dialled(answers: tuple[IpAddress, ...] | Denial, code: DenialCode) -> None:
    refused = await World(answers=answers).refused()
    assert refused.denial.code is code
    assert (refused.context.entry, refused.context.dial_mode) == ("api", DialMode.DECLARED)


async def test_our_own_listener_is_no_destination() -> None:
    address = ip_address("93.184.216.34")
    refused = await World(own=frozenset(((address, 443),))).refused()
    assert (refused.denial.code, refused.denial.reason_code) == (DenialCode.SSRF_DENIED, ReasonCode.OWN_LISTENER)


async def test_an_alias_is_pinned_without_a_look_at_what_names_say() -> None:
    world = World(aliases={"api.test": ip_address("127.0.0.1")}, answers=(ip_address("93.184.216.34"),))
    connection = await world.opened()
    assert connection.pinned.addresses == (ip_address("127.0.0.1"),)
    assert connection.context.dial_mode is DialMode.ALIAS


async def test_a_reload_while_the_caller_is_identified_decides() -> None:
    world = World()
    world.during_identity = Generation(GenerationNumber(2), {}, "digest 2")
    refused = await world.refused()
    assert refused.denial.reason_code is ReasonCode.NO_MATCHING_POLICY
    assert (refused.context.generation, refused.context.policy_digest) == (2, "digest 2")


async def test_quarantine_denies_everything_and_keeps_its_text_for_the_log() -> None:
    world = World()
    world.during_identity = replace(world.generation(2), quarantine="policy.yaml:3:1: error: secret layout")
    denial = (await world.refused()).denial
    assert (denial.code, denial.reason_code) == (DenialCode.POLICY_DENIED, ReasonCode.QUARANTINED)
    assert "policy.yaml" not in denial.reason
    assert denial.log_reason == "policy.yaml:3:1: error: secret layout"


@pytest.mark.parametrize("terms", [{}, {DEFAULT_AGENT: AgentTerms(None, IdentityMode.REQUIRED)}])
async def test_an_agent_without_a_policy_may_do_nothing(terms: dict[AgentName, AgentTerms]) -> None:
    world = World()
    world.cell = RuntimeCell(Generation(GenerationNumber(1), terms, "d"))
    refused = await world.refused()
    assert refused.denial.reason_code is ReasonCode.NO_MATCHING_POLICY
