"""`egress proxy` and `egress doctor` against the mistakes that corporate networks are made of."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.authorities import OriginAuthority
from tests.support.corporate import NO_ADDRESSES, Squid, credential_file, free_port
from tests.support.origins import Origin, OriginLoop, RawOrigin, answer
from tests.support.proxy import COMMAND, plain_environment


class Operator:
    """Runs commands on one settings file."""

    def __init__(self, directory: Path, trust: Path) -> None:
        self.directory = directory
        self._file = directory / "egress.yaml"
        self._trust = trust

    def run(self, section: dict[str, Any], *words: str, **top: Any) -> tuple[int, Any]:
        """Exit code and JSON output."""
        policy = self.directory / "policy.yaml"
        policy.write_text("version: 1\nnetwork_policies: {}\n")
        document = {
            "version": 1,
            "policy": {"file": str(policy)},
            "state_dir": str(self.directory / "state"),
            "listen": {"proxy": "127.0.0.1:0"},
            "upstream_proxy": section,
            "resolver": {"servers": ["127.0.0.1:9"], "timeout": "300ms"},
            "tls": {"upstream_ca_file": str(self._trust)},
            **top,
        }
        self._file.write_text(yaml.safe_dump(document))
        done = subprocess.run(
            [COMMAND, *words, "--config", str(self._file), "--json"], capture_output=True, text=True, timeout=30,
            env=plain_environment(), check=False,
        )  # fmt: skip
        return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr

    def doctor(self, section: dict[str, Any], name: str, **top: Any) -> list[tuple[str, str, str]]:
        """What doctor says about proxies."""
        _, checks = self.run(section, "doctor", "--name", name, **top)
        return [(item["state"], item["detail"], item["hint"] or "") for item in checks if item["name"] == "proxy"]


@pytest.fixture
def operator(tmp_path: Path, authority: OriginAuthority) -> Operator:
    return Operator(tmp_path, authority.ca_file)


@pytest.fixture(scope="module")
def origin(origin_loop: OriginLoop, authority: OriginAuthority) -> Any:
    found = Origin(origin_loop, authority.server_context("origin.test"))
    yield found
    found.stop()


def only(port: int, **more: Any) -> dict[str, Any]:
    return {"proxies": {"corp": {"url": f"http://127.0.0.1:{port}", **more}}, "handshake_timeout": "3s"}


HERE = {"destinations": {"aliases": {"origin.test": "127.0.0.1"}}}


def test_status_tells_what_is_up(operator: Operator) -> None:
    with Squid() as squid:
        section = {
            "proxies": {
                "corp": {"url": f"http://127.0.0.1:{squid.port}"},
                "dead": {"url": f"socks5://127.0.0.1:{free_port()}"},
                "inner": {"url": "socks5h://inner.corp.test:1080"},
            },
            "chains": {"default": {"any_of": [["corp", "inner"], ["dead"]]}},
            "no_proxy": "localhost",
            "target": "hostname",
        }
        code, told = operator.run(section, "proxy", "status")
    assert code == 1, told
    assert [(item["name"], item["kind"], item["state"]) for item in told["proxies"]] == [
        ("corp", "http", "up"), ("dead", "socks5", "down"), ("inner", "socks5", "behind"),
    ]  # fmt: skip
    assert told["chains"] == {"default": [["corp", "inner"], ["dead"]]}


def test_a_way_is_told_step_by_step(operator: Operator, origin: Origin) -> None:
    with Squid() as squid:
        code, told = operator.run(only(squid.port), "proxy", "test", f"origin.test:{origin.port}", **HERE)
    assert (code, told["ok"], told["plan"], told["addresses"]) == (0, True, "proxy", ["127.0.0.1"])
    assert [(item["asked"], item["answer"]) for item in told["attempts"]] == [(f"127.0.0.1:{origin.port}", "connected")]


def test_what_the_proxy_answered_is_told(operator: Operator, origin: Origin) -> None:
    with Squid(auth="basic") as squid:
        code, told = operator.run(only(squid.port), "proxy", "test", f"origin.test:{origin.port}", **HERE)
    assert (code, told["reason_code"]) == (1, "proxy_auth_rejected")
    assert told["attempts"][0]["answer"] == "asks for a credential (407)"


def test_doctor_on_credentials(operator: Operator) -> None:
    wrong = {"basic_file": str(credential_file(operator.directory, "build:wrong")), "allow_insecure": True}
    with Squid(auth="basic") as squid:
        assert operator.doctor(only(squid.port), "origin.test", **HERE)[1] == (
            "problem",
            "origin.test:443: upstream proxy corp asks for a credential (407)",
            "set `auth` of the proxy: `basic_file`, `digest_file` or `bearer_file`",
        )
        assert operator.doctor(only(squid.port, auth=wrong), "origin.test", **HERE)[1][2] == (
            "check the file that `auth` of the proxy names"
        )


def test_doctor_on_tickets(operator: Operator, origin_loop: OriginLoop) -> None:
    proxy = Origin(origin_loop)
    proxy.script = answer(
        b"HTTP/1.1 407 No\r\nProxy-Authenticate: NTLM\r\nProxy-Authenticate: Negotiate\r\nContent-Length: 0\r\n\r\n"
    )
    told = operator.doctor(only(proxy.port), "origin.test", **HERE)[1]
    proxy.stop()
    assert told == (
        "problem",
        "origin.test:443: upstream proxy corp accepts only ntlm and negotiate, which is not spoken here (407)",
        "run a local relay that speaks it for you, and name that in `url`",
    )


def test_doctor_on_a_proxy_that_refuses_addresses(operator: Operator, origin: Origin) -> None:
    section_of = {"health": {"mode": f"connect:origin.test:{origin.port}"}}
    with Squid(*NO_ADDRESSES, hosts={"origin.test": "127.0.0.1"}) as squid:
        _, checks = operator.run(only(squid.port) | section_of, "doctor", **HERE)
    told = [(item["detail"], item["hint"]) for item in checks if item["name"] == "proxy"][-1]
    assert told[0] == f"origin.test:{origin.port}: upstream proxy corp answered 403"
    assert told[1].startswith("the proxy refuses addresses and takes the name: set `upstream_proxy.target: hostname`")


def test_doctor_on_a_name_that_only_the_proxy_knows(operator: Operator, origin: Origin) -> None:
    section = {"health": {"mode": f"connect:origin.test:{origin.port}"}}
    with Squid(hosts={"origin.test": "127.0.0.1"}) as squid:
        _, checks = operator.run(only(squid.port) | section, "doctor")
    assert [item["hint"] for item in checks if item["name"] == "proxy"][-1] == (
        "the proxy knows the name and we do not (split-horizon DNS): set `resolver.servers` to servers that know it, "
        "or `destinations.aliases`"
    )


def test_doctor_on_a_proxy_that_inspects_tls(operator: Operator, origin_loop: OriginLoop, tmp_path: Path) -> None:
    """The proxy answers every CONNECT itself, with certificates of an authority of its own."""
    inspecting = OriginAuthority(tmp_path)
    context = inspecting.server_context("origin.test")

    async def terminate(talk: Any) -> None:
        await talk.head()
        await talk.send(b"HTTP/1.1 200 OK\r\n\r\n")
        await talk.start_tls(context)

    proxy = RawOrigin(origin_loop)
    proxy.script = terminate
    told = operator.doctor(only(proxy.port), "origin.test", **HERE)[1]
    trusted = operator.doctor(
        only(proxy.port), "origin.test", **HERE, tls={"upstream_ca_file": str(inspecting.ca_file)}
    )[1]
    proxy.stop()
    assert told == (
        "problem",
        "origin.test:443: the origin's certificate was issued by an authority that is not trusted",
        "a proxy that inspects TLS? add its authority to `tls.upstream_ca_file`",
    )
    assert trusted == ("ok", "origin.test:443 is reached. the origin's certificate is good", "")


def test_doctor_on_the_certificate_of_the_proxy(operator: Operator, authority: OriginAuthority) -> None:
    with Squid(tls=authority.key_pair("proxy.corp.test")) as squid:
        hop = {"url": f"https://127.0.0.1:{squid.port}", "server_name": "proxy.corp.test"}
        (state, detail, hint), *_ = operator.doctor({"proxies": {"corp": hop}}, "origin.test", **HERE)
    assert state == "problem"
    assert "shows a certificate that is not trusted" in detail
    assert hint == "set `ca_file` to the authority of the proxy, `server_name` to the name it has there"
