"""Which endpoint owns a request."""

import pytest

from egress.l7.select import select
from egress.model.body import NO_BODY
from egress.model.message import RequestHead
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage
from egress.policy.authorization import Authorization
from tests.unit.policy.samples import entries, granted, intent

REST = "host: a.test, port: 443, protocol: rest, access: full"


def head(path: str, method: str = "GET") -> RequestHead:
    return RequestHead(method, intent("a.test").origin, path, None, (), NO_BODY)


def authorization(*endpoints: str) -> Authorization:
    listed = ", ".join(f"{{{text}}}" for text in endpoints)
    return granted(entries(f"e: {{endpoints: [{listed}], binaries: [{{path: /**}}]}}"), "a.test")


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("/", 0),
        ("/v1", 1),
        ("/v1/", 1),
        ("/v1/a/b", 1),
        ("/v1/admin", 2),
        ("/v1/admin/x", 2),
        ("/v1/administrator", 1),
        ("/files/a.json", 3),
        ("/files/a/b.json", 0),
        ("/V1/a", 0),
    ],
)
def test_the_longest_literal_path_wins(path: str, owner: int) -> None:
    given = authorization(
        REST, f"{REST}, path: /v1/**", f"{REST}, path: /v1/admin/**", f"{REST}, path: '/files/*.json'"
    )
    found = select(given, head(path))
    assert not isinstance(found, Denial)
    assert found.index == owner


def test_among_equals_the_last_wins() -> None:
    found = select(authorization(f"{REST}, path: '/a*'", f"{REST}, path: '/*b'"), head("/ab"))
    assert not isinstance(found, Denial)
    assert found.index == 1


def test_an_inspected_endpoint_wins_over_a_bare_one() -> None:
    found = select(authorization("host: a.test, port: 443", REST), head("/"))
    assert not isinstance(found, Denial)
    assert found.index == 1


def test_no_path_is_a_denial_that_audit_does_not_soften() -> None:
    given = authorization("host: a.test, port: 443", f"{REST}, enforcement: audit, path: /v1/**")
    assert select(given, head("/v2", "POST")) == Denial(
        Stage.L7, DenialCode.POLICY_DENIED, "POST a.test:443/v2 did not match an L7 endpoint path",
        ReasonCode.NO_ENDPOINT_PATH, entry="e", hard=True,
    )  # fmt: skip


def test_without_inspection_the_first_endpoint_stands_for_all() -> None:
    found = select(authorization("host: a.test, port: 443", "host: '*.test.test', port: 443"), head("/x"))
    assert not isinstance(found, Denial)
    assert (found.index, found.inspected) == (0, False)
