"""Mints certificates for the hosts that clients ask for, signed by the local authority."""

import datetime
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from egress.model.address import Host
from egress.model.clock import Clock
from egress.model.errors import DependencyError
from egress.tls.ca import CLOCK_SKEW, LocalAuthority

_LIFETIME = datetime.timedelta(days=90) - CLOCK_SKEW
_MAX_COMMON_NAME = 64  # RFC 5280 appendix A.1, ub-common-name
_SERVER_AUTH = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
_DIGITAL_SIGNATURE = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A minted chain with the key it belongs to, as PEM, and its life in seconds since the epoch."""

    pem: bytes = field(repr=False)
    made: float
    not_after: float


class LeafMint:
    """Mints leaves over one key of this process, never over the authority's own: who steals a leaf key out of a
    session can impersonate servers for a while, not sign new ones."""

    def __init__(self, authority: LocalAuthority, clock: Clock) -> None:
        self._authority = authority
        self._clock = clock
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._tail = authority.pem + self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        issued_by = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        self._issuer_id = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issued_by)
        self._subject_id = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())

    def mint(self, host: Host) -> Leaf:
        """A certificate for exactly this host. Fails when the authority itself has expired."""
        issuer = self._authority.certificate
        now = datetime.datetime.fromtimestamp(self._clock.now(), datetime.UTC)
        not_after = min(now + _LIFETIME, issuer.not_valid_after_utc)
        if not_after <= now:
            raise DependencyError("local authority", "its certificate has expired")
        subject = _subject(host)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.subject)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(max(now - CLOCK_SKEW, issuer.not_valid_before_utc))
            .not_valid_after(not_after)
            .add_extension(_alternative_name(host), critical=not list(subject))  # RFC 5280 section 4.2.1.6
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_DIGITAL_SIGNATURE, critical=True)
            .add_extension(_SERVER_AUTH, critical=False)
            .add_extension(self._issuer_id, critical=False)
            .add_extension(self._subject_id, critical=False)
            .sign(self._authority.key, hashes.SHA256())
        )
        pem = certificate.public_bytes(serialization.Encoding.PEM) + self._tail
        return Leaf(pem, now.timestamp(), not_after.timestamp())


def _subject(host: Host) -> x509.Name:
    if len(host.name) > _MAX_COMMON_NAME:
        return x509.Name([])
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host.name)])


def _alternative_name(host: Host) -> x509.SubjectAlternativeName:
    address = host.address
    name = x509.DNSName(host.name) if address is None else x509.IPAddress(address)
    return x509.SubjectAlternativeName([name])
