"""The front door: who may connect, how many, what is told where, and how a connection is kept or ended."""

import base64
import json
import socket
import stat
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.origins import Origin, OriginLoop
from tests.support.proxy import EgressProcess, policy_text, rest
from tests.support.raw import Reply, connect_head, dial, eventually

HOST = "origin.test"


def basic(user: str, password: str) -> str:
    return f"Proxy-Authorization: Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}\r\n"


ALICE, BOB = basic("alice", "alice's word"), basic("bob", "bob:word")


@pytest.fixture(scope="module")
def origin(origin_loop: OriginLoop) -> Iterator[Origin]:
    origin = Origin(origin_loop)
    yield origin
    origin.stop()


def start(origin: Origin, settings: dict[str, Any] | None = None) -> EgressProcess:
    policy = policy_text(rest(HOST, origin.port, ("GET", "/**")))
    return EgressProcess(policy, aliases={HOST: "127.0.0.1"}, settings=settings)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Password files, and a policy of bob's own that allows less."""
    directory = tmp_path_factory.mktemp("words")
    for name, word in (("alice", "alice's word"), ("bob", "bob:word")):
        (directory / name).write_text(word + "\n")
        (directory / name).chmod(0o600)
    return directory


@pytest.fixture(scope="module")
def gated(origin: Origin, words: Path) -> Iterator[EgressProcess]:
    """A proxy whose agents are known by their credentials, bob's under a policy of his own."""
    own = words / "bob.yaml"
    own.write_text(policy_text(rest(HOST, origin.port, ("GET", "/bob/**"))))
    agents = [
        {
            "name": name,
            "match": {"proxy_auth": {"user": name, "password_file": str(words / name)}},
            "identity": "off",
            **({"policy": str(own)} if name == "bob" else {}),
        }
        for name in ("alice", "bob")
    ]
    settings = {"agents": agents, "timeouts": {"head": "2s"}, "reload": {"check_origin": "off"}}
    with start(origin, settings) as proxy:
        yield proxy


def get(origin: Origin, path: str = "/x", extra: str = "") -> bytes:
    return f"GET http://{HOST}:{origin.port}{path} HTTP/1.1\r\n{extra}\r\n".encode()


def ask(proxy: EgressProcess, origin: Origin, path: str = "/x", extra: str = "") -> Reply:
    with dial(proxy.port) as client:
        client.send(get(origin, path, extra))
        return client.reply()


# agents ------------------------------------------------------------------------------------------------------------


def test_no_credential_is_asked_for_and_the_connection_kept(gated: EgressProcess, origin: Origin) -> None:
    with dial(gated.port) as client:
        client.send(get(origin))
        reply = client.reply()
        assert (reply.status, reply.error) == (407, "proxy_auth_required")
        assert reply.value("proxy-authenticate") == 'Basic realm="egress"'
        assert reply.value("connection") is None
        client.send(get(origin, extra=ALICE))
        assert client.reply().body == b"ok"


def test_a_connect_without_credential_is_asked_too(gated: EgressProcess, origin: Origin) -> None:
    with dial(gated.port) as client:
        client.send(connect_head(f"{HOST}:{origin.port}"))
        assert client.reply().status == 407
        client.send(connect_head(f"{HOST}:{origin.port}", ALICE))
        assert client.reply("CONNECT").status == 200


def test_a_refused_request_with_a_body_ends_the_connection(gated: EgressProcess, origin: Origin) -> None:
    with dial(gated.port) as client:
        client.send(get(origin, extra="Content-Length: 5\r\n") + b"GET /")
        assert client.reply().status == 407
        assert client.closed_by_peer()


@pytest.mark.parametrize(
    "line",
    [
        basic("alice", "wrong"),
        basic("mallory", "alice's word"),
        "Proxy-Authorization: Bearer x\r\n",
        "Proxy-Authorization: Basic !!!\r\n",
        ALICE + ALICE,
    ],
)
def test_a_wrong_credential_is_no_credential(gated: EgressProcess, origin: Origin, line: str) -> None:
    assert ask(gated, origin, extra=line).error == "proxy_auth_required"


def test_each_agent_has_its_own_policy(gated: EgressProcess, origin: Origin) -> None:
    assert ask(gated, origin, "/alice", ALICE).status == 200
    assert ask(gated, origin, "/bob/x", BOB).status == 200
    refused = ask(gated, origin, "/alice", BOB)
    assert (refused.status, refused.json()["reason_code"]) == (403, "method_path_denied")


def test_the_credential_goes_no_further(gated: EgressProcess, origin: Origin) -> None:
    origin.take()
    ask(gated, origin, "/seen", ALICE)
    assert b"GET /seen" in (seen := origin.take())
    assert b"authorization" not in seen.lower()


def test_another_agent_on_the_same_connection_ends_it(gated: EgressProcess, origin: Origin) -> None:
    with dial(gated.port) as client:
        client.send(get(origin, extra=ALICE))
        assert client.reply().status == 200
        client.send(get(origin, "/bob/x", BOB))
        assert client.closed_by_peer()
    assert not any(request.target == b"/bob/x" for request in origin.requests[-1:])


def test_an_unknown_caller_may_not_idle(gated: EgressProcess, origin: Origin) -> None:
    with dial(gated.port) as client:
        client.send(get(origin))
        assert client.reply().status == 407
        assert client.closed_by_peer()


def test_guessing_ends_in_429(origin: Origin, words: Path) -> None:
    agent = {"name": "alice", "match": {"proxy_auth": {"user": "alice", "password_file": str(words / "alice")}}}
    settings = {"agents": [{**agent, "identity": "off"}], "reload": {"check_origin": "off"}}
    with start(origin, settings) as proxy:
        codes = [ask(proxy, origin, extra=basic("alice", f"guess {number}")).error for number in range(12)]
        assert codes == ["proxy_auth_required"] * 10 + ["rate_limited"] * 2
        blocked = ask(proxy, origin, extra=ALICE)
        assert (blocked.status, blocked.error) == (429, "rate_limited")
        assert blocked.value("retry-after") is not None


def test_who_matches_no_agent_is_refused(origin: Origin) -> None:
    agents = [{"name": "elsewhere", "match": {"cidrs": ["192.0.2.0/24"]}, "identity": "off"}]
    with start(origin, {"agents": agents}) as proxy:
        refused = ask(proxy, origin)
        assert (refused.status, refused.error) == (403, "client_not_allowed")
        with dial(proxy.port) as client:
            client.send(connect_head(f"{HOST}:{origin.port}"))
            assert client.reply().error == "client_not_allowed"


# bounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"connections": 3, "connections_per_caller": 3}, "connections"),
        ({"connections": 9, "connections_per_caller": 3}, "caller_connections"),
    ],
)
def test_one_connection_too_many_is_told_and_room_comes_back(
    origin: Origin, limits: dict[str, int], reason: str
) -> None:
    with start(origin, {"limits": limits}) as proxy:
        held = [dial(proxy.port) for _ in range(3)]
        for client in held:
            client.send(get(origin))
            assert client.reply().status == 200
        with dial(proxy.port) as late:
            refused = late.reply()
            assert (refused.status, refused.error) == (503, "overloaded")
            assert refused.json()["reason_code"] == reason
            assert refused.value("retry-after") is not None
        held.pop().close()
        assert eventually(lambda: ask(proxy, origin).status == 200)
        for client in held:
            client.send(get(origin))
            assert client.reply().status == 200
            client.close()


# keep-alive on the proxy port ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def proxy(origin: Origin) -> Iterator[EgressProcess]:
    settings = {"metrics": {"address": "127.0.0.1:0"}, "timeouts": {"head": "1s"}}
    with start(origin, settings) as proxy:
        yield proxy


def test_each_absolute_form_request_is_judged_anew(proxy: EgressProcess, origin: Origin) -> None:
    with dial(proxy.port) as client:
        for path in ("/1", "/2"):
            client.send(get(origin, path))
            assert client.reply().status == 200
        client.send(f"GET http://other.test:{origin.port}/ HTTP/1.1\r\n\r\n".encode())
        refused = client.reply()
        assert (refused.status, refused.error) == (403, "policy_denied")
        assert client.closed_by_peer()


def test_requests_in_one_write_are_answered_in_order(proxy: EgressProcess, origin: Origin) -> None:
    with dial(proxy.port) as client:
        denied = get(origin, "/3").replace(b"GET", b"PUT", 1)
        client.send(get(origin, "/1") + get(origin, "/2") + denied + get(origin, "/4"))
        assert [client.reply().status for _ in range(3)] == [200, 200, 403]
        assert client.closed_by_peer()
    assert [request.target for request in origin.requests[-2:]] == [b"/1", b"/2"]


def test_a_connect_may_follow_absolute_form_requests(proxy: EgressProcess, origin: Origin) -> None:
    with dial(proxy.port) as client:
        client.send(get(origin))
        assert client.reply().status == 200
        client.send(connect_head(f"{HOST}:{origin.port}"))
        assert client.reply("CONNECT").status == 200
        client.send(f"GET /in HTTP/1.1\r\nHost: {HOST}:{origin.port}\r\n\r\n".encode())
        assert client.reply().body == b"ok"


def test_via_is_appended_behind_every_hop_before_us(proxy: EgressProcess, origin: Origin) -> None:
    ask(proxy, origin, "/via", "Via: 1.0 first\r\nA: b\r\nVia: 1.1 second\r\n")
    assert origin.requests[-1].values(b"via") == [b"1.0 first", b"1.1 second, 1.1 egress"]


def test_a_silent_client_is_let_go_without_a_word(proxy: EgressProcess) -> None:
    with dial(proxy.port) as client:
        assert client.closed_by_peer()


def test_a_client_that_sends_half_a_head_is_told(proxy: EgressProcess) -> None:
    with dial(proxy.port) as client:
        client.send(b"GET http://origin.test/ HT")
        assert (reply := client.reply()).status == 408
        assert reply.error == "request_timeout"


def test_a_client_that_leaves_in_its_head_is_told_too(proxy: EgressProcess) -> None:
    with dial(proxy.port) as client:
        client.send(b"GET http://origin.test/ HT")
        client.finish_sending()
        assert client.reply().error == "malformed_request"


# what is told --------------------------------------------------------------------------------------------------------


def test_the_ready_file_names_everything(proxy: EgressProcess) -> None:
    ready = json.loads((proxy.directory / "ready.json").read_text())
    assert ready["proxy"] == f"127.0.0.1:{proxy.port}"
    assert ready["pid"] == proxy.process.pid
    assert Path(ready["ca"]).read_text().startswith("-----BEGIN CERTIFICATE-----")
    assert Path(ready["ca"]).read_text() in Path(ready["bundle"]).read_text()
    key = next((proxy.directory / "state" / "ca").glob("*key*"))
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_metrics_are_served_and_nothing_else(proxy: EgressProcess, origin: Origin) -> None:
    address = json.loads((proxy.directory / "ready.json").read_text())["metrics"]
    assert ask(proxy, origin).status == 200
    with urllib.request.urlopen(f"http://{address}/metrics") as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert "egress_" in answer.read().decode()
    port = int(address.rpartition(":")[2])
    for request, status in (
        (b"GET /secret HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics\r\n\r\n", 400),
    ):
        with dial(port) as client:
            client.send(request)
            assert client.reply().status == status
            assert client.closed_by_peer()
    with dial(port) as client:
        client.send(b"HEAD /metrics HTTP/1.1\r\n\r\n")
        assert client.reply("HEAD").status == 200
        assert client.closed_by_peer()


def test_our_own_listeners_cannot_be_reached_through_us(origin: Origin) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    policy = policy_text(rest("self.test", port), rest("self.test", origin.port))
    settings = {"listen": {"proxy": f"127.0.0.1:{port}"}}
    with EgressProcess(policy, aliases={"self.test": "127.0.0.1"}, settings=settings) as proxy, dial(port) as client:
        assert proxy.port == port
        client.send(connect_head(f"self.test:{port}"))
        refused = client.reply()
        assert (refused.error, refused.json()["reason_code"]) == ("ssrf_denied", "own_listener")
