"""A stage that breaks denies (architecture 2.4): the client is told while it can be, the origin gets nothing."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from egress.pipeline import connection, exchange
from tests.support.authorities import OriginAuthority
from tests.support.inside import InsideProxy
from tests.support.origins import Origin, OriginLoop
from tests.support.proxy import policy_text, rest
from tests.support.raw import dial


@dataclass(frozen=True)
class Site:
    proxy: InsideProxy
    origin: Origin


@pytest.fixture
def site(origin_loop: OriginLoop, authority: OriginAuthority) -> Iterator[Site]:
    origin = Origin(origin_loop, None)
    policy = policy_text(rest("origin.test", origin.port))
    with InsideProxy(policy, aliases={"origin.test": "127.0.0.1"}, trust=authority.ca_file, settings={}) as proxy:
        yield Site(proxy, origin)
    origin.stop()


def broken(*_: object, **__: object) -> object:
    raise RuntimeError("stage broke")


def test_a_broken_judge_is_told_and_forwards_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "judge", broken)
    with dial(site.proxy.port) as client:
        client.send(f"GET http://origin.test:{site.origin.port}/x HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        reply = client.reply()
    assert (reply.status, reply.error) == (500, "internal_error")
    assert "stage broke" not in str(reply.json())
    assert site.origin.take() == b""


def test_a_broken_authorization_is_told_and_opens_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "authorize", broken)
    with dial(site.proxy.port) as client:
        client.send(f"CONNECT origin.test:{site.origin.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        reply = client.reply()
    assert (reply.status, reply.error) == (500, "internal_error")
    assert not site.origin.connections
