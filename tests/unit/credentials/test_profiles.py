"""Profiles: the catalogue is sound, and every fault of an own profile is found and located."""

import pytest

from egress.credentials.profiles import ALIASES, Catalogue, Profile, lint, read_profile, selectors
from egress.credentials.token_endpoint import endpoint_fault

GOOD = """\
id: ticket-desk
display_name: Ticket Desk
category: Source-Control
credentials:
  - name: api_token
    env_vars: [TICKET_DESK_TOKEN]
    required: true
    auth_style: header
    header_name: X-Desk-Key
discovery: {credentials: [api_token]}
endpoints:
  - {host: "*.desk.example", port: 443, path: /api/v2/**, protocol: rest, access: read-write, enforcement: enforce}
binaries: [/usr/bin/curl, {path: /usr/local/bin/desk, harness: true}]
"""


def read(text: str) -> Profile:
    profile = read_profile(text.encode(), "p.yaml")
    assert isinstance(profile, Profile), profile
    return profile


@pytest.mark.parametrize("name", Catalogue().names)
def test_every_profile_of_the_catalogue_is_sound(name: str) -> None:
    profile = Catalogue().find(name)
    assert profile is not None
    assert profile.id == name
    assert list(lint(profile)) == []
    assert profile.keys
    selectors(profile.model.endpoints)


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_aliases_lead_somewhere(alias: str, name: str) -> None:
    profile = Catalogue().find(alias)
    assert profile is not None
    assert profile.id == name


def test_names_that_are_none() -> None:
    catalogue = Catalogue([read(GOOD)])
    assert catalogue.find("ticket-desk") is not None
    assert "ticket-desk" in catalogue.names
    for name in ("nothing", "../catalogue/openai", ""):
        assert catalogue.find(name) is None


def test_what_a_profile_says() -> None:
    profile = read(GOOD)
    assert profile.credentialed
    assert list(profile.keys) == ["TICKET_DESK_TOKEN"]
    assert profile.model.category == "source_control"
    (selector,) = selectors(profile.model.endpoints)
    assert selector.covers("eu.desk.example", 443, "/api/v2/tickets")
    assert not selector.covers("eu.desk.example", 443, "/api/v1")
    assert not selector.covers("desk.example", 443, "/api/v2/x")


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("ticket-desk\n", "Ticket Desk\n", 1, "must be lower-case words joined by `-`"),
        ("category: Source-Control", "category: pets", 3, "must be one of"),
        ("header_name: X-Desk-Key", "query_param: k", 5, "needs `header_name`"),
        ("X-Desk-Key", "Content-Length", 9, "is no field that a credential can be placed in"),
        ("auth_style: header", "auth_style: path", 5, "`path_template`"),
        ("auth_style: header", "auth_style: magic", 8, "must be one of"),
        ("[TICKET_DESK_TOKEN]", "[v1_TOKEN]", 6, "would be read as a placeholder's"),
        ("[TICKET_DESK_TOKEN]", "[A, A]", 6, "declared twice"),
        ("[TICKET_DESK_TOKEN]", "[9A]", 6, "environment variable"),
        ("[api_token]}", "[other]}", 10, "there is no credential `other`"),
        ("port: 443, ", "", 12, "needs a port"),
        ("port: 443", "port: 70000", 12, "port"),
        ("protocol: rest, access: read-write", "tls: skip", 12, "only where traffic is inspected"),
        (
            "access: read-write",
            "access: read-write, credential_binding: {provider: x}",
            12,
            "is a key of a policy's endpoint",
        ),
        ("display_name", "display_nmae", 2, "unknown key"),
        ("    required: true", "    endpoints: [3]", 7, "there is no endpoint 3"),
    ],
)
def test_every_fault_is_found_where_it_is(old: str, new: str, line: int, says: str) -> None:
    assert old in GOOD
    found = read_profile(GOOD.replace(old, new, 1).encode(), "p.yaml")
    assert isinstance(found, tuple), found
    assert any(one.location.line == line and says in str(one) for one in found), [str(one) for one in found]


GRANT = """\
id: orders-mesh
display_name: Orders mesh
credentials:
  - name: mesh_token
    auth_style: bearer
    header_name: Authorization
    token_grant:
      token_endpoint: https://sso.corp.example/token
      audience: orders-default
      audience_overrides:
        - {path: /admin/**, audience: orders-admin}
endpoints:
  - {host: orders.corp.example, port: 443, protocol: rest, access: read-write, enforcement: enforce}
"""


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("https://sso.corp.example/token", "http://sso.corp.example/token", "may be http only"),
        ("auth_style: bearer", "auth_style: basic", "placed as `bearer` or `header`"),
        ("{path: /admin/**,", "{host: '*.corp.example',", "wider than every endpoint"),
    ],
)
def test_faults_of_grants(old: str, new: str, says: str) -> None:
    read(GRANT)
    found = read_profile(GRANT.replace(old, new, 1).encode(), "p.yaml")
    assert isinstance(found, tuple)
    assert any(says in str(one) for one in found)


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("https://sso.example/token", True), ("http://localhost:8080/t", True), ("http://127.0.0.1/t", True),
        ("http://[::1]/t", True), ("http://sts.auth.svc/t", True), ("http://sts.auth.svc.cluster.local./t", True),
        ("http://sso.example/t", False), ("http://x.y.svc.evil.example/t", False), ("http://single/t", False),
        ("ftp://sso.example", False), ("http://127.evil.example/t", False), ("/token", False), ("https://", False),
    ],
)  # fmt: skip
def test_token_endpoints(url: str, good: bool) -> None:
    assert (endpoint_fault(url) is None) is good
