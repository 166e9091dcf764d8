"""Nearest misses of connections and requests."""

from egress.policy.explain import MAX_MISSES, Aspect, nearest_miss, nearest_rules
from tests.unit.policy.samples import entries, evidence, intent

RULES = "[{allow: {method: GET, path: '/v1/items/*', query: {q: 'a*'}}}, {allow: {method: POST, path: /v1/items}}]"
POLICY = entries(f"""
git: {{endpoints: [{{host: git.acme.test, port: 443}}], binaries: [{{path: /usr/bin/git}}, {{path: '**/node'}}]}}
api: {{endpoints: [{{host: '*.api.acme.test', ports: [443, 8443], protocol: rest, path: /v1/**, rules: {RULES}}}]}}
any: {{endpoints: [{{host: other.example, port: 1}}], binaries: [{{path: /**}}]}}
""")


def test_the_binary_is_what_is_missing() -> None:
    found = nearest_miss(POLICY, intent("git.acme.test"), evidence("/usr/bin/curl"))
    assert [str(miss) for miss in found] == [
        "git/endpoints[0] (policy.yaml:3:3) misses by binary: it lists /usr/bin/git, **/node"
    ]


def test_the_port_is_what_is_missing() -> None:
    found = nearest_miss(POLICY, intent("x.api.acme.test", 80), evidence())
    assert [str(miss) for miss in found] == [
        "api/endpoints[0] (policy.yaml:4:21) misses by port: it lists port 443, 8443"
    ]


def test_the_host_is_nearly_right() -> None:
    for asked, expected in (
        ("gti.acme.test", "git.acme.test"),
        ("x.git.acme.test", "git.acme.test"),
        ("a.b.api.acme.test", "*.api.acme.test"),
        ("api.acme.test", "*.api.acme.test"),
    ):
        found = nearest_miss(POLICY, intent(asked), evidence())
        assert f"host {expected}" in [miss.wanted for miss in found]
        assert {miss.missed for miss in found} == {(Aspect.HOST,)}
    assert nearest_miss(POLICY, intent("elsewhere.example"), evidence()) == ()


def test_an_admitted_connection_misses_only_what_refused_it() -> None:
    assert nearest_miss(POLICY, intent("git.acme.test"), evidence("/usr/bin/git")) == ()


def test_rules_that_come_closest_stand_first() -> None:
    endpoints = POLICY.entries["api"].endpoints
    found = nearest_rules(endpoints, "DELETE", "/v1/items", ())
    assert [(miss.rule.id if miss.rule else None, miss.missed) for miss in found] == [
        ("api/endpoints[0]/rules[1]", (Aspect.METHOD,)),
        ("api/endpoints[0]/rules[0]", (Aspect.METHOD, Aspect.PATH, Aspect.QUERY)),
    ]
    assert found[0].wanted == "POST /v1/items below endpoint path /v1/**"
    assert found[1].wanted == "GET /v1/items/* with query q below endpoint path /v1/**"


def test_a_query_or_the_endpoint_path_can_be_what_is_missing() -> None:
    endpoints = POLICY.entries["api"].endpoints
    by_query = nearest_rules(endpoints, "head", "/v1/items/7", (("q", "b"),))[0]
    assert by_query.missed == (Aspect.QUERY,)
    outside = nearest_rules(endpoints, "POST", "/v2/items", ())[0]
    assert outside.missed == (Aspect.ENDPOINT_PATH, Aspect.PATH)


def test_answers_are_bounded() -> None:
    lines = "\n".join(f"e{n}: {{endpoints: [{{host: a.test, port: 443}}], binaries: [{{path: /b}}]}}" for n in range(9))
    assert len(nearest_miss(entries(lines), intent("a.test"), evidence())) == MAX_MISSES
