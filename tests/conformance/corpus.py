"""The conformance corpus: reads the case files and plays one case against a running proxy.

A case says what a client sends, how the origin behaves, and everything that must be seen: replies, bytes at the
origin, event. Files are YAML; texts are Latin-1 with `<name>` tokens filled in per run (see `Place.fill`).
"""

import re
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from tests.support.origins import REPLY_OK, Conversation, Origin, Script
from tests.support.raw import Connection, ConnectRefused, EndOfStream, Reply, dial, open_tunnel, start_tls

CORPUS = Path(__file__).parent / "corpus"
NOTHING = "nothing"
ANY = "any"
DEADLINE = 6.0

Step = str | dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One row of the corpus. The names are the keys of the files.

    `modes`: `tls` and `plain` send inside a CONNECT tunnel, `forward` and `proxy` straight to the proxy port.
    `statuses`: heads that come back, in order; `error` and `reason_code` belong to the last. `upstream`: exact bytes
    at the origin, `nothing`, or `any`. `raw`: relayed unread. `in_tunnel`: what differs in the modes `tls` and `plain`.
    """

    id: str
    send: Sequence[Step]
    about: str = ""
    modes: tuple[str, ...] = ("tls", "plain", "forward")
    host: str = "origin.test"
    method: str = "GET"
    origin: Sequence[Step] = ()
    statuses: tuple[int, ...] = (200,)
    interim: tuple[int, ...] | str = ()
    error: str | None = None
    reason_code: str | None = None
    audited: bool = False
    upstream: Sequence[Step] | str = NOTHING
    upstream_never: str | None = None
    upstream_starts: str | None = None
    reply: Mapping[str, str | None] = field(default_factory=dict)
    reply_head: str | None = None
    body: str | None = None
    trailers: Mapping[str, str] | None = None
    complete: bool = True
    closes: bool = False
    raw: bool = False
    lanes: tuple[str, ...] = ("http1", "mitm")
    in_tunnel: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""

    def in_mode(self, mode: str) -> "Case":
        return replace(self, **_listed(dict(self.in_tunnel))) if mode in ("tls", "plain") else self


@dataclass(frozen=True)
class Place:
    """Where a run happens: everything that tokens in the texts stand for."""

    mode: str
    host: str
    port: int

    def fill(self, text: str) -> str:
        authority = f"{self.host}:{self.port}"
        forward = self.mode == "forward"
        for token, value in (
            ("<authority>", authority),
            ("<host>", self.host),
            ("<port>", str(self.port)),
            ("<base>", f"http://{authority}" if forward else ""),
            ("<via>", "Via: 1.1 egress\r\n" if forward else ""),
        ):
            text = text.replace(token, value)
        return text

    def octets(self, step: Step) -> bytes:
        """The bytes of a text, or of a `{repeat, times}` step."""
        if isinstance(step, str):
            return self.fill(step).encode("latin-1")
        return self.octets(step["repeat"]) * int(step["times"])

    def join(self, steps: Sequence[Step] | str) -> bytes:
        return b"".join(self.octets(step) for step in ([steps] if isinstance(steps, str) else steps))


@dataclass
class Trace:
    """Everything that was seen of one run. `late` are bytes that reached an origin after the run before ended."""

    case: Case
    place: Place
    client_port: int = 0
    began: float = 0.0
    replies: list[Reply] = field(default_factory=list)
    upstream: bytes = b""
    late: bytes = b""
    closed: bool | None = None
    fault: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)


def load() -> list[Case]:
    """Every case of every file, rows spelled out; ids are unique over all files."""
    cases = [case for path in sorted(CORPUS.glob("*.yaml")) for case in _read(path)]
    ids = [case.id for case in cases]
    repeated = sorted({name for name in ids if ids.count(name) > 1})
    if repeated:
        raise ValueError(f"repeated case ids: {repeated}")
    return cases


def _read(path: Path) -> Iterator[Case]:
    known = {entry.name for entry in fields(Case)}
    for document in yaml.load(path.read_text(), Loader=yaml.CSafeLoader):
        rows = document.pop("rows", [{}])
        for number, row in enumerate(rows, start=1):
            values = _spell_out(document, {key: value for key, value in row.items() if key not in known})
            values |= {key: value for key, value in row.items() if key in known and key != "id"}
            if len(rows) > 1:
                values["id"] = f"{document['id']}-{row.get('id', number)}"
            if unknown := set(values) - known:
                raise ValueError(f"{path.name}: {values['id']}: unknown keys {sorted(unknown)}")
            yield Case(**_listed(values), file=path.stem)


def _listed(values: dict[str, Any]) -> dict[str, Any]:
    """Single values where a sequence is meant."""
    for key in ("modes", "statuses", "interim", "lanes"):
        if key in values and values[key] != ANY:
            values[key] = tuple(values[key]) if isinstance(values[key], list) else (values[key],)
    if isinstance(values.get("send"), str):
        values["send"] = [values["send"]]
    return values


def _spell_out(value: Any, row: dict[str, Any]) -> Any:
    if isinstance(value, str):
        for token, text in row.items():
            value = value.replace(f"<{token}>", text)
        return value
    if isinstance(value, list):
        return [_spell_out(item, row) for item in value]
    if isinstance(value, dict):
        return {key: _spell_out(item, row) for key, item in value.items()}
    return value


@dataclass
class Stage:
    """A proxy and its two origins, ready to play cases one after the other."""

    proxy_port: int
    trust: ssl.SSLContext
    tls_origin: Origin
    plain_origin: Origin

    def play(self, case: Case, mode: str) -> Trace:
        """Run one case; whatever goes wrong on the way is part of the trace."""
        case = case.in_mode(mode)
        origin = self.tls_origin if mode == "tls" else self.plain_origin
        place = Place(mode, case.host, origin.port)
        trace = Trace(case, place, late=self._arrived(), began=time.time())
        origin.script = origin_script(case.origin, place)
        try:
            self._converse(trace)
        except (OSError, EndOfStream, ValueError, ConnectRefused) as error:
            trace.fault = f"{type(error).__name__}: {error}"
        trace.upstream = self._arrived()
        return trace

    def _arrived(self) -> bytes:
        return self.tls_origin.take() + self.plain_origin.take()

    def _converse(self, trace: Trace) -> None:
        case = trace.case
        with self._open(trace) as client:
            for step in case.send:
                self._step(client, step, trace)
            while len(trace.replies) < len(case.statuses):
                method = case.method if len(trace.replies) == 0 else "GET"
                trace.replies.append(client.reply(method))
            if case.closes:
                trace.closed = client.closed_by_peer()

    def _open(self, trace: Trace) -> Connection:
        place = trace.place
        if place.mode in ("forward", "proxy"):
            client = dial(self.proxy_port, deadline=DEADLINE)
        else:
            client = open_tunnel(self.proxy_port, f"{place.host}:{place.port}", deadline=DEADLINE)
        trace.client_port = client.socket.getsockname()[1]
        return start_tls(client, self.trust, place.host) if place.mode == "tls" else client

    @staticmethod
    def _step(client: Connection, step: Step, trace: Trace) -> None:
        match step:
            case str() | {"repeat": _}:
                client.send(trace.place.octets(step))
            case {"wait": seconds}:
                time.sleep(seconds)
            case {"do": "half_close"}:
                client.finish_sending()
            case {"read": "interim"}:
                trace.replies.append(client.reply_head())
            case {"read": "reply"}:
                trace.replies.append(client.reply(trace.case.method))
            case _:
                raise AssertionError(f"{trace.case.id}: unknown step {step}")


def origin_script(steps: Sequence[Step], place: Place) -> Script:
    """Origin behaviour: without steps a plain 200; the body is read first unless a step says when, or never."""

    async def script(talk: Conversation) -> None:
        if not any(step in ({"do": "read_body"}, {"do": "answer_early"}) for step in steps):
            await talk.body()
        for step in steps or [REPLY_OK.decode()]:
            await _origin_step(talk, step, place)

    return script


async def _origin_step(talk: Conversation, step: Step, place: Place) -> None:
    match step:
        case str() | {"repeat": _}:
            await talk.send(place.octets(step))
        case {"wait": seconds}:
            await talk.pause(seconds)
        case {"do": "read_body"}:
            await talk.body()
        case {"do": "close"}:
            talk.close()
        case {"do": "reset"}:
            talk.reset()
        case {"do": "answer_early"}:
            pass
        case _:
            raise AssertionError(f"unknown origin step {step}")


def joined_chunks(data: bytes) -> bytes:
    """Chunked bodies with their chunks joined: how a body is cut into chunks is no part of its meaning."""
    result, rest = b"", data
    while (end := rest.find(b"\r\n\r\n")) >= 0:
        head, rest = rest[: end + 4], rest[end + 4 :]
        result += head
        if b"\r\ntransfer-encoding: chunked\r\n" in head.lower():
            body, rest = _one_chunk(rest)
            result += body
        elif length := re.search(rb"\r\ncontent-length: (\d+)\r\n", head.lower()):
            result, rest = result + rest[: int(length[1])], rest[int(length[1]) :]
    return result + rest


def _one_chunk(data: bytes) -> tuple[bytes, bytes]:
    payload, rest = b"", data
    while match := re.match(rb"([0-9a-f]+)\r\n", rest):
        size = int(match[1], 16)
        if size == 0:
            break
        payload += rest[match.end() : match.end() + size]
        rest = rest[match.end() + size + 2 :]
    chunk = b"%x\r\n%b\r\n" % (len(payload), payload) if payload else b""
    return chunk, rest
