"""Digest: the examples of RFC 7616, and challenges as proxies write them."""

import pytest

from egress.model.secret import Secret
from egress.upstream.digest import DigestChallenge, DigestSession, read_challenge, schemes_of

NONCE, OPAQUE = "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", "FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"
CLIENT_NONCE = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ"
REALM = "http-auth@example.org"


@pytest.mark.parametrize(
    ("algorithm", "response"),
    [
        ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
        ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
    ],
)
def test_the_examples_of_the_standard(algorithm: str, response: str) -> None:
    session = DigestSession(DigestChallenge(REALM, NONCE, algorithm, OPAQUE), lambda: CLIENT_NONCE)
    answer = session.answer("GET", "/dir/index.html", Secret("Mufasa:Circle of Life"))
    assert answer == (
        f'Digest username="Mufasa", realm="{REALM}", nonce="{NONCE}", uri="/dir/index.html", response="{response}", '
        f'cnonce="{CLIENT_NONCE}", opaque="{OPAQUE}", algorithm={algorithm}, qop=auth, nc=00000001'
    )


def test_counts_never_repeat_and_nonces_differ() -> None:
    session = DigestSession(DigestChallenge("r", "n", "MD5", None))
    answers = [session.answer("CONNECT", "a.test:443", Secret("u:p")) for _ in range(3)]
    assert [answer[-8:] for answer in answers] == ["00000001", "00000002", "00000003"]
    assert len({answer.split("cnonce=")[1].split(",")[0] for answer in answers}) == 3
    assert "opaque" not in answers[0]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (['Digest realm="r", nonce="n", qop="auth"'], ("r", "n", "MD5", None)),
        (['Digest realm="r", nonce="n", qop="auth", algorithm=SHA-256, stale=false'], ("r", "n", "SHA-256", None)),
        (['Digest qop="auth,auth-int",realm="r" , nonce="n",opaque="o"'], ("r", "n", "MD5", "o")),
        (['digest realm="a \\"b\\", Basic c", nonce="n", qop=auth'], ('a "b", Basic c', "n", "MD5", None)),
        (['Basic realm="x", Digest realm="r", nonce="n", qop="auth"'], ("r", "n", "MD5", None)),
        (['Digest realm="r", nonce="n", qop="auth", Basic realm="x"'], ("r", "n", "MD5", None)),
        (['Digest realm="r", nonce="1", qop="auth", algorithm=MD5',
          'Digest realm="r", nonce="2", qop="auth", algorithm=SHA-256'], ("r", "2", "SHA-256", None)),
        (['Digest realm="r", nonce="n"'], None),
        (['Digest realm="r", nonce="n", qop="auth-int"'], None),
        (['Digest realm="r", nonce="n", qop="auth", algorithm=MD5-sess'], None),
        (['Digest realm="r", nonce="", qop="auth"'], None),
        (['Digest nonce="n", qop="auth"'], None),
        (['Basic realm="Digest realm=x, nonce=y, qop=auth"'], None),
        ([], None),
    ],
)  # fmt: skip
def test_challenges(lines: list[str], expected: tuple[str, ...] | None) -> None:
    found = read_challenge(tuple(lines))
    assert (found and (found.realm, found.nonce, found.algorithm, found.opaque)) == expected


def test_schemes() -> None:
    assert schemes_of(("Negotiate", "NTLM")) == ("negotiate", "ntlm")
    assert schemes_of(("Negotiate oYG3MIG0==, Basic realm=x",)) == ("negotiate", "basic")
    assert schemes_of(('Basic realm="a, NTLM b"',)) == ("basic",)


def test_what_a_challenge_puts_in_quotes_stays_in_quotes() -> None:
    session = DigestSession(DigestChallenge('a", x="y', "n", "MD5", None))
    assert 'realm="a\\", x=\\"y"' in session.answer("CONNECT", "a:1", Secret("u:p"))
