"""The one TLS profile of the process: versions, trust and verification, and what a failed handshake is called.

Every `ssl.SSLContext` starts here, whichever lane it serves.
"""

import ssl
from pathlib import Path

from egress.model.errors import DependencyError
from egress.model.verdict import ReasonCode

SYSTEM_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/ca-bundle.pem"),
    Path("/etc/ssl/cert.pem"),
)

# X.509 verification results of OpenSSL (x509_vfy.h); the ssl module passes the numbers on without names for them.
_REASONS = {
    **dict.fromkeys((9, 10), ReasonCode.EXPIRED),  # not yet valid; expired
    **dict.fromkeys((62, 64), ReasonCode.NAME_MISMATCH),  # host name; address
    **dict.fromkeys((2, 18, 19, 20, 21, 27), ReasonCode.UNKNOWN_ISSUER),  # no path to a trusted root; self-signed
}

FAILURE_TEXT = {
    ReasonCode.EXPIRED: "the origin's certificate is expired or not yet valid",
    ReasonCode.NAME_MISMATCH: "the origin's certificate is for another name",
    ReasonCode.UNKNOWN_ISSUER: "the origin's certificate was issued by an authority that is not trusted",
    ReasonCode.HANDSHAKE_FAILED: "the TLS handshake with the origin failed",
}


def system_bundle(candidates: tuple[Path, ...] = SYSTEM_BUNDLES) -> Path | None:
    """The first bundle of roots that this system has."""
    return next((path for path in candidates if path.is_file() and path.stat().st_size > 0), None)


def failure_reason(error: ssl.SSLError) -> ReasonCode:
    """What a failed handshake with an origin is called."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _REASONS.get(error.verify_code, ReasonCode.HANDSHAKE_FAILED)
    return ReasonCode.HANDSHAKE_FAILED


class TlsProfile:
    """Makes the contexts towards origins, and the frame of those towards clients.

    `SSLContext` is constructed directly: `create_default_context` differs between Python versions and writes
    session keys to the file that SSLKEYLOGFILE names.
    """

    def __init__(self, upstream_ca_file: Path | None = None, roots: Path | None = None) -> None:
        self._anchors = tuple(path for path in (roots or system_bundle(), upstream_ca_file) if path is not None)
        self._use_library_roots = roots is None and system_bundle() is None
        self._upstream: dict[tuple[str, ...], ssl.SSLContext] = {}
        self.upstream_context(("http/1.1",))  # now, so that a trust file without certificates fails the start

    def upstream_context(self, alpn: tuple[str, ...]) -> ssl.SSLContext:
        """The context for origins that are offered `alpn`; always the same object, so that sessions resume."""
        context = self._upstream.get(alpn)
        if context is None:
            context = self._upstream[alpn] = self._new_upstream_context(alpn)
        return context

    def _new_upstream_context(self, alpn: tuple[str, ...]) -> ssl.SSLContext:
        context = _new_context(ssl.PROTOCOL_TLS_CLIENT, alpn)
        context.hostname_checks_common_name = False
        # Strict mode stays off: it refuses certificates that leave out identifiers, as many private authorities do,
        # and tells nothing about who an origin is. An anchor need not be a root: the operator may vouch for less.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if self._use_library_roots:
            context.set_default_verify_paths()
        for anchor in self._anchors:
            try:
                context.load_verify_locations(cafile=anchor)
            except (OSError, ssl.SSLError) as error:
                raise DependencyError("upstream trust", f"{anchor} holds no certificates: {error}") from error
        return context

    def new_own_context(self) -> ssl.SSLContext:
        """A context for one call of our own, which may add to it."""
        return self._new_upstream_context(("http/1.1",))

    def new_server_context(self, alpn: tuple[str, ...]) -> ssl.SSLContext:
        """A context towards clients, still without a certificate."""
        context = _new_context(ssl.PROTOCOL_TLS_SERVER, alpn)
        context.num_tickets = 1  # a client of a proxy resumes one connection at a time
        return context


def _new_context(protocol: int, alpn: tuple[str, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context
