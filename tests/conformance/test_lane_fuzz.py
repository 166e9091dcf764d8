"""The corpus, mutated: whatever bytes a client sends, the origin only ever sees well-formed, judged requests.

h11 reads what arrived at the origin; every request of it must be one that the rules allow, for the tunnel's own
authority. With several lanes, all must give the same trace.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import h11
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.corpus import Case, Place, joined_chunks, load
from tests.conformance.test_head_oracle import SPLICES
from tests.conformance.test_lanes import HOSTS, policy
from tests.support.authorities import OriginAuthority
from tests.support.origins import Origin, OriginLoop, say_ok
from tests.support.proxy import LANES, EgressProcess, merged
from tests.support.raw import EndOfStream, open_tunnel

HOST = "rules.test"
QUICK = {"timeouts": {"head": "250ms", "body_idle": "250ms", "keepalive": "250ms", "tunnel_start": "250ms"}}
SENTINEL = "GET /public/last HTTP/1.1\r\nHost: <authority>\r\nConnection: close\r\n\r\n"
EXAMPLES = 250


def seeds(case: Case) -> bool:
    """Cases that are bytes and nothing else, small enough to be played many times."""
    return "plain" in case.modes and all(isinstance(step, str) for step in case.send)


SEEDS = ["".join(step for step in case.send if isinstance(step, str)) for case in load() if seeds(case)]


@dataclass
class Seen:
    """One run: final statuses in order, the error word of a refusal, and what reached the origin."""

    statuses: list[int] = field(default_factory=list)
    error: str | None = None
    upstream: bytes = b""


@dataclass
class Arena:
    """One proxy per lane in front of one origin."""

    proxies: dict[str, EgressProcess]
    origin: Origin

    def play(self, lane: str, data: bytes) -> Seen:
        seen = Seen()
        self.origin.take()
        with open_tunnel(self.proxies[lane].port, f"{HOST}:{self.origin.port}", deadline=5) as client:
            try:
                client.send(data)
                while True:
                    reply = client.reply()
                    seen.statuses.append(reply.status)
                    seen.error = reply.error
            except (EndOfStream, ConnectionError, BrokenPipeError):
                pass
        seen.upstream = self.origin.take()
        return seen


@pytest.fixture(scope="module")
def arena(origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[Arena]:
    origin = Origin(origin_loop)
    origin.script = say_ok
    aliases = dict.fromkeys((*HOSTS, "other.test"), "127.0.0.1")
    proxies = {
        lane: EgressProcess(
            policy([origin.port]), aliases=aliases, trust=authority.ca_file, settings=merged(QUICK, own)
        )
        for lane, own in LANES.items()
    }
    yield Arena(proxies, origin)
    for proxy in proxies.values():
        proxy.stop()
    origin.stop()


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A case with a few changes, and a well-formed request behind it that ends the connection."""
    text = draw(st.sampled_from(SEEDS)) + (SENTINEL if draw(st.booleans()) else "")
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        match draw(st.sampled_from(("splice", "line", "cut", "repeat", "byte"))):
            case "splice":
                text = text[:at] + draw(st.sampled_from(SPLICES)).decode("latin-1") + text[at:]
            case "line":
                start = text.find("\r\n", at) + 2
                text = text[:start] + draw(st.sampled_from(SPLICES)).decode("latin-1") + text[start:]
            case "cut":
                text = text[:at] + text[at + draw(st.integers(1, 4)) :]
            case "repeat":
                text = text[:at] + text[at : at + draw(st.integers(1, 40))] + text[at:]
            case _:
                text = text[:at] + chr(draw(st.integers(0, 255))) + text[at + 1 :]
    return text + SENTINEL


def arrived(data: bytes) -> list[h11.Request]:
    """The requests in the bytes an origin received; raises where h11 refuses one."""
    requests: list[h11.Request] = []
    while data:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        connection.receive_data(data)
        event = connection.next_event()
        if not isinstance(event, h11.Request):
            return requests
        requests.append(event)
        while isinstance(event, h11.Request | h11.Data):
            event = connection.next_event()
        if not isinstance(event, h11.EndOfMessage):
            return requests
        data = connection.trailing_data[0]
    return requests


def allowed(request: h11.Request) -> bool:
    method, path = request.method.upper(), request.target.split(b"?")[0]
    if method == b"POST":
        return path == b"/upload"
    barred = path == b"/public/forbidden" or path == b"/public/admin" or path.startswith(b"/public/admin/")
    return method in (b"GET", b"HEAD") and path.startswith(b"/public/") and b".." not in path.split(b"/") and not barred


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(text=mutated())
@pytest.mark.timeout(240)
def test_only_judged_requests_arrive(arena: Arena, text: str) -> None:
    place = Place("plain", HOST, arena.origin.port)
    data = place.octets(text)
    traces = {lane: arena.play(lane, data) for lane in LANES}
    for seen in traces.values():
        requests = arrived(seen.upstream)
        for request in requests:
            assert allowed(request), request
            assert [value for name, value in request.headers if name == b"host"] == [f"{HOST}:{place.port}".encode()]
        answered = sum(status == 200 for status in seen.statuses)
        assert answered <= len(requests) <= answered + 1
    first, *others = traces.values()
    for other in others:
        assert (first.statuses, first.error) == (other.statuses, other.error)
        assert joined_chunks(first.upstream) == joined_chunks(other.upstream)
