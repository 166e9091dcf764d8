"""Which service and region a host stands for."""

import pytest

from egress.credentials.aws.region import AwsScope, derive, is_scope_part, scope_of
from egress.policy.compiled import Signing

HOSTS = {
    "s3.us-east-1.amazonaws.com": ("s3", "us-east-1"),
    "my-bucket.s3.us-east-2.amazonaws.com": ("s3", "us-east-2"),
    "a.b.c.s3.us-east-2.amazonaws.com": ("s3", "us-east-2"),
    "my.dotted.bucket.s3.eu-central-1.amazonaws.com": ("s3", "eu-central-1"),
    "s3.amazonaws.com": ("s3", "us-east-1"),
    "my-bucket.s3.amazonaws.com": ("s3", "us-east-1"),
    "eu-west-1.s3.amazonaws.com": ("s3", "us-east-1"),
    "us-east-1.s3.eu-west-1.amazonaws.com": ("s3", "eu-west-1"),
    "s3-us-west-2.amazonaws.com": ("s3", "us-west-2"),
    "my-bucket.s3-us-west-2.amazonaws.com": ("s3", "us-west-2"),
    "s3-fips-us-gov-west-1.amazonaws.com": ("s3", "us-gov-west-1"),
    "s3.dualstack.us-west-2.amazonaws.com": ("s3", "us-west-2"),
    "bucket.s3.dualstack.us-west-2.amazonaws.com": ("s3", "us-west-2"),
    "s3-fips.dualstack.us-east-1.amazonaws.com": ("s3", "us-east-1"),
    "bucket.s3-fips.dualstack.us-west-2.amazonaws.com": ("s3", "us-west-2"),
    "s3.us-gov-west-1.amazonaws.com": ("s3", "us-gov-west-1"),
    "s3-fips.us-gov-west-1.amazonaws.com": ("s3", "us-gov-west-1"),
    "s3.cn-north-1.amazonaws.com.cn": ("s3", "cn-north-1"),
    "b.s3.dualstack.cn-northwest-1.amazonaws.com.cn": ("s3", "cn-northwest-1"),
    "b.s3-accelerate.amazonaws.com": ("s3", ""),
    "b.s3-accelerate.dualstack.amazonaws.com": ("s3", ""),
    "123456789012.s3-control.us-west-2.amazonaws.com": ("s3", "us-west-2"),
    "ap-123456789012.s3-accesspoint.us-west-2.amazonaws.com": ("s3", "us-west-2"),
    "x.op-01ac.s3-outposts.us-west-2.amazonaws.com": ("s3-outposts", "us-west-2"),
    "o.s3-object-lambda.us-west-2.amazonaws.com": ("s3-object-lambda", "us-west-2"),
    "b--use1-az4--x-s3.s3express-use1-az4.us-east-1.amazonaws.com": ("s3express", "us-east-1"),
    "bucket.vpce-0e2-arg.s3.us-east-1.vpce.amazonaws.com": ("s3", "us-east-1"),
    "bucket.vpce-0123456789abcdef0-abcdefgh.s3.us-east-1.vpce.amazonaws.com": ("s3", "us-east-1"),
    "vpce-0e2.sts.us-east-1.vpce.amazonaws.com": ("sts", "us-east-1"),
    "bedrock-runtime.us-east-2.amazonaws.com": ("bedrock", "us-east-2"),
    "bedrock-runtime-fips.us-east-1.amazonaws.com": ("bedrock", "us-east-1"),
    "bedrock-runtime.us-east-1.api.aws": ("bedrock", "us-east-1"),
    "lambda.us-east-1.api.aws": ("lambda", "us-east-1"),
    "abcd.execute-api.eu-west-1.amazonaws.com": ("execute-api", "eu-west-1"),
    "search-d-1ab.us-east-1.es.amazonaws.com": ("es", "us-east-1"),
    "x.us-east-1.aoss.amazonaws.com": ("aoss", "us-east-1"),
    "us-east-1.queue.amazonaws.com": ("sqs", "us-east-1"),
    "queue.amazonaws.com": ("sqs", "us-east-1"),
    "sts.amazonaws.com": ("sts", "us-east-1"),
    "iam.amazonaws.com": ("iam", "us-east-1"),
    "cloudfront.amazonaws.com": ("cloudfront", "us-east-1"),
    "route53.amazonaws.com": ("route53", "us-east-1"),
    "budgets.amazonaws.com": ("budgets", "us-east-1"),
    "iam.us-gov.amazonaws.com": ("iam", "us-gov-west-1"),
    "email.us-east-1.amazonaws.com": ("ses", "us-east-1"),
    "runtime.sagemaker.us-east-1.amazonaws.com": ("sagemaker", "us-east-1"),
    "runtime-fips.sagemaker.us-gov-west-1.amazonaws.com": ("sagemaker", "us-gov-west-1"),
    "streams.dynamodb.us-east-1.amazonaws.com": ("dynamodb", "us-east-1"),
    "api.ecr.us-east-1.amazonaws.com": ("ecr", "us-east-1"),
    "catalog.marketplace.us-east-1.amazonaws.com": ("aws-marketplace", "us-east-1"),
    "data-ats.iot.eu-west-1.amazonaws.com": ("iotdata", "eu-west-1"),
    "oidc.eu-west-1.amazonaws.com": ("sso-oauth", "eu-west-1"),
    "pinpoint.us-east-1.amazonaws.com": ("mobiletargeting", "us-east-1"),
    "xyz.lambda-url.us-east-1.on.aws": ("lambda", "us-east-1"),
    "s3.eusc-de-east-1.amazonaws.eu": ("s3", "eusc-de-east-1"),
    "kinesis.us-iso-east-1.c2s.ic.gov": ("kinesis", "us-iso-east-1"),
    "s3.us-isob-east-1.sc2s.sgov.gov": ("s3", "us-isob-east-1"),
    "S3.US-EAST-1.AMAZONAWS.COM": ("s3", "us-east-1"),
    "s3.us-east-1.amazonaws.com.": ("s3", "us-east-1"),
    "m.accesspoint.s3-global.amazonaws.com": ("", ""),
    "x.foo-1.amazonaws.com": ("", ""),
    "amazonaws.com": ("", ""),
    "us-east-1.amazonaws.com": ("", "us-east-1"),
    "minio.internal": ("", ""),
    "localhost": ("", ""),
    "us-east-1.evil.test": ("", ""),
    "s3.us-east-1.amazonaws.com.evil.test": ("", ""),
    "s3.us-east-1.evilamazonaws.com": ("", ""),
}


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_tells_service_and_region(host: str) -> None:
    assert derive(host) == AwsScope(*HOSTS[host])


def test_what_the_endpoint_says_wins() -> None:
    host = "s3.us-east-1.amazonaws.com"
    assert scope_of(host, Signing("sigv4", "")) == AwsScope("s3", "us-east-1")
    assert scope_of(host, Signing("sigv4", "sts")) == AwsScope("sts", "us-east-1")
    assert scope_of(host, Signing("sigv4", "", "eu-west-1")) == AwsScope("s3", "eu-west-1")
    assert scope_of("minio.internal", Signing("sigv4", "s3", "here")) == AwsScope("s3", "here")
    assert scope_of("minio.internal", Signing("sigv4", "s3")) == AwsScope("s3", "")


@pytest.mark.parametrize("text", ["", "a/b", "us_east", "a b", "a\n", "é", "a" * 65])
def test_other_characters_are_no_part_of_a_scope(text: str) -> None:
    assert not is_scope_part(text)


@pytest.mark.parametrize("text", ["s3", "us-east-1", "IoTSecuredTunneling", "a" * 64])
def test_parts_of_a_scope(text: str) -> None:
    assert is_scope_part(text)
