"""What a policy asks of providers: told with the line that asks, before anything is installed."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from egress.credentials.activation import check_activation, unbound
from egress.credentials.providers import ProviderSet, load_providers
from egress.documents.diagnostic import render
from egress.documents.yaml import Document, read
from egress.policy.compile import compile_policy
from egress.policy.compiled import CompiledPolicy

PROVIDERS = """\
version: 1
providers:
  - {name: lake, profile: aws, bundle: {aws_session: {}}}
  - {name: buckets, profile: aws-s3, bundle: {aws_session: {profile: b}}}
  - {name: desk, profile: generic-bearer, values: {API_TOKEN: {env: X}}}
  - {name: build, profile: generic-basic, attach: ["build-*"], values: {API_PASSWORD: {env: Y}}}
"""
BUCKET = "team.s3.eu-west-1.amazonaws.com"


def providers(tmp_path: Path, text: str = PROVIDERS) -> ProviderSet:
    file = tmp_path / "providers.yaml"
    file.write_text(text)
    found = load_providers(file)
    assert isinstance(found, ProviderSet), render(found)
    return found


def policy(text: str, *more: Document) -> CompiledPolicy:
    document = read(text.encode(), "policy.yaml")
    assert isinstance(document, Document)
    compilation = compile_policy([document, *more])
    assert compilation.policy is not None, render(compilation.diagnostics)
    return compilation.policy


def asking(host: str, more: str, path: str = "", ports: str = "port: 443") -> CompiledPolicy:
    endpoint = f"{{host: '{host}', {ports}, protocol: rest, access: full, path: '{path}', {more}}}"
    return policy(f"version: 1\nnetwork_policies:\n  s:\n    endpoints: [{endpoint}]\n    binaries: [{{path: /**}}]\n")


def signed(host: str, more: str = "", path: str = "", ports: str = "port: 443") -> CompiledPolicy:
    return asking(host, f"credential_signing: sigv4{more}", path, ports)


def told(policy: CompiledPolicy, providers: ProviderSet | None, attached: Sequence[str] | None = None) -> str:
    return render(check_activation(policy, providers, attached))


@pytest.mark.parametrize(
    "asked",
    [
        signed(BUCKET, ", credential_binding: {provider: lake}"),
        signed(BUCKET),
        signed(BUCKET, path="/prefix/**"),
        signed("*.s3.us-east-1.amazonaws.com"),
        signed("s3.eu-west-1.amazonaws.com", ", signing_service: s3"),
        asking("desk.example", "credential_binding: {provider: desk}"),
    ],
)
def test_what_fits(tmp_path: Path, asked: CompiledPolicy) -> None:
    assert told(asked, providers(tmp_path)) == ""


PLACE = "policy.yaml:4:17: "
NO_KEYS = "error: credential_signing: no provider has AWS keys for "
REMEDY = "    hint: write `credential_binding: {provider: NAME}`, or attach a provider whose endpoints cover this one\n"
NO_PROVIDER = "    hint: attach a provider of that name in the providers file\n"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (signed("dynamodb.eu-west-1.amazonaws.com"), f"{NO_KEYS}dynamodb.eu-west-1.amazonaws.com:443\n{REMEDY}"),
        (signed(BUCKET, ports="ports: [443, 8443]"), f"{NO_KEYS}{BUCKET}:443,8443\n{REMEDY}"),
        (
            signed("a-*.s3.us-east-1.amazonaws.com", ports="port: 8443"),
            f"{NO_KEYS}a-*.s3.us-east-1.amazonaws.com:8443\n{REMEDY}",
        ),
        (
            asking("desk.example", "credential_binding: {provider: nobody}"),
            f"error: credential_binding: there is no provider `nobody`\n{NO_PROVIDER}",
        ),
        (
            asking("desk.example", 'credential_binding: {provider: " desk"}'),
            f"error: credential_binding: there is no provider ` desk`\n{NO_PROVIDER}",
        ),
        (
            signed(BUCKET, ", credential_binding: {provider: buckets}"),
            f"error: credential_binding: the provider `buckets` has endpoints of its own\n{NO_PROVIDER}",
        ),
        (
            signed(BUCKET, ", credential_binding: {provider: desk}"),
            f"error: credential_signing: the provider `desk` has no AWS keys to sign {BUCKET}:443 with\n",
        ),
        (
            signed("minio.internal.example", ", signing_service: s3, credential_binding: {provider: lake}"),
            "error: credential_signing: the host `minio.internal.example` does not tell the region\n"
            "    hint: write `signing_region`\n",
        ),
        (
            signed("*.corp.example", ", signing_service: s3, credential_binding: {provider: lake}"),
            "warning: credential_signing: the host `*.corp.example` does not tell the region\n"
            "    hint: write `signing_region`\n",
        ),
        (
            signed("x.us-east-1.amazonaws.com", ", signing_service: s3, credential_binding: {provider: lake}"),
            "warning: signing_service: `s3`, but the host stands for `x`\n"
            "    hint: leave `signing_service` out, unless it is meant\n",
        ),
    ],
)
def test_what_does_not_fit(tmp_path: Path, asked: CompiledPolicy, says: str) -> None:
    assert told(asked, providers(tmp_path)) == PLACE + says


def test_only_what_serves_the_agent_counts(tmp_path: Path) -> None:
    found = providers(tmp_path)
    asked = asking("desk.example", "credential_binding: {provider: build}")
    assert told(asked, found, ["build"]) == ""
    says = f"error: credential_binding: the provider `build` is not attached to the agent\n{NO_PROVIDER}"
    assert told(asked, found, ["lake", "desk"]) == PLACE + says
    assert told(signed(BUCKET), found, ["buckets"]) == ""
    assert told(signed(BUCKET), found, ["lake"]) == f"{PLACE}{NO_KEYS}{BUCKET}:443\n{REMEDY}"
    assert told(signed(BUCKET), None) == f"{PLACE}{NO_KEYS}{BUCKET}:443\n{REMEDY}"


def test_a_provider_that_signs_for_itself_is_held_to_it(tmp_path: Path) -> None:
    text = """\
version: 1
providers:
  - name: odd
    profile:
      credentials: [{name: k, env_vars: [OWN_KEY]}]
      endpoints:
        - {host: s3.eu-west-1.amazonaws.com, port: 443, protocol: rest, access: full, credential_signing: sigv4}
    values: {OWN_KEY: {env: X}}
"""
    found = providers(tmp_path, text)
    (document,) = found.derived_policy(["odd"])
    asked = told(policy("version: 1\n", document), found)
    assert asked == f"{tmp_path}/providers.yaml:7:11: {NO_KEYS}s3.eu-west-1.amazonaws.com:443\n{REMEDY}"


def test_values_that_belong_nowhere_are_told(tmp_path: Path) -> None:
    found = providers(tmp_path)
    bound = signed(BUCKET, ", credential_binding: {provider: lake}")
    assert render(unbound(found, [bound])).replace(f"{tmp_path}/", "") == (
        "providers.yaml:5:5: warning: nothing says where the values of `desk` belong: they are withheld\n"
        "    hint: write `credential_binding: {provider: desk}` at an endpoint, or give it `endpoints`\n"
        "providers.yaml:6:5: warning: nothing says where the values of `build` belong: they are withheld\n"
        "    hint: write `credential_binding: {provider: build}` at an endpoint, or give it `endpoints`\n"
    )


def test_a_policy_binds_a_provider_without_endpoints(tmp_path: Path) -> None:
    found = providers(tmp_path)
    bound = signed(BUCKET, ", credential_binding: {provider: lake}", path="/logs/**")
    places = {slot.provider: slot.endpoints for slot in found.slots([bound])}
    assert places["lake"] == ((BUCKET, 443, "/logs/**"),)
    assert "desk" not in places  # nothing binds it: its keys are withheld
    selectors = found.selectors([bound])
    (endpoint,) = bound.entries["s"].endpoints
    assert found.credentialed(endpoint, selectors)


@pytest.mark.parametrize(
    ("host", "ports", "stamped"),
    [
        ("desk.example", "port: 443", True),
        ("*.desk.example", "port: 443", False),
        ("**.s3.eu-west-1.amazonaws.com", "port: 443", True),
        ("a.b.s3.eu-west-1.amazonaws.com", "port: 443", False),
        ("s3.eu-west-1.amazonaws.com", "ports: [80, 443]", True),
        ("s3.eu-west-1.amazonaws.com", "port: 80", False),
        ("other.example", "port: 443", False),
    ],
)
def test_endpoints_that_credentials_may_reach_are_stamped(tmp_path: Path, host: str, ports: str, stamped: bool) -> None:
    """Paths do not count: a connection to the host is open for all of them."""
    found = providers(tmp_path)
    bound = asking("desk.example", "credential_binding: {provider: desk}", path="/v1/**")
    (endpoint,) = asking(host, "enforcement: enforce", path="/other", ports=ports).entries["s"].endpoints
    assert found.credentialed(endpoint, found.selectors([bound])) is stamped
