"""Requests and keys of the signing tests."""

from egress.credentials.aws.keys import AwsKeys
from egress.credentials.aws.sign import SigningPlan, plan_signing, sign, strip
from egress.http.target import read_target
from egress.model.address import Origin, Port, Scheme, parse_host
from egress.model.body import NO_BODY, Framing
from egress.model.message import FieldLine, Malformed, RequestHead
from egress.model.secret import Secret
from egress.model.verdict import Denial
from egress.policy.compiled import CredentialOptions, Signing

NOW = 1767323045.0
"""2026-01-02T03:04:05Z"""

ACCESS = "AKIDEXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
KEYS = AwsKeys(Secret(ACCESS), Secret(SECRET))
TEMPORARY = AwsKeys(Secret(ACCESS), Secret(SECRET), Secret("SESSION"))

S3 = "b.s3.eu-west-1.amazonaws.com"
BEDROCK = "bedrock-runtime.us-east-1.amazonaws.com"
STS = "sts.us-east-1.amazonaws.com"


def request(
    method: str,
    host: str,
    target: str,
    fields: dict[str, str] | tuple[FieldLine, ...] = (),
    framing: Framing = NO_BODY,
    *,
    port: int = 443,
    scheme: Scheme = Scheme.HTTPS,
) -> RequestHead:
    """A head as interpretation makes it."""
    lines = fields if isinstance(fields, tuple) else tuple((k.encode(), v.encode()) for k, v in fields.items())
    read = read_target(target.encode())
    assert not isinstance(read, Malformed)
    origin = Origin(scheme, parse_host(host), Port(port))
    return RequestHead(method, origin, read.path.text, read.query, lines, framing, raw_path=read.raw_path)


def options(mode: str = "sigv4", service: str = "", region: str = "", **more: object) -> CredentialOptions:
    minting = bool(more.pop("deny_minting", True))
    return CredentialOptions(deny_minting=minting, signing=Signing(mode, service, region, **more))  # type: ignore[arg-type]


def planned(head: RequestHead, mode: str = "sigv4", **more: object) -> SigningPlan:
    plan = plan_signing(head, options(mode, **more))  # type: ignore[arg-type]
    assert isinstance(plan, SigningPlan), plan
    return plan


def signed(
    head: RequestHead, body: bytes | None = None, mode: str = "sigv4", keys: AwsKeys = KEYS, **more: object
) -> tuple[RequestHead, bytes | None]:
    """`head` as it is sent."""
    plan = planned(head, mode, **more)
    sent = sign(plan, strip(plan, head), body, keys, NOW)
    assert not isinstance(sent, Denial), sent
    return sent


def field(head: RequestHead, name: str) -> str | None:
    """The value of a field that occurs at most once."""
    values = [value.decode() for key, value in head.fields if key.decode().lower() == name]
    assert len(values) < 2, name
    return values[0] if values else None


def refusal(head: RequestHead, mode: str = "sigv4", **more: object) -> Denial:
    """Why `head` cannot be signed."""
    plan = plan_signing(head, options(mode, **more))  # type: ignore[arg-type]
    assert isinstance(plan, Denial), plan
    return plan
