"""A certificate authority for test origins, and the TLS contexts it signs."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

import trustme


class OriginAuthority:
    """Signs origin certificates; `ca_file` is what a proxy under test is told to trust."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ca = trustme.CA(organization_name="Test Origins")
        self.ca_file = directory / "origins-ca.pem"
        self._ca.cert_pem.write_to_path(self.ca_file)

    def server_context(self, *names: str, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
        """A context that proves to be any of `names`."""
        return self._context(self._ca.issue_cert(*names), alpn)

    def expired_context(self, *names: str) -> ssl.SSLContext:
        """As `server_context`, but the certificate ended years ago."""
        ended = datetime(2021, 1, 1, tzinfo=UTC)
        return self._context(self._ca.issue_cert(*names, not_before=datetime(2020, 1, 1, tzinfo=UTC), not_after=ended))

    def key_pair(self, *names: str) -> tuple[bytes, bytes]:
        """Private key and chain as PEM, for servers that want files or bytes."""
        issued = self._ca.issue_cert(*names)
        return issued.private_key_pem.bytes(), b"".join(blob.bytes() for blob in issued.cert_chain_pems)

    @staticmethod
    def _context(certificate: trustme.LeafCert, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context


def stranger_context(*names: str) -> ssl.SSLContext:
    """A context signed by an authority that nobody trusts."""
    certificate = trustme.CA(organization_name="Stranger").issue_cert(*names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context
