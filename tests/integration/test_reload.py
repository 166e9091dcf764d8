"""What a reload reaches beside the policy itself: directories, passwords, trust, aliases, and what is in flight."""

import base64
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.authorities import OriginAuthority
from tests.support.origins import Conversation, Origin, OriginLoop, say_ok
from tests.support.proxy import LANES, EgressProcess, opaque, policy_text, rest
from tests.support.raw import (
    Connection,
    EndOfStream,
    client_context,
    connect_head,
    dial,
    eventually,
    open_tunnel,
    start_tls,
)

HOST = "origin.test"


class Site:
    """A proxy whose files are rewritten while it runs, and two origins."""

    def __init__(self, proxy: EgressProcess, plain: Origin, tls: Origin) -> None:
        self.proxy = proxy
        self.plain = plain
        self.tls = tls

    def begin(self) -> "Site":
        """Wait until the start has been told, so that later words are about later changes."""
        assert eventually(lambda: self.states() == ["loaded"])
        return self

    def policy(self, *paths: str) -> str:
        allowed = [("GET", path) for path in paths]
        return policy_text(rest(HOST, self.plain.port, *allowed), rest(HOST, self.tls.port, *allowed))

    def configure(self, change: dict[str, Any]) -> None:
        settings = yaml.safe_load(self.proxy.config_file.read_text())
        settings.update(change)
        self.replace(self.proxy.config_file, yaml.safe_dump(settings))

    @staticmethod
    def replace(file: Path, text: str) -> None:
        fresh = file.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(file)

    def states(self) -> list[str]:
        return [event["unmapped"]["state"] for event in self.proxy.events() if event["class_uid"] == 5019]

    def signal(self) -> str:
        """Ask for a reload; the word that it is told with."""
        before = len(self.states())
        os.kill(self.proxy.pid, signal.SIGHUP)
        assert eventually(lambda: len(self.states()) > before), self.proxy.stderr()
        return self.states()[before]

    def get(self, path: str = "/x", extra: str = "") -> bytes:
        return f"GET http://{HOST}:{self.plain.port}{path} HTTP/1.1\r\n{extra}\r\n".encode()

    def status(self, path: str = "/x", extra: str = "") -> int:
        with dial(self.proxy.port) as client:
            client.send(self.get(path, extra))
            return client.reply().status

    def tunnel(self) -> Connection:
        tunnel = open_tunnel(self.proxy.port, f"{HOST}:{self.tls.port}")
        return start_tls(tunnel, client_context(self.proxy.ca), HOST)


@pytest.fixture(scope="module")
def origins(origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[tuple[Origin, Origin]]:
    plain, tls = Origin(origin_loop), Origin(origin_loop, authority.server_context(HOST))
    yield plain, tls
    plain.stop()
    tls.stop()


def start(
    origins: tuple[Origin, Origin], authority: OriginAuthority, settings: dict[str, Any] | None = None
) -> EgressProcess:
    text = Site(None, *origins).policy("/**")  # type: ignore[arg-type]
    settings = {"reload": {"watch": False, "check_origin": "off"}, **(settings or {})}
    return EgressProcess(text, aliases={HOST: "127.0.0.1"}, trust=authority.ca_file, settings=settings)


@pytest.fixture(scope="module")
def shared(origins: tuple[Origin, Origin], authority: OriginAuthority) -> Iterator[Site]:
    with start(origins, authority) as proxy:
        yield Site(proxy, *origins).begin()


@pytest.fixture
def site(shared: Site) -> Iterator[Site]:
    """One proxy for all; what a test changed is put back."""
    proxy = shared.proxy
    before = {file: file.read_text() for file in (proxy.policy_file, proxy.config_file)}
    yield shared
    for file, text in before.items():
        shared.replace(file, text)
    seen = len(shared.states())
    os.kill(proxy.pid, signal.SIGHUP)
    eventually(lambda: len(shared.states()) > seen, 0.5)  # nothing is told when nothing came of it


def test_what_is_wrong_is_told_with_its_place_and_changes_nothing(site: Site) -> None:
    site.replace(site.proxy.policy_file, site.policy("/y") + "surprise: 1\n")
    assert site.signal() == "invalid"
    lines = site.policy("/y").count("\n") + 1
    assert f"{site.proxy.policy_file}:{lines}:1: error" in site.proxy.stderr()
    assert site.status("/x") == 200


def test_a_key_that_needs_a_restart_is_refused_by_name(site: Site) -> None:
    site.configure({"listen": {"proxy": "127.0.0.1:1"}})
    assert site.signal() == "invalid"
    assert "listen.proxy cannot change while the proxy runs" in site.proxy.stderr()
    assert site.status() == 200


def test_trust_that_cannot_be_loaded_rejects_the_reload_and_the_proxy_lives(site: Site) -> None:
    broken = site.proxy.directory / "broken.pem"
    broken.write_text("no certificate")
    site.configure({"tls": {"upstream_ca_file": str(broken)}})
    assert site.signal() == "invalid"
    with site.tunnel() as client:
        client.send(f"GET /x HTTP/1.1\r\nHost: {HOST}:{site.tls.port}\r\n\r\n".encode())
        assert client.reply().status == 200


def test_an_authority_that_is_no_longer_trusted_leaves_nothing_warm(
    site: Site, authority: OriginAuthority, tmp_path: Path
) -> None:
    def ask() -> int:
        with site.tunnel() as client:
            client.send(f"GET /x HTTP/1.1\r\nHost: {HOST}:{site.tls.port}\r\n\r\n".encode())
            return client.reply().status

    assert [ask(), ask()] == [200, 200]
    other = OriginAuthority(tmp_path)
    site.configure({"tls": {"upstream_ca_file": str(other.ca_file)}})
    assert site.signal() == "loaded"
    assert ask() == 502
    site.configure({"tls": {"upstream_ca_file": str(authority.ca_file)}})
    assert site.signal() == "loaded"
    assert ask() == 200


def test_trust_that_changes_in_place_is_read_again(
    origins: tuple[Origin, Origin], authority: OriginAuthority, tmp_path: Path
) -> None:
    trust = tmp_path / "trust.pem"
    trust.write_bytes(authority.ca_file.read_bytes())
    with start(origins, authority, {"tls": {"upstream_ca_file": str(trust)}}) as proxy:
        site = Site(proxy, *origins).begin()
        (tmp_path / "other").mkdir()
        trust.write_bytes(OriginAuthority(tmp_path / "other").ca_file.read_bytes())
        assert site.signal() == "loaded"
        with site.tunnel() as client:
            client.send(f"GET /x HTTP/1.1\r\nHost: {HOST}:{site.tls.port}\r\n\r\n".encode())
            assert client.reply().json()["reason_code"] == "unknown_issuer"


def test_a_new_password_holds_with_the_next_head(
    origins: tuple[Origin, Origin], authority: OriginAuthority, tmp_path: Path
) -> None:
    def credential(word: str) -> str:
        return f"Proxy-Authorization: Basic {base64.b64encode(f'a:{word}'.encode()).decode()}\r\n"

    password = tmp_path / "password"
    password.write_text("old\n")
    password.chmod(0o600)
    agent = {"name": "a", "match": {"proxy_auth": {"user": "a", "password_file": str(password)}}, "identity": "off"}
    with start(origins, authority, {"agents": [agent]}) as proxy:
        site = Site(proxy, *origins).begin()
        with dial(proxy.port) as kept:
            kept.send(site.get(extra=credential("old")))
            assert kept.reply().status == 200
            password.write_text("new\n")
            assert site.signal() == "loaded"
            assert site.status(extra=credential("new")) == 200
            kept.send(site.get(extra=credential("old")))
            assert kept.reply().status == 407


def test_a_kept_connection_follows_the_settings(site: Site) -> None:
    """An alias that is taken back must not live on in connections that were open."""
    with dial(site.proxy.port) as client:
        client.send(site.get())
        assert client.reply().status == 200
        site.configure({"destinations": {"aliases": {"other.test": "127.0.0.1"}}})
        assert site.signal() == "loaded"
        client.send(site.get())
        assert client.reply().error in ("dns_failed", "ssrf_denied")


def test_the_same_files_are_no_new_generation(site: Site) -> None:
    before = len(site.states())
    os.kill(site.proxy.pid, signal.SIGHUP)
    time.sleep(0.5)
    site.replace(site.proxy.policy_file, "# nothing but a remark\n" + site.policy("/**"))
    os.kill(site.proxy.pid, signal.SIGHUP)
    time.sleep(0.5)
    assert site.states()[before:] == []
    site.replace(site.proxy.policy_file, site.policy("/**"))


# files that come and go ---------------------------------------------------------------------------------------------


@pytest.fixture
def watched(origins: tuple[Origin, Origin], authority: OriginAuthority) -> Iterator[Site]:
    """Policies in a directory, watched."""
    with start(origins, authority, {"reload": {"quiet": "50ms", "max_wait": "200ms", "check_origin": "off"}}) as proxy:
        site = Site(proxy, *origins).begin()
        directory = proxy.directory / "policies"
        directory.mkdir()
        shutil.copy(proxy.policy_file, directory / "a.yaml")
        site.configure({"policy": {"file": str(directory)}})
        assert eventually(lambda: site.states() == ["loaded", "loaded"]), proxy.stderr()
        yield site


def test_a_file_added_to_a_directory_of_policies_counts(watched: Site) -> None:
    text = policy_text(opaque("added.test", watched.plain.port)).replace("e0", "added")
    watched.replace(watched.proxy.directory / "policies" / "b.yaml", text)
    assert eventually(lambda: len(watched.states()) == 3), watched.proxy.stderr()
    (watched.proxy.directory / "policies" / "b.yaml").unlink()
    assert eventually(lambda: len(watched.states()) == 4), watched.proxy.stderr()
    assert watched.states() == ["loaded"] * 4


def test_files_in_a_new_place_are_watched_there(watched: Site) -> None:
    watched.replace(watched.proxy.directory / "policies" / "a.yaml", watched.policy("/y"))
    assert eventually(lambda: len(watched.states()) == 3), watched.proxy.stderr()
    assert watched.status("/x") == 403


def test_a_file_that_was_missing_counts_once_it_is_there(watched: Site) -> None:
    elsewhere = watched.proxy.directory / "conf" / "late.yaml"
    watched.configure({"policy": {"file": str(elsewhere)}})
    assert eventually(lambda: watched.states()[2:] == ["invalid"]), watched.states()
    watched.replace(elsewhere, watched.policy("/late"))
    assert eventually(lambda: watched.states()[2:] == ["invalid", "loaded"]), watched.states()
    assert (watched.status("/x"), watched.status("/late")) == (403, 200)


# what is in flight ---------------------------------------------------------------------------------------------------


async def slow(talk: Conversation) -> None:
    await talk.body()
    await talk.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
    await talk.pause(0.5)
    await talk.send(b"1\r\nb\r\n0\r\n\r\n")


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(("grace", "whole"), [("0s", False), ("3s", True)])
def test_a_reply_in_flight_has_the_grace_that_is_set(
    origins: tuple[Origin, Origin], authority: OriginAuthority, lane: str, grace: str, whole: bool
) -> None:
    settings = {"reload": {"watch": False, "grace": grace, "check_origin": "off"}, **LANES[lane]}
    origins[0].script = slow
    try:
        with start(origins, authority, settings) as proxy, dial(proxy.port) as client:
            site = Site(proxy, *origins).begin()
            client.send(site.get())
            assert client.until(b"a\r\n").startswith(b"HTTP/1.1 200 OK")
            site.replace(proxy.policy_file, site.policy("/y"))
            assert site.signal() == "loaded"
            try:
                rest_of_it = client.until(b"0\r\n\r\n")
            except EndOfStream:
                rest_of_it = b""
            assert rest_of_it == (b"1\r\nb\r\n0\r\n\r\n" if whole else b"")
    finally:
        origins[0].script = say_ok


def test_a_reply_in_flight_outlives_an_unrelated_change(site: Site) -> None:
    site.plain.script = slow
    try:
        with dial(site.proxy.port) as client:
            client.send(site.get())
            assert client.until(b"a\r\n").startswith(b"HTTP/1.1 200 OK")
            more = policy_text(opaque("unrelated.test", 443)).replace("e0", "later").partition("network_policies:\n")[2]
            site.replace(site.proxy.policy_file, site.policy("/**") + more)
            assert site.signal() == "loaded"
            assert client.exactly(11) == b"1\r\nb\r\n0\r\n\r\n"
            client.send(site.get())
            assert client.reply().status == 200
    finally:
        site.plain.script = say_ok


def test_a_request_that_waits_for_its_answer_is_told_why(site: Site) -> None:
    async def wait(talk: Conversation) -> None:
        await talk.body()
        await talk.drain_away()

    site.plain.script = wait
    try:
        with dial(site.proxy.port) as client:
            seen = len(site.plain.requests)
            client.send(site.get())
            assert eventually(lambda: len(site.plain.requests) > seen)
            site.replace(site.proxy.policy_file, site.policy("/y"))
            assert site.signal() == "loaded"
            refused = client.reply()
            assert (refused.status, refused.json()["reason_code"]) == (403, "policy_changed")
            assert refused.json()["detail"].endswith("not permitted because policy changed")
    finally:
        site.plain.script = say_ok


def test_an_idle_tunnel_is_told_with_its_next_request_and_every_one_after(site: Site) -> None:
    request = f"GET /x HTTP/1.1\r\nHost: {HOST}:{site.tls.port}\r\n\r\n".encode()
    with site.tunnel() as client:
        client.send(request)
        assert client.reply().status == 200
        site.replace(site.proxy.policy_file, site.policy("/y"))
        assert site.signal() == "loaded"
        client.send(request * 2)
        refused = client.reply()
        assert (refused.status, refused.json()["reason_code"]) == (403, "policy_changed")
        assert client.closed_by_peer()


def test_a_connect_is_judged_by_the_policy_in_force_when_it_is_answered(site: Site) -> None:
    site.replace(site.proxy.policy_file, policy_text(opaque("other.test", 443)))
    assert site.signal() == "loaded"
    with dial(site.proxy.port) as client:
        client.send(connect_head(f"{HOST}:{site.tls.port}"))
        assert client.reply().json()["reason_code"] == "host_not_listed"
