import base64
import ipaddress
import pickle
from pathlib import Path

import pytest

from egress.identity.agents import (
    MAX_TRACKED_PEERS,
    AgentSpec,
    AgentTable,
    AuthFailures,
    ProxyCredential,
    parse_basic,
    read_password,
)
from egress.model.address import IpAddress
from egress.model.intent import AgentName
from egress.model.verdict import Denial, DenialCode

LOOPBACK = ipaddress.ip_address("127.0.0.1")


def spec(name: str, *, uids: tuple[int, ...] = (), cidrs: tuple[str, ...] = (), user: str | None = None) -> AgentSpec:
    return AgentSpec(
        AgentName(name),
        frozenset(uids),
        tuple(ipaddress.ip_network(text) for text in cidrs),
        user,
        None if user is None else Path(f"/secrets/{user}"),
    )


def table(*specs: AgentSpec) -> AgentTable:
    """Each agent's password is `secret-` and its user."""
    return AgentTable(specs, {item.name: f"secret-{item.proxy_user}".encode() for item in specs})


def credential(user: str, password: str | None = None) -> ProxyCredential:
    return ProxyCredential(user.encode(), (password or f"secret-{user}").encode())


def match(
    agents: AgentTable,
    peer: str = "127.0.0.1",
    *,
    uid: int | None = 1000,
    credential: ProxyCredential | None = None,
    local: bool = True,
) -> str | DenialCode:
    result = agents.match(ipaddress.ip_address(peer), uid, credential, local=local)
    return result.code if isinstance(result, Denial) else result


class TestWithoutAgents:
    def test_a_client_of_this_host_is_the_default_agent(self) -> None:
        assert match(table()) == "default"
        assert match(table(), "10.0.0.5", uid=0) == "default"

    def test_nobody_else_may_connect(self) -> None:
        assert match(table(), "10.0.0.9", uid=None, local=False) is DenialCode.CLIENT_NOT_ALLOWED
        assert match(table(), uid=None) is DenialCode.CLIENT_NOT_ALLOWED
        assert match(table(), local=False) is DenialCode.CLIENT_NOT_ALLOWED

    def test_what_it_needs(self) -> None:
        assert (table().needs_uid, table().needs_credential) == (True, False)


class TestMatchers:
    def test_the_first_agent_whose_matchers_all_hold(self) -> None:
        agents = table(
            spec("both", uids=(1000,), cidrs=("10.0.0.0/24",)),
            spec("uid", uids=(1000, 1001)),
            spec("net", cidrs=("10.0.0.0/16", "2001:db8::/32")),
        )
        assert match(agents, "10.0.0.7") == "both"
        assert match(agents, "10.0.1.7") == "uid"
        assert match(agents, "10.0.1.7", uid=1002) == "net"
        assert match(agents, "2001:db8::1", uid=None) == "net"
        assert match(agents, "10.1.0.1", uid=1002) is DenialCode.CLIENT_NOT_ALLOWED

    def test_a_uid_never_holds_without_local_evidence(self) -> None:
        assert match(table(spec("root", uids=(0,))), uid=None) is DenialCode.CLIENT_NOT_ALLOWED

    def test_an_agent_without_matchers_matches_nobody(self) -> None:
        assert match(table(spec("open"))) is DenialCode.CLIENT_NOT_ALLOWED

    @pytest.mark.parametrize(
        ("specs", "needs"),
        [
            ((spec("a", uids=(1,)),), (True, False)),
            ((spec("a", cidrs=("10.0.0.0/24",)),), (False, False)),
            ((spec("a", user="a"), spec("b", cidrs=("10.0.0.0/24",))), (False, True)),
        ],
    )
    def test_nothing_is_looked_up_that_no_matcher_reads(
        self, specs: tuple[AgentSpec, ...], needs: tuple[bool, bool]
    ) -> None:
        agents = table(*specs)
        assert (agents.needs_uid, agents.needs_credential) == needs


class TestProxyAuth:
    AGENTS = table(spec("a", user="alice"), spec("b", user="bob", cidrs=("10.0.0.0/24",)), spec("open", uids=(7,)))

    def test_who_has_the_credential(self) -> None:
        assert match(self.AGENTS, credential=credential("alice")) == "a"
        assert match(self.AGENTS, "10.0.0.1", credential=credential("bob")) == "b"

    def test_all_matchers_must_hold(self) -> None:
        assert match(self.AGENTS, credential=credential("bob")) is DenialCode.PROXY_AUTH_REQUIRED

    def test_without_a_credential(self) -> None:
        assert match(self.AGENTS) is DenialCode.PROXY_AUTH_REQUIRED
        assert match(self.AGENTS, uid=7) == "open"

    @pytest.mark.parametrize(
        "wrong", [credential("alice", "x"), credential("mallory"), credential("alice", "secret-bob"), credential("a")]
    )
    def test_a_wrong_credential_does_not_fall_through(self, wrong: ProxyCredential) -> None:
        assert match(self.AGENTS, uid=7, credential=wrong) is DenialCode.PROXY_AUTH_REQUIRED

    def test_a_credential_of_another_agent_may_match_an_agent_that_asks_for_none(self) -> None:
        assert match(self.AGENTS, uid=7, credential=credential("bob")) == "open"

    def test_where_no_agent_uses_credentials_one_is_ignored(self) -> None:
        assert match(table(spec("a", uids=(1000,))), credential=credential("x")) == "a"

    def test_two_agents_with_one_credential_differ_by_the_rest(self) -> None:
        agents = table(spec("a", user="x", cidrs=("10.0.0.0/24",)), spec("b", user="x"))
        assert match(agents, "10.0.0.1", credential=credential("x")) == "a"
        assert match(agents, "10.0.1.1", credential=credential("x")) == "b"


def basic(text: str) -> bytes:
    return b"Basic " + base64.b64encode(text.encode())


class TestBasic:
    @pytest.mark.parametrize(
        ("value", "user", "password"),
        [
            (basic("build-1:pa:ss"), "build-1", "pa:ss"),
            (b"bAsIc  " + base64.b64encode(b"u:p") + b" ", "u", "p"),
            (basic(":p"), "", "p"),
            (basic("u:é"), "u", "é"),
        ],
    )
    def test_read(self, value: bytes, user: str, password: str) -> None:
        assert parse_basic(value) == ProxyCredential(user.encode(), password.encode())

    @pytest.mark.parametrize(
        "value",
        [
            b"", b"Basic", b"Basic ", b"Bearer dTpw", b"Basic dTpw!", b"Basic dTp", basic("nocolon"),
            basic("u:" + "p" * 1024), b"Basicd TpwdTpw", b"Basic dTpw dTpw",
        ],
    )  # fmt: skip
    def test_refused(self, value: bytes) -> None:
        assert parse_basic(value) is None

    def test_prints_nothing(self) -> None:
        secret = ProxyCredential(b"user", b"hunter2")
        assert "hunter2" not in f"{secret} {secret!r}"
        with pytest.raises(TypeError):
            pickle.dumps(secret)
        assert secret != ProxyCredential(b"user", b"hunter3")
        assert secret != "hunter2"


class TestPasswordFile:
    @pytest.mark.parametrize("mode", [0o600, 0o400])
    def test_first_line(self, tmp_path: Path, mode: int) -> None:
        path = tmp_path / "password"
        path.write_bytes(b"pa ss\r\nsecond")
        path.chmod(mode)
        assert read_password(path) == b"pa ss"

    @pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o700, 0o660])
    def test_others_must_not_read_it(self, tmp_path: Path, mode: int) -> None:
        path = tmp_path / "password"
        path.write_bytes(b"x")
        path.chmod(mode)
        with pytest.raises(ValueError, match=f"has mode {mode:04o}"):
            read_password(path)

    @pytest.mark.parametrize("content", [b"", b"\n", b"x" * 1025])
    def test_no_password(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "password"
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(ValueError, match=r"is (empty|longer)"):
            read_password(path)

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="cannot be read"):
            read_password(tmp_path / "password")


class FakeClock:
    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time


class TestFailures:
    def fail(self, failures: AuthFailures, peer: IpAddress = LOOPBACK, times: int = 1) -> None:
        for _ in range(times):
            failures.failed(peer)

    def test_ten_in_a_minute_block_for_a_minute(self) -> None:
        clock = FakeClock()
        failures = AuthFailures(clock)
        self.fail(failures, times=9)
        assert failures.blocked_for(LOOPBACK) is None
        clock.time += 30
        self.fail(failures)
        assert failures.blocked_for(LOOPBACK) == 60
        clock.time += 59
        assert failures.blocked_for(LOOPBACK) == 1
        clock.time += 1
        assert failures.blocked_for(LOOPBACK) is None
        self.fail(failures, times=9)
        assert failures.blocked_for(LOOPBACK) is None

    def test_slow_failures_do_not_add_up(self) -> None:
        clock = FakeClock()
        failures = AuthFailures(clock)
        for _ in range(30):
            self.fail(failures)
            clock.time += 7
        assert failures.blocked_for(LOOPBACK) is None

    def test_addresses_count_apart_and_ipv6_by_network(self) -> None:
        failures = AuthFailures(FakeClock())
        self.fail(failures, ipaddress.ip_address("2001:db8::1"), times=5)
        self.fail(failures, ipaddress.ip_address("2001:db8::2:3"), times=5)
        assert failures.blocked_for(ipaddress.ip_address("2001:db8::9")) == 60
        assert failures.blocked_for(ipaddress.ip_address("2001:db8:0:1::9")) is None
        assert failures.blocked_for(LOOPBACK) is None

    def test_a_flood_of_addresses_is_bounded(self) -> None:
        failures = AuthFailures(FakeClock())
        self.fail(failures, times=10)
        for number in range(MAX_TRACKED_PEERS):
            failures.failed(ipaddress.IPv4Address(0x0A000000 + number))
        assert failures.blocked_for(LOOPBACK) is None
