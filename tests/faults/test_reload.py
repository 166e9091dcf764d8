"""Reloads under traffic: a broken document never opens or closes anything, a good one holds from its first decision.

O-49, decisions 2, 3 and 5.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.origins import Conversation, Origin, OriginLoop, RawOrigin, echo, say_ok
from tests.support.proxy import EgressProcess, opaque, policy_text, rest
from tests.support.raw import (
    Connection,
    ConnectRefused,
    EndOfStream,
    client_context,
    eventually,
    open_tunnel,
    start_tls,
)

HOST = "origin.test"


class Site:
    """A proxy whose policy is rewritten while it runs."""

    def __init__(self, proxy: EgressProcess, origin: Origin, raw: RawOrigin) -> None:
        self.proxy = proxy
        self.origin = origin
        self.raw = raw

    def begin(self) -> "Site":
        """Wait until the start has been told, so that later words are about later changes."""
        assert eventually(lambda: self.states() == ["loaded"])
        return self

    def policy(self, *allowed: str, raw: bool = True, extra: bool = False) -> str:
        """GET on the given paths; the raw origin too, unless told otherwise; `extra` adds what concerns nobody here."""
        endpoints = [rest(HOST, self.origin.port, *(("GET", path) for path in allowed))]
        endpoints += [opaque("raw.test", self.raw.port)] if raw else []
        endpoints += [opaque("elsewhere.test", 443)] if extra else []
        return policy_text(*endpoints)

    def write(self, text: str) -> None:
        """As editors do it: a new file, renamed over the old one."""
        fresh = self.proxy.policy_file.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.proxy.policy_file)

    def states(self) -> list[str]:
        """The words of all configuration events so far."""
        return [event["unmapped"]["state"] for event in self.proxy.events() if event["class_uid"] == 5019]

    def rewrite(self, change: Callable[[], Any], word: str) -> None:
        """Change something and wait until the proxy has told what became of it."""
        before = len(self.states())
        change()
        told = eventually(lambda: word in self.states()[before:])
        assert told, (self.states()[before:], self.proxy.stderr())

    def tunnel(self) -> Connection:
        tunnel = open_tunnel(self.proxy.port, f"{HOST}:{self.origin.port}")
        return start_tls(tunnel, client_context(self.proxy.ca), HOST)

    def status(self, path: str, client: Connection | None = None) -> int:
        """The answer to a GET, on a connection of its own unless one is given."""
        if client is None:
            with self.tunnel() as own:
                return self.status(path, own)
        client.send(f"GET {path} HTTP/1.1\r\nHost: {HOST}:{self.origin.port}\r\n\r\n".encode())
        return client.reply().status


@pytest.fixture(scope="module")
def origins(origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[tuple[Origin, RawOrigin]]:
    origin = Origin(origin_loop, authority.server_context(HOST))
    raw = RawOrigin(origin_loop)
    raw.script = echo
    yield origin, raw
    origin.stop()
    raw.stop()


def start(
    origins: tuple[Origin, RawOrigin], authority: OriginAuthority, settings: dict[str, Any] | None = None
) -> EgressProcess:
    origins[0].script = say_ok
    text = Site(None, *origins).policy("/a")  # type: ignore[arg-type]
    aliases = dict.fromkeys((HOST, "raw.test"), "127.0.0.1")
    return EgressProcess(text, aliases=aliases, trust=authority.ca_file, settings=settings)


@pytest.fixture(scope="module")
def running(origins: tuple[Origin, RawOrigin], authority: OriginAuthority) -> Iterator[Site]:
    with start(origins, authority) as proxy:
        yield Site(proxy, *origins).begin()


@pytest.fixture
def site(running: Site) -> Iterator[Site]:
    """The shared proxy, with its first documents in force before and after."""
    running.origin.script = say_ok
    settings = running.proxy.config_file.read_text()
    yield running
    running.proxy.config_file.write_text(settings)
    if running.proxy.policy_file.is_dir():
        running.proxy.policy_file.rmdir()
    running.write(running.policy("/a"))
    running.origin.script = say_ok
    assert eventually(lambda: (running.status("/a"), running.status("/b"), running.status("/c")) == (200, 403, 403))
    time.sleep(0.2)  # the last event is written a moment after what it tells of


def truncated(site: Site) -> None:
    site.write(site.policy("/a", "/b")[:-40] + "\n  - {")


def unknown_key(site: Site) -> None:
    site.write(site.policy("/a", "/b") + "surprise: true\n")


def no_rules(site: Site) -> None:
    site.write(site.policy("/a", "/b").replace("rules:", "rules: []\n      unused:"))


def zero_bytes(site: Site) -> None:
    site.write("")


def missing(site: Site) -> None:
    site.proxy.policy_file.unlink()


def a_directory(site: Site) -> None:
    site.proxy.policy_file.unlink()
    site.proxy.policy_file.mkdir()


def not_text(site: Site) -> None:
    site.proxy.policy_file.write_bytes(b"\xff\xfe\x00version: 1")


def two_documents(site: Site) -> None:
    site.write(site.policy("/a") + "---\n" + site.policy("/b"))


def broken_settings(site: Site) -> None:
    settings = site.proxy.config_file
    settings.write_text(settings.read_text() + "surprise: true\n")


def restart_only_setting(site: Site) -> None:
    settings = site.proxy.config_file
    settings.write_text(settings.read_text().replace("127.0.0.1:0", "127.0.0.1:1"))


@pytest.mark.parametrize(
    "damage",
    [
        truncated,
        unknown_key,
        no_rules,
        zero_bytes,
        missing,
        a_directory,
        not_text,
        two_documents,
        broken_settings,
        restart_only_setting,
    ],
)
def test_a_rejected_reload_changes_nothing_and_is_told(site: Site, damage: Callable[[Site], None]) -> None:
    assert (site.status("/a"), site.status("/b")) == (200, 403)
    good_settings = site.proxy.config_file.read_text()
    site.rewrite(lambda: damage(site), "invalid")
    assert (site.status("/a"), site.status("/b")) == (200, 403)
    if site.proxy.policy_file.is_dir():
        site.proxy.policy_file.rmdir()
    site.proxy.config_file.write_text(good_settings)
    site.rewrite(lambda: site.write(site.policy("/b")), "loaded")
    assert (site.status("/a"), site.status("/b")) == (403, 200)


@pytest.mark.parametrize("delay", [0.0, 0.1])
def test_a_change_right_after_the_start_is_seen(
    origins: tuple[Origin, RawOrigin], authority: OriginAuthority, delay: float
) -> None:
    """Between the first reading of the documents and the first look of the watcher nothing may be lost."""
    with start(origins, authority) as proxy:
        site = Site(proxy, *origins)
        time.sleep(delay)
        site.write(site.policy("/b"))
        assert eventually(lambda: site.states() == ["loaded", "loaded"]), site.states()


def test_the_second_of_two_quick_writes_holds(site: Site) -> None:
    site.write(site.policy("/b"))
    time.sleep(0.02)
    site.write(site.policy("/c"))
    assert eventually(lambda: site.status("/c") == 200)
    assert (site.status("/a"), site.status("/b")) == (403, 403)


def test_a_symlink_swap_is_seen(site: Site) -> None:
    """How mounted configuration is replaced: the file stays a link, what it points to moves."""
    base = site.proxy.policy_file.parent
    for name, path in (("one", "/a"), ("two", "/b")):
        (base / name).mkdir()
        (base / name / "policy.yaml").write_text(site.policy(path))
    (base / "current").symlink_to("one")
    site.proxy.policy_file.unlink()
    site.proxy.policy_file.symlink_to("current/policy.yaml")
    time.sleep(0.5)
    (base / "next").symlink_to("two")
    Path(base / "next").replace(base / "current")
    assert eventually(lambda: site.status("/b") == 200)


def test_signal_without_watching(origins: tuple[Origin, RawOrigin], authority: OriginAuthority) -> None:
    with start(origins, authority, {"reload": {"watch": False}}) as proxy:
        site = Site(proxy, *origins).begin()
        site.write(site.policy("/b"))
        time.sleep(0.6)
        assert (site.status("/a"), site.status("/b")) == (200, 403)
        proxy.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: site.status("/b") == 200)


def test_an_unchanged_document_is_no_new_generation(site: Site) -> None:
    site.write(site.policy("/a"))
    time.sleep(0.7)  # whatever was there before is replaced, and told
    before = len(site.states())
    site.write(site.policy("/a"))
    site.proxy.process.send_signal(signal.SIGHUP)
    time.sleep(0.7)
    assert site.states()[before:] == []


def test_quarantine_by_choice(origins: tuple[Origin, RawOrigin], authority: OriginAuthority) -> None:
    settings = {"policy": {"on_invalid": "quarantine"}}
    with start(origins, authority, settings) as proxy:
        site = Site(proxy, *origins).begin()
        with open_tunnel(proxy.port, f"raw.test:{site.raw.port}") as relay:
            relay.send(b"\x00\x01")
            assert relay.exactly(2) == b"\x00\x01"
            site.rewrite(lambda: unknown_key(site), "invalid")
            assert relay.closed_by_peer()
        with pytest.raises(ConnectRefused) as refused:
            site.tunnel()
        assert refused.value.reply.json()["reason_code"] == "quarantined"
        site.rewrite(lambda: site.write(site.policy("/a")), "loaded")
        assert site.status("/a") == 200


def test_an_idle_tunnel_with_equal_terms_lives_on(site: Site) -> None:
    with site.tunnel() as client:
        assert site.status("/a", client) == 200
        site.rewrite(lambda: site.write(site.policy("/a", extra=True)), "loaded")
        assert site.status("/a", client) == 200


def test_an_idle_tunnel_with_other_terms_answers_no_more(site: Site) -> None:
    with site.tunnel() as client:
        assert site.status("/a", client) == 200
        site.rewrite(lambda: site.write(site.policy("/b")), "loaded")
        client.send(f"GET /a HTTP/1.1\r\nHost: {HOST}:{site.origin.port}\r\n\r\n".encode())
        try:
            reply = client.reply()
        except (EndOfStream, OSError):
            return
        assert (reply.status, reply.json()["reason_code"]) == (403, "policy_changed")


def test_a_raw_relay_ends_with_its_permission(site: Site) -> None:
    with open_tunnel(site.proxy.port, f"raw.test:{site.raw.port}") as relay:
        relay.send(b"\x00\x01")
        assert relay.exactly(2) == b"\x00\x01"
        site.rewrite(lambda: site.write(site.policy("/a", extra=True)), "loaded")
        relay.send(b"\x02\x03")
        assert relay.exactly(2) == b"\x02\x03"
        site.rewrite(lambda: site.write(site.policy("/a", raw=False)), "loaded")
        assert relay.closed_by_peer()


def test_a_stream_in_flight_ends_with_its_permission(site: Site) -> None:
    """A reply in flight is cut, and shows that it was."""

    async def forever(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await talk.send(b"7\r\ndata: 1\r\n")
            await talk.pause(0.05)

    site.origin.script = forever
    with site.tunnel() as client:
        client.send(f"GET /a HTTP/1.1\r\nHost: {HOST}:{site.origin.port}\r\n\r\n".encode())
        client.until(b"data: 1")
        site.rewrite(lambda: site.write(site.policy("/b")), "loaded")
        tail = client.rest()
    assert not tail.endswith(b"0\r\n\r\n")


@pytest.mark.timeout(60)
def test_no_decision_ever_mixes_two_documents(site: Site) -> None:
    """Under traffic, every answer fits one of the documents, and after a reload only the new one."""
    answers: list[tuple[float, float, str, int]] = []
    stop = threading.Event()

    def ask(path: str) -> None:
        while not stop.is_set():
            began = time.monotonic()
            try:
                status = site.status(path)
            except (OSError, EndOfStream, ConnectRefused):
                continue
            answers.append((began, time.monotonic(), path, status))

    askers = [threading.Thread(target=ask, args=(path,)) for path in ("/a", "/b")]
    for asker in askers:
        asker.start()
    try:
        changes: list[tuple[float, float, str]] = []
        for number in range(6):
            open_path = "/b" if number % 2 == 0 else "/a"
            site.rewrite(lambda path=open_path: site.write(site.policy(path)), "loaded")  # type: ignore[misc]
            loaded, heard = time.monotonic(), len(answers)
            assert eventually(lambda heard=heard: len(answers) > heard + 8)  # type: ignore[misc]
            changes.append((loaded, time.monotonic(), open_path))
    finally:
        stop.set()
        for asker in askers:
            asker.join()
    assert len(answers) > 40
    assert {status for *_, status in answers} == {200, 403}
    for since, until, open_path in changes:
        settled = [(path, status) for began, ended, path, status in answers if since < began and ended < until]
        assert settled
        assert all((status == 200) == (path == open_path) for path, status in settled), settled
