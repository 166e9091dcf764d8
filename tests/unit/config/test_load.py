"""Loading: where settings come from, who wins, and that a failure tells everything with its place."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from egress.config.load import Loaded, find_file, load
from egress.config.overrides import Flags
from egress.documents.diagnostic import render

MINIMAL = "version: 1\npolicy: {file: policy.yaml}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    return tmp_path / "egress.yaml"


def settled(text: str, file: Path, environment: Mapping[str, str] | None = None, **flags: object) -> Loaded:
    file.write_text(text)
    file.chmod(0o644)
    found = load(Flags(config=file, **flags), environment or {})  # type: ignore[arg-type]
    assert isinstance(found, Loaded), render(found)
    return found


def refused(text: str, file: Path, environment: Mapping[str, str] | None = None, **flags: object) -> list[str]:
    """The messages of a failed load, `line:column message` for those of the file."""
    file.write_text(text)
    file.chmod(0o644)
    found = load(Flags(config=file, **flags), environment or {})  # type: ignore[arg-type]
    assert isinstance(found, tuple)
    return [
        f"{item.location}: {item.message}".removeprefix(f"{file}:") for item in sorted(found, key=lambda d: d.location)
    ]


def test_a_policy_alone_is_a_complete_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("egress.config.load.SYSTEM_FILE", tmp_path / "none.yaml")
    monkeypatch.chdir(tmp_path)
    found = load(Flags(policy=(Path("p.yaml"),)), {"XDG_CONFIG_HOME": str(tmp_path)})
    assert isinstance(found, Loaded)
    assert found.file is None
    assert found.settings.policy.file == (tmp_path / "p.yaml",)
    assert [str(address) for address in found.settings.listen.proxy] == ["127.0.0.1:3128"]
    assert dict(found.settings.policy_files) == {"default": (tmp_path / "p.yaml",)}


def test_nothing_at_all_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("egress.config.load.SYSTEM_FILE", tmp_path / "none.yaml")
    found = load(Flags(), {"XDG_CONFIG_HOME": str(tmp_path)})
    assert isinstance(found, tuple)
    assert render(found) == (
        "defaults: error: policy: nothing says which policy applies\n"
        "    hint: set `policy.file`, or start with `--policy FILE`\n"
    )


def test_search_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system, user = tmp_path / "system.yaml", tmp_path / "egress" / "egress.yaml"
    monkeypatch.setattr("egress.config.load.SYSTEM_FILE", system)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert find_file(None, environment) is None
    system.touch()
    assert find_file(None, environment) == system
    user.parent.mkdir()
    user.touch()
    assert find_file(None, environment) == user
    assert find_file(None, environment | {"EGRESS_CONFIG": "/named.yaml"}) == Path("/named.yaml")
    assert find_file(Path("/flag.yaml"), environment | {"EGRESS_CONFIG": "/named.yaml"}) == Path("/flag.yaml")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert find_file(None, environment) == system


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    found = load(Flags(config=tmp_path / "none.yaml"), {})
    assert isinstance(found, tuple)
    assert render(found) == f"{tmp_path}/none.yaml: error: cannot be read: No such file or directory\n"


def test_paths_are_relative_to_the_file(file: Path) -> None:
    settings = settled("version: 1\npolicy: {file: [a.yaml, /b.yaml]}\ntls: {ca_dir: x/ca}\n", file).settings
    assert settings.policy.file == (file.parent / "a.yaml", Path("/b.yaml"))
    assert settings.ca_dir == file.parent / "x/ca"


def test_flags_win_and_are_relative_to_here(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    text = MINIMAL + "listen: {proxy: '127.0.0.1:1'}\nevents: {jsonl: {path: x, fsync: off}}\nlogs: {level: error}\n"
    settings = settled(
        text,
        file,
        policy=(Path("mine.yaml"),),
        listen="127.0.0.1:0",
        state_dir=Path("state"),
        events="out.jsonl",
        log_level="debug",
    ).settings
    assert settings.policy.file == (here / "mine.yaml",)
    assert str(settings.listen.proxy[0]) == "127.0.0.1:0"
    assert settings.state == here / "state"
    assert (settings.events.jsonl.path, settings.events.jsonl.fsync) == (here / "out.jsonl", "off")
    assert settings.events.shorthand.enabled is False
    assert settings.logs.level == "debug"


def test_events_to_standard_output_are_no_file(file: Path) -> None:
    assert settled(MINIMAL, file, events="-").settings.events.jsonl.path == Path("-")


def test_a_wrong_flag_is_named(file: Path) -> None:
    assert refused(MINIMAL, file, listen="nowhere") == [
        "--listen: listen.proxy: the port is missing or not a number from 0 to 65535"
    ]


def test_everything_wrong_is_told_at_once(file: Path) -> None:
    text = (
        "version: 1\n"
        "lisen: {proxy: '127.0.0.1:3128'}\n"
        "timeouts: {head: soon, connect: off}\n"
        "limits: {connections: many}\n"
        "identity: {mode: strict}\n"
        "reload: {grace: 5m}\n"
    )
    assert refused(text, file, log_level="loud") == [
        "--log-level: logs.level: must be one of `debug`, `info`, `warning` or `error`",
        "2:1: unknown key `lisen`",
        "3:18: timeouts.head: must be a duration",
        "3:33: timeouts.connect: must be a duration",
        "4:23: limits.connections: must be a whole number above 0",
        "5:18: identity.mode: must be one of `required`, `optional` or `off`",
        "6:17: reload.grace: must be at most 30s",
    ]


@pytest.mark.parametrize(
    ("text", "place", "key"),
    [
        ("workers: 2", "3:1", "workers"),
        ("middleware: {mandatory: {x: {middleware: y}}}", "3:1", "middleware"),
        ("middleware: {remote: [{name: x}]}", "3:1", "middleware"),
        ("inference: {routes_file: r.yaml}", "3:1", "inference"),
        ("gateway: {mode: follow}", "3:1", "gateway"),
        ("events: {sinks: [{type: syslog}]}", "3:10", "events.sinks"),
        ("admin: {tcp: {enabled: true}}", "3:9", "admin.tcp"),
        ("reload: {history: 3}", "3:10", "reload.history"),
        ("store: {backend: redis}", "3:1", "store"),
        ("plugins: {settings: {x: {y: 1}}}", "3:11", "plugins.settings"),
        ("policy_local: {proposals: true}", "3:1", "policy_local"),
        ("advisor: {auto_approve: {daily: 3}}", "3:1", "advisor"),
    ],
)
def test_features_of_other_versions_are_refused(file: Path, text: str, place: str, key: str) -> None:
    assert refused(f"{MINIMAL}{text}\n", file) == [f"{place}: {key}: not available in this version"]


def test_their_defaults_may_be_written(file: Path) -> None:
    text = "workers: 1\ngateway: {mode: off}\nadmin: {tcp: {enabled: false}}\nmiddleware: {}\nevents: {sinks: []}\n"
    assert settled(MINIMAL + text, file).settings.workers == 1


def test_single_values_of_other_versions_are_refused(file: Path) -> None:
    text = "version: 1\npolicy: {file: p, start_without_valid: lkg, approved: a.yaml, shadow: {file: s}}\n"
    assert refused(text, file) == [
        "2:19: policy.start_without_valid: not available in this version",
        "2:45: policy.approved: not available in this version",
        "2:63: policy.shadow: not available in this version",
    ]


def test_substitution_is_never_taken_literally(file: Path) -> None:
    text = "version: 1\npolicy: {file: '${env:POLICY}'}\nresolver: {servers: ['${file:x}']}\n"
    assert refused(text, file) == [
        "2:16: policy.file: substitution is not available in this key",
        "3:22: resolver.servers[0]: substitution is not available in this key",
        "3:22: resolver.servers[0]: the port is missing or not a number from 0 to 65535",
    ]


class TestOpenShellVariables:
    def test_they_name_what_we_have(self, file: Path) -> None:
        environment = {
            "OPENSHELL_POLICY_DATA": "/p.yaml",
            "OPENSHELL_PROXY_TLS_DIR": "/tls",
            "OPENSHELL_LOG_LEVEL": "WARN",
            "OPENSHELL_SANDBOX_ID": "ignored",
        }
        settings = settled("version: 1\n", file, environment).settings
        assert settings.policy.file == (Path("/p.yaml"),)
        assert settings.ca_dir == Path("/tls")
        assert settings.logs.level == "warning"

    @pytest.mark.parametrize("word", ["relaxed", "disabled", "endpoint-only", "false", "0"])
    def test_relaxed_identity_is_off_and_said_so(self, file: Path, word: str) -> None:
        found = settled(MINIMAL, file, {"OPENSHELL_NETWORK_BINARY_IDENTITY": word})
        assert found.settings.identity.mode == "off"
        assert [warning.location.file for warning in found.warnings] == ["OPENSHELL_NETWORK_BINARY_IDENTITY"]

    def test_an_unknown_identity_word_is_an_error(self, file: Path) -> None:
        assert refused(MINIMAL, file, {"OPENSHELL_NETWORK_BINARY_IDENTITY": "lenient"}) == [
            "OPENSHELL_NETWORK_BINARY_IDENTITY: identity.mode: must be one of `required`, `optional` or `off`"
        ]

    def test_a_variable_and_a_key_must_agree(self, file: Path) -> None:
        text = MINIMAL + "tls: {ca_dir: ca}\n"
        assert refused(text, file, {"OPENSHELL_PROXY_TLS_DIR": "/other"}) == [
            "3:15: tls.ca_dir: differs from what OPENSHELL_PROXY_TLS_DIR says"
        ]
        same = settled(text, file, {"OPENSHELL_PROXY_TLS_DIR": str(file.parent / "ca")})
        assert same.settings.ca_dir == file.parent / "ca"

    def test_a_flag_wins_over_a_variable(self, file: Path) -> None:
        found = settled("version: 1\n", file, {"OPENSHELL_POLICY_DATA": "/theirs"}, policy=(Path("/ours"),))
        assert found.settings.policy.file == (Path("/ours"),)

    def test_what_we_do_not_have_is_refused_under_its_name(self, file: Path) -> None:
        assert refused(MINIMAL, file, {"OPENSHELL_INFERENCE_ROUTES": "/r.yaml"}) == [
            "OPENSHELL_INFERENCE_ROUTES: inference: not available in this version"
        ]

    def test_rego_is_not_read(self, file: Path) -> None:
        found = settled(MINIMAL, file, {"OPENSHELL_POLICY_RULES": "/x.rego"})
        assert [warning.message for warning in found.warnings] == ["policies in Rego are not read"]


def test_settings_cannot_be_changed(file: Path) -> None:
    settings = settled(MINIMAL, file).settings
    with pytest.raises(ValueError, match="frozen"):
        settings.listen.proxy = ()


def test_a_document_that_is_no_mapping(file: Path) -> None:
    assert refused("- 1\n", file) == ["1:1: must be a mapping"]


def test_a_file_that_others_may_write_is_refused(file: Path) -> None:
    settled(MINIMAL, file)
    file.chmod(0o666)
    found = load(Flags(config=file), {})
    assert isinstance(found, tuple)
    assert [item.message for item in found] == ["may be written by everybody"]
    file.write_text(MINIMAL + "reload: {check_origin: off}\n")
    assert isinstance(load(Flags(config=file), {}), Loaded)
