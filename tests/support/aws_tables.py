"""Writes egress/credentials/aws/tables.py from what botocore knows of AWS: `python -m tests.support.aws_tables`."""

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore

TABLES = Path(__file__).parents[2] / "egress" / "credentials" / "aws" / "tables.py"
DATA = Path(botocore.__file__).parent / "data"

_CREDENTIAL = re.compile(r"secretaccesskey|authorizationtoken|dbpassword|servicepassword|webidentitytoken")

_HEADER = '''"""What AWS calls its hosts, services and regions, and which of its calls hand out credentials.

Generated from botocore's data by `python -m tests.support.aws_tables`; a test compares.
"""

# ruff: noqa: E501
'''


def rendered() -> str:
    """The text of the module."""
    services = dict(_services())
    partitions = _json(DATA / "partitions.json")["partitions"]
    regions: dict[str, list[str]] = defaultdict(list)
    for partition in partitions:
        for key in ("dnsSuffix", "dualStackDnsSuffix"):
            regions[partition["outputs"][key]].append(partition["regionRegex"].strip("^$").replace(r"\-", "-"))
    operations, calls = _minting()
    return "\n".join(
        [
            _HEADER,
            *_table("REGIONS: dict[str, tuple[str, ...]]", {key: tuple(value) for key, value in regions.items()}),
            '"""Domain of a partition -> patterns of the regions in it."""\n',
            *_table("SERVICES: dict[str, str]", {prefix: name for prefix, name in services.items() if prefix != name}),
            '"""First labels of a host -> name that signatures use, where the two differ."""\n',
            *_table("GLOBAL_HOSTS: dict[str, tuple[str, str]]", _global_hosts(services, regions)),
            '"""Hosts without a region in their name -> service and region of their signatures."""\n',
            *_table("MINTING_OPERATIONS: dict[str, tuple[str, ...]]", operations),
            '"""Service -> operations, lower case, whose reply holds credentials."""\n',
            *_table("MINTING_CALLS: dict[str, tuple[tuple[str, str], ...]]", calls),
            '"""Service -> methods and path patterns of the same, for services that are asked by path."""\n',
        ]
    )


def _table(name: str, rows: dict[str, Any]) -> list[str]:
    return [f"{name} = {{", *(f"    {_literal(key)}: {_literal(rows[key])}," for key in sorted(rows)), "}"]


def _literal(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_literal, value)) + (",)" if len(value) == 1 else ")")
    return json.dumps(value)


def _json(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())


def _newest(name: str) -> Iterator[Any]:
    for service in sorted(DATA.iterdir()):
        found = sorted(service.glob(f"*/{name}*"))
        if found:
            yield _json(found[-1])


def _services() -> Iterator[tuple[str, str]]:
    for model in _newest("service-2.json"):
        facts = model["metadata"]
        yield facts["endpointPrefix"], facts.get("signingName", facts["endpointPrefix"])


def _global_hosts(services: dict[str, str], regions: dict[str, list[str]]) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for partition in _json(DATA / "endpoints.json")["partitions"]:
        for prefix, service in partition["services"].items():
            for endpoint in service.get("endpoints", {}).values():
                region = endpoint.get("credentialScope", {}).get("region")
                if region:
                    name = endpoint["credentialScope"].get("service", services.get(prefix, prefix))
                    found |= dict.fromkeys(_hosts(endpoint), (name, region))
    for rules in _newest("endpoint-rule-set-1.json"):
        for endpoint in _endpoints(rules["rules"]):
            schemes = endpoint.get("properties", {}).get("authSchemes", ())
            host = str(endpoint["url"]).removeprefix("https://")
            for scheme in schemes:
                if scheme["name"] == "sigv4" and scheme.get("signingRegion") and scheme.get("signingName"):
                    found.setdefault(host, (scheme["signingName"], scheme["signingRegion"]))
    pattern = re.compile("|".join(f"(?:{item})" for items in regions.values() for item in items))
    return {
        host: scope
        for host, scope in found.items()
        if not any(map(pattern.fullmatch, host.split(".")))
        and host.endswith(tuple("." + suffix for suffix in regions))
        and "{" not in host + scope[1]
    }


def _hosts(endpoint: dict[str, Any]) -> list[str]:
    return [item["hostname"] for item in (endpoint, *endpoint.get("variants", ())) if "hostname" in item]


def _endpoints(rules: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for rule in rules:
        yield from _endpoints(rule.get("rules", []))
        if "endpoint" in rule:
            yield rule["endpoint"]


def _minting() -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[tuple[str, str], ...]]]:
    operations: dict[str, set[str]] = defaultdict(set)
    calls: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for model in _newest("service-2.json"):
        facts = model["metadata"]
        service = facts.get("signingName", facts["endpointPrefix"])
        for name, operation in model["operations"].items():
            if "output" not in operation or not _holds_credentials(model, operation["output"]["shape"], set()):
                continue
            operations[service].add(name.lower())
            path = operation["http"]["requestUri"].partition("?")[0]
            if facts["protocol"].startswith("rest") and service != "s3express" and path != "/{Bucket}":
                pattern = "".join(_piece(piece) for piece in re.split(r"(\{[^}]+\})", path))
                calls[service].add((operation["http"]["method"], pattern))
    return (
        {service: tuple(sorted(names)) for service, names in operations.items()},
        {service: tuple(sorted(found)) for service, found in calls.items()},
    )


def _piece(piece: str) -> str:
    if not piece.startswith("{"):
        return re.escape(piece)
    return ".+" if piece.endswith("+}") else "[^/]+"


def _holds_credentials(model: Any, shape: str, seen: set[str]) -> bool:
    if shape in seen:
        return False
    seen.add(shape)
    content = model["shapes"][shape]
    members = content.get("members", {}) if content["type"] == "structure" else {}
    if any(_CREDENTIAL.fullmatch(name.lower()) for name in members):
        return True
    inner = [member["shape"] for member in members.values()]
    inner += [content[key]["shape"] for key in ("member", "value") if key in content]
    return any(_holds_credentials(model, name, seen) for name in inner)


if __name__ == "__main__":
    TABLES.write_text(rendered())
