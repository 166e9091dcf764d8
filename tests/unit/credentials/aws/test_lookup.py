"""The keys of one identity."""

import pytest

from egress.credentials.aws.keys import AwsKeys
from egress.credentials.aws.lookup import ACCESS_KEY, SECRET_KEY, SESSION_TOKEN, aws_keys
from egress.credentials.scope import Place, Scope, Selector
from egress.credentials.snapshot import Credential, CredentialSnapshot, Resolver
from egress.model.secret import Secret
from egress.model.verdict import Denial, DenialCode
from tests.unit.credentials.aws.samples import NOW, S3

HERE = Scope((Selector.of(S3, 443),))
ELSEWHERE = Scope((Selector.of("other.test", 443),))
UNAVAILABLE = DenialCode.SIGV4_CREDENTIALS_UNAVAILABLE


def credential(
    key: str, value: str, provider: str = "one", scope: Scope = HERE, expires: float | None = None
) -> Credential:
    name = key if provider == "one" else f"{key}__{provider}"
    return Credential(provider, name, Secret(value), scope, expires, f"{provider}:{key}")


def resolver(*credentials: Credential) -> Resolver:
    place = Place(S3, 443, "/k", "GET", "default", ())
    found = CredentialSnapshot.empty().next(credentials).resolver(place, NOW)
    assert found is not None
    return found


def code(found: AwsKeys | Denial) -> DenialCode:
    assert isinstance(found, Denial)
    return found.code


ACCESS, SECRET, TOKEN = credential(ACCESS_KEY, "AKIA1"), credential(SECRET_KEY, "s"), credential(SESSION_TOKEN, "t")


def test_keys_with_and_without_a_session_token() -> None:
    assert aws_keys(resolver(ACCESS, SECRET)) == AwsKeys(Secret("AKIA1"), Secret("s"))
    assert aws_keys(resolver(ACCESS, SECRET, TOKEN)) == AwsKeys(Secret("AKIA1"), Secret("s"), Secret("t"))


def test_what_was_used_is_recorded() -> None:
    found = resolver(ACCESS, SECRET, TOKEN)
    aws_keys(found)
    assert [one.key for one in found.used] == [ACCESS_KEY, SECRET_KEY, SESSION_TOKEN]


@pytest.mark.parametrize(
    "credentials",
    [
        (),
        (ACCESS,),
        (SECRET, TOKEN),
        (credential(ACCESS_KEY, "AKIA1", expires=NOW - 1), SECRET),
        (ACCESS, SECRET, credential(SESSION_TOKEN, "t", expires=NOW - 1)),
        (credential(ACCESS_KEY, "ASIA1"), SECRET),
        (credential(ACCESS_KEY, "AK\nIA"), SECRET),
        (credential(ACCESS_KEY, "AKIÄ"), SECRET),
        (ACCESS, credential(SECRET_KEY, "")),
    ],
)
def test_half_a_set_is_none(credentials: tuple[Credential, ...]) -> None:
    other = credential("OTHER", "x")
    assert code(aws_keys(resolver(*credentials, other))) is UNAVAILABLE


def test_without_credentials_nothing_is_signed() -> None:
    assert code(aws_keys(None)) is UNAVAILABLE


@pytest.mark.parametrize("key", [ACCESS_KEY, SECRET_KEY, SESSION_TOKEN])
def test_keys_of_another_endpoint_are_refused_by_that_name(key: str) -> None:
    credentials = [credential(one.key, one.secret.reveal(), scope=ELSEWHERE if one.key == key else HERE)
                   for one in (ACCESS, SECRET, TOKEN)]  # fmt: skip
    assert code(aws_keys(resolver(*credentials))) is DenialCode.CREDENTIAL_ENDPOINT_MISMATCH


def two(*, scope: Scope = HERE) -> list[Credential]:
    values = ((ACCESS_KEY, "AKIA2"), (SECRET_KEY, "s2"), (SESSION_TOKEN, "t2"))
    return [credential(key, value, "two", scope) for key, value in values]


def test_identities_are_told_apart_by_provider_and_never_mixed() -> None:
    found = resolver(ACCESS, SECRET, *two())
    assert aws_keys(found, "two") == AwsKeys(Secret("AKIA2"), Secret("s2"), Secret("t2"))
    assert aws_keys(found, "one") == AwsKeys(Secret("AKIA1"), Secret("s"))
    assert aws_keys(found) == AwsKeys(Secret("AKIA1"), Secret("s"))
    assert code(aws_keys(found, "three")) is UNAVAILABLE


def test_without_a_name_the_one_that_reaches_the_request_is_taken() -> None:
    there = [credential(one.key, "x", scope=ELSEWHERE) for one in (ACCESS, SECRET, TOKEN)]
    assert aws_keys(resolver(*there, *two())) == AwsKeys(Secret("AKIA2"), Secret("s2"), Secret("t2"))
