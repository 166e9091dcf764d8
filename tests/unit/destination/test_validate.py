import ipaddress
from dataclasses import replace

import pytest

from egress.destination.validate import (
    CONTROL_PLANE_PORTS,
    GATEWAY_NAMES,
    DestinationSettings,
    Plan,
    plan,
    validate,
)
from egress.model.address import IpAddress, Origin, Port, Scheme, parse_host
from egress.model.destination import AddressRule, DialMode, PinnedDestination
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage

DECLARED = AddressRule(declared=True)
WILDCARD = AddressRule(declared=False)
NOTHING_OWN: frozenset[tuple[IpAddress, int]] = frozenset()
GATEWAY = DestinationSettings(host_gateway=ipaddress.ip_address("169.254.1.2"))
ALIASED = DestinationSettings(aliases={"origin.test": ipaddress.ip_address("127.0.0.1")})


def origin(host: str = "api.acme.test", port: int = 443) -> Origin:
    return Origin(Scheme.HTTPS, parse_host(host), Port(port))


def listed(*networks: str, declared: bool = True) -> AddressRule:
    return AddressRule(allowed=tuple(ipaddress.ip_network(text) for text in networks), declared=declared)


def ips(*texts: str) -> tuple[IpAddress, ...]:
    return tuple(ipaddress.ip_address(text) for text in texts)


def decide(
    rule: AddressRule,
    host: str,
    *answers: str,
    port: int = 443,
    settings: DestinationSettings | None = None,
    own: frozenset[tuple[IpAddress, int]] = NOTHING_OWN,
) -> PinnedDestination | Denial:
    planned = plan(rule, origin(host, port), settings or DestinationSettings())
    if isinstance(planned, Denial):
        return planned
    return validate(planned, ips(*answers), own)


def dialled(result: PinnedDestination | Denial) -> list[str]:
    assert isinstance(result, PinnedDestination), result
    return [str(address) for address in result.addresses]


def refused(result: PinnedDestination | Denial) -> tuple[str, ReasonCode | None]:
    assert isinstance(result, Denial), result
    assert result.stage is Stage.DESTINATION
    assert result.code is DenialCode.SSRF_DENIED
    return result.reason, result.reason_code


@pytest.mark.parametrize(
    ("rule", "host", "settings", "mode"),
    [
        (DECLARED, "origin.test", ALIASED, DialMode.ALIAS),
        (WILDCARD, "origin.test", ALIASED, DialMode.PUBLIC_ONLY),
        (listed("10.0.0.0/8"), "origin.test", ALIASED, DialMode.ALIAS),
        (DECLARED, "host.docker.internal", GATEWAY, DialMode.TRUSTED_GATEWAY),
        (WILDCARD, "host.containers.internal", GATEWAY, DialMode.TRUSTED_GATEWAY),
        (DECLARED, "host.openshell.internal", DestinationSettings(), DialMode.DECLARED),
        (listed("10.0.0.0/8"), "api.acme.test", GATEWAY, DialMode.ALLOWED_LIST),
        (listed(), "api.acme.test", GATEWAY, DialMode.ALLOWED_LIST),
        (listed("10.0.0.0/8"), "10.1.2.3", GATEWAY, DialMode.ALLOWED_LIST),
        (DECLARED, "10.1.2.3", GATEWAY, DialMode.LITERAL),
        (WILDCARD, "10.1.2.3", GATEWAY, DialMode.PUBLIC_ONLY),
        (DECLARED, "127.0.0.1", GATEWAY, DialMode.DECLARED),
        (DECLARED, "api.acme.test", GATEWAY, DialMode.DECLARED),
        (DECLARED, "api.acme.test", DestinationSettings(trust_declared_hosts=False), DialMode.PUBLIC_ONLY),
        (WILDCARD, "api.acme.test", GATEWAY, DialMode.PUBLIC_ONLY),
    ],
)
def test_first_row_that_applies(rule: AddressRule, host: str, settings: DestinationSettings, mode: DialMode) -> None:
    planned = plan(rule, origin(host), settings)
    assert isinstance(planned, Plan)
    assert planned.mode is mode


BLOCKED = ["127.0.0.1", "169.254.1.1", "0.0.0.0", "::1", "::", "fe80::1", "::ffff:127.0.0.1", "224.0.0.1"]
METADATA = ["169.254.169.254", "fd00:ec2::254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "168.63.129.16"]
INTERNAL = ["10.0.0.1", "192.168.1.1", "100.64.0.1", "fd00::1", "192.0.2.1", "198.18.0.1", "240.0.0.1"]


@pytest.mark.parametrize("address", BLOCKED)
@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        (DECLARED, "declared endpoint check failed"),
        (WILDCARD, "internal address"),
        (listed("0.0.0.0/0", "::/0"), "allowed_ips check failed"),
    ],
)
def test_no_policy_reaches_blocked_addresses(rule: AddressRule, kind: str, address: str) -> None:
    assert refused(decide(rule, "api.acme.test", address)) == (kind, ReasonCode.SSRF_ALWAYS_BLOCKED)


@pytest.mark.parametrize("address", METADATA)
@pytest.mark.parametrize("rule", [DECLARED, WILDCARD, listed("0.0.0.0/0", "::/0")])
def test_no_policy_reaches_metadata_services(rule: AddressRule, address: str) -> None:
    assert refused(decide(rule, "api.acme.test", address))[1] is ReasonCode.SSRF_METADATA


@pytest.mark.parametrize("name", ["metadata.google.internal", "metadata", "instance-data", "METADATA."])
@pytest.mark.parametrize("rule", [DECLARED, WILDCARD, listed("10.0.0.0/8")])
def test_metadata_names_are_refused_before_a_look_up(rule: AddressRule, name: str) -> None:
    aliases = DestinationSettings(aliases={"metadata": ipaddress.ip_address("10.0.0.1")})
    assert isinstance(plan(rule, origin(name), aliases), Denial)


@pytest.mark.parametrize("address", INTERNAL)
def test_internal_addresses_need_a_host_that_policy_names(address: str) -> None:
    assert refused(decide(WILDCARD, "api.acme.test", address)) == ("internal address", ReasonCode.SSRF_PRIVATE)
    assert dialled(decide(DECLARED, "api.acme.test", address)) == [address]
    untrusting = DestinationSettings(trust_declared_hosts=False)
    assert refused(decide(DECLARED, "api.acme.test", address, settings=untrusting))[1] is ReasonCode.SSRF_PRIVATE


@pytest.mark.parametrize("rule", [WILDCARD, DECLARED])
def test_public_addresses_pass_in_order_and_once(rule: AddressRule) -> None:
    answers = ("93.184.216.34", "2606:4700::1", "93.184.216.34", "::ffff:93.184.216.34")
    assert dialled(decide(rule, "api.acme.test", *answers)) == ["93.184.216.34", "2606:4700::1"]


def test_one_bad_answer_condemns_all() -> None:
    assert refused(decide(WILDCARD, "a.acme.test", "93.184.216.34", "10.0.0.1"))[1] is ReasonCode.SSRF_PRIVATE
    assert refused(decide(DECLARED, "a.acme.test", "93.184.216.34", "::1"))[1] is ReasonCode.SSRF_ALWAYS_BLOCKED
    only = listed("10.20.0.0/16")
    assert refused(decide(only, "db.test", "10.20.3.4", "10.21.0.1"))[1] is ReasonCode.NOT_IN_ALLOWED_IPS


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("10.20.3.4", "10.20.3.4"),
        ("::ffff:10.20.3.4", "10.20.3.4"),
        ("93.184.216.34", ReasonCode.NOT_IN_ALLOWED_IPS),
        ("10.21.0.1", ReasonCode.NOT_IN_ALLOWED_IPS),
        ("fd12::1", ReasonCode.NOT_IN_ALLOWED_IPS),
    ],
)
def test_a_list_replaces_everything_else(answer: str, verdict: str | ReasonCode) -> None:
    result = decide(listed("10.20.0.0/16"), "db.corp.test", answer)
    if isinstance(verdict, str) and not isinstance(verdict, ReasonCode):
        assert dialled(result) == [verdict]
    else:
        assert refused(result) == ("allowed_ips check failed", verdict)


def test_an_empty_list_reaches_nothing() -> None:
    assert refused(decide(listed(), "db.test", "93.184.216.34"))[1] is ReasonCode.NOT_IN_ALLOWED_IPS


@pytest.mark.parametrize(
    ("rule", "host", "verdict"),
    [
        (DECLARED, "10.1.2.3", "10.1.2.3"),
        (DECLARED, "[::ffff:10.1.2.3]", "10.1.2.3"),
        (DECLARED, "[2001:db8::5]", "2001:db8::5"),
        (WILDCARD, "93.184.216.34", "93.184.216.34"),
        (listed("10.1.0.0/16", declared=False), "10.1.2.3", "10.1.2.3"),
        (WILDCARD, "10.1.2.3", ("internal address", ReasonCode.SSRF_PRIVATE)),
        (listed("10.2.0.0/16"), "10.1.2.3", ("allowed_ips check failed", ReasonCode.NOT_IN_ALLOWED_IPS)),
        (DECLARED, "127.0.0.1", ("declared endpoint check failed", ReasonCode.SSRF_ALWAYS_BLOCKED)),
        (WILDCARD, "127.0.0.1", ("internal address", ReasonCode.SSRF_ALWAYS_BLOCKED)),
        (DECLARED, "[fd00:ec2::254]", ("declared endpoint check failed", ReasonCode.SSRF_METADATA)),
        (DECLARED, "[64:ff9b::7f00:1]", ("declared endpoint check failed", ReasonCode.SSRF_ALWAYS_BLOCKED)),
    ],
)
def test_literals(rule: AddressRule, host: str, verdict: str | tuple[str, ReasonCode]) -> None:
    result = decide(rule, host)
    if isinstance(verdict, str):
        assert dialled(result) == [verdict]
    else:
        assert refused(result) == verdict


def test_answers_cannot_replace_what_is_known() -> None:
    assert dialled(decide(DECLARED, "10.1.2.3", "10.9.9.9")) == ["10.1.2.3"]
    assert dialled(decide(DECLARED, "origin.test", "8.8.8.8", settings=ALIASED)) == ["127.0.0.1"]


@pytest.mark.parametrize("port", sorted(CONTROL_PLANE_PORTS))
@pytest.mark.parametrize(
    ("rule", "host", "settings"),
    [
        (WILDCARD, "api.acme.test", DestinationSettings()),
        (DECLARED, "api.acme.test", DestinationSettings()),
        (listed("10.0.0.0/8"), "api.acme.test", DestinationSettings()),
        (DECLARED, "10.1.2.3", DestinationSettings()),
        (DECLARED, "host.docker.internal", GATEWAY),
        (DECLARED, "origin.test", ALIASED),
    ],
)
def test_control_plane_ports_in_every_mode(
    rule: AddressRule, host: str, settings: DestinationSettings, port: int
) -> None:
    denial = plan(rule, origin(host, port), settings)
    assert isinstance(denial, Denial)
    assert denial.reason_code is ReasonCode.CONTROL_PLANE_PORT
    assert denial.log_reason == f"port {port} is a blocked control-plane port, connection rejected"
    assert isinstance(plan(replace(rule, control_plane_port=True), origin(host, port), settings), Plan)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "169.254.7.7", "10.0.0.1", "8.8.8.8"])
def test_an_alias_dials_what_the_operator_vouched_for(address: str) -> None:
    settings = DestinationSettings(aliases={"origin.test": ipaddress.ip_address(address)})
    result = decide(DECLARED, "origin.test", settings=settings)
    assert dialled(result) == [address]
    assert isinstance(result, PinnedDestination)
    assert result.mode is DialMode.ALIAS


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("169.254.169.254", ReasonCode.SSRF_METADATA),
        ("fd00:ec2::254", ReasonCode.SSRF_METADATA),
        ("::ffff:169.254.169.254", ReasonCode.SSRF_METADATA),
        ("0.0.0.0", ReasonCode.SSRF_ALWAYS_BLOCKED),
        ("224.0.0.1", ReasonCode.SSRF_ALWAYS_BLOCKED),
    ],
)
def test_an_alias_cannot_name_everything(address: str, code: ReasonCode) -> None:
    settings = DestinationSettings(aliases={"origin.test": ipaddress.ip_address(address)})
    assert refused(decide(DECLARED, "origin.test", settings=settings)) == ("alias check failed", code)


def test_a_wildcard_endpoint_does_not_reach_an_alias() -> None:
    assert dialled(decide(WILDCARD, "origin.test", "93.184.216.34", settings=ALIASED)) == ["93.184.216.34"]
    assert refused(decide(WILDCARD, "origin.test", "127.0.0.1", settings=ALIASED))[0] == "internal address"
    assert refused(decide(DECLARED, "sub.origin.test", "127.0.0.1", settings=ALIASED))[0] != "alias check failed"


@pytest.mark.parametrize("name", sorted(GATEWAY_NAMES))
def test_the_trusted_gateway_is_one_address(name: str) -> None:
    kind = "trusted-gateway check failed"
    assert dialled(decide(DECLARED, name, "169.254.1.2", settings=GATEWAY)) == ["169.254.1.2"]
    for other in ("169.254.1.3", "10.0.0.1", "8.8.8.8", "127.0.0.1"):
        assert refused(decide(DECLARED, name, other, settings=GATEWAY)) == (kind, ReasonCode.ALIAS_MISMATCH)
    assert refused(decide(DECLARED, name, "169.254.169.254", settings=GATEWAY)) == (kind, ReasonCode.SSRF_METADATA)
    both = decide(DECLARED, name, "169.254.1.2", "8.8.8.8", settings=GATEWAY)
    assert refused(both) == (kind, ReasonCode.ALIAS_MISMATCH)


@pytest.mark.parametrize("gateway", ["169.254.169.254", "10.0.0.1", "127.0.0.1"])
def test_no_other_kind_of_address_is_a_gateway(gateway: str) -> None:
    settings = DestinationSettings(host_gateway=ipaddress.ip_address(gateway))
    assert refused(decide(DECLARED, "host.docker.internal", gateway, settings=settings))


@pytest.mark.parametrize(
    ("listener", "alias", "port", "own_port"),
    [
        ("127.0.0.1", "127.0.0.1", 3128, 3128),
        ("0.0.0.0", "127.0.0.1", 3128, 3128),
        ("0.0.0.0", "127.8.8.8", 3128, 3128),
        ("::", "127.0.0.1", 3128, 3128),
        ("::", "::1", 3128, 3128),
        ("::1", "::1", 3128, 3128),
        ("127.0.0.1", "::ffff:127.0.0.1", 3128, 3128),
    ],
)
def test_own_listeners_are_out_of_reach(listener: str, alias: str, port: int, own_port: int) -> None:
    settings = DestinationSettings(aliases={"origin.test": ipaddress.ip_address(alias)})
    own = frozenset({(ipaddress.ip_address(listener), own_port)})
    denied = refused(decide(DECLARED, "origin.test", port=port, settings=settings, own=own))
    assert denied == ("alias check failed", ReasonCode.OWN_LISTENER)
    assert dialled(decide(DECLARED, "origin.test", port=port + 1, settings=settings, own=own))


def test_own_listeners_are_out_of_reach_in_every_mode() -> None:
    own = frozenset({(ipaddress.ip_address("10.0.0.5"), 3128)})
    for rule in (DECLARED, WILDCARD, listed("10.0.0.0/8")):
        assert refused(decide(rule, "api.acme.test", "10.0.0.5", port=3128, own=own))[1] is ReasonCode.OWN_LISTENER


def test_the_client_is_told_the_kind_and_the_log_the_address() -> None:
    result = decide(DECLARED, "api.acme.test", "127.0.0.1")
    assert isinstance(result, Denial)
    assert result.reason == "declared endpoint check failed"
    assert result.log_reason == "api.acme.test resolves to always-blocked address 127.0.0.1, connection rejected"
    verbose = decide(DECLARED, "api.acme.test", "127.0.0.1", settings=DestinationSettings(verbose=True))
    assert isinstance(verbose, Denial)
    assert verbose.reason == "declared endpoint check failed (127.0.0.1)"


@pytest.mark.parametrize(
    ("rule", "settings", "host", "answer", "log_reason"),
    [
        (WILDCARD, None, "a.test", "10.0.0.1", "a.test resolves to internal address 10.0.0.1, connection rejected"),
        (
            listed("10.1.0.0/16"), None, "a.test", "10.2.0.1",
            "a.test resolves to 10.2.0.1 which is not in allowed_ips, connection rejected",
        ),
        (
            DECLARED, GATEWAY, "host.docker.internal", "169.254.169.254",
            "host.docker.internal resolves to cloud metadata address 169.254.169.254, connection rejected",
        ),
        (
            DECLARED, GATEWAY, "host.docker.internal", "169.254.9.9",
            "host.docker.internal resolves to 169.254.9.9 which does not match trusted host gateway 169.254.1.2, "
            "connection rejected",
        ),
    ],
)  # fmt: skip
def test_log_reasons(
    rule: AddressRule, settings: DestinationSettings | None, host: str, answer: str, log_reason: str
) -> None:
    result = decide(rule, host, answer, settings=settings)
    assert isinstance(result, Denial)
    assert result.log_reason == log_reason


def test_no_answers_is_a_failed_look_up_and_no_security_denial() -> None:
    result = decide(DECLARED, "api.acme.test")
    assert isinstance(result, Denial)
    assert (result.code, result.reason_code) == (DenialCode.DNS_FAILED, ReasonCode.DNS_NO_ANSWER)
