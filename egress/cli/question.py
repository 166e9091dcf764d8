"""From what people write (a URL, a test's `request`) to the question that the stages are asked."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from egress.http.lexer import lex_request
from egress.http.target import read_connect_target
from egress.model.address import DEFAULT_PORTS, InvalidAddress, Origin, Scheme, parse_authority
from egress.model.intent import AgentName, Ingress
from egress.model.message import Malformed, WireHead
from egress.model.process import Process, ProcessEvidence
from egress.pipeline.explain import Payload, Question
from egress.pipeline.explain_exchange import Content, Message

_URL = re.compile(r"(https?|wss?)://([^/?#]+)([^#]*)", re.IGNORECASE)
_WEBSOCKET = {"ws": Scheme.HTTP, "wss": Scheme.HTTPS}
_HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}
_KEYS = frozenset(("method", "url", "headers", "body", "connect", "raw"))


class Unanswerable(ValueError):
    """The request as written asks nothing; the message says what to write."""


@dataclass(frozen=True, slots=True)
class Program:
    """Paths of the program that asks and of those above it, nearest first. Empty: left open."""

    path: str = ""
    ancestors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request in a person's words, and the messages that follow it when it opens a WebSocket. `body` is None when
    it is left open."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    messages: tuple[Message, ...] = ()


def ask_for_request(request: HttpRequest, agent: AgentName, program: Program) -> Question:
    """`https` is asked inside a CONNECT tunnel, `http` in absolute-form, WebSockets in a tunnel always: what clients
    of a proxy do."""
    url = _URL.fullmatch(request.url.partition("#")[0])
    if url is None:
        raise Unanswerable(f"`{request.url}` is no http, https, ws or wss URL")
    word = url[1].lower()
    scheme = _WEBSOCKET.get(word) or Scheme(word)
    origin = _origin(scheme, url[2])
    rest = url[3] if url[3].startswith("/") else f"/{url[3]}"
    websocket = word in _WEBSOCKET or bool(request.messages)
    tunnelled = websocket or scheme is Scheme.HTTPS
    head = _head(request, rest if tunnelled else f"{scheme}://{url[2]}{rest}", _fields(request, origin, websocket))
    ingress = Ingress.CONNECT if tunnelled else Ingress.FORWARD
    return Question(agent, ingress, origin, head, evidence_of(program), Content(request.body, request.messages))


def ask_for_connection(target: str, payload: Payload, agent: AgentName, program: Program) -> Question:
    """A CONNECT to `host:port`."""
    origin = read_connect_target(target.encode())
    if isinstance(origin, Malformed):
        raise Unanswerable(f"`{target}` is no host:port: {origin.reason}")
    return Question(agent, Ingress.CONNECT, origin, payload, evidence_of(program))


def ask_from_test(
    request: Mapping[str, Any], agent: AgentName, program: Program, messages: Sequence[Any] = ()
) -> Question:
    """The `request` of a policy test: `{method, url, headers, body}`, `{connect: host:port}` or `{raw: host:port}`,
    and its `messages`."""
    unknown = sorted(set(request) - _KEYS)
    if unknown:
        raise Unanswerable(f"request: unknown key `{unknown[0]}`")
    for key, payload in (("connect", Payload.NOTHING), ("raw", Payload.RAW)):
        if key in request:
            if len(request) > 1 or messages:
                raise Unanswerable(f"request: `{key}` stands alone")
            return ask_for_connection(str(request[key]), payload, agent, program)
    if "url" not in request:
        raise Unanswerable("request: give `url`, `connect` or `raw`")
    headers = request.get("headers", {})
    if not isinstance(headers, Mapping):
        raise Unanswerable("request.headers: must be a mapping")
    asked = HttpRequest(
        str(request["url"]),
        str(request.get("method", "GET")),
        {str(name): str(value) for name, value in headers.items()},
        _written(request["body"]).encode() if "body" in request else None,
        tuple(map(_message, messages)),
    )
    return ask_for_request(asked, agent, program)


def evidence_of(program: Program) -> ProcessEvidence | None:
    """What identity would report of these programs; digests where the files are here to be read."""
    if not program.path:
        return None
    owner, *ancestors = (_process(path) for path in (program.path, *program.ancestors))
    return ProcessEvidence((owner,), tuple(ancestors))


def as_the_kernel_sees(paths: Sequence[str]) -> tuple[str, ...]:
    """Links followed, where the files are here: the kernel reports what runs, not what was typed."""
    return tuple(str(Path(path).resolve()) if Path(path).exists() else path for path in paths)


def _process(path: str) -> Process:
    try:
        with Path(path).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        digest = None
    return Process(pid=1, started=0, executable=path, sha256=digest)


def _origin(scheme: Scheme, text: str) -> Origin:
    try:
        authority = parse_authority(text)
    except InvalidAddress as error:
        raise Unanswerable(f"`{text}`: {error}") from None
    return Origin(scheme, authority.host, authority.port or DEFAULT_PORTS[scheme])


def _host_field(origin: Origin) -> str:
    """As clients write it: without the port that the scheme implies."""
    return origin.host.bracketed if origin.port == DEFAULT_PORTS[origin.scheme] else str(origin)


def _fields(request: HttpRequest, origin: Origin, websocket: bool) -> Mapping[str, str]:
    """What clients send unasked, under what was asked for; a body is JSON unless its type is given."""
    fields = {"Host": _host_field(origin)}
    if websocket:
        fields |= _HANDSHAKE
    if request.body is not None:
        fields |= {"Content-Type": "application/json", "Content-Length": str(len(request.body))}
    given = {name.lower() for name in request.headers}
    return {name: value for name, value in fields.items() if name.lower() not in given} | dict(request.headers)


def _head(request: HttpRequest, target: str, fields: Mapping[str, str]) -> WireHead | Malformed:
    """The request as bytes, read by the lexer that reads clients: nothing a client could not send is judged."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return lex_request(f"{request.method} {target} HTTP/1.1\r\n{lines}\r\n".encode())


def _written(content: object) -> str:
    """Text as it stands; what is structured in YAML is sent as JSON."""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _message(content: object) -> Message:
    """`{binary: TEXT}` is a binary message, everything else one of text."""
    if isinstance(content, Mapping) and set(content) == {"binary"}:
        return _written(content["binary"]).encode()
    return _written(content)
