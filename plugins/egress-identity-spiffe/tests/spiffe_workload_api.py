"""A SPIFFE Workload API on a Unix socket, as far as JWT-SVIDs go, over gRPC and the public message shapes:

`JWTSVIDRequest {repeated string audience = 1; string spiffe_id = 2}`, `JWTSVIDResponse {repeated JWTSVID svids = 1}`,
`JWTSVID {string spiffe_id = 1; string svid = 2; string hint = 3}`.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

SUBJECT = "spiffe://corp.test/egress"


def _key() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


KEY = _key()


def field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def fields(data: bytes) -> list[tuple[int, bytes]]:
    """Length-delimited fields of one message; their lengths here are below 2^14."""
    found, at = [], 0

    def number() -> int:
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = number()
        size = number()
        found.append((tag >> 3, data[at : at + size]))
        at += size
    return found


def mint(audience: str, life: float = 300, **claims: object) -> str:
    """A JWT-SVID. The client checks what it says, not who signed it: it came from the local agent."""
    now = int(time.time())
    body: dict[str, object] = {"sub": SUBJECT, "aud": [audience], "exp": int(now + life), "iat": now}
    return jwt.encode(body | claims, KEY, algorithm="ES256", headers={"kid": "1", "typ": "JWT"})


class WorkloadApi:
    """Answers with what `answer` makes of an audience: a token, None for no identity, or a pause in seconds."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.answer: Callable[[str], str | None] = mint
        self.pause = 0.0
        self.asked: list[str] = []
        self._start()

    def _start(self) -> None:
        handler = grpc.unary_unary_rpc_method_handler(self._jwt_svid)
        self._server = grpc.server(ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("SpiffeWorkloadAPI", {"FetchJWTSVID": handler}),)
        )
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def stop(self) -> None:
        self._server.stop(0).wait()
        self.socket.unlink(missing_ok=True)

    def restart(self) -> None:
        self.stop()
        self._start()

    def _jwt_svid(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        if ("workload.spiffe.io", "true") not in [(key, value) for key, value in context.invocation_metadata()]:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "security header missing from request")
        asked = fields(request)
        audiences = [value.decode() for number, value in asked if number == 1]
        assert len(audiences) == 1
        assert not [value for number, value in asked if number == 2 and value]
        self.asked += audiences
        time.sleep(self.pause)
        token = self.answer(audiences[0])
        if token is None:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "no identity issued")
            raise AssertionError
        return field(1, field(1, SUBJECT.encode()) + field(2, token.encode()))
