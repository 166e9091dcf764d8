"""providers.yaml: what is read, what is refused and where, what joins the policy, where each key belongs."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egress.credentials.activation import check_activation
from egress.credentials.document import ProviderModel
from egress.credentials.placeholder import spell
from egress.credentials.profile_rules import forbidden_key
from egress.credentials.profiles import Catalogue
from egress.credentials.providers import ProviderSet, entry_name, load_providers, profile_files
from egress.credentials.scope import Place
from egress.credentials.snapshot import Credential, CredentialSnapshot
from egress.documents.diagnostic import has_errors
from egress.documents.yaml import Document, read
from egress.model.secret import Secret
from egress.policy.compile import compile_policy
from egress.policy.compiled import CompiledPolicy, Enforcement

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


def policy(text: str, *more: Document) -> CompiledPolicy:
    document = read(text.encode(), "policy.yaml")
    assert isinstance(document, Document)
    compilation = compile_policy([document, *more])
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
    both = policy(POLICY, *providers.derived_policy(["work-github", "desk"]))
    assert sorted(both.entries) == ["_provider_desk", "_provider_work_github", "api"]
    assert [binary.path for binary in both.entries["_provider_desk"].binaries] == ["/usr/bin/curl"]
    one = policy(POLICY, *providers.derived_policy(["work-github"]))
    assert "_provider_desk" not in one.entries
    assert providers.derived_policy([]) == ()


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


def accounts(first: str, second: str) -> str:
    """Two AWS identities, each with its buckets."""
    lines = ["version: 1", "providers:"]
    for name, bucket in (("acc-a", first), ("acc-b", second)):
        endpoint = f"{{host: '{bucket}.s3.eu-west-1.amazonaws.com', port: 443, protocol: rest, access: full, "
        endpoint += "credential_signing: sigv4, signing_service: s3}"
        head = f"{{name: {name}, profile: aws, bundle: {{aws_session: {{profile: p}}}}"
        lines.append(f"  - {head}, endpoints: [{endpoint}]}}")
    return "\n".join(lines)


def test_aws_identities_share_names(tmp_path: Path) -> None:
    slots = loaded(tmp_path, accounts("a", "b")).slots([])
    assert [(slot.provider, slot.exported, slot.endpoints[0][0].partition(".")[0]) for slot in slots] == [
        ("acc-a", "AWS_ACCESS_KEY_ID", "a"),
        ("acc-a", "AWS_SECRET_ACCESS_KEY", "a"),
        ("acc-a", "AWS_SESSION_TOKEN", "a"),
        ("acc-b", "AWS_ACCESS_KEY_ID__acc_b", "b"),
        ("acc-b", "AWS_SECRET_ACCESS_KEY__acc_b", "b"),
        ("acc-b", "AWS_SESSION_TOKEN__acc_b", "b"),
    ]


def test_two_identities_for_one_endpoint_are_refused(tmp_path: Path) -> None:
    found = load(tmp_path, accounts("a", "*"))
    assert isinstance(found, tuple)
    assert [str(one).removeprefix(f"{tmp_path}/") for one in found] == [
        "providers.yaml:4:5: error: the providers `acc-a` and `acc-b` would both sign for the same endpoints\n"
        "    hint: give them different `endpoints`, or attach them to different agents"
    ]


def test_agents_may_have_their_own_value_of_a_key(tmp_path: Path) -> None:
    lines = [
        f"  - {{name: hub-{agent}, profile: github, attach: [{agent}], values: {{GITHUB_TOKEN: {{env: {agent}}}}}}}"
        for agent in ("build", "review")
    ]
    slots = loaded(tmp_path, "\n".join(["version: 1", "providers:", *lines])).slots([])
    assert [slot.exported for slot in slots] == ["GITHUB_TOKEN", "GITHUB_TOKEN__hub_review"]
    credentials = [
        Credential(slot.provider, slot.exported, Secret(f"value-{slot.provider}"), slot.scope, handle=f"{index:064x}")
        for index, slot in enumerate(slots)
    ]
    snapshot = CredentialSnapshot.empty().next(credentials)
    for index, agent in enumerate(("build", "review")):
        named = snapshot.placeholders(agent)
        assert named == {"GITHUB_TOKEN": spell(slots[index].exported, handle=f"{index:064x}")}
        resolver = snapshot.resolver(Place("api.github.com", 443, "/", "GET", agent, ()), 0)
        assert resolver is not None
        assert resolver.resolve(named["GITHUB_TOKEN"].encode()) == Secret(f"value-hub-{agent}")
    assert snapshot.placeholders("other") == {}


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


@pytest.mark.parametrize("name", Catalogue().names)
def test_the_whole_catalogue_joins_a_policy(tmp_path: Path, name: str) -> None:
    profile = Catalogue().find(name)
    assert profile is not None
    values = ", ".join(f"{key}: {{env: X}}" for key in profile.keys)
    providers = loaded(tmp_path, f"version: 1\nproviders: [{{name: p, profile: {name}, values: {{{values}}}}}]\n")
    assert providers.diagnostics == ()
    both = policy(POLICY, *providers.derived_policy(["p"]))
    assert ("_provider_p" in both.entries) is bool(profile.model.endpoints)
    assert check_activation(both, providers) == []
    stamped = [providers.credentialed(one, providers.selectors([both])) for one in both.entries["api"].endpoints]
    assert stamped == [False]


# what profiles add ----------------------------------------------------------------------------------------------------

OWN = """\
id: ticket-desk
display_name: Ticket Desk
credentials:
  - {name: token, env_vars: [DESK_TOKEN, DESK_TOKEN_OLD], auth_style: header, header_name: X-Desk}
endpoints:
  - host: desk.example
    port: 443
    protocol: rest
    rules: [{allow: {method: GET, path: /v1/**, query: {q: {any: ["a*", b]}}}}]
  - {host: files.desk.example, port: 443, protocol: rest, access: read-only}
"""
DESK = """\
version: 1
profile_dirs: [profiles]
providers:
  - {name: desk, profile: ticket-desk, inject: always, values: {DESK_TOKEN: {env: A}, DESK_TOKEN_OLD: {env: B}}}
"""


def with_profile(tmp_path: Path, profile: str = OWN, text: str = DESK) -> ProviderSet:
    (tmp_path / "profiles").mkdir(exist_ok=True)
    (tmp_path / "profiles" / "desk.yaml").write_text(profile)
    return loaded(tmp_path, text)


def test_an_entry_says_what_the_profile_says(tmp_path: Path) -> None:
    audited = OWN.replace("read-only}", "read-only, enforcement: audit}")
    (document,) = with_profile(tmp_path, audited).derived_policy(["desk"])
    first, second = policy(POLICY, document).entries["_provider_desk"].endpoints
    assert first.location == f"{tmp_path}/profiles/desk.yaml:6:5"
    assert first.enforcement is Enforcement.ENFORCE  # what a profile allows is not up to the policy's default
    assert second.enforcement is Enforcement.AUDIT
    assert len(first.rules) == 1


def test_what_a_policy_would_not_take_is_told_where_the_profile_says_it(tmp_path: Path) -> None:
    wrong = OWN.replace("access: read-only", "rules: [{allow: {method: GET, operation_type: query}}]")
    (document,) = with_profile(tmp_path, wrong).derived_policy(["desk"])
    found = compile_policy([document])
    assert found.policy is None
    assert {one.location.line for one in found.diagnostics} == {10}
    assert {one.location.file for one in found.diagnostics} == {f"{tmp_path}/profiles/desk.yaml"}


def test_a_value_is_placed_once(tmp_path: Path) -> None:
    """Two variables of one credential are one field of a request."""
    slots = with_profile(tmp_path).slots([])
    assert [(slot.key, slot.placement and slot.placement.when) for slot in slots] == [
        ("DESK_TOKEN", "always"),
        ("DESK_TOKEN_OLD", "never"),
    ]


def test_a_key_may_be_for_some_endpoints_only(tmp_path: Path) -> None:
    narrow = OWN.replace("X-Desk}", "X-Desk, endpoints: [1]}")
    assert {slot.endpoints for slot in with_profile(tmp_path, narrow).slots([])} == {(("files.desk.example", 443, ""),)}


def test_a_changed_profile_is_a_change(tmp_path: Path) -> None:
    before = with_profile(tmp_path)
    assert with_profile(tmp_path, OWN + "# comment\n").digest == before.digest
    assert with_profile(tmp_path, OWN.replace("X-Desk", "X-Key")).digest != before.digest
    assert with_profile(tmp_path, text=DESK.replace("env: B", "env: C")).digest != before.digest
    assert before.files == (tmp_path / "providers.yaml", tmp_path / "profiles", tmp_path / "profiles" / "desk.yaml")
    assert all(before.made_of(f"{tmp_path}/{name}") for name in ("providers.yaml", "profiles", "profiles/new.yaml"))
    assert not any(before.made_of(f"{tmp_path}/{name}") for name in ("policy.yaml", "other/new.yaml"))
    assert profile_files(tmp_path / "providers.yaml") == [tmp_path / "profiles", tmp_path / "profiles" / "desk.yaml"]


@pytest.mark.parametrize("text", ["", "profile_dirs: x", "[]", "profile_dirs: [1]", "\x00"])
def test_no_directories_of_what_cannot_be_read(tmp_path: Path, text: str) -> None:
    file = tmp_path / "providers.yaml"
    assert profile_files(file) == []
    file.write_text(text)
    assert profile_files(file) == []


def test_faults_of_own_profiles(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "again.yaml").write_text(OWN)
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "desk.yml").write_text(OWN)
    (tmp_path / "profiles" / "other.json").write_text('{"id": "other", "display_name": "Other", "vendor": 1}')
    (tmp_path / "profiles" / "same.yaml").write_text(OWN)
    (tmp_path / "profiles" / "wrong.yaml").write_text("id: [")
    (tmp_path / "profiles" / "README.md").write_text("not a profile")
    found = load(tmp_path, DESK.replace("[profiles]", "[profiles, more, missing]"))
    assert isinstance(found, tuple)
    assert [str(one).partition("\n")[0].replace(f"{tmp_path}/", "") for one in found] == [
        "profiles/other.json:1:42: warning: unknown key `vendor`",
        "profiles/same.yaml:1:5: error: `ticket-desk` is defined in profiles/desk.yml already",
        "profiles/wrong.yaml:2:1: error: not valid YAML: did not find expected node content",
        "providers.yaml:2:26: error: profile_dirs[1]: `ticket-desk` in more/again.yaml is defined in profiles/desk.yml "
        "already",
        "missing: error: is no directory",
    ]


def test_an_own_profile_takes_the_place_of_a_bundled_one(tmp_path: Path) -> None:
    own = OWN.replace("id: ticket-desk", "id: github")
    text = DESK.replace("profile: ticket-desk", "profile: gh")
    assert with_profile(tmp_path, own, text).providers[0].profile.model.display_name == "Ticket Desk"


def test_facts_are_not_for_the_environment(tmp_path: Path) -> None:
    text = """\
version: 1
providers:
  - {name: cloud, profile: gcp, values: {GCP_SA_ACCESS_TOKEN: {env: A}}, config: {project_id: p, region: r}}
  - {name: desk, profile: generic-bearer, values: {API_TOKEN: {env: B}}, config: {API_HOST: h}}
"""
    cloud, desk = loaded(tmp_path, text).providers
    assert (cloud.config, cloud.fixed) == ({"project_id": "p", "region": "r"}, {})
    assert desk.fixed == {"API_HOST": "h"}


REFRESH = """\
version: 1
providers:
  - name: crm
    profile:
      credentials:
        - name: token
          env_vars: [CRM_TOKEN]
          refresh:
            strategy: oauth2_client_credentials
            token_url: https://login.example/token
            scopes: [crm.read]
            refresh_before_seconds: 60
            max_lifetime_seconds: 1800
      endpoints: [{host: crm.example, port: 443, protocol: rest, access: full}]
    values: {CRM_TOKEN: {oauth2: {client_id: me, client_secret: {env: S}}}}
"""


def test_a_source_follows_the_profile(tmp_path: Path) -> None:
    spec = loaded(tmp_path, REFRESH).providers[0].values["CRM_TOKEN"]
    assert spec.fields == {
        "strategy": "oauth2_client_credentials",
        "token_url": "https://login.example/token",
        "scopes": ["crm.read"],
        "max_lifetime": 1800,
        "client_id": "me",
        "client_secret": {"env": "S"},
    }
    assert spec.refresh_before == 60.0


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        ("client_id: me,", "tenant_id: corp, client_id: me, scopes: [x],", {"tenant_id": "corp", "scopes": ["x"]}),
        ("client_id: me,", "token_url: https://other.example/t,", {"token_url": "https://other.example/t"}),
    ],
)
def test_what_the_instance_says_counts(tmp_path: Path, old: str, new: str, fields: dict[str, object]) -> None:
    spec = loaded(tmp_path, REFRESH.replace(old, new)).providers[0].values["CRM_TOKEN"]
    assert {key: spec.fields[key] for key in fields} == fields
    assert ("token_url" in spec.fields) is ("tenant_id" not in fields)


def test_other_sources_do_not_follow_it(tmp_path: Path) -> None:
    text = REFRESH.replace("{oauth2: {client_id: me, client_secret: {env: S}}}", "{command: [get], refresh_before: 1s}")
    spec = loaded(tmp_path, text).providers[0].values["CRM_TOKEN"]
    assert (spec.fields, spec.refresh_before) == (["get"], 1.0)


def test_defaults_of_the_file_and_what_a_value_says(tmp_path: Path) -> None:
    text = """\
version: 1
defaults: {refresh: never, timeout: 3s, on_failure: keep_until_expiry, handle: revision, retain: generations}
providers:
  - {name: a, profile: openai, values: {OPENAI_API_KEY: {env: A}}}
  - name: b
    profile: nvidia
    handle: stable
    values: {NVIDIA_API_KEY: {env: A, refresh: 5, timeout: 1, on_failure: revoke}}
"""
    found = loaded(tmp_path, text)
    one, other = found.providers
    spec, own = one.values["OPENAI_API_KEY"], other.values["NVIDIA_API_KEY"]
    assert (spec.refresh, spec.timeout, spec.on_failure) == (None, 3.0, ("keep_until_expiry", 0.0))
    assert (own.refresh, own.timeout, own.on_failure) == (5.0, 1.0, ("revoke", 0.0))
    assert (one.managed, other.managed, found.retain) == (False, True, "generations")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    found = load_providers(tmp_path / "none.yaml")
    assert isinstance(found, tuple)
    assert str(found[0]) == f"{tmp_path}/none.yaml: error: cannot be read: No such file or directory"


def _nested(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    keys = st.sampled_from((*ProviderModel.model_fields, "x"))
    return st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=6), _nested, max_leaves=12))
@settings(max_examples=40, deadline=None)
def test_whatever_a_file_says_it_is_read_or_refused(data: object) -> None:
    """Never an exception, whatever an operator writes."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "providers.yaml"
        file.write_text(json.dumps({"version": 1, "providers": [data]}))
        found = load_providers(file)
    assert isinstance(found, ProviderSet) or has_errors(found)


def test_the_documentation_is_right(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "credentials.md").read_text()
    providers, profile = (part.partition("```")[0] for part in text.split("```yaml\n")[1:3])
    found = with_profile(tmp_path, profile, providers)
    assert [one.name for one in found.providers] == ["work-github", "lake", "desk"]
    assert found.diagnostics == ()
    policy(POLICY, *found.derived_policy(["work-github", "desk"]))
