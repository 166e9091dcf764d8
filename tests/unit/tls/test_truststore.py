"""The Java trust store, read back as PKCS#12. A JVM reads one in the end-to-end tests."""

import pytest
from cryptography.hazmat.primitives.serialization import pkcs12

from egress.model.errors import DependencyError
from egress.tls.ca import LocalAuthority
from egress.tls.truststore import TRUSTSTORE_PASSWORD, java_truststore


def test_holds_every_certificate_of_the_bundle() -> None:
    one, other = LocalAuthority.create(), LocalAuthority.create()
    store = java_truststore(b"# roots\n" + one.pem + b"\n# ours\n" + other.pem)
    read = pkcs12.load_pkcs12(store, TRUSTSTORE_PASSWORD.encode())
    assert read.key is None
    assert [item.certificate for item in read.additional_certs] == [one.certificate, other.certificate]


def test_leaves_out_what_cannot_be_read() -> None:
    one = LocalAuthority.create()
    broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    read = pkcs12.load_pkcs12(java_truststore(broken + one.pem), TRUSTSTORE_PASSWORD.encode())
    assert [item.certificate for item in read.additional_certs] == [one.certificate]


def test_a_bundle_of_nothing_is_an_error() -> None:
    with pytest.raises(DependencyError, match="holds no certificate"):
        java_truststore(b"")
