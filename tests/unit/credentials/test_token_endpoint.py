"""Token endpoints: which may be asked, what is sent, what a reply means, how long a token is kept."""

import json
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.credentials.token_endpoint import (
    AccessToken,
    Form,
    GrantFailure,
    assertion_audience,
    endpoint_fault,
    is_token68,
    read_reply,
    time_to_live,
)
from egress.model.secret import Secret
from egress.model.verdict import ReasonCode

DOCUMENT = Secret("eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2ln")


@pytest.mark.parametrize(
    "url",
    [
        "https://sso.corp.example/token",
        "https://sso.corp.example:8443/token?x=1",
        "https://10.0.0.1/token",
        "http://localhost/token",
        "http://localhost:8080/token",
        "http://127.0.0.1:9/t",
        "http://127.9.9.9/t",
        "http://[::1]/t",
        "http://[::ffff:127.0.0.1]/t",
        "http://keycloak.auth.svc/t",
        "http://keycloak.auth.svc:8080/t",
        "http://keycloak.auth.svc.cluster.local/t",
        "http://keycloak.auth.svc.cluster.local./t",
        "http://KeyCloak.Auth.SVC/t",
    ],
)
def test_endpoints_that_may_be_asked(url: str) -> None:
    assert endpoint_fault(url) is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/token",
        "sso.corp.example/token",
        "ftp://sso.corp.example/token",
        "file:///etc/passwd",
        "http://sso.corp.example/token",
        "http://keycloak/t",
        "http://svc/t",
        "http://auth.svc/t",
        "http://x.y.svc.evil.com/t",
        "http://x.y.svc.cluster.local.evil.com/t",
        "http://a.b.c.svc/t",
        "http://.b.svc/t",
        "http://a.b.svc../t",
        "http://10.0.0.1/t",
        "http://127.0.0.1.evil.com/t",
        "http://localhost.evil.com/t",
        "http://localhost@evil.com/t",
        "https://user:pw@sso.corp.example/t",
        "https://sso.corp.example/t#f",
        "https://sso.corp.example:x/t",
        "https://sso.corp.example:99999/t",
        "https://sso.corp.example/a b",
        "https://sso.corp.example/\r\n",
        "https://[::1/t",
        "https://ssö.example/t",
    ],
)
def test_endpoints_that_may_not(url: str) -> None:
    assert endpoint_fault(url) is not None


@pytest.mark.parametrize(
    ("endpoint", "stated", "audience"),
    [
        ("https://a.example/realms/r/protocol/openid-connect/token", "", "https://a.example/realms/r"),
        ("https://o.example/token", "", "https://o.example/token"),
        ("https://a.example/realms/r", "", "https://a.example/realms/r"),
        ("https://a.example/auth/realms/r/x", "", "https://a.example/auth/realms/r"),
        ("https://a.example/realms/r/x", "spiffe://mine", "spiffe://mine"),
    ],
)
def test_audience_of_the_document(endpoint: str, stated: str, audience: str) -> None:
    assert assertion_audience(endpoint, stated) == audience


def sent(form: Form) -> dict[str, str]:
    pairs = parse_qsl(form.encode(DOCUMENT).decode(), keep_blank_values=True, strict_parsing=True)
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


class TestForm:
    def test_all_five(self) -> None:
        form = Form(audience="orders & more", scopes=("orders.read", "a/b"))
        assert sent(form) == {
            "grant_type": "client_credentials",
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            "client_assertion": DOCUMENT.reveal(),
            "audience": "orders & more",
            "scope": "orders.read a/b",
        }

    def test_empty_ones_are_left_out(self) -> None:
        assert set(sent(Form())) == {"grant_type", "client_assertion_type", "client_assertion"}

    def test_another_assertion_type_and_a_blank_one(self) -> None:
        spiffe = "urn:ietf:params:oauth:client-assertion-type:jwt-spiffe"
        assert sent(Form(client_assertion_type=spiffe))["client_assertion_type"] == spiffe
        assert sent(Form(client_assertion_type=""))["client_assertion_type"].endswith(":jwt-bearer")

    def test_token_exchange(self) -> None:
        form = Form("token_exchange", audience="a", scopes=("s",), client_id="me", resource="https://r.example")
        assert sent(form) == {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "subject_token": DOCUMENT.reveal(),
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "client_id": "me",
            "audience": "a",
            "resource": "https://r.example",
            "scope": "s",
        }

    def test_jwt_bearer(self) -> None:
        assert sent(Form("jwt_bearer")) == {
            "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "assertion": DOCUMENT.reveal(),
        }


@pytest.mark.parametrize("token", ["a", "a=", "a==", "A-Z.a_z~0+9/", "eyJ.eyJ.sig"])
def test_token68(token: str) -> None:
    assert is_token68(token)


@pytest.mark.parametrize(
    "token", ["", "=", "==", "a=b", "a b", " a", "a ", "a\r\nX: y", "a\n", "a\x7f", "é", "a,b", "a:b"]
)
def test_not_token68(token: str) -> None:
    assert not is_token68(token)


def reply(status: int = 200, **members: object) -> AccessToken | GrantFailure:
    return read_reply(status, json.dumps(members).encode(), DOCUMENT)


class TestReply:
    @pytest.mark.parametrize("status", [200, 201, 299])
    @pytest.mark.parametrize(
        ("members", "life"),
        [
            ({}, 0),
            ({"expires_in": 60}, 60),
            ({"expires_in": "60"}, 60),
            ({"expires_in": -5}, 0),
            ({"token_type": "BEARER", "scope": "x"}, 0),
            ({"token_type": "N_A"}, 0),
        ],
    )
    def test_tokens(self, status: int, members: dict[str, object], life: int) -> None:
        assert reply(status, access_token="tok", **members) == AccessToken(Secret("tok"), life)

    @pytest.mark.parametrize(
        "members",
        [
            {},
            {"access_token": None},
            {"access_token": 7},
            {"access_token": ""},
            {"access_token": "a b"},
            {"access_token": "a\r\nSet-Cookie: x"},
            {"access_token": "openshell:resolve:env:KEY"},
            {"access_token": "tok", "expires_in": None},
            {"access_token": "tok", "expires_in": True},
            {"access_token": "tok", "expires_in": 1.5},
            {"access_token": "tok", "expires_in": "soon"},
            {"access_token": "tok", "expires_in": "9" * 5000},
            {"access_token": "tok", "token_type": "DPoP"},
            {"access_token": "tok", "token_type": None},
        ],
    )
    def test_none(self, members: dict[str, object]) -> None:
        found = reply(**members)
        assert isinstance(found, GrantFailure)
        assert found.code is ReasonCode.MALFORMED_TOKEN

    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"tok"', b"\xff", b"[" * 60_000, b"<html>at db.py:7</html>"])
    def test_broken_json(self, body: bytes) -> None:
        assert read_reply(200, body, DOCUMENT) == GrantFailure(
            ReasonCode.MALFORMED_TOKEN, "token grant reply is no JSON object"
        )

    @pytest.mark.parametrize(
        ("status", "body", "reason"),
        [
            (302, b"", "token grant failed with status 302 Found"),
            (500, b"<html>at db.py:7 secret</html>", "token grant failed with status 500 Internal Server Error"),
            (599, b"Traceback", "token grant failed with status 599"),
            (401, b'{"message": "sk-123"}', "token grant failed with status 401 Unauthorized"),
            (400, b'{"error": {"a": 1}}', "token grant failed with status 400 Bad Request"),
            (
                400,
                b'{"error": "invalid_client"}',
                "token grant failed with status 400 Bad Request: error=invalid_client",
            ),
            (
                400,
                b'{"error": "bad\\r\\nX", "error_description": " no\\u0000 such\\u0085 "}',
                "token grant failed with status 400 Bad Request: error=bad  X; error_description=no  such",
            ),
        ],
    )
    def test_rejections(self, status: int, body: bytes, reason: str) -> None:
        assert read_reply(status, body, DOCUMENT) == GrantFailure(ReasonCode.REJECTED, reason)

    def test_long_errors_are_cut(self) -> None:
        found = reply(400, error="e" * 1000, error_description="d" * 1000)
        assert isinstance(found, GrantFailure)
        assert found.reason.endswith(f": error={'e' * 256}; error_description={'d' * 256}")

    def test_an_echoed_document_is_not_repeated(self) -> None:
        other = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJvdGhlciJ9."
        found = reply(401, error="invalid_client", error_description=f"bad {DOCUMENT.reveal()} and {other}")
        assert isinstance(found, GrantFailure)
        assert found.reason.endswith("error_description=bad [assertion] and [token]")


@pytest.mark.parametrize(
    ("stated", "life", "trusted", "seconds"),
    [
        (120, 10, True, 120),
        (120, 10, False, 1),
        (120, 100, False, 70),
        (120, 0, False, 120),
        (0, 60, False, 30),
        (0, 10, False, 1),
        (0, 10**12, False, 3570),
        (0, 0, False, 270),
    ],
)
def test_time_to_live(stated: int, life: int, trusted: bool, seconds: int) -> None:
    assert time_to_live(stated, life, trusted=trusted) == seconds


@given(st.binary(max_size=200), st.integers(100, 599))
def test_any_reply_is_a_token_or_a_reason_that_fits_one_line(body: bytes, status: int) -> None:
    found = read_reply(status, body, DOCUMENT)
    if isinstance(found, AccessToken):
        assert is_token68(found.secret.reveal())
    else:
        assert found.reason.isprintable()
