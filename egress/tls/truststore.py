"""The trust store of Java programs: a PKCS#12 file, since a JVM reads no PEM bundle."""

import warnings

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.utils import CryptographyDeprecationWarning

from egress.model.errors import DependencyError

TRUSTSTORE_FILE = "ca-truststore.p12"
TRUSTSTORE_PASSWORD = "changeit"  # noqa: S105 -- the customary word; the store holds public certificates only
_END = b"-----END CERTIFICATE-----"


def java_truststore(bundle: bytes) -> bytes:
    """Every certificate of a PEM bundle as an entry that a JVM trusts."""
    certificates = []
    for number, block in enumerate(bundle.split(_END)[:-1]):
        start = block.rfind(b"-----BEGIN CERTIFICATE-----")
        certificate = _read(block[start:] + _END + b"\n")
        if certificate is not None:
            certificates.append(pkcs12.PKCS12Certificate(certificate, f"egress-{number}".encode()))
    if not certificates:
        raise DependencyError("trust store", "the bundle holds no certificate")
    encryption = serialization.BestAvailableEncryption(TRUSTSTORE_PASSWORD.encode())
    return pkcs12.serialize_java_truststore(certificates, encryption)


def _read(pem: bytes) -> x509.Certificate | None:
    """A root that the reader finds malformed is left out, the others still count; one it merely frowns on stays."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        try:
            return x509.load_pem_x509_certificate(pem)
        except ValueError:
            return None
