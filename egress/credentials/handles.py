"""Handles of placeholders that outlive a rotation: 64 hexadecimal digits that tell nothing, from everything that must
stay the same while they are good (credentials.md sections 10.1 and 15.1)."""

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

COMPATIBLE_LABEL = "openshell-workload-credential-handle-v1"
LABEL = "egress-credential-handle-v1"
KEY_BYTES = 32

_ANY_PATH = frozenset(("", "**", "/**"))


@dataclass(frozen=True, slots=True)
class HandleInputs:
    """What a handle stands for. `provider` is an id that no other provider ever has, `endpoints` are host, port and
    path in any order and spelling."""

    sandbox: str
    provider: str
    key: str
    epoch: str
    endpoints: tuple[tuple[str, int, str], ...]


def compatible_handle(inputs: HandleInputs) -> str:
    """OpenShell's recipe. Whoever knows the inputs can compute it."""
    return hashlib.sha256(_layout(COMPATIBLE_LABEL, inputs)).hexdigest()


def handle(installation: bytes, inputs: HandleInputs) -> str:
    """Ours: keyed, so that knowing every input does not tell the handle."""
    return hmac.new(installation, _layout(LABEL, inputs), hashlib.sha256).hexdigest()


def epoch_of(specification: object, profile: str, epoch: int, revocations: int) -> str:
    """Changes with where a value comes from, never with the value."""
    fields: Mapping[str, object] = {
        "epoch": epoch,
        "profile": profile,
        "revocations": revocations,
        "source": specification,
    }
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _layout(label: str, inputs: HandleInputs) -> bytes:
    parts = [part.encode() for part in (label, inputs.sandbox, inputs.provider, inputs.key, inputs.epoch)]
    for host, port, path in sorted(set(_normal(inputs.endpoints))):
        parts += (host.encode(), port.to_bytes(4, "little"), path.encode())
    return b"".join([len(part).to_bytes(8, "little") + part for part in parts])


def _normal(endpoints: Iterable[tuple[str, int, str]]) -> Iterator[tuple[str, int, str]]:
    for host, port, path in endpoints:
        trimmed = path.strip()
        yield host.strip().rstrip(".").lower(), port, "/**" if trimmed in _ANY_PATH else trimmed
