"""Leaves: for one host, short-lived, strict, and verified by OpenSSL itself."""

import datetime
from dataclasses import dataclass

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from egress.model.address import parse_host
from egress.model.clock import SystemClock
from egress.model.errors import DependencyError
from egress.tls.ca import LocalAuthority
from egress.tls.leaf import Leaf, LeafMint

AUTHORITY = LocalAuthority.create()
MINT = LeafMint(AUTHORITY, SystemClock())
DAY = datetime.timedelta(days=1)


@dataclass
class FixedClock:
    time: float

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time


def certificate(leaf: Leaf) -> x509.Certificate:
    return x509.load_pem_x509_certificates(leaf.pem.split(b"-----BEGIN PRIVATE KEY-----")[0])[0]


def test_says_who_issued_it_and_what_it_is_for() -> None:
    minted = certificate(MINT.mint(parse_host("api.example.test")))
    extensions = minted.extensions
    issuer_id = AUTHORITY.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier == issuer_id
    assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert minted.issuer == AUTHORITY.certificate.subject
    assert minted.subject.rfc4514_string() == "CN=api.example.test"
    minted.verify_directly_issued_by(AUTHORITY.certificate)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("api.example.test", "<DNSName(value='api.example.test')>"),
        ("192.0.2.7", "<IPAddress(value=192.0.2.7)>"),
        ("2001:db8::7", "<IPAddress(value=2001:db8::7)>"),
    ],
)
def test_names_exactly_one_host(host: str, name: str) -> None:
    minted = certificate(MINT.mint(parse_host(host)))
    names = minted.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert [repr(item) for item in names.value] == [name]
    assert not names.critical


def test_a_long_name_is_no_common_name() -> None:
    """RFC 5280 allows 64 bytes there; then the subject is empty and the alternative name critical."""
    minted = certificate(MINT.mint(parse_host(f"{'a' * 60}.test")))
    assert minted.subject == x509.Name([])
    assert minted.extensions.get_extension_for_class(x509.SubjectAlternativeName).critical
    fits = certificate(MINT.mint(parse_host(f"{'a' * 59}.test")))
    assert len(list(fits.subject)) == 1


def test_lives_ninety_days_that_began_yesterday() -> None:
    now = datetime.datetime.now(datetime.UTC)
    minted = certificate(MINT.mint(parse_host("a.test")))
    assert abs(minted.not_valid_before_utc - (now - DAY)) < datetime.timedelta(minutes=1)
    assert minted.not_valid_after_utc - minted.not_valid_before_utc == 90 * DAY


def test_ends_with_the_authority() -> None:
    end = AUTHORITY.certificate.not_valid_after_utc
    leaf = LeafMint(AUTHORITY, FixedClock((end - 10 * DAY).timestamp())).mint(parse_host("a.test"))
    assert certificate(leaf).not_valid_after_utc == end
    assert leaf.not_after == end.timestamp()


def test_an_expired_authority_mints_nothing() -> None:
    late = FixedClock(AUTHORITY.certificate.not_valid_after_utc.timestamp())
    with pytest.raises(DependencyError, match="has expired"):
        LeafMint(AUTHORITY, late).mint(parse_host("a.test"))


def test_leaf_key_is_one_and_not_the_authoritys() -> None:
    keys = {
        certificate(MINT.mint(parse_host(name)))
        .public_key()
        .public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        for name in ("a.test", "b.test")
    }
    own = AUTHORITY.certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert len(keys) == 1
    assert own not in keys
    assert isinstance(certificate(MINT.mint(parse_host("a.test"))).public_key(), ec.EllipticCurvePublicKey)


def test_chain_is_leaf_then_authority() -> None:
    pem = MINT.mint(parse_host("a.test")).pem
    chain = x509.load_pem_x509_certificates(pem.split(b"-----BEGIN PRIVATE KEY-----")[0])
    assert chain[1:] == [AUTHORITY.certificate]


def test_key_never_shows_in_text() -> None:
    assert "PRIVATE" not in repr(MINT.mint(parse_host("a.test")))
