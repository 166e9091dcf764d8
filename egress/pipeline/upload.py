"""A request body on its way out where credentials are at stake: AWS chunk framing undone, placeholders stopped."""

from collections.abc import Iterator
from typing import Protocol

from egress.credentials.aws.minting import FormWatch
from egress.credentials.placeholder import contains_marker
from egress.credentials.scan import Guard
from egress.model.message import FieldLine, Malformed
from egress.model.verdict import Denial, DenialCode, Stage

MARKED_BODY = Denial(
    Stage.CREDENTIALS, DenialCode.CREDENTIAL_BODY_DENIED,
    "the request body holds a credential placeholder, and this endpoint does not place credentials into bodies",
    hints=("write `request_body_credential_rewrite: true` on the endpoint",), surface="http-request-body",
)  # fmt: skip


class ChunkDecoder(Protocol):
    """Payload out of a client's chunk-signed stream."""

    def feed(self, data: bytes) -> bytes | Malformed: ...

    def finish(self) -> bytes | Malformed: ...


class Upload:
    """The `UploadFilter` of one streamed body; parts may be missing."""

    def __init__(self, decoder: ChunkDecoder | None, guard: Guard | None, watch: FormWatch | None) -> None:
        self._decoder = decoder
        self._guard = guard
        self._watch = watch

    def feed(self, data: bytes) -> bytes | Denial:
        if self._decoder is not None:
            decoded = self._decoder.feed(data)
            if isinstance(decoded, Malformed):
                return _malformed(decoded)
            data = decoded
        return self._looked_at(data)

    def finish(self, trailers: tuple[FieldLine, ...]) -> bytes | Denial:
        decoded = b"" if self._decoder is None else self._decoder.finish()
        if isinstance(decoded, Malformed):
            return _malformed(decoded)
        passed = self._looked_at(decoded)
        if isinstance(passed, Denial) or self._guard is None:
            return passed
        if any(contains_marker(part) for part in _parts(trailers)):
            return MARKED_BODY
        rest = self._guard.finish()
        return MARKED_BODY if rest is None else passed + rest

    def _looked_at(self, data: bytes) -> bytes | Denial:
        if not data:
            return data
        if self._watch is not None:
            watched = self._watch.feed(data)
            if isinstance(watched, Denial):
                return watched
        if self._guard is None:
            return data
        passed = self._guard.feed(data)
        return MARKED_BODY if passed is None else passed


def _parts(trailers: tuple[FieldLine, ...]) -> Iterator[bytes]:
    for name, value in trailers:
        yield name
        yield value


def _malformed(fault: Malformed) -> Denial:
    return Denial(Stage.CREDENTIALS, fault.code, fault.reason)
