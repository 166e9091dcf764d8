"""Trust towards origins: what is accepted, and what a refusal is called."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from egress.model.errors import DependencyError
from egress.model.verdict import ReasonCode
from egress.tls.profile import FAILURE_TEXT, TlsProfile, failure_reason, system_bundle
from tests.unit.tls.handshake import shake

ORIGINS = trustme.CA(organization_name="Origins")
STRANGER = trustme.CA(organization_name="Stranger")


def server(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


@pytest.fixture
def profile(tmp_path: Path) -> TlsProfile:
    anchors = tmp_path / "origins.pem"
    ORIGINS.cert_pem.write_to_path(anchors)
    return TlsProfile(upstream_ca_file=anchors)


@pytest.mark.parametrize("name", ["api.example.test", "192.0.2.7", "2001:db8::7"])
def test_accepts_an_origin_that_proves_its_name(profile: TlsProfile, name: str) -> None:
    near, _ = shake(profile.upstream_context(("http/1.1",)), server(ORIGINS.issue_cert(name)), name)
    assert near.getpeercert()


def test_an_intermediate_can_be_the_anchor(tmp_path: Path) -> None:
    middle = ORIGINS.create_child_ca()
    anchors = tmp_path / "middle.pem"
    middle.cert_pem.write_to_path(anchors)
    context = TlsProfile(upstream_ca_file=anchors).upstream_context(())
    near, _ = shake(context, server(middle.issue_cert("a.test")), "a.test")
    assert near.getpeercert()


@pytest.mark.parametrize(
    ("certificate", "reason"),
    [
        (
            ORIGINS.issue_cert(
                "a.test", not_before=datetime(2020, 1, 1, tzinfo=UTC), not_after=datetime(2021, 1, 1, tzinfo=UTC)
            ),
            ReasonCode.EXPIRED,
        ),
        (
            ORIGINS.issue_cert(
                "a.test", not_before=datetime(2090, 1, 1, tzinfo=UTC), not_after=datetime(2091, 1, 1, tzinfo=UTC)
            ),
            ReasonCode.EXPIRED,
        ),
        (ORIGINS.issue_cert("b.test"), ReasonCode.NAME_MISMATCH),
        (ORIGINS.issue_cert("192.0.2.1"), ReasonCode.NAME_MISMATCH),
        (ORIGINS.issue_cert(common_name="a.test"), ReasonCode.NAME_MISMATCH),
        (STRANGER.issue_cert("a.test"), ReasonCode.UNKNOWN_ISSUER),
    ],
    ids=["expired", "not-yet", "name", "address", "common-name-only", "stranger"],
)
def test_names_what_is_wrong_with_a_certificate(
    profile: TlsProfile, certificate: trustme.LeafCert, reason: ReasonCode
) -> None:
    with pytest.raises(ssl.SSLError) as caught:
        shake(profile.upstream_context(()), server(certificate), "a.test")
    assert failure_reason(caught.value) is reason
    assert reason in FAILURE_TEXT


def test_an_address_must_be_named_as_one(profile: TlsProfile) -> None:
    with pytest.raises(ssl.SSLError) as caught:
        shake(profile.upstream_context(()), server(ORIGINS.issue_cert("192.0.2.1")), "192.0.2.2")
    assert failure_reason(caught.value) is ReasonCode.NAME_MISMATCH


def test_a_missing_intermediate_is_an_unknown_issuer(profile: TlsProfile) -> None:
    leaf = ORIGINS.create_child_ca().issue_cert("a.test")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with leaf.private_key_pem.tempfile() as key, leaf.cert_chain_pems[0].tempfile() as chain:
        context.load_cert_chain(chain, key)
    with pytest.raises(ssl.SSLError) as caught:
        shake(profile.upstream_context(()), context, "a.test")
    assert failure_reason(caught.value) is ReasonCode.UNKNOWN_ISSUER


def test_other_failures_are_the_handshakes(profile: TlsProfile) -> None:
    old = server(ORIGINS.issue_cert("a.test"))
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    context = profile.upstream_context(("h2",))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with pytest.raises(ssl.SSLError) as caught:
        shake(context, old, "a.test")
    assert failure_reason(caught.value) is ReasonCode.HANDSHAKE_FAILED


def test_system_roots_are_trusted_beside_the_file(profile: TlsProfile) -> None:
    roots = system_bundle()
    assert roots is not None
    alone = TlsProfile().upstream_context(()).cert_store_stats()["x509_ca"]
    assert alone > 50
    assert profile.upstream_context(()).cert_store_stats()["x509_ca"] == alone + 1


def test_one_context_per_protocol_list(profile: TlsProfile) -> None:
    assert profile.upstream_context(("h2",)) is profile.upstream_context(("h2",))
    assert profile.upstream_context(("h2",)) is not profile.upstream_context(("http/1.1",))


def test_verification_cannot_be_weaker(profile: TlsProfile) -> None:
    context = profile.upstream_context(())
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_session_keys_are_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: TlsProfile) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    shake(profile.upstream_context(("http/1.1",)), server(ORIGINS.issue_cert("a.test")), "a.test")
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize("content", ["", "no certificate\n"])
def test_a_trust_file_without_certificates_is_an_error(tmp_path: Path, content: str) -> None:
    anchors = tmp_path / "empty.pem"
    anchors.write_text(content)
    with pytest.raises(DependencyError, match="holds no certificates"):
        TlsProfile(upstream_ca_file=anchors)


def test_the_first_bundle_with_content_is_the_systems(tmp_path: Path) -> None:
    empty, full, other = (tmp_path / name for name in ("empty", "full", "other"))
    empty.touch()
    full.write_text("x")
    other.write_text("y")
    assert system_bundle((tmp_path / "missing", empty, full, other)) == full
    assert system_bundle((empty,)) is None
