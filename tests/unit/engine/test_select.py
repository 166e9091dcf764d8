"""Which lane: a pure table, whose choice decides nothing."""

from dataclasses import dataclass
from typing import Any

import pytest

from egress.engine.select import Lane, choose_alpn, choose_lane, http2_of
from egress.engine.sniff import Sniffed
from egress.policy.compiled import Http2

AUTO, PREFER, OFF = Http2.AUTO, Http2.PREFER, Http2.OFF


@pytest.mark.parametrize(
    ("sniffed", "alpn", "http2", "inspected", "lane"),
    [
        (Sniffed.HTTP1, None, AUTO, True, Lane.HTTP1),
        (Sniffed.HTTP1, "http/1.1", PREFER, True, Lane.HTTP1),
        (Sniffed.HTTP1, None, OFF, False, Lane.HTTP1),
        (Sniffed.HTTP2, None, AUTO, True, Lane.MITM),
        (Sniffed.HTTP2, None, AUTO, False, Lane.MITM),
        (Sniffed.HTTP2, "h2", AUTO, True, Lane.MITM),
        (Sniffed.HTTP2, "http/1.1", PREFER, True, Lane.MITM),
        (Sniffed.HTTP2, None, OFF, True, Lane.REFUSED),
        (Sniffed.HTTP2, None, OFF, False, Lane.OPAQUE),
        (Sniffed.HTTP1, "h2", AUTO, True, Lane.REFUSED),
        (Sniffed.OTHER, "h2", AUTO, True, Lane.REFUSED),
        (Sniffed.OTHER, None, AUTO, True, Lane.REFUSED),
        (Sniffed.OTHER, None, AUTO, False, Lane.OPAQUE),
        (Sniffed.OTHER, "http/1.1", AUTO, False, Lane.OPAQUE),
        (Sniffed.TLS, "http/1.1", AUTO, True, Lane.REFUSED),
        (Sniffed.TLS, "http/1.1", AUTO, False, Lane.OPAQUE),
    ],
)
def test_table(sniffed: Sniffed, alpn: str | None, http2: Http2, inspected: bool, lane: Lane) -> None:
    assert choose_lane(sniffed, alpn, http2, inspected=inspected, fast_lane=True) is lane
    slow = Lane.MITM if lane is Lane.HTTP1 else lane
    assert choose_lane(sniffed, alpn, http2, inspected=inspected, fast_lane=False) is slow


def test_nothing_unread_passes_where_requests_are_judged() -> None:
    for sniffed in Sniffed:
        for alpn in (None, "http/1.1", "h2"):
            for http2 in Http2:
                for fast in (True, False):
                    lane = choose_lane(sniffed, alpn, http2, inspected=True, fast_lane=fast)
                    assert lane is not Lane.OPAQUE


@pytest.mark.parametrize(
    ("offers", "http2", "chosen"),
    [
        ((), AUTO, ("http/1.1",)),
        ((b"http/1.1",), AUTO, ("http/1.1",)),
        ((b"h2", b"http/1.1"), AUTO, ("http/1.1",)),
        ((b"h2",), AUTO, ("h2",)),
        ((b"h2", b"http/1.1"), PREFER, ("h2",)),
        ((b"http/1.1",), PREFER, ("http/1.1",)),
        ((b"h2",), OFF, ("http/1.1",)),
        ((b"h2", b"http/1.1"), OFF, ("http/1.1",)),
        ((b"acme-tls/1",), AUTO, ("http/1.1",)),
        ((b"h2", b"acme-tls/1"), AUTO, ("h2",)),
    ],
)
def test_alpn(offers: tuple[bytes, ...], http2: Http2, chosen: tuple[str, ...]) -> None:
    assert choose_alpn(offers, http2) == chosen


@dataclass
class Endpoint:
    http2: Http2


@pytest.mark.parametrize(
    ("settings", "together"),
    [((AUTO,), AUTO), ((AUTO, PREFER), PREFER), ((PREFER, OFF), OFF), ((OFF, AUTO), OFF), ((PREFER,), PREFER)],
)
def test_endpoints_together(settings: tuple[Http2, ...], together: Http2) -> None:
    endpoints: Any = tuple(map(Endpoint, settings))
    assert http2_of(endpoints) is together
