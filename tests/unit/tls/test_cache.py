"""The context cache: what clients accept, what is kept, what is renewed, what touches the disk."""

import os
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from egress.model.address import parse_host
from egress.model.errors import DependencyError
from egress.tls.ca import LocalAuthority
from egress.tls.cache import ContextCache
from egress.tls.profile import TlsProfile
from tests.unit.tls.handshake import shake

AUTHORITY = LocalAuthority.create()
DAY = 86400.0


@dataclass
class MovedClock:
    time: float

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time


def cache(limit: int = 8, clock: MovedClock | None = None) -> ContextCache:
    return ContextCache(AUTHORITY, limit, TlsProfile(), clock)


def strict_client() -> ssl.SSLContext:
    """As a Python 3.13 client with our certificate: every rule of RFC 5280 is checked."""
    client = ssl.create_default_context(cadata=AUTHORITY.pem.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    return client


@pytest.mark.parametrize("host", ["api.example.test", "192.0.2.7", "2001:db8::7", f"{'a' * 63}.example.test"])
def test_strict_clients_accept_names_and_addresses(host: str) -> None:
    near, _ = shake(strict_client(), cache().server_context(parse_host(host), ("http/1.1",)), host)
    assert near.version() == "TLSv1.3"


def test_a_context_speaks_for_one_host_only() -> None:
    context = cache().server_context(parse_host("a.test"), ())
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(strict_client(), context, "b.test")


def test_offers_the_protocols_it_was_asked_for() -> None:
    contexts = cache()
    client = strict_client()
    client.set_alpn_protocols(["h2", "http/1.1"])
    chosen = {
        alpn: shake(client, contexts.server_context(parse_host("a.test"), alpn), "a.test")[0].selected_alpn_protocol()
        for alpn in (("http/1.1",), ("h2",), ())
    }
    assert chosen == {("http/1.1",): "http/1.1", ("h2",): "h2", (): None}


def test_sessions_resume() -> None:
    context = cache().server_context(parse_host("a.test"), ("http/1.1",))
    client = strict_client()
    first, _ = shake(client, context, "a.test")
    second, _ = shake(client, context, "a.test", first.session)
    assert (first.session_reused, second.session_reused) == (False, True)


def test_refuses_old_protocols() -> None:
    context = cache().server_context(parse_host("a.test"), ())
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.num_tickets == 1


def test_the_same_question_has_the_same_answer() -> None:
    contexts = cache()
    one = contexts.server_context(parse_host("a.test"), ("http/1.1",))
    assert contexts.server_context(parse_host("A.test."), ("http/1.1",)) is one
    assert contexts.server_context(parse_host("a.test"), ("h2",)) is not one


def test_the_least_recently_used_goes_first() -> None:
    contexts = cache(limit=2)
    a, b = (contexts.server_context(parse_host(name), ()) for name in ("a.test", "b.test"))
    assert contexts.server_context(parse_host("a.test"), ()) is a
    contexts.server_context(parse_host("c.test"), ())
    assert len(contexts) == 2
    assert contexts.server_context(parse_host("a.test"), ()) is a
    assert contexts.server_context(parse_host("b.test"), ()) is not b


def test_a_context_is_renewed_long_before_its_leaf_expires() -> None:
    start = AUTHORITY.certificate.not_valid_before_utc.timestamp() + DAY
    clock = MovedClock(start)
    contexts = cache(clock=clock)
    one = contexts.server_context(parse_host("a.test"), ())
    clock.time = start + 59 * DAY
    assert contexts.server_context(parse_host("a.test"), ()) is one
    clock.time = start + 60 * DAY
    assert contexts.server_context(parse_host("a.test"), ()) is not one
    assert len(contexts) == 1


def test_an_expired_authority_has_no_contexts() -> None:
    clock = MovedClock(AUTHORITY.certificate.not_valid_after_utc.timestamp() + 1)
    with pytest.raises(DependencyError, match="has expired"):
        cache(clock=clock).server_context(parse_host("a.test"), ())


def test_keys_leave_no_file_and_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    contexts = cache()
    before = sorted(os.listdir("/proc/self/fd"))
    contexts.server_context(parse_host("a.test"), ())
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert list(tmp_path.iterdir()) == []
