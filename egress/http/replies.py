"""`Denial` to what the client reads: status, fields and the one JSON envelope (http-surface.md section 5)."""

import json
from dataclasses import dataclass

from egress.model.address import Origin
from egress.model.intent import Ingress
from egress.model.message import FieldLine
from egress.model.verdict import Denial, DenialCode, Layer, ReasonCode, RuleKind, Stage

RETRY_AFTER_SECONDS = 1
PROXY_REALM = b'Basic realm="egress"'

_PHRASES = {
    200: b"OK",
    400: b"Bad Request",
    403: b"Forbidden",
    405: b"Method Not Allowed",
    407: b"Proxy Authentication Required",
    408: b"Request Timeout",
    413: b"Content Too Large",
    415: b"Unsupported Media Type",
    417: b"Expectation Failed",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
}

_METHODS = {"mcp": b"GET, POST, DELETE"}
"""What a 405 has to list (RFC 9110 section 15.5.6), by protocol of the endpoint."""

_WITH_MESSAGE = frozenset((
    DenialCode.REQUEST_AUTHORITY_MISMATCH, DenialCode.CREDENTIAL_ENDPOINT_MISMATCH, DenialCode.CREDENTIAL_UNAVAILABLE,
))  # fmt: skip
"""Codes whose OpenShell body says `message`; both keys are sent."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a refusal happens. `ingress` is None for a request inside a tunnel; the rest as far as it is known.

    `path` is canonical and redacted, without query. `protocol` is the endpoint's.
    """

    request_id: str
    ingress: Ingress | None
    method: str = "CONNECT"
    origin: Origin | None = None
    path: str = ""
    binary: str | None = None
    protocol: str = "rest"


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete refusal."""

    status: int
    fields: tuple[FieldLine, ...]
    body: bytes

    def http1(self, *, keep: bool = False) -> bytes:
        """HTTP/1.1 bytes; the connection is announced closed unless `keep`."""
        lines = [b"HTTP/1.1 %d %b\r\n" % (self.status, _PHRASES.get(self.status, b"Error"))]
        lines += [b"%b: %b\r\n" % line for line in self.fields]
        lines.append(b"Content-Length: %d\r\n" % len(self.body))
        lines.append(b"\r\n" if keep else b"Connection: close\r\n\r\n")
        lines.append(self.body)
        return b"".join(lines)


def refusal(denial: Denial, scene: Scene) -> Reply:
    """The reply to a denial. A code without a status of its own (a TLS alert) is told as 403 where HTTP is spoken."""
    body = json.dumps(envelope(denial, scene), ensure_ascii=False).encode()
    return Reply(_status(denial), _fields(denial, scene), body)


def result(body: bytes) -> Reply:
    """A refusal told as a result of the protocol inside HTTP."""
    return Reply(200, ((b"Content-Type", b"application/json"),), body)


def envelope(denial: Denial, scene: Scene) -> dict[str, object]:
    """The JSON object that every refusal carries (http-surface.md 5.5)."""
    body: dict[str, object] = {"error": denial.code.word, "detail": _detail(denial, scene)}
    if denial.code in _WITH_MESSAGE:
        body["message"] = body["detail"]
    if denial.code is DenialCode.POLICY_DENIED and denial.layer is Layer.L7:
        body |= _rule_keys(denial, scene)
    elif denial.code is DenialCode.POLICY_DENIED and scene.ingress is Ingress.CONNECT and denial.reason:
        body["reason"] = denial.reason
    body |= {
        "layer": denial.layer.value,
        "request_id": scene.request_id,
        "retryable": denial.code.retryable,
    }
    if denial.reason_code is not None:
        body["reason_code"] = denial.reason_code.value
        if denial.reason_code.at_proxy:
            body["via"] = "upstream_proxy"
    if denial.hints:
        body["hints"] = list(denial.hints)
    return body


def _status(denial: Denial) -> int:
    return denial.code.status or 403


def _fields(denial: Denial, scene: Scene) -> tuple[FieldLine, ...]:
    fields: list[FieldLine] = [(b"Content-Type", b"application/json")]
    status = _status(denial)
    if status in (429, 503):
        fields.append((b"Retry-After", b"%d" % RETRY_AFTER_SECONDS))
    if status == 405 and scene.protocol in _METHODS:
        fields.append((b"Allow", _METHODS[scene.protocol]))
    if status == 407:
        fields.append((b"Proxy-Authenticate", PROXY_REALM))
    if denial.layer is Layer.L7 and denial.entry is not None and denial.code is DenialCode.POLICY_DENIED:
        fields.append((b"X-OpenShell-Policy", _field_text(denial.entry)))
    return tuple(fields)


def _field_text(text: str) -> bytes:
    """Policy names come from operators, but a name must never end a field line."""
    return "".join(character for character in text if " " <= character <= "~").encode("ascii")


def _detail(denial: Denial, scene: Scene) -> str:
    """The sentence a person reads; OpenShell's texts where it has them (http-surface.md 5.1)."""
    where = f"{scene.method} {scene.origin}" if scene.origin is not None else scene.method
    place = where if scene.ingress is Ingress.CONNECT else where + scene.path
    match denial.code:
        case DenialCode.POLICY_DENIED if denial.reason_code is ReasonCode.POLICY_CHANGED:
            return f"{place} {denial.reason}"
        case DenialCode.POLICY_DENIED if denial.reason_code is ReasonCode.NO_ENDPOINT_PATH:
            return denial.reason
        case DenialCode.POLICY_DENIED if denial.stage is Stage.L7 and scene.ingress is Ingress.FORWARD:
            return f"{place} denied by L7 policy: {denial.reason}"
        case DenialCode.POLICY_DENIED if denial.stage is not Stage.L7:
            return f"{place} not permitted by policy"
        case DenialCode.SSRF_DENIED:
            return f"{where} blocked: {denial.reason}"
        case _:
            return denial.reason


def _rule_keys(denial: Denial, scene: Scene) -> dict[str, object]:
    """The keys an agent needs to ask for the rule it lacks (http-surface.md 5.2)."""
    known = {
        "host": scene.origin.host.name if scene.origin else None,
        "port": scene.origin.port if scene.origin else None,
        "binary": scene.binary,
    }
    location = {key: value for key, value in known.items() if value is not None}
    kind = scene.protocol.replace("-", "")
    keys: dict[str, object] = {
        "policy": denial.entry or "-",
        "rule": f"{scene.method} {scene.path}",
        "protocol": scene.protocol,
        "method": scene.method,
        "path": scene.path,
        **location,
        "rule_missing": {
            "type": f"{kind}_allow", "layer": "l7", "method": scene.method, "path": scene.path, **location,
        },
        "next_steps": [],
    }  # fmt: skip
    if denial.operation is not None:
        keys["operation"] = denial.operation
    if denial.rule is not None:
        keys["rule_id"] = denial.rule.id
        if denial.rule.kind is RuleKind.DENY:
            del keys["rule_missing"]
    return keys
