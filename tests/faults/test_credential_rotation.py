"""Values that rotate, fail and are revoked under load: each request carries what was in force when it was admitted, and
nothing goes out after a revocation was acknowledged (decision 4, credentials.md section 10)."""

import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.origins import REPLY_OK, Conversation, Origin, OriginLoop
from tests.support.proxy import LANES, EgressProcess, policy_text, rest
from tests.support.raw import Connection, client_context, eventually, open_tunnel, start_tls

HOST = "origin.test"
PERIOD = 0.1
CLIENTS = 6
STALE_SECONDS = 3.0
"""More than a value that was replaced may be sent on a busy machine; a refresh is due after 110 ms at the latest."""
VALUE = re.compile(rb"Bearer (desk|lake)-value-(\d+)-x\Z")


@dataclass
class Secrets:
    """Value files of two providers, replaced as a whole, with the times of their values."""

    directory: Path
    written: dict[str, list[float]] = field(default_factory=dict)

    def path(self, name: str) -> Path:
        return self.directory / f"{name}.txt"

    def rotate(self, name: str) -> str:
        """The next value, which tells its number."""
        times = self.written.setdefault(name, [])
        value = f"{name}-value-{len(times)}-x"
        fresh = self.directory / f"{name}.new"
        fresh.touch(mode=0o600)
        fresh.write_text(value)
        times.append(time.monotonic())
        fresh.replace(self.path(name))
        return value

    @contextmanager
    def rotating(self, *names: str) -> Iterator[None]:
        """New values every 100 ms."""
        stop = threading.Event()

        def run() -> None:
            while not stop.wait(PERIOD):
                for name in names:
                    self.rotate(name)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


@dataclass
class Site:
    proxy: EgressProcess
    origin: Origin
    secrets: Secrets

    def tunnel(self) -> Connection:
        authority = f"{HOST}:{self.origin.port}"
        return start_tls(open_tunnel(self.proxy.port, authority), client_context(self.proxy.ca), HOST)

    def tokens(self) -> dict[str, str]:
        """Placeholders by provider, as a new process would get them."""
        done = self.proxy.command("env", "--format", "json", "--ready-file", str(self.proxy.ready_file))
        assert done.returncode == 0, done.stderr
        found: Mapping[str, str] = json.loads(done.stdout)
        return {name: found[f"{name.upper()}_KEY"] for name in ("desk", "lake") if f"{name.upper()}_KEY" in found}

    def head(self, path: str, token: str, *more: str) -> bytes:
        lines = (f"GET {path} HTTP/1.1", f"Host: {HOST}:{self.origin.port}", f"Authorization: Bearer {token}", *more)
        return "".join(f"{line}\r\n" for line in (*lines, "")).encode()

    def ask(self, client: Connection, token: str, path: str = "/") -> tuple[int, str | None]:
        """Status and error word."""
        client.send(self.head(path, token))
        reply = client.reply()
        return reply.status, reply.error

    def once(self, token: str) -> tuple[int, str | None]:
        """The same on a connection of its own."""
        with self.tunnel() as client:
            return self.ask(client, token)

    def latest(self) -> str:
        """What the last request carried."""
        return self.origin.requests[-1].values(b"authorization")[0].decode().removeprefix("Bearer ")

    def told(self, word: str, *, after: int = 0) -> list[dict[str, Any]]:
        """Configuration events with this word."""
        events = self.proxy.events()[after:]
        return [event for event in events if event["class_uid"] == 5019 and event["unmapped"]["state"] == word]

    def state(self, key: str) -> str:
        listed = self.proxy.asked("/v1/credentials")["credentials"]
        return next((str(one["state"]) for one in listed if one["key"] == key), "none")


def document(port: int, secrets: Secrets, **source: Any) -> dict[str, Any]:
    place = {"host": HOST, "port": port, "protocol": "rest", "access": "full"}

    def provider(name: str) -> dict[str, Any]:
        key = f"{name.upper()}_KEY"
        style = {"name": "key", "env_vars": [key], "auth_style": "bearer", "header_name": "Authorization"}
        inline = {"id": name, "display_name": name, "credentials": [style], "endpoints": [place]}
        values = {key: {"file": {"path": str(secrets.path(name))}, "refresh": "100ms", **source}}
        return {"name": name, "profile": inline, "values": values}

    found: dict[str, Any] = json.loads(json.dumps({"version": 1, "providers": [provider("desk"), provider("lake")]}))
    return found  # nothing in it twice: that would be written as anchors, which are not accepted


@contextmanager
def running(
    origin_loop: OriginLoop, authority: OriginAuthority, directory: Path, lane: str = "http1", **source: Any
) -> Iterator[Site]:
    secrets = Secrets(directory)
    secrets.rotate("desk")
    secrets.rotate("lake")
    origin = Origin(origin_loop, authority.server_context(HOST))
    with EgressProcess(
        policy_text(rest(HOST, origin.port)), aliases={HOST: "127.0.0.1"}, trust=authority.ca_file,
        settings=LANES[lane], providers=document(origin.port, secrets, **source),
    ) as proxy:  # fmt: skip
        yield Site(proxy, origin, secrets)
    origin.stop()


@pytest.fixture
def site(origin_loop: OriginLoop, authority: OriginAuthority, tmp_path: Path) -> Iterator[Site]:
    with running(origin_loop, authority, tmp_path) as found:
        yield found


# under load --------------------------------------------------------------------------------------------------------


@dataclass
class Asked:
    """One request of a client: when it began and ended, and what came of it."""

    provider: str
    began: float
    ended: float
    status: int
    error: str | None


@dataclass
class Load:
    """Clients that ask one request after the other on connections that they keep, and what the origin saw of each."""

    site: Site
    tokens: Mapping[str, str]
    asked: dict[str, Asked] = field(default_factory=dict)
    seen: dict[str, tuple[float, bytes]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    async def record(self, talk: Conversation) -> None:
        request = talk.request
        assert request is not None
        self.seen[request.target.decode()] = (time.monotonic(), b"|".join(request.values(b"authorization")))
        await talk.send(REPLY_OK)

    def _client(self, number: int) -> None:
        provider = ("desk", "lake")[number % 2]
        try:
            client, count = self.site.tunnel(), 0
            while not self._stop.is_set():
                path = f"/{number}/{count}"
                count += 1
                began = time.monotonic()
                status, error = self.site.ask(client, self.tokens[provider], path)
                self.asked[path] = Asked(provider, began, time.monotonic(), status, error)
                if status != 200:  # a refusal ends its connection
                    client.close()
                    client = self.site.tunnel()
            client.close()
        except Exception as fault:  # told by the test, in whose thread it would be seen
            self.faults.append(f"{number}: {type(fault).__name__} {fault}")

    @contextmanager
    def going(self) -> Iterator[None]:
        self.site.origin.script = self.record
        threads = [threading.Thread(target=self._client, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
        assert self.faults == []

    def number(self, path: str) -> int:
        """Which value of its own provider a request carried."""
        carried = VALUE.match(self.seen[path][1])
        assert carried is not None, self.seen[path]
        assert carried[1].decode() == self.asked[path].provider
        return int(carried[2])

    def carried(self) -> list[tuple[Asked, int]]:
        """Requests that reached the origin, with the numbers of their values, in order of their beginnings."""
        arrived = [(one, self.number(path)) for path, one in self.asked.items() if path in self.seen]
        return sorted(arrived, key=lambda pair: pair[0].began)


def in_force(carried: list[tuple[Asked, int]], written: list[float]) -> list[str]:
    """What is wrong: values of the future, values replaced long ago, and values older than one that a request which
    had ended before carried."""
    faults, ended = [], sorted((one.ended, number) for one, number in carried)
    newest, at = -1, 0
    for one, number in carried:
        while at < len(ended) and ended[at][0] <= one.began:
            newest = max(newest, ended[at][1])
            at += 1
        replaced = written[number + 1] if number + 1 < len(written) else float("inf")
        if number < newest or one.ended < written[number] or one.began > replaced + STALE_SECONDS:
            faults.append(f"{one} carried {number} after {newest}, replaced at {replaced}")
    return faults


@dataclass
class Revoked:
    """When a revocation was asked for and when it was acknowledged."""

    asked: float
    done: float


def revoke(site: Site, name: str) -> Revoked:
    began = time.monotonic()
    done = site.proxy.command("credentials", "revoke", name)
    assert done.returncode == 0, done.stderr
    return Revoked(began, time.monotonic())


def revoke_by_socket(site: Site, name: str) -> Revoked:
    """No command has to end first, so the next request is closer behind."""
    began = time.monotonic()
    assert site.proxy.asked(f"/v1/credentials/{name}/revoke", "POST") == {"done": True}
    return Revoked(began, time.monotonic())


def check_revoked(load: Load, name: str, when: Revoked) -> None:
    """All was well before, nothing goes out after; in between each request is either."""
    own = [(path, one) for path, one in load.asked.items() if one.provider == name]
    assert all(one.status == 200 for _, one in own if one.ended < when.asked)
    refused = (403, "credential_endpoint_mismatch")
    outcomes = {(one.status, one.error) for _, one in own}
    assert outcomes <= {(200, None), refused, (503, "credential_generation_changed")}
    late = [(path, one) for path, one in own if one.began >= when.done]
    assert len(late) > 10
    assert {(one.status, one.error) for _, one in late} == {refused}
    assert not any(path in load.seen for path, one in own if one.status != 200)


@pytest.mark.timeout(90)
@pytest.mark.parametrize("lane", LANES)
def test_each_request_carries_what_was_in_force(
    origin_loop: OriginLoop, authority: OriginAuthority, tmp_path: Path, lane: str
) -> None:
    with running(origin_loop, authority, tmp_path, lane) as site:
        load = Load(site, site.tokens())
        with site.secrets.rotating("desk", "lake"), load.going():
            time.sleep(1.5)
            desk = revoke(site, "desk")
            time.sleep(1.0)
            lake = revoke_by_socket(site, "lake")
            time.sleep(0.5)
    carried = load.carried()
    for name in ("desk", "lake"):
        own = [pair for pair in carried if pair[0].provider == name]
        assert in_force(own, site.secrets.written[name]) == []
        assert len({number for _, number in own}) > 5, "no rotation was seen"
    check_revoked(load, "desk", desk)
    check_revoked(load, "lake", lake)


# one request at a time ---------------------------------------------------------------------------------------------


def test_a_request_that_waits_while_its_provider_is_revoked(site: Site) -> None:
    """Admitted before, but its body came after."""
    token = site.tokens()["desk"]
    with site.tunnel() as client:
        client.send(site.head("/held", token, "Content-Length: 10")[:-2] + b"\r\nhello")
        time.sleep(0.2)
        revoke_by_socket(site, "desk")
        client.send(b"world")
        reply = client.reply()
    assert (reply.status, reply.error) == (503, "credential_generation_changed")
    assert b"/held" not in site.origin.take()


def test_a_request_that_waits_while_its_value_rotates(site: Site) -> None:
    """What it carries is the value of the moment when it goes out."""
    token = site.tokens()["desk"]
    with site.tunnel() as client:
        client.send(site.head("/held", token, "Content-Length: 10")[:-2] + b"\r\nhello")
        time.sleep(0.2)
        value = site.secrets.rotate("desk")
        time.sleep(0.5)
        client.send(b"world")
        assert client.reply().status == 200
    assert site.latest() == value


def test_a_refresh_brings_values_back_for_new_placeholders_only(site: Site) -> None:
    before = site.tokens()
    with site.tunnel() as client:
        assert site.ask(client, before["desk"]) == (200, None)
        revoke(site, "desk:DESK_KEY")
        assert site.state("DESK_KEY") == "revoked"
        assert site.ask(client, before["desk"]) == (403, "credential_endpoint_mismatch")
    assert "desk" not in site.tokens()
    time.sleep(0.5)  # fetches that are due anyway bring nothing back
    assert site.once(before["desk"]) == (403, "credential_endpoint_mismatch")
    value = site.secrets.rotate("desk")
    done = site.proxy.command("credentials", "refresh", "desk")
    assert done.returncode == 0, done.stderr
    assert site.state("DESK_KEY") == "ok"
    after = site.tokens()
    assert after["desk"] != before["desk"]
    assert after["lake"] == before["lake"]
    assert site.once(before["desk"]) == (500, "credential_unavailable")
    assert site.once(after["desk"]) == (200, None)
    assert site.latest() == value
    with site.tunnel() as client:
        assert site.ask(client, before["lake"]) == (200, None)


def test_a_refresh_is_in_force_when_it_returns(
    origin_loop: OriginLoop, authority: OriginAuthority, tmp_path: Path
) -> None:
    with running(origin_loop, authority, tmp_path, refresh="never") as site, site.tunnel() as client:
        token = site.tokens()["desk"]
        for _ in range(3):
            value = site.secrets.rotate("desk")
            assert site.proxy.asked("/v1/credentials/desk/refresh", "POST") == {"done": True}
            assert site.ask(client, token) == (200, None)
            assert site.latest() == value


def test_a_file_that_is_watched(origin_loop: OriginLoop, authority: OriginAuthority, tmp_path: Path) -> None:
    """Nobody asks for it; a change is seen all the same."""
    with running(origin_loop, authority, tmp_path, refresh="1h") as site, site.tunnel() as client:
        token = site.tokens()["desk"]
        assert site.ask(client, token) == (200, None)
        value = site.secrets.rotate("desk")
        assert eventually(lambda: site.ask(client, token) == (200, None) and site.latest() == value)


def invalid(text: str) -> str:
    """A document with a key that nobody knows."""
    return text + "surprise: true\n"


def truncated(text: str) -> str:
    return text[: len(text) // 2] + "\n  - {"


def two_of_a_name(text: str) -> str:
    return text.replace("- name: lake", "- name: desk")


def bad_host(text: str) -> str:
    """One bad endpoint of one provider takes all values away, never a part of them."""
    return text.replace(f"host: {HOST}", "host: '{origin}.test'", 1)


@pytest.mark.timeout(90)
@pytest.mark.parametrize("damage", [invalid, truncated, two_of_a_name, bad_host])
def test_an_invalid_providers_file_revokes_until_it_is_mended(site: Site, damage: Any) -> None:
    tokens = site.tokens()
    file = site.proxy.config_file.with_name("providers.yaml")
    good = file.read_text()
    broken = damage(good)
    assert broken != good
    load = Load(site, tokens)
    with load.going():
        time.sleep(0.3)
        before = len(site.proxy.events())
        replace(file, broken)
        assert eventually(lambda: bool(site.told("fail_closed", after=before)))
        noticed = time.monotonic()
        time.sleep(0.3)
        mending = time.monotonic()
        replace(file, good)
        assert eventually(lambda: site.once(tokens["lake"]) == (200, None))
        time.sleep(0.3)
    told = site.told("fail_closed", after=before)  # by now written, all of them
    assert {event["severity"] for event in told} == {"High"}
    assert sum("the providers file is invalid" in event["message"] for event in told) == 1
    between = [(path, one) for path, one in load.asked.items() if noticed <= one.began and one.ended <= mending]
    assert len(between) > 10
    assert {one.provider for _, one in between} == {"desk", "lake"}
    assert {(one.status, one.error) for _, one in between} == {(403, "credential_endpoint_mismatch")}
    assert not any(path in load.seen for path, one in load.asked.items() if one.status != 200)
    for token in tokens.values():
        assert site.once(token) == (200, None)


def replace(file: Path, text: str) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(file)


# sources that fail -------------------------------------------------------------------------------------------------


def test_a_source_that_fails_takes_its_value_away_at_once(site: Site) -> None:
    tokens = site.tokens()
    site.secrets.path("desk").unlink()
    with site.tunnel() as client:
        assert eventually(lambda: site.once(tokens["desk"]) == (500, "credential_unavailable"), 5)
        assert site.ask(client, tokens["lake"]) == (200, None)
    assert site.state("DESK_KEY") == "unavailable"
    assert eventually(lambda: bool(site.told("fail_closed")))
    (event,) = site.told("fail_closed")
    assert event["severity"] == "High"
    assert "desk" in event["message"]
    assert "not_found" in event["message"]
    value = site.secrets.rotate("desk")
    assert eventually(lambda: site.once(tokens["desk"]) == (200, None))
    assert site.latest() == value


@pytest.mark.parametrize("damage", ["empty", "two_lines", "open", "a_directory", "too_large"])
def test_a_file_that_cannot_be_used_is_one_that_failed(site: Site, damage: str) -> None:
    token = site.tokens()["desk"]
    path = site.secrets.path("desk")
    if damage == "a_directory":
        path.unlink()
        path.mkdir()
    elif damage == "open":
        path.chmod(0o644)
    else:
        texts = {"empty": "", "two_lines": "first-line-x\nsecond-line-x", "too_large": "x" * 9000}
        fresh = path.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_text(texts[damage])
        fresh.replace(path)
    assert eventually(lambda: site.once(token) == (500, "credential_unavailable"), 5)
    assert "line-x" not in json.dumps(site.proxy.events())
    with suppress(OSError):
        path.rmdir()
    value = site.secrets.rotate("desk")
    assert eventually(lambda: site.once(token) == (200, None))
    assert site.latest() == value


def test_a_value_may_be_kept_for_a_while(origin_loop: OriginLoop, authority: OriginAuthority, tmp_path: Path) -> None:
    with running(origin_loop, authority, tmp_path, on_failure={"keep_for": "4s"}) as site:
        token = site.tokens()["desk"]
        assert site.once(token) == (200, None)
        site.secrets.path("desk").unlink()
        gone = time.monotonic()
        assert eventually(lambda: site.state("DESK_KEY") == "kept", 3)
        assert site.once(token) == (200, None)
        assert site.latest() == "desk-value-0-x"
        assert eventually(lambda: site.once(token) == (500, "credential_unavailable"), 10)
        assert time.monotonic() - gone > 3.5
        assert eventually(lambda: bool(site.told("fail_closed")))
        value = site.secrets.rotate("desk")
        assert eventually(lambda: site.once(token) == (200, None), 15)
        assert site.latest() == value


def test_a_kept_value_is_revoked_all_the_same(
    origin_loop: OriginLoop, authority: OriginAuthority, tmp_path: Path
) -> None:
    with running(origin_loop, authority, tmp_path, on_failure={"keep_for": "1h"}) as site:
        token = site.tokens()["desk"]
        os.remove(site.secrets.path("desk"))
        assert eventually(lambda: site.state("DESK_KEY") == "kept", 5)
        assert site.once(token) == (200, None)
        revoke_by_socket(site, "desk")
        assert site.once(token) == (403, "credential_endpoint_mismatch")
