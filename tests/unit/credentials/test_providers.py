"""providers.yaml: what is read, what is refused and where, what joins the policy, where each key belongs."""

from pathlib import Path

import pytest

from egress.credentials.activation import check_activation
from egress.credentials.placeholder import spell
from egress.credentials.profiles import Catalogue
from egress.credentials.providers import ProviderSet, entry_name, forbidden_key, load_providers
from egress.documents.yaml import Document, read
from egress.policy.compile import compile_policy
from egress.policy.compiled import CompiledPolicy

GOOD = """\
version: 1
providers:
  - name: work-github
    profile: github
    values:
      GITHUB_TOKEN: {env: GH, refresh: 30m}
      GH_TOKEN: {same_as: GITHUB_TOKEN}
  - name: desk
    profile: generic-bearer
    values: {API_TOKEN: {file: token, on_failure: {keep_for: 1h}, expires: +10m}}
    endpoints: [{host: desk.example, port: 443, path: /v1/**, protocol: rest, access: full}]
    binaries: [/usr/bin/curl]
    attach: [agent-*]
    inject: if_absent
"""
POLICY = """\
version: 1
network_policies:
  api:
    endpoints: [{host: x.example, port: 443, protocol: rest, access: full}]
    binaries: [{path: /**}]
"""


def load(tmp_path: Path, text: str) -> ProviderSet | tuple[object, ...]:
    file = tmp_path / "providers.yaml"
    file.write_text(text)
    return load_providers(file)


def loaded(tmp_path: Path, text: str = GOOD) -> ProviderSet:
    found = load(tmp_path, text)
    assert isinstance(found, ProviderSet), [str(one) for one in found]
    return found


def policy(text: str, *more: Document | None) -> CompiledPolicy:
    document = read(text.encode(), "policy.yaml")
    assert isinstance(document, Document)
    compilation = compile_policy([document, *[one for one in more if one is not None]])
    assert compilation.policy is not None, [str(one) for one in compilation.diagnostics]
    return compilation.policy


def test_what_is_read(tmp_path: Path) -> None:
    providers = loaded(tmp_path)
    github, desk = providers.providers
    assert github.values["GITHUB_TOKEN"].scheme == "env"
    assert github.values["GITHUB_TOKEN"].refresh == 1800
    assert github.values["GH_TOKEN"].scheme == "same_as"
    assert desk.values["API_TOKEN"].on_failure == ("keep_for", 3600.0)
    assert desk.managed
    assert providers.find("desk") is desk
    assert providers.find("other") is None


def test_entries_join_the_policy(tmp_path: Path) -> None:
    providers = loaded(tmp_path)
    both = policy(POLICY, providers.derived_policy(["work-github", "desk"]))
    assert sorted(both.entries) == ["_provider_desk", "_provider_work_github", "api"]
    assert [binary.path for binary in both.entries["_provider_desk"].binaries] == ["/usr/bin/curl"]
    one = policy(POLICY, providers.derived_policy(["work-github"]))
    assert "_provider_desk" not in one.entries
    assert providers.derived_policy([]) is None


def test_where_each_key_belongs(tmp_path: Path) -> None:
    providers = loaded(tmp_path)
    slots = {slot.exported: slot for slot in providers.slots([])}
    assert set(slots) == {"GITHUB_TOKEN", "GH_TOKEN", "API_TOKEN"}
    assert slots["API_TOKEN"].endpoints == (("desk.example", 443, "/v1/**"),)
    assert slots["API_TOKEN"].placement is not None
    assert slots["API_TOKEN"].placement.when == "if_absent"
    assert slots["GITHUB_TOKEN"].shape == "ghp_"
    scope = slots["API_TOKEN"].scope
    assert scope is not None
    assert scope.serves("agent-7")
    assert not scope.serves("default")


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("profile: github", "profile: gihtub", 4, "there is no profile `gihtub`"),
        ("{env: GH, refresh: 30m}", "{env: GH, file: x}", 6, "needs exactly one source"),
        ("{env: GH, refresh: 30m}", "{vault: {path: x}}", 6, "install egress-secrets-vault"),
        ("{env: GH, refresh: 30m}", "{envv: GH}", 6, "there is no source `envv`"),
        ("{env: GH, refresh: 30m}", "{env: GH, refresh: often}", 6, "duration"),
        ("      GITHUB_TOKEN: {", "      OTHER: {", 6, "declares no key `OTHER`"),
        ("name: desk", "name: work-github", 8, "named twice"),
        ("endpoints: [{host: desk", "enpoints: [{host: desk", 11, "did you mean `endpoints`"),
        ("port: 443, path", "port: 443, pathh: x, path", 11, "unknown key `pathh`"),
        ("profile: github\n", "profile: github\n    endpoints: [{host: a.example, port: 443}]\n", 5,
         "endpoints of its own"),
        ("version: 1", "version: 2", 1, "must be"),
        ("profile: generic-bearer\n    values: {API_TOKEN: {file: token, on_failure: {keep_for: 1h}, expires: +10m}}",
         "profile: generic-bearer", 8, "requires the credential"),
    ],
)  # fmt: skip
def test_every_fault_is_found_where_it_is(tmp_path: Path, old: str, new: str, line: int, says: str) -> None:
    assert old in GOOD
    found = load(tmp_path, GOOD.replace(old, new, 1))
    assert isinstance(found, tuple), found
    assert any(says in str(one) and f":{line}:" in str(one) for one in found), [str(one) for one in found]


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    found = load(tmp_path, GOOD.replace("profile: github", "profile: x").replace("{file: token,", "{fil: token,"))
    assert isinstance(found, tuple)
    assert len(found) == 2


def test_two_providers_of_one_key(tmp_path: Path) -> None:
    twice = GOOD + "  - {name: other, profile: gh, values: {GITHUB_TOKEN: {env: B}}}\n"
    found = load(tmp_path, twice)
    assert isinstance(found, tuple)
    assert "both have the key `GITHUB_TOKEN`" in str(found[0])
    aws = "version: 1\nproviders:\n" + "".join(
        f"  - {{name: acc-{name}, profile: aws-s3, bundle: {{aws_session: {{profile: {name}}}}}}}\n" for name in "ab"
    )
    exported = [slot.exported for slot in loaded(tmp_path, aws).slots([])]
    assert exported[0] == "AWS_ACCESS_KEY_ID"
    assert exported[3] == "AWS_ACCESS_KEY_ID__acc_b"


def test_an_inline_profile(tmp_path: Path) -> None:
    text = """\
version: 1
providers:
  - name: own
    profile:
      credentials: [{name: k, env_vars: [OWN_KEY], auth_style: header, header_name: X-Key}]
      endpoints: [{host: own.example, port: 8443, protocol: rest, access: full, enforcement: enforce}]
    values: {OWN_KEY: {command: [pass, show, own]}}
"""
    (slot,) = loaded(tmp_path, text).slots([])
    assert slot.endpoints == (("own.example", 8443, ""),)
    found = load(tmp_path, text.replace("auth_style: header", "auth_style: magic"))
    assert isinstance(found, tuple)


@pytest.mark.parametrize("key", ["PATH", "LD_PRELOAD", "https_proxy", "NODE_OPTIONS", "PYTHONPATH", "SSL_CERT_FILE"])
def test_keys_that_would_steer_the_workload(key: str) -> None:
    assert forbidden_key(key)
    assert not forbidden_key("API_TOKEN")
    assert spell(key)


@pytest.mark.parametrize(
    ("name", "entry"),
    [("work-github", "_provider_work_github"), ("A.b", "_provider_a_b"), ("--", "_provider_unnamed")],
)
def test_names_of_entries(name: str, entry: str) -> None:
    assert entry_name(name) == entry


# what a policy asks of providers --------------------------------------------------------------------------------------

AWS = """\
version: 1
providers:
  - {name: lake, profile: aws, bundle: {aws_session: {}}}
  - {name: buckets, profile: aws-s3, bundle: {aws_session: {profile: b}}}
  - {name: desk, profile: generic-bearer, values: {API_TOKEN: {env: X}}}
"""


def signed(host: str, more: str = "", path: str = "") -> str:
    where = f"host: '{host}', port: 443, protocol: rest, access: full, path: '{path}'"
    endpoint = f"{{{where}, credential_signing: sigv4, signing_service: s3{more}}}"
    return f"version: 1\nnetwork_policies: {{s: {{endpoints: [{endpoint}], binaries: [{{path: /**}}]}}}}\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (signed("team.s3.eu-west-1.amazonaws.com", ", credential_binding: {provider: lake}"), ""),
        (signed("team.s3.eu-west-1.amazonaws.com"), ""),
        (signed("*.s3.us-east-1.amazonaws.com"), ""),
        (signed("dynamodb.eu-west-1.amazonaws.com"), "no provider has AWS keys"),
        (signed("x.s3.eu-west-1.amazonaws.com", ", credential_binding: {provider: nobody}"), "no provider `nobody`"),
        (
            signed("x.s3.eu-west-1.amazonaws.com", ", credential_binding: {provider: buckets}"),
            "has endpoints of its own",
        ),
        (signed("x.s3.eu-west-1.amazonaws.com", ", credential_binding: {provider: desk}"), "has no AWS keys"),
    ],
)
def test_a_signed_endpoint_needs_a_source(tmp_path: Path, text: str, says: str) -> None:
    found = check_activation(policy(text), loaded(tmp_path, AWS))
    assert bool(found) is bool(says)
    assert all(says in str(one) for one in found)


def test_a_policy_binds_a_provider_without_endpoints(tmp_path: Path) -> None:
    providers = loaded(tmp_path, AWS)
    bound = policy(signed("team.s3.eu-west-1.amazonaws.com", ", credential_binding: {provider: lake}"))
    places = {slot.provider: slot.endpoints for slot in providers.slots([bound])}
    assert places["lake"] == (("team.s3.eu-west-1.amazonaws.com", 443, ""),)
    assert "desk" not in places  # nothing binds it: its keys are withheld
    endpoint = bound.entries["s"].endpoints[0]
    assert providers.credentialed(endpoint, providers.selectors([bound]))
    other = policy(POLICY).entries["api"].endpoints[0]
    assert not providers.credentialed(other, providers.selectors([bound]))


def test_the_whole_catalogue_joins_a_policy(tmp_path: Path) -> None:
    lines = ["version: 1", "providers:"]
    for name in Catalogue().names:
        profile = Catalogue().find(name)
        assert profile is not None
        if profile.model.endpoints:
            key = next(iter(profile.keys))
            lines += [f"  - {{name: p-{name}, profile: {name}, values: {{{key}: {{env: X}}}}}}"]
            file = tmp_path / "one.yaml"
            file.write_text("\n".join([*lines[:2], lines[-1]]))
            found = load_providers(file)
            assert isinstance(found, ProviderSet), found
            policy(POLICY, found.derived_policy([f"p-{name}"]))
