"""How long a body is: the table of RFC 9112 section 6 with everything ambiguous refused."""

import pytest

from egress.http.framing import request_framing, response_framing
from egress.model.body import CHUNKED, NO_BODY, UNTIL_CLOSE, Framing, of_length
from egress.model.message import Malformed

SAID = [
    ([], [], None),
    ([b"0"], [], of_length(0)),
    ([b"5"], [], of_length(5)),
    ([b"0005"], [], of_length(5)),
    ([b"5", b"5"], [], of_length(5)),
    ([b"9223372036854775807"], [], of_length(2**63 - 1)),
    ([], [b"chunked"], CHUNKED),
    ([], [b"CHUNKED"], CHUNKED),
]

AMBIGUOUS = [
    ([b"5"], [b"chunked"]),
    ([b"0"], [b"chunked"]),
    ([b"5", b"6"], []),
    ([b"5", b"05"], []),
    ([b"5, 5"], []),
    ([b""], []),
    ([b"+5"], []),
    ([b"-5"], []),
    ([b"0x5"], []),
    ([b"5_0"], []),
    ([b"5 0"], []),
    ([b"1e3"], []),
    ([b"5.0"], []),
    ([b"\xd9\xa5"], []),
    ([b"9223372036854775808"], []),
    ([b"18446744073709551621"], []),
    ([b"99999999999999999999999"], []),
    ([b"5\n"], []),
    ([], [b""]),
    ([], [b"identity"]),
    ([], [b"gzip, chunked"]),
    ([], [b"chunked, chunked"]),
    ([], [b"chunked", b"chunked"]),
    ([], [b"chunked", b"identity"]),
    ([], [b"chunked;x=1"]),
    ([], [b"xchunked"]),
    ([], [b"\x0bchunked"]),
]


@pytest.mark.parametrize(("lengths", "codings", "framing"), SAID)
def test_requests(lengths: list[bytes], codings: list[bytes], framing: Framing | None) -> None:
    assert request_framing(lengths, codings) == (framing or NO_BODY)


@pytest.mark.parametrize(("lengths", "codings"), AMBIGUOUS)
def test_ambiguity_is_refused_in_requests_and_responses(lengths: list[bytes], codings: list[bytes]) -> None:
    assert isinstance(request_framing(lengths, codings), Malformed)
    for method, status in (("GET", 200), ("HEAD", 200), ("GET", 304), ("GET", 204), ("GET", 103)):
        assert isinstance(response_framing(method, status, lengths, codings), Malformed)


@pytest.mark.parametrize(("lengths", "codings", "framing"), SAID)
def test_responses_without_a_statement_run_until_close(
    lengths: list[bytes], codings: list[bytes], framing: Framing | None
) -> None:
    assert response_framing("GET", 200, lengths, codings) == (framing or UNTIL_CLOSE)


@pytest.mark.parametrize(
    ("method", "status"),
    [("HEAD", 200), ("HEAD", 404), ("GET", 100), ("GET", 101), ("GET", 103), ("GET", 199), ("POST", 204), ("GET", 304),
     ("CONNECT", 200), ("CONNECT", 299)],
)  # fmt: skip
def test_responses_that_never_have_a_body(method: str, status: int) -> None:
    for lengths, codings in (([], []), ([b"5"], []), ([], [b"chunked"])):
        assert response_framing(method, status, lengths, codings) == NO_BODY


@pytest.mark.parametrize(
    ("method", "status"), [("GET", 205), ("GET", 302), ("CONNECT", 300), ("OPTIONS", 200), ("head", 200)]
)
def test_responses_that_may_have_one(method: str, status: int) -> None:
    assert response_framing(method, status, [b"5"], []) == of_length(5)
