"""Look-ups against real name servers on loopback, and what is pinned from their answers."""

import asyncio
import ipaddress
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dnslib import AAAA, CNAME, QTYPE, RCODE, RR, A, DNSRecord
from dnslib.server import BaseResolver, DNSHandler, DNSServer

from egress.destination.local import LocalAddresses, expand_wildcards
from egress.destination.resolver import NameResolver, ResolverSettings, WorkloadHosts
from egress.destination.validate import DestinationSettings, Plan, plan, validate
from egress.model.address import IpAddress, Origin, Port, Scheme, parse_host
from egress.model.destination import AddressRule, PinnedDestination
from egress.model.verdict import Denial, DenialCode, ReasonCode


class Zone(BaseResolver):
    """Answers from lists that tests set; every query is counted. A list of lists answers differently each time."""

    def __init__(self) -> None:
        self.addresses: dict[str, list[list[str]]] = {}
        self.queries: list[tuple[str, str]] = []

    def resolve(self, request: DNSRecord, handler: DNSHandler) -> DNSRecord:
        name = str(request.q.qname).rstrip(".").lower()
        kind = QTYPE[request.q.qtype]
        earlier = self.queries.count((name, kind))
        self.queries.append((name, kind))
        reply = request.reply()
        if name == "slow.test":
            time.sleep(1)
        if name == "broken.test":
            reply.header.rcode = RCODE.SERVFAIL
        elif name == "cname.test":
            reply.add_answer(RR("cname.test", QTYPE.CNAME, rdata=CNAME("target.test"), ttl=60))
            reply.add_answer(RR("target.test", QTYPE.A, rdata=A("10.0.0.9"), ttl=60))
        elif name not in self.addresses:
            reply.header.rcode = RCODE.NXDOMAIN
        else:
            rounds = self.addresses[name]
            for text in rounds[min(earlier, len(rounds) - 1)]:
                family, record = ("AAAA", AAAA(text)) if ":" in text else ("A", A(text))
                if family == kind:
                    reply.add_answer(RR(name, getattr(QTYPE, family), rdata=record, ttl=60))
        return reply


@pytest.fixture(scope="module")
def running_zone() -> Iterator[tuple[Zone, int]]:
    zone = Zone()
    running = DNSServer(zone, address="127.0.0.1", port=0, logger=_Quiet())
    running.start_thread()
    yield zone, running.server.server_address[1]
    running.stop()


@pytest.fixture
def zone(running_zone: tuple[Zone, int]) -> Zone:
    zone, _ = running_zone
    zone.addresses.clear()
    zone.queries.clear()
    return zone


@pytest.fixture
def server(running_zone: tuple[Zone, int]) -> tuple[IpAddress, int]:
    return ipaddress.ip_address("127.0.0.1"), running_zone[1]


class _Quiet:
    def __getattr__(self, name: str) -> object:
        return lambda *_: None


def planned(host: str, rule: AddressRule | None = None, port: int = 443) -> Plan:
    origin = Origin(Scheme.HTTPS, parse_host(host), Port(port))
    result = plan(rule or AddressRule(declared=True), origin, DestinationSettings())
    assert isinstance(result, Plan)
    return result


def failed(result: object) -> tuple[DenialCode, ReasonCode | None]:
    assert isinstance(result, Denial), result
    return result.code, result.reason_code


@pytest.fixture
def resolver(server: tuple[IpAddress, int]) -> Iterator[NameResolver]:
    names = NameResolver(ResolverSettings(servers=(server,), timeout=0.4))
    yield names
    names.close()


async def test_both_families_in_one_look_up(zone: Zone, resolver: NameResolver) -> None:
    zone.addresses["dual.test"] = [["93.184.216.34", "2606:4700::1"]]
    answers = await resolver.resolve(planned("dual.test"))
    assert not isinstance(answers, Denial)
    assert {str(address) for address in answers} == {"93.184.216.34", "2606:4700::1"}
    assert sorted(zone.queries) == [("dual.test", "A"), ("dual.test", "AAAA")]


async def test_rebinding_meets_one_look_up_and_a_pinned_answer(zone: Zone, resolver: NameResolver) -> None:
    zone.addresses["rebind.test"] = [["93.184.216.34"], ["127.0.0.1"], ["169.254.169.254"]]
    terms = planned("rebind.test", AddressRule())
    answers = await resolver.resolve(terms)
    assert not isinstance(answers, Denial)
    pinned = validate(terms, answers, frozenset())
    assert isinstance(pinned, PinnedDestination)
    assert [str(address) for address in pinned.addresses] == ["93.184.216.34"]
    assert zone.queries.count(("rebind.test", "A")) == 1
    again = validate(terms, await resolver.resolve(terms), frozenset())  # type: ignore[arg-type]
    assert isinstance(again, Denial)
    assert again.reason_code is ReasonCode.SSRF_ALWAYS_BLOCKED


async def test_an_answer_that_mixes_public_and_private_is_refused_whole(zone: Zone, resolver: NameResolver) -> None:
    zone.addresses["mixed.acme.test"] = [["93.184.216.34", "10.0.0.1"]]
    terms = planned("mixed.acme.test", AddressRule())
    answers = await resolver.resolve(terms)
    assert not isinstance(answers, Denial)
    result = validate(terms, answers, frozenset())
    assert isinstance(result, Denial)
    assert (result.reason, result.reason_code) == ("internal address", ReasonCode.SSRF_PRIVATE)


async def test_a_cname_is_judged_by_where_it_leads(resolver: NameResolver) -> None:
    terms = planned("cname.test", AddressRule())
    answers = await resolver.resolve(terms)
    assert answers == (ipaddress.ip_address("10.0.0.9"),)
    assert isinstance(validate(terms, answers, frozenset()), Denial)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("missing.test", ReasonCode.DNS_NO_ANSWER),
        ("empty.test", ReasonCode.DNS_NO_ANSWER),
        ("broken.test", ReasonCode.DNS_ERROR),
        ("slow.test", ReasonCode.DNS_TIMEOUT),
    ],
)
async def test_failures(zone: Zone, resolver: NameResolver, name: str, code: ReasonCode) -> None:
    zone.addresses["empty.test"] = [[]]
    assert failed(await resolver.resolve(planned(name))) == (DenialCode.DNS_FAILED, code)


@pytest.mark.parametrize("name", ["localhost", "a.localhost", "LOCALHOST.", "b.a.localhost"])
async def test_localhost_is_never_asked_and_never_reached(zone: Zone, resolver: NameResolver, name: str) -> None:
    terms = planned(name)
    answers = await resolver.resolve(terms)
    assert not isinstance(answers, Denial)
    assert all(address.is_loopback for address in answers)
    assert isinstance(validate(terms, answers, frozenset()), Denial)
    assert zone.queries == []


async def test_literals_and_aliases_are_not_looked_up(zone: Zone, resolver: NameResolver) -> None:
    assert await resolver.resolve(planned("10.1.2.3")) == (ipaddress.ip_address("10.1.2.3"),)
    origin = Origin(Scheme.HTTPS, parse_host("origin.test"), Port(443))
    settings = DestinationSettings(aliases={"origin.test": ipaddress.ip_address("127.0.0.1")})
    alias = plan(AddressRule(declared=True), origin, settings)
    assert isinstance(alias, Plan)
    assert await resolver.resolve(alias) == (ipaddress.ip_address("127.0.0.1"),)
    assert zone.queries == []


async def test_answers_are_kept_only_when_asked_to(zone: Zone, server: tuple[IpAddress, int]) -> None:
    zone.addresses["kept.test"] = [["93.184.216.34"], ["93.184.216.35"]]
    keeping = NameResolver(ResolverSettings(servers=(server,), cache=30.0))
    first = await keeping.resolve(planned("kept.test"))
    assert await keeping.resolve(planned("kept.test")) == first == (ipaddress.ip_address("93.184.216.34"),)
    forgetting = NameResolver(ResolverSettings(servers=(server,)))
    assert await forgetting.resolve(planned("kept.test")) == (ipaddress.ip_address("93.184.216.35"),)


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/hosts").write_text("10.7.7.7 Inner.test\n127.0.0.1 evil.test\n")
    return tmp_path


@pytest.mark.parametrize(
    ("use", "declared", "answer"),
    [
        (WorkloadHosts.DECLARED_ONLY, True, "10.7.7.7"),
        (WorkloadHosts.DECLARED_ONLY, False, "93.184.216.34"),
        (WorkloadHosts.ON, False, "10.7.7.7"),
        (WorkloadHosts.OFF, True, "93.184.216.34"),
    ],
)
async def test_the_hosts_file_of_the_workload(
    zone: Zone, server: tuple[IpAddress, int], workload: Path, use: WorkloadHosts, declared: bool, answer: str
) -> None:
    zone.addresses["inner.test"] = [["93.184.216.34"]]
    names = NameResolver(ResolverSettings(servers=(server,), workload_hosts=use), lambda: workload)
    found = await names.resolve(planned("inner.test", AddressRule(declared=declared)))
    assert found == (ipaddress.ip_address(answer),)


async def test_the_hosts_file_cannot_lift_a_block(server: tuple[IpAddress, int], workload: Path) -> None:
    names = NameResolver(ResolverSettings(servers=(server,)), lambda: workload)
    terms = planned("evil.test")
    answers = await names.resolve(terms)
    assert answers == (ipaddress.ip_address("127.0.0.1"),)
    assert isinstance(validate(terms, answers, frozenset()), Denial)


@pytest.mark.parametrize("kind", ["fifo", "link", "directory", "missing"])
async def test_a_hosts_file_that_is_no_plain_file_is_left_alone(
    zone: Zone, server: tuple[IpAddress, int], workload: Path, kind: str
) -> None:
    hosts = workload / "etc/hosts"
    hosts.rename(workload / "real")
    if kind == "fifo":
        os.mkfifo(hosts)
    elif kind == "link":
        hosts.symlink_to(workload / "real")
    elif kind == "directory":
        hosts.mkdir()
    zone.addresses["inner.test"] = [["93.184.216.34"]]
    names = NameResolver(ResolverSettings(servers=(server,)), lambda: workload)
    assert await names.resolve(planned("inner.test")) == (ipaddress.ip_address("93.184.216.34"),)


async def test_the_system_resolver_shares_one_answer_among_those_who_wait() -> None:
    names = NameResolver(ResolverSettings())
    name = socket.gethostname()
    try:
        known = socket.getaddrinfo(name, None)
    except OSError:
        pytest.skip("this host does not resolve its own name")
    found = await asyncio.gather(*(names.resolve(planned(name)) for _ in range(50)))
    assert set(found) == {found[0]}
    assert {str(address) for address in found[0]} <= {row[4][0] for row in known}  # type: ignore[union-attr]
    names.close()


async def test_a_name_that_cannot_exist_is_no_answer_from_the_system_either() -> None:
    names = NameResolver(ResolverSettings(timeout=3.0))
    code, reason = failed(await names.resolve(planned("nowhere.invalid")))
    assert code is DenialCode.DNS_FAILED
    assert reason in (ReasonCode.DNS_NO_ANSWER, ReasonCode.DNS_ERROR, ReasonCode.DNS_TIMEOUT)


def test_local_addresses_of_this_host() -> None:
    local = LocalAddresses()
    assert ipaddress.ip_address("127.0.0.1") in local
    assert ipaddress.ip_address("127.9.9.9") in local
    assert ipaddress.ip_address("8.8.8.8") not in local
    # Every address the kernel told us can be bound; one it did not tell cannot.
    for address in local.current():
        if not address.is_link_local:
            family = socket.AF_INET if address.version == 4 else socket.AF_INET6
            with socket.socket(family) as probe:
                probe.bind((str(address), 0))


def test_a_wildcard_listener_is_found_on_every_local_address() -> None:
    local = LocalAddresses().current()
    own = expand_wildcards([(ipaddress.ip_address("0.0.0.0"), 3128)], local)
    for address in local:
        rule = AddressRule(allowed=(ipaddress.ip_network(address),), declared=True)
        result = validate(planned("self.test", rule, 3128), (address,), own)
        assert isinstance(result, Denial)
        assert result.reason_code is ReasonCode.OWN_LISTENER
