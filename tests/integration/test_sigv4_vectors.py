"""AWS's own signing vectors: for the signer, and for the judge that other tests trust."""

import re
from datetime import UTC, datetime

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials

from egress.credentials.aws.sign import _query
from egress.credentials.aws.signature import _add_auth
from tests.support.aws_vectors import Vector, vectors
from tests.unit.credentials.aws.judge import accepts

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
TIME = datetime(2015, 8, 30, 12, 36, tzinfo=UTC).timestamp()
NORMALIZED = re.compile(r"get-(relative|slash|space|special)")
"""Vectors of paths that no request of ours has on the wire."""


@pytest.fixture(scope="module")
def suite() -> list[Vector]:
    found = vectors()
    assert len(found) > 25
    return found


def parsed(text: bytes) -> tuple[str, str, list[tuple[str, str]], bytes]:
    head, _, body = text.replace(b"\r\n", b"\n").partition(b"\n\n")
    line, *fields = re.sub(r"\n +", " ", head.decode()).rstrip("\n").split("\n")
    method, _, target = line.removesuffix(" HTTP/1.1").partition(" ")
    return method, target, [(name, value) for name, _, value in (field.partition(":") for field in fields)], body


def test_the_signer_gives_every_vector(suite: list[Vector]) -> None:
    for vector in suite:
        method, target, fields, body = parsed(vector.request)
        token = dict(parsed(vector.signed)[2]).get("X-Amz-Security-Token")
        path, _, query = target.partition("?")
        request = AWSRequest(method, f"https://example.amazonaws.com{path}?{_query(query)}", data=body)
        for name, value in fields:
            request.headers[name] = value
        if vector.name == "post-sts-header-after":
            del request.headers["X-Amz-Security-Token"]
            token = None
        _add_auth(SigV4Auth(ReadOnlyCredentials("AKIDEXAMPLE", SECRET, token), "service", "us-east-1"), request, TIME)
        assert request.headers["Authorization"] == vector.authorization, vector.name


def test_the_judge_accepts_every_vector_and_no_other_key(suite: list[Vector]) -> None:
    judged = [vector for vector in suite if not NORMALIZED.match(vector.name)]
    assert len(judged) > 15
    for vector in judged:
        method, target, fields, body = parsed(vector.signed)
        unsigned = ["X-Amz-Security-Token"] if vector.name == "post-sts-header-after" else []
        fields = [field for field in fields if field[0] not in ("Authorization", *unsigned)]
        fields.append(("Authorization", vector.authorization))  # one of the signed requests holds another one
        lines = "".join(f"{name}: {value.strip()}\r\n" for name, value in fields)
        wire = f"{method} {target.replace(' ', '%20')} HTTP/1.1\r\n{lines}\r\n".encode() + body
        assert accepts(wire, SECRET), vector.name
        assert not accepts(wire, SECRET + "x"), vector.name
