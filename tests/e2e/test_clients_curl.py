"""curl and wget through the installed command, steered by nothing but the printed environment."""

import gzip
import hashlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.authorities import OriginAuthority, stranger_context
from tests.support.h2_origin import H2Origin, H2Talk
from tests.support.origins import Conversation, Origin, OriginLoop, answer, say_ok
from tests.support.proxy import EgressProcess, opaque, policy_text, rest
from tests.support.workload import Workload

PAYLOAD = bytes(range(256)) * 20_000
"""5 MiB that no line or chunk boundary divides evenly."""


@dataclass
class Site:
    """The proxy, its origins and a workload."""

    proxy: EgressProcess
    workload: Workload
    tls: Origin
    plain: Origin
    stranger: Origin
    expired: Origin
    h2: H2Origin
    h2c: H2Origin

    def url(self, path: str, host: str = "origin.test") -> str:
        return f"https://{host}:{self.tls.port}{path}"


@pytest.fixture(scope="module")
def site(
    origin_loop: OriginLoop, authority: OriginAuthority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    tls = Origin(origin_loop, authority.server_context("origin.test", "rules.test"))
    plain = Origin(origin_loop)
    stranger = Origin(origin_loop, stranger_context("origin.test"))
    expired = Origin(origin_loop, authority.expired_context("origin.test"))
    h2 = H2Origin(origin_loop, authority.server_context("h2.test", alpn=("h2",)))
    h2c = H2Origin(origin_loop, None)
    policy = policy_text(
        rest("origin.test", tls.port),
        rest("rules.test", tls.port, ("GET", "/public/**")),
        rest("origin.test", plain.port),
        rest("origin.test", stranger.port),
        rest("origin.test", expired.port),
        rest("wrong-name.test", tls.port),
        rest("h2.test", h2.port, http2="prefer"),
        rest("h2.test", h2c.port),
        opaque("closed.test", 9),
    )
    hosts = ("origin.test", "rules.test", "wrong-name.test", "h2.test", "closed.test")
    with EgressProcess(policy, aliases=dict.fromkeys(hosts, "127.0.0.1"), trust=authority.ca_file) as proxy:
        workload = Workload(proxy, tmp_path_factory.mktemp("curl"))
        yield Site(proxy, workload, tls, plain, stranger, expired, h2, h2c)
    for origin in (tls, plain, stranger, expired, h2, h2c):
        origin.stop()


@pytest.fixture(autouse=True)
def plain_answers(site: Site) -> None:
    for origin in (site.tls, site.plain):
        origin.script = say_ok
        origin.recording = True
        origin.take()


def test_https_is_inspected_and_answered(site: Site) -> None:
    done = site.workload.run("curl", "-sS", "-w", " %{http_version} %{http_code}", site.url("/a?b=c"))
    assert (done.returncode, done.stdout) == (0, "ok 1.1 200"), done.stderr
    assert site.tls.take().startswith(b"GET /a?b=c HTTP/1.1\r\nHost: origin.test:")


def test_plain_http_goes_in_absolute_form(site: Site) -> None:
    done = site.workload.run("curl", "-sS", f"http://origin.test:{site.plain.port}/a")
    assert (done.returncode, done.stdout) == (0, "ok"), done.stderr
    received = site.plain.take()
    assert received.startswith(b"GET /a HTTP/1.1\r\nHost: origin.test:")
    assert b"Proxy-Connection" not in received


def test_curl_that_offers_h2_and_http1_gets_http1(site: Site) -> None:
    done = site.workload.run("curl", "-sS", "--http2", "-w", " %{http_version}", site.url("/"))
    assert (done.returncode, done.stdout) == (0, "ok 1.1"), done.stderr


def test_an_endpoint_that_prefers_h2_speaks_it(site: Site) -> None:
    done = site.workload.run("curl", "-sS", "--http2", "-w", " %{http_version}", f"https://h2.test:{site.h2.port}/x")
    assert (done.returncode, done.stdout) == (0, "ok 2"), done.stderr


def test_h2_prior_knowledge_over_tls(site: Site) -> None:
    done = site.workload.run(
        "curl", "-sS", "--http2-prior-knowledge", "-w", " %{http_version}", f"https://h2.test:{site.h2.port}/x"
    )
    assert (done.returncode, done.stdout) == (0, "ok 2"), done.stderr


def test_h2_prior_knowledge_in_clear_inside_the_tunnel(site: Site) -> None:
    done = site.workload.run(
        "curl", "-sS", "--proxytunnel", "--http2-prior-knowledge", "-w", " %{http_version}",
        f"http://h2.test:{site.h2c.port}/x",
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "ok 2"), done.stderr


def test_h2_download_with_default_windows(site: Site) -> None:
    """O-59: a body far beyond the first window arrives whole."""

    async def script(talk: H2Talk) -> None:
        await talk.body()
        await talk.respond(200, PAYLOAD)

    ordinary, site.h2.script = site.h2.script, script
    try:
        target = site.workload.directory / "h2.bin"
        done = site.workload.run("curl", "-sS", "--http2", "-o", target, f"https://h2.test:{site.h2.port}/big")
    finally:
        site.h2.script = ordinary
    assert done.returncode == 0, done.stderr
    assert target.read_bytes() == PAYLOAD


def test_denied_by_rule_is_a_readable_403(site: Site) -> None:
    done = site.workload.run("curl", "-sS", "-w", "\n%{http_code}", "-X", "DELETE", site.url("/public/a", "rules.test"))
    body, status = done.stdout.rsplit("\n", 1)
    assert (done.returncode, status) == (0, "403")
    told = json.loads(body)
    assert (told["error"], told["reason_code"], told["method"]) == ("policy_denied", "method_path_denied", "DELETE")
    assert site.tls.take() == b""


def test_denied_by_destination_fails_the_connect(site: Site) -> None:
    done = site.workload.run("curl", "-sS", "-w", "%{http_connect}", "https://unlisted.test/")
    assert done.returncode == 56
    assert done.stdout == "403"


def test_nothing_listening_is_told_at_connect(site: Site) -> None:
    """O-51."""
    done = site.workload.run("curl", "-sS", "-w", "%{http_connect}", "https://closed.test:9/")
    assert done.returncode == 56
    assert done.stdout == "502"


@pytest.mark.parametrize(
    ("case", "reason"), [("stranger", "unknown_issuer"), ("expired", "expired"), ("wrong-name", "name_mismatch")]
)
def test_an_origin_that_cannot_prove_itself_is_a_502_with_the_reason(site: Site, case: str, reason: str) -> None:
    """O-19."""
    url = {
        "stranger": f"https://origin.test:{site.stranger.port}/",
        "expired": f"https://origin.test:{site.expired.port}/",
        "wrong-name": site.url("/", "wrong-name.test"),
    }[case]
    done = site.workload.run("curl", "-sS", "-w", "\n%{http_code}", url)
    body, _, status = done.stdout.rpartition("\n")
    assert (done.returncode, status) == (0, "502"), done.stderr
    told = json.loads(body)
    assert (told["error"], told["reason_code"]) == ("upstream_tls_failed", reason)


def test_upload_with_expect(site: Site) -> None:
    """O-23: curl waits for a 100 before it sends; the origin is the one who gives it."""
    source = site.workload.directory / "upload.bin"
    source.write_bytes(PAYLOAD)
    received: list[bytes] = []

    async def script(talk: Conversation) -> None:
        assert talk.request is not None
        received.append(talk.request.values(b"expect")[0])
        await talk.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        received.append(await talk.body())
        await talk.send(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")

    site.tls.script = script
    site.tls.recording = False
    done = site.workload.run(
        "curl", "-sS", "-H", "Expect: 100-continue", "--expect100-timeout", "20", "-w", "%{http_code} %{time_total}",
        "-T", source, site.url("/up"),
    )  # fmt: skip
    status, seconds = done.stdout.split()
    assert (done.returncode, status) == (0, "201"), done.stderr
    assert float(seconds) < 10
    assert received == [b"100-continue", PAYLOAD]


def test_early_refusal_of_an_upload_is_read(site: Site) -> None:
    """The origin answers and closes before it has read the body; curl must see that answer and no reset."""
    source = site.workload.directory / "refused.bin"
    source.write_bytes(PAYLOAD * 4)

    async def script(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
        talk.close()

    site.tls.script = script
    site.tls.recording = False
    done = site.workload.run("curl", "-sS", "-H", "Expect:", "-w", " %{http_code}", "-T", source, site.url("/up"))
    assert done.stdout == "big 413", done.stderr


def test_denial_of_an_upload_is_read(site: Site) -> None:
    source = site.workload.directory / "denied.bin"
    source.write_bytes(PAYLOAD * 4)
    url = site.url("/up", "rules.test")
    done = site.workload.run("curl", "-sS", "-H", "Expect:", "-o", "-", "-w", "\n%{http_code}", "-T", source, url)
    body, _, status = done.stdout.rpartition("\n")
    assert status == "403", done.stderr
    assert json.loads(body)["error"] == "policy_denied"


def test_upload_of_unknown_length(site: Site) -> None:
    digests: list[str] = []

    async def script(talk: Conversation) -> None:
        digest = hashlib.sha256()
        while (size := int((await talk.until(b"\r\n") or b"0").split(b";")[0], 16)) > 0:
            digest.update((await talk.exactly(size + 2))[:-2])
        await talk.until(b"\r\n")
        digests.append(digest.hexdigest())
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    site.tls.script = script
    site.tls.recording = False
    done = site.workload.run("curl", "-sS", "-f", "-H", "Expect:", "-T", "-", site.url("/up"), feed=PAYLOAD)
    assert done.returncode == 0, done.stderr
    assert digests == [hashlib.sha256(PAYLOAD).hexdigest()]


def test_download_of_unknown_length(site: Site) -> None:
    async def script(talk: Conversation) -> None:
        await talk.body()
        await talk.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for start in range(0, len(PAYLOAD), 70_001):
            piece = PAYLOAD[start : start + 70_001]
            await talk.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        await talk.send(b"0\r\n\r\n")

    site.tls.script = script
    target = site.workload.directory / "down.bin"
    done = site.workload.run("curl", "-sS", "-f", "-o", target, site.url("/down"))
    assert done.returncode == 0, done.stderr
    assert target.read_bytes() == PAYLOAD


def test_server_sent_events_arrive_when_they_are_sent(site: Site) -> None:
    """O-22: within 100 ms of its sending, and each before the next one leaves."""
    sent: list[float] = []
    arrived: list[float] = []

    async def script(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(6):
            while len(arrived) < number:
                await talk.pause(0.005)
            event = b"data: %d\n\n" % number
            sent.append(time.monotonic())
            await talk.send(b"%x\r\n%b\r\n" % (len(event), event))
        await talk.send(b"0\r\n\r\n")

    site.tls.script = script
    process = site.workload.start("curl", "-sSN", site.url("/events"))
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    data = b""
    while piece := os.read(descriptor, 4096):
        arrived += [time.monotonic()] * piece.count(b"data:")
        data += piece
    assert process.wait(10) == 0
    assert data == b"".join(b"data: %d\n\n" % number for number in range(6))
    assert min(there - here for here, there in zip(sent, arrived, strict=True)) < 0.1


def test_encoded_bodies_pass_byte_for_byte(site: Site) -> None:
    """O-25."""
    encoded = gzip.compress(b"data: one\n\n" * 100, mtime=0)
    reply = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(encoded)
    site.tls.script = answer(reply + encoded)
    target = site.workload.directory / "coded.gz"
    done = site.workload.run("curl", "-sS", "-f", "-o", target, site.url("/coded"))
    assert done.returncode == 0, done.stderr
    assert target.read_bytes() == encoded


def test_head_and_resume(site: Site) -> None:
    site.tls.script = answer(b'HTTP/1.1 200 OK\r\nContent-Length: 12345\r\nETag: "a"\r\n\r\n')
    done = site.workload.run("curl", "-sS", "-I", site.url("/file"))
    assert done.returncode == 0, done.stderr
    assert "content-length: 12345" in done.stdout.lower()
    site.tls.script = answer(
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 2-3/4\r\nContent-Length: 2\r\n\r\ncd"
    )
    site.tls.take()
    done = site.workload.run("curl", "-sS", "-r", "2-3", site.url("/file"))
    assert (done.returncode, done.stdout) == (0, "cd")
    assert b"\r\nRange: bytes=2-3\r\n" in site.tls.take()


def test_many_requests_on_one_connection(site: Site) -> None:
    done = site.workload.run("curl", "-sS", "-w", "%{num_connects} ", site.url("/[1-20]"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["ok1", *["ok0"] * 19]


def test_redirects_are_the_clients_and_judged_again(site: Site) -> None:
    site.tls.script = answer(b"HTTP/1.1 302 Found\r\nLocation: https://unlisted.test/\r\nContent-Length: 0\r\n\r\n")
    done = site.workload.run("curl", "-sS", "-L", "-w", "%{http_connect}", site.url("/"))
    assert (done.returncode, done.stdout) == (56, "403")


def test_wget(site: Site) -> None:
    site.tls.script = answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(PAYLOAD) + PAYLOAD)
    target = site.workload.directory / "wget.bin"
    done = site.workload.run(
        "wget", "-q", "--tries=1", f"--ca-certificate={site.proxy.bundle}", "-O", target, site.url("/file")
    )
    assert done.returncode == 0, done.stderr
    assert target.read_bytes() == PAYLOAD


def test_wget_is_told_of_a_denial(site: Site) -> None:
    done = site.workload.run(
        "wget", "-nv", "--tries=1", f"--ca-certificate={site.proxy.bundle}", "-O", "-", site.url("/x", "rules.test")
    )
    assert done.returncode == 8
    assert "403" in done.stderr


def test_nothing_of_a_query_is_written_anywhere(site: Site) -> None:
    """O-54."""
    site.workload.run(
        "curl", "-sS", "-H", "Authorization: Bearer SECRET-IN-HEADER", "-b", "sid=SECRET-IN-COOKIE",
        site.url("/r?access_token=SECRET-IN-QUERY"),
    )  # fmt: skip
    site.workload.run("curl", "-sS", site.url("/denied?access_token=SECRET-IN-QUERY", "rules.test"))
    before = len(site.proxy.events())
    site.workload.run("curl", "-sS", site.url("/done"))
    site.proxy.wait_events(2, after=before)
    written = site.proxy.events_file.read_text() + site.proxy.stderr()
    assert "/denied" in written
    assert "SECRET" not in written


def test_files_of_the_proxy_are_private(site: Site) -> None:
    keys = [path for path in Path(site.proxy.directory / "state").rglob("*key*") if path.is_file()]
    assert keys
    assert {path.stat().st_mode & 0o777 for path in keys} == {0o600}
