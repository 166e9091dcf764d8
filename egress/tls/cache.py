"""Server-side TLS contexts, one per host and protocol list, kept while they are in use and fresh."""

import os
import ssl
from collections import OrderedDict
from dataclasses import dataclass

from egress.model.address import Host
from egress.model.clock import Clock, SystemClock
from egress.tls.ca import LocalAuthority
from egress.tls.leaf import Leaf, LeafMint
from egress.tls.profile import TlsProfile

_RENEW_AFTER = 2 / 3
"""Share of a leaf's life after which new connections get another one."""


@dataclass(frozen=True, slots=True)
class _Entry:
    context: ssl.SSLContext
    renew_at: float


class ContextCache:
    """Least recently used contexts go first. Belongs to one event loop."""

    def __init__(self, authority: LocalAuthority, limit: int, profile: TlsProfile, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._mint = LeafMint(authority, self._clock)
        self._limit = limit
        self._profile = profile
        self._entries: OrderedDict[tuple[Host, tuple[str, ...]], _Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def server_context(self, host: Host, alpn: tuple[str, ...]) -> ssl.SSLContext:
        """The context that speaks for `host` and offers `alpn`. Fails when the authority has expired."""
        key = (host, alpn)
        entry = self._entries.get(key)
        if entry is not None and self._clock.now() < entry.renew_at:
            self._entries.move_to_end(key)
            return entry.context
        leaf = self._mint.mint(host)
        context = self._profile.new_server_context(alpn)
        _load(context, leaf)
        self._entries[key] = _Entry(context, leaf.made + (leaf.not_after - leaf.made) * _RENEW_AFTER)
        self._entries.move_to_end(key)
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)
        return context


def _load(context: ssl.SSLContext, leaf: Leaf) -> None:
    """The ssl module reads keys from files only; this one is in memory and gone when the call returns."""
    descriptor = os.memfd_create("egress-leaf", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, leaf.pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
