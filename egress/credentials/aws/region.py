"""The AWS service and region that a host stands for; nothing is guessed for a host that no table explains."""

import re
from dataclasses import dataclass
from functools import lru_cache

from egress.credentials.aws.tables import GLOBAL_HOSTS, REGIONS, SERVICES
from egress.policy.compiled import Signing


@dataclass(frozen=True, slots=True)
class AwsScope:
    """What a signature is bound to; a part that is unknown is empty."""

    service: str = ""
    region: str = ""


NO_SCOPE = AwsScope()

_PART = re.compile(r"[A-Za-z0-9-]{1,64}\Z", re.ASCII)

_REGIONS = {suffix: re.compile("|".join(patterns), re.ASCII) for suffix, patterns in REGIONS.items()}
_REGIONS["on.aws"] = _REGIONS["api.aws"]
_SUFFIXES = sorted(_REGIONS, key=len, reverse=True)

_BUCKETS = ("s3.amazonaws.com", "s3-external-1.amazonaws.com")
"""Global hosts that take a bucket in front: its name may look like a region."""
_GLOBAL = {**GLOBAL_HOSTS, "queue.amazonaws.com": ("sqs", "us-east-1")}

_NAMES = {**SERVICES, "lambda-url": "lambda", "queue": "sqs", "s3-accesspoint": "s3", "s3-accelerate": "s3"}
_LONGEST_NAME = max(name.count(".") for name in _NAMES) + 1
_LEGACY = re.compile(r"s3(?:-fips)?-(.+)")
_EXPRESS = re.compile(r"s3express(?:-fips)?-[a-z0-9-]+")


def is_scope_part(text: str) -> bool:
    """Service and region go into a signature as they are written, so only these characters may be in them."""
    return _PART.match(text) is not None


def scope_of(host: str, signing: Signing) -> AwsScope:
    """What to sign for: what the endpoint says, and what `host` tells of the rest."""
    if signing.service and signing.region:
        return AwsScope(signing.service, signing.region)
    derived = derive(host)
    return AwsScope(signing.service or derived.service, signing.region or derived.region)


def domain_of(region: str) -> str | None:
    """The domain of the partition that `region` is in."""
    plain = (suffix for suffix in REGIONS if not suffix.startswith("api."))
    return next((suffix for suffix in plain if _REGIONS[suffix].fullmatch(region)), None)


@lru_cache(maxsize=1024)
def derive(host: str) -> AwsScope:
    """Service and region from a host name alone."""
    name = host.lower().removesuffix(".")
    if name in _GLOBAL:
        return AwsScope(*_GLOBAL[name])
    for bucket_host in _BUCKETS:
        if name.endswith("." + bucket_host):
            return AwsScope(*_GLOBAL[bucket_host])
    suffix = next((item for item in _SUFFIXES if name.endswith("." + item)), None)
    if suffix is None:
        return NO_SCOPE
    labels = name.removesuffix("." + suffix).split(".")
    if labels[-1] == "vpce":
        labels.pop()
    labels = [label for label in labels if label != "dualstack"]
    return _read(labels, _REGIONS[suffix])


def _read(labels: list[str], regions: re.Pattern[str]) -> AwsScope:
    """The right-most region wins: labels before it may be a bucket's, and a bucket may be called anything."""
    for index in range(len(labels) - 1, -1, -1):
        label = labels[index]
        if regions.fullmatch(label):
            return AwsScope(_service(labels[index + 1 :] or labels[:index]), label)
        legacy = _LEGACY.fullmatch(label)
        if legacy is not None and regions.fullmatch(legacy[1]):
            return AwsScope("s3", legacy[1])
    return AwsScope("s3") if labels and labels[-1] == "s3-accelerate" else NO_SCOPE


def _service(labels: list[str]) -> str:
    """The signing name for the labels beside a region: the longest prefix that a table knows, else the nearest one."""
    plain = [label.removesuffix("-fips") for label in labels]
    for count in range(min(_LONGEST_NAME, len(plain)), 0, -1):
        name = ".".join(plain[-count:])
        if name in _NAMES:
            return _NAMES[name]
    if not plain:
        return ""
    return "s3express" if _EXPRESS.fullmatch(plain[-1]) else plain[-1]
