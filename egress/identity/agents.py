"""Who may connect at all: peer address, socket owner and proxy credential -> the agent, or 407 or 403. Pure.

Process evidence is another matter and comes later; this is settled once per client connection.
"""

import base64
import binascii
import hmac
import ipaddress
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from egress.model.address import IpAddress, IpNetwork
from egress.model.clock import Clock
from egress.model.intent import DEFAULT_AGENT, AgentName
from egress.model.process import IdentityMode
from egress.model.verdict import Denial, DenialCode, Stage

MAX_CREDENTIAL_BYTES = 1024
MAX_FAILURES = 10
FAILURE_WINDOW_SECONDS = 60.0
BLOCK_SECONDS = 60.0
MAX_TRACKED_PEERS = 4096


class ProxyCredential:
    """User and password of `Proxy-Authorization: Basic`. Prints neither."""

    __slots__ = ("_password", "user")

    def __init__(self, user: bytes, password: bytes) -> None:
        self.user = user
        self._password = password

    def __repr__(self) -> str:
        return "ProxyCredential(<secret>)"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a credential is not pickled")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProxyCredential):
            return NotImplemented
        # Both parts are compared always: time must not tell which one was wrong.
        same_user = hmac.compare_digest(self.user, other.user)
        return hmac.compare_digest(self._password, other._password) and same_user

    __hash__ = None  # type: ignore[assignment]


def parse_basic(value: bytes) -> ProxyCredential | None:
    """Read a field value in the Basic scheme (RFC 7617); None when it is none."""
    scheme, _, token = value.strip().partition(b" ")
    if scheme.lower() != b"basic" or len(value) > MAX_CREDENTIAL_BYTES:
        return None
    try:
        decoded = base64.b64decode(token.strip(), validate=True)
    except binascii.Error:
        return None
    user, colon, password = decoded.partition(b":")
    return ProxyCredential(user, password) if colon else None


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """One item of `agents` in the settings. Empty matchers do not ask; at least one must be there."""

    name: AgentName
    uids: frozenset[int] = frozenset()
    cidrs: tuple[IpNetwork, ...] = ()
    proxy_user: str | None = None
    password_file: Path | None = None
    policy: Path | None = None
    identity: IdentityMode = IdentityMode.REQUIRED

    @property
    def matchers(self) -> int:
        return bool(self.uids) + bool(self.cidrs) + (self.proxy_user is not None)


_NOT_ALLOWED = Denial(Stage.ACCEPT, DenialCode.CLIENT_NOT_ALLOWED, "no agent of this proxy matches this client")
_AUTH_REQUIRED = Denial(Stage.ACCEPT, DenialCode.PROXY_AUTH_REQUIRED, "this proxy asks for a proxy credential")
_AUTH_WRONG = Denial(Stage.ACCEPT, DenialCode.PROXY_AUTH_REQUIRED, "the proxy credential fits no agent")


class AgentTable:
    """The agents in order. Without any, clients of this host are the agent `default` and nobody else may connect.

    `passwords` holds the content of each `password_file` (see `read_password`).
    """

    def __init__(self, specs: Sequence[AgentSpec], passwords: Mapping[AgentName, bytes]) -> None:
        self.specs = tuple(specs)
        self._credentials = {
            spec.name: ProxyCredential(spec.proxy_user.encode(), passwords[spec.name])
            for spec in specs
            if spec.proxy_user is not None
        }

    @property
    def needs_uid(self) -> bool:
        """Whether `match` reads the uid of the client's socket."""
        return not self.specs or any(spec.uids for spec in self.specs)

    @property
    def needs_credential(self) -> bool:
        """Whether some agent uses `proxy_auth`."""
        return bool(self._credentials)

    def match(
        self, peer: IpAddress, uid: int | None, credential: ProxyCredential | None, *, local: bool
    ) -> AgentName | Denial:
        """The first agent whose matchers all hold.

        `uid` is None when the client's socket is not in the queried namespace; `local` says that `peer` is one of
        this host's addresses, or one of the queried namespace's.
        """
        if not self.specs:
            return DEFAULT_AGENT if local and uid is not None else _NOT_ALLOWED
        known = self._known_by(credential)
        # A wrong credential never falls through to an agent that asks for none.
        if self._credentials and credential is not None and not known:
            return _AUTH_WRONG
        for spec in self.specs:
            if _holds(spec, peer, uid) and (spec.name not in self._credentials or spec.name in known):
                return spec.name
        return _AUTH_REQUIRED if self._credentials else _NOT_ALLOWED

    def _known_by(self, credential: ProxyCredential | None) -> frozenset[AgentName]:
        if credential is None:
            return frozenset()
        return frozenset([name for name, wanted in self._credentials.items() if wanted == credential])


def _holds(spec: AgentSpec, peer: IpAddress, uid: int | None) -> bool:
    if not spec.matchers or (spec.uids and uid not in spec.uids):
        return False
    return not spec.cidrs or any(peer in network for network in spec.cidrs)


def read_password(path: Path) -> bytes:
    """The first line of a password file. Raises `ValueError` with what is wrong with it."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(MAX_CREDENTIAL_BYTES + 1)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    if mode & 0o177:
        raise ValueError(f"has mode {mode & 0o777:04o}; only 0600 or 0400 keep it from other users")
    if len(content) > MAX_CREDENTIAL_BYTES:
        raise ValueError(f"is longer than {MAX_CREDENTIAL_BYTES} bytes")
    password = content.split(b"\n", 1)[0].rstrip(b"\r")
    if not password:
        raise ValueError("is empty")
    return password


class AuthFailures:
    """Wrong proxy credentials per client address (IPv6: per /64, which one client owns whole).

    Ten within a minute block the address for a minute.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._peers: OrderedDict[IpAddress, tuple[float, int]] = OrderedDict()

    def failed(self, peer: IpAddress) -> None:
        """Count one failure. The window starts with its first failure, the block with its last."""
        now = self._clock.monotonic()
        key = _client_key(peer)
        until, count = self._peers.pop(key, (0.0, 0))
        count = count + 1 if now < until else 1
        if count == 1:
            until = now + FAILURE_WINDOW_SECONDS
        if count >= MAX_FAILURES:
            until = now + BLOCK_SECONDS
        self._peers[key] = (until, count)
        if len(self._peers) > MAX_TRACKED_PEERS:
            self._peers.popitem(last=False)

    def blocked_for(self, peer: IpAddress) -> float | None:
        """Seconds until this address may try again (429 with Retry-After), None when it may now."""
        if not self._peers:
            return None
        until, count = self._peers.get(_client_key(peer), (0.0, 0))
        left = until - self._clock.monotonic()
        return left if count >= MAX_FAILURES and left > 0 else None


def _client_key(peer: IpAddress) -> IpAddress:
    return peer if peer.version == 4 else ipaddress.IPv6Address(int(peer) >> 64 << 64)
