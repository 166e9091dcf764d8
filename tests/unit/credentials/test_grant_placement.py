"""Where a granted token goes, and when it is taken back."""

import pytest

from egress.credentials.grant_placement import place_token, refuses_token
from egress.credentials.snapshot import Placement
from egress.model.address import Origin, Port, Scheme, parse_host
from egress.model.body import NO_BODY, of_length
from egress.model.message import FieldLine, RequestHead, ResponseHead
from egress.model.secret import Secret

ORIGIN = Origin(Scheme.HTTPS, parse_host("orders.test"), Port(443))


def head(*fields: FieldLine) -> RequestHead:
    return RequestHead("POST", ORIGIN, "/a", "b=c", fields, of_length(3))


def placed(placement: Placement, *fields: FieldLine) -> tuple[FieldLine, ...]:
    before = head(*fields)
    after = place_token(before, placement, Secret("tok/en="))
    assert (after.method, after.path, after.query, after.framing) == ("POST", "/a", "b=c", of_length(3))
    return after.fields


def test_bearer_is_appended() -> None:
    assert placed(Placement("bearer"), (b"Accept", b"*/*")) == (
        (b"Accept", b"*/*"),
        (b"Authorization", b"Bearer tok/en="),
    )


@pytest.mark.parametrize("style", ["", "bearer"])
def test_every_field_of_the_name_goes(style: str) -> None:
    fields = placed(
        Placement(style, header="X-Mesh"),
        (b"x-mesh", b"openshell:resolve:env:OTHER"),
        (b"Authorization", b"Basic abc"),
        (b"X-MESH", b"Bearer x"),
        (b"X-Mesh-Other", b"1"),
    )
    assert fields == ((b"Authorization", b"Basic abc"), (b"X-Mesh-Other", b"1"), (b"X-Mesh", b"Bearer tok/en="))


def test_header_style_is_the_raw_token() -> None:
    assert placed(Placement("header", header="X-Token")) == ((b"X-Token", b"tok/en="),)


@pytest.mark.parametrize(
    ("status", "value", "refused"),
    [
        (401, b'Bearer error="invalid_token", error_description="expired"', True),
        (401, b"Bearer realm=x, ERROR = invalid_token", True),
        (401, b'Bearer error="insufficient_scope"', False),
        (401, b"Bearer", False),
        (401, b'Bearer error="invalid_tokens"', False),
        (403, b'Bearer error="invalid_token"', False),
    ],
)
def test_an_origin_that_refuses_the_token(status: int, value: bytes, refused: bool) -> None:
    fields = ((b"Www-Authenticate", b"Basic realm=x"), (b"WWW-Authenticate", value))
    assert refuses_token(ResponseHead(status, b"", fields, NO_BODY)) is refused
