"""Which token grant a request falls under: scores, overrides, what an override can never widen, what is ambiguous."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from egress.credentials.document import CredentialModel
from egress.credentials.grant_entries import grant_entries
from egress.credentials.grant_rules import GrantEntry, GrantTable, ambiguous, host_score, path_score
from egress.credentials.scope import Place, Scope
from egress.policy.document import EndpointModel

type Where = tuple[str, int, str]


def entries(
    *endpoints: Where,
    overrides: Sequence[dict[str, Any]] = (),
    provider: str = "mesh",
    scope: Scope = Scope(()),  # noqa: B008 - frozen
    audience: str = "default",
) -> list[GrantEntry]:
    grant = {
        "token_endpoint": "https://sso.example/token",
        "audience": audience,
        "scopes": ["read"],
        "audience_overrides": list(overrides),
    }
    credential = CredentialModel.model_validate({"name": "token", "auth_style": "bearer", "token_grant": grant})
    models = [EndpointModel(host=host, port=port, path=path) for host, port, path in endpoints]
    return list(grant_entries(provider, [credential], models, scope, Path()))


def audience(table: GrantTable, host: str, path: str = "/", port: int = 443, agent: str = "default") -> str | None:
    choice = table.match(Place(host, port, path, "GET", agent, ()))
    return choice.audience if choice is not None else None


@pytest.mark.parametrize(
    ("pattern", "score"),
    [("orders.corp.example", 100_000 + 300 + 19), ("*.corp.example", 90_000 + 300 + 13),
     ("**.corp.example", 80_000 + 300 + 13), ("*-api.*.example", 80_000 + 300 + 13)],
)  # fmt: skip
def test_scores_of_hosts(pattern: str, score: int) -> None:
    assert host_score(pattern) == score


@pytest.mark.parametrize(("pattern", "score"), [("", 0), ("**", 0), ("/**", 1_000_001), ("/admin/**", 1_000_007)])
def test_scores_of_paths(pattern: str, score: int) -> None:
    assert path_score(pattern) == score


def test_an_entry_is_named_by_where_it_applies() -> None:
    (one,) = entries(("Orders.corp.example", 8443, "/v1/**"))
    assert one.choice.key == "orders.corp.example\t8443\t/v1/**\tmesh:token"
    assert one.choice.audience == "default"
    assert one.choice.scopes == ("read",)


def test_any_path_outranks_an_exact_host_without_one() -> None:
    exact = entries(("orders.corp.example", 443, ""), audience="exact")
    wide = entries(("*.corp.example", 443, "/**"), audience="wide")
    table = GrantTable([*exact, *wide])
    assert audience(table, "orders.corp.example", "/x") == "wide"
    assert audience(table, "other.corp.example", "/x") == "wide"


@pytest.mark.parametrize(
    ("host", "port", "path", "expected"),
    [
        ("orders.corp.example", 443, "/", "default"),
        ("orders.corp.example", 443, "/admin", "admin"),
        ("orders.corp.example", 443, "/admin/users", "admin"),
        ("orders.corp.example", 443, "/administrator", "default"),
        ("orders.corp.example", 8443, "/admin", "other-port"),
        ("orders.corp.example", 8443, "/x", "default"),
        ("orders.corp.example", 80, "/", None),
        ("sub.orders.corp.example", 443, "/", None),
    ],
)
def test_an_override_is_more_definite(host: str, port: int, path: str, expected: str | None) -> None:
    table = GrantTable(
        entries(
            ("orders.corp.example", 443, ""),
            ("orders.corp.example", 8443, ""),
            overrides=[
                {"path": "/admin/**", "port": 443, "audience": "admin", "scopes": ["admin"]},
                {"path": "/admin/**", "port": 8443, "audience": "other-port"},
                {"host": "elsewhere.example", "audience": "never"},
            ],
        )
    )
    assert audience(table, host, path, port) == expected


def test_what_an_override_leaves_out_is_the_grants() -> None:
    table = GrantTable(entries(("a.example", 443, ""), overrides=[{"path": "/x", "audience": ""}]))
    choice = table.match(Place("a.example", 443, "/x", "GET", "default", ()))
    assert choice is not None
    assert (choice.audience, choice.scopes) == ("default", ("read",))


def test_an_override_with_the_same_selector_replaces_the_default() -> None:
    (one,) = entries(("a.example", 443, ""), overrides=[{"audience": "instead"}])
    assert one.choice.audience == "instead"


@pytest.mark.parametrize("override", [{"host": "*.corp.example"}, {"host": "**.example"}, {"path": "/**"}])
def test_an_override_never_leaves_its_endpoint(override: dict[str, str]) -> None:
    """The endpoint is the boundary: a wider override would send tokens where the profile says nothing of."""
    table = GrantTable(entries(("a.corp.example", 443, "/api/**"), overrides=[{**override, "audience": "wide"}]))
    assert audience(table, "a.corp.example", "/api/x") is not None
    for host, path in (("b.corp.example", "/api/x"), ("a.corp.example", "/other"), ("x.y.example", "/api/x")):
        assert audience(table, host, path) is None


def test_one_override_at_two_endpoints_is_inside_either() -> None:
    override = {"path": "/**/admin", "audience": "admin"}
    table = GrantTable(entries(("a.example", 443, "/one/**"), ("a.example", 443, "/two/**"), overrides=[override]))
    assert audience(table, "a.example", "/one/admin") == "admin"
    assert audience(table, "a.example", "/two/admin") == "admin"
    assert audience(table, "a.example", "/three/admin") is None


def test_wildcards_stand_for_labels() -> None:
    table = GrantTable(entries(("*-api.corp.example", 443, ""), ("**.deep.example", 443, "")))
    for host in ("eu-api.corp.example", "a.b.deep.example", "a.deep.example"):
        assert audience(table, host) == "default"
    for host in ("api.corp.example", "deep.example", "x.eu-api.corp.example"):
        assert audience(table, host) is None


def test_limits_of_the_provider_hold() -> None:
    table = GrantTable(entries(("a.example", 443, ""), scope=Scope((), agents=("build-*",))))
    assert audience(table, "a.example", agent="build-1") == "default"
    assert audience(table, "a.example") is None


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (("a.example", 443, ""), ("a.example", 443, ""), True),
        (("a.example", 443, ""), ("a.example", 8443, ""), False),
        (("a.example", 443, ""), ("b.example", 443, ""), False),
        (("a-*.example", 443, ""), ("*-a.example", 443, ""), True),
        (("a-*.example", 443, ""), ("b-*.example", 443, ""), False),
        (("a.example", 443, "/one/*"), ("a.example", 443, "/*/two"), True),
        (("a.example", 443, "/one/*"), ("a.example", 443, "/two/*"), False),
        (("a.example", 443, "/a?c"), ("a.example", 443, "/abc"), True),
        (("a.example", 443, ""), ("a.example", 443, "/x"), False),
    ],
)
def test_what_is_ambiguous(left: Where, right: Where, expected: bool) -> None:
    found = ambiguous([*entries(left, audience="one"), *entries(right, provider="other", audience="two")])
    assert bool(found) is expected


def test_the_same_token_twice_or_for_different_agents_is_not_ambiguous() -> None:
    assert not ambiguous(entries(("a-*.example", 443, ""), ("*-a.example", 443, "")))
    one = entries(("a.example", 443, ""), scope=Scope((), agents=("build",)))
    other = entries(("a.example", 443, ""), provider="other", audience="x", scope=Scope((), agents=("review-*",)))
    assert not ambiguous([*one, *other])
    third = entries(("a.example", 443, ""), provider="third", audience="y", scope=Scope((), agents=("*",)))
    assert len(ambiguous([*one, *other, *third])) == 2


def test_hostile_patterns_are_compared_in_time() -> None:
    left, right = ".".join(["**"] * 40 + ["a"]), ".".join(["**", "x"] * 20 + ["b"])
    assert not ambiguous([*entries((left, 443, "")), *entries((right, 443, ""), audience="x")])
